"""What every source of a job is: a protocol, and the values that it takes and gives.

Owns the words between the runner and a source: limits, the operator's choices, a plan, a lag.
Must never know a kind of source. The position is the ledger's: a source keeps no state of its own,
so a restart is another plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from odi_audit.errors import UsageError
from odi_audit.ids import BatchId, JobName, batch_id
from odi_audit.ledger.port import Position
from odi_audit.model.offsets import Offsets, Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_MAX = 1_000_000
"""A batch is held in memory more than once on its way; what is larger is cut in several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How large a batch may be, and how long it may wait to become that large.

    A batch is due when one of ``rows`` and ``bytes`` is full or ``seconds`` have passed since the
    last one, whichever comes first. ``bytes`` is kept by estimate: a source knows how many rows it
    has, but not how long they are, before it has read them.
    """

    rows: int = ROWS_MAX
    bytes: int | None = None
    seconds: float = 0

    def __post_init__(self) -> None:
        if self.rows < 1 or (self.bytes is not None and self.bytes < 1) or self.seconds < 0:
            raise UsageError(
                "a batch needs room for a row: "
                f"rows {self.rows}, bytes {self.bytes}, seconds {self.seconds:g}"
            )

    def times(self, factor: int) -> Limits:
        """Return limits that are so many times as wide."""
        wide = None if self.bytes is None else self.bytes * factor
        return replace(self, rows=self.rows * factor, bytes=wide)

    def rows_max(self, row_bytes: float | None) -> int:
        """Return how many rows a batch may have, where a row is known to have so many bytes."""
        if self.bytes is None or not row_bytes or row_bytes <= 0:
            return self.rows
        return max(1, min(self.rows, int(self.bytes / row_bytes)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What the operator decided after a source stopped the job.

    ``accept_gap`` is the reason why missing records may be missing; ``generation`` above zero
    allows a source that is not the one it was to be read from its beginning.
    """

    accept_gap: str | None = None
    generation: int = 0

    def __post_init__(self) -> None:
        if self.generation < 0:
            raise UsageError(f"generation {self.generation} is below zero")
        if self.accept_gap is not None and not self.accept_gap.strip():
            raise UsageError("a gap is accepted for a reason: it is recorded for good")


NO_CHOICES = Choices()
ACCEPT_GAP, REPLAY = "accept-gap", "replay"
"""What a refusal's fact ``choice`` may say: by which option the operator can let the job go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Records of one partition that are gone unread: from ``start`` to before ``end``."""

    partition: str
    start: Place
    end: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The next batch: which part of the source it holds, and what the operator allowed for it.

    ``rows`` is how many rows it has at most. ``more`` says that the limits cut it: plan again at
    once. ``accept_gap`` and ``generation`` go to the batch as they are; both are empty where the
    plan does not need them, whatever was allowed. ``news`` are sentences about what was not there
    before (a new topic, a new partition).
    """

    offsets: Offsets
    rows: int
    more: bool = False
    accept_gap: str | None = None
    generation: int = 0
    gaps: tuple[Gap, ...] = ()
    news: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far a job is behind its source: rows per partition, and the age of the oldest unread."""

    rows: Mapping[str, int] = field(default_factory=dict)
    seconds: float | None = None

    @property
    def total(self) -> int:
        """Rows behind, in all."""
        return sum(self.rows.values())


def batch_of(job: JobName, offsets: Offsets, generation: int) -> BatchId:
    """Return the id that the committer gives to this work, before it is asked to do it."""
    return batch_id(
        job=job,
        source=offsets.source,
        start=offsets.start(),
        end=offsets.end(),
        generation=generation,
    )


class Source(Protocol):
    """Something that a job reads in batches.

    ``positions`` are always those of the ledger for :meth:`identity`; ``elsewhere`` names the
    sources under which the job has positions, but which are not this one.
    """

    def identity(self) -> str:
        """Return the name under which the ledger keeps positions; asks the source if it must.

        Raises:
            SourceUnavailable, SourceDenied: it could not be asked.
        """
        ...

    def plan(
        self,
        positions: Mapping[str, Position],
        limits: Limits,
        *,
        choices: Choices = NO_CHOICES,
        elsewhere: Sequence[str] = (),
        waited_s: float = float("inf"),
    ) -> Plan | None:
        """Return the next batch, or None while none is due.

        Raises:
            Refused: the source is not what the positions say; the message names the choices.
            SourceUnavailable, SourceDenied, SourceNotFound: nothing could be planned.
        """
        ...

    def frame(self, spark: SparkSession, plan: Plan) -> DataFrame:
        """Return the rows of a plan: the same rows whenever it is asked."""
        ...

    def lag(self, positions: Mapping[str, Position]) -> Lag:
        """Return how far the positions are behind the source now."""
        ...


def share(backlog: Mapping[str, int], rows: int, served: Mapping[str, int]) -> dict[str, int]:
    """Split a number of rows over partitions: evenly, what one does not need going to the others.

    Where not even one row is left for each, those served longest ago come first: a partition with
    few rows never waits for one with many.
    """
    granted = dict.fromkeys(backlog, 0)
    waiting = {name: count for name, count in sorted(backlog.items()) if count > 0}
    while rows and waiting:
        each = rows // len(waiting)
        turn = sorted(waiting, key=lambda name: (served.get(name, -1), name))
        for name in turn if each else turn[:rows]:
            given = min(each or 1, waiting[name])
            granted[name] += given
            waiting[name] -= given
            rows -= given
            if not waiting[name]:
                del waiting[name]
    return granted
