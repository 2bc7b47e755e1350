"""A look at the records of a batch before anything is written: how many of each kind there are.

Owns the one pass that fills the kept frame and counts it, and the check that no record is lost on
its way: what tasks say they read is what the frame holds. Must never hold a value of a row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from jobs.formats.debezium_envelope import OP, ORDER, TIME, UNAVAILABLE
from jobs.formats.types import together
from jobs.tasks.decoders import SchemasSeen
from jobs.tasks.rows import NEWS, PASSED, REASON, failure_in
from odi_audit.errors import CountMismatch
from odi_audit.spark import failures

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from jobs.spec.model import Registry
    from odi_audit.canonical import JsonObject

TRUNCATES_MAX = 1_000
"""A batch with more of them than this is read in smaller batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncate:
    """A change that emptied the source's table: its order, and when, in microseconds."""

    order: str
    micros: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a frame holds.

    ``passed`` are records that change no row: tombstones, marks of transactions. ``add`` and
    ``widen`` are what the records need beyond the columns into which they were decoded.
    ``hidden`` says that some changes lack values that did not change. ``moved`` of them are new
    rows, which had them under another key: theirs was changed.
    """

    records: int
    rows: int
    rejects: int
    passed: int
    bytes: int
    reason: str | None = None
    add: Mapping[str, str] = field(default_factory=dict)
    widen: Mapping[str, str] = field(default_factory=dict)
    truncates: tuple[Truncate, ...] = ()
    hidden: bool = False
    moved: int = 0
    written: SchemasSeen = field(default_factory=SchemasSeen)
    """The schemas under which records were written, where a registry has them."""

    def schemas_by(self, registry: Registry | None) -> Callable[[], JsonObject]:
        """Return what tells the ledger under which schemas of a registry records were written."""
        return lambda: self.written.facts(registry.url.rstrip("/") if registry else None)


def look(frame: DataFrame) -> Survey:
    """Read a frame once and count it; whoever keeps the frame has it filled afterwards.

    Raises:
        CountMismatch: tasks read another number of records than the frame holds.
        SourceUnavailable, SourceChanged, SourceDenied: as the task that failed says.
    """
    names = set(frame.columns)
    wanted: dict[str, Column] = {
        "rows": F.count_if(is_row(frame)),
        "rejects": F.count_if(is_reject(frame)),
    }
    if REASON in names:
        wanted["reason"] = F.min(REASON)
    if NEWS in names:
        wanted["news"] = F.collect_list(F.when(F.col(NEWS) != PASSED, F.col(NEWS)))
    if OP in names:
        cut = F.when(F.col(OP) == "t", F.struct(F.col(ORDER), F.unix_micros(TIME).alias("at")))
        wanted["truncates"] = F.collect_set(cut)
        lacks = F.size(UNAVAILABLE) > 0
        wanted["hidden"] = F.count_if(lacks)
        wanted["moved"] = F.count_if(lacks & F.col(OP).isin("c", "r"))
    with _translated():
        found = frame.agg(*[value.alias(name) for name, value in wanted.items()]).collect()[0]
    got = found.asDict()
    rows, rejects = int(got["rows"]), int(got["rejects"])
    notes = [json.loads(text) for text in got.get("news") or ()]
    told = {key: sum(int(note.get(key, 0)) for note in notes) for key in _COUNTED}
    if notes and (told["rows"], told["rejects"]) != (rows, rejects):
        raise CountMismatch(
            f"tasks read {told['records']} records as {told['rows']} rows and {told['rejects']} "
            f"that are none, but {rows} rows and {rejects} arrived",
            hint="start the job again: the batch is read anew",
            promised=told["rows"],
            staged=rows,
        )
    written = SchemasSeen()
    for note in notes:
        written.add(note.get("written", {}))
    return Survey(
        written=written,
        records=told["records"] if notes else rows + rejects,
        rows=rows,
        rejects=rejects,
        passed=told["passed"],
        bytes=told["bytes"],
        reason=got.get("reason"),
        add=together(note.get("unknown", {}) for note in notes),
        widen=together(note.get("wider", {}) for note in notes),
        truncates=_truncates(got.get("truncates") or ()),
        hidden=bool(got.get("hidden")),
        moved=int(got.get("moved") or 0),
    )


def is_row(frame: DataFrame) -> Column:
    """Return the condition that a record of a frame is a row."""
    condition = F.lit(True)
    for name in (REASON, NEWS):
        if name in frame.columns:
            condition = condition & F.col(name).isNull()
    return condition


def is_reject(frame: DataFrame) -> Column:
    """Return the condition that a record of a frame is a dead letter."""
    return F.col(REASON).isNotNull() if REASON in frame.columns else F.lit(False)


_COUNTED = ("records", "rows", "rejects", "passed", "bytes")


def _truncates(found: object) -> tuple[Truncate, ...]:
    assert isinstance(found, list | tuple)
    made = sorted((str(row[0]), int(row[1] or 0)) for row in found)
    if len(made) > TRUNCATES_MAX:
        raise CountMismatch(
            f"the batch empties its table {len(made)} times, at most {TRUNCATES_MAX} are taken",
            hint="make batches smaller: batch.rows",
        )
    return tuple(Truncate(order=order, micros=micros) for order, micros in made)


@contextmanager
def _translated() -> Iterator[None]:
    with failures.translated("reading the batch"):
        try:
            yield
        except PySparkException as error:
            known = failure_in(str(error))
            if known is not None:
                raise known from error
            raise
