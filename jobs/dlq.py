"""Dead letters: which there are, why, and what became of each.

Owns the reading of dead-letter tables and the identity of a letter: the batch that put it aside,
its partition and its offset. Whether a letter was brought back is told by the ledger, never by the
letters' table, which only ever grows (docs/adr/0018-dead-letters.md). Must never start a JVM.
"""

from __future__ import annotations

import base64
import heapq
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from odi_audit import clock
from odi_audit.canonical import Json, JsonObject
from odi_audit.errors import TableNotFound, UsageError
from odi_audit.ids import BatchId, JobName
from odi_audit.model.tables import parse

if TYPE_CHECKING:
    from odi_audit.catalog.lake import LakeCatalog
    from odi_audit.catalog.state import TableState
    from odi_audit.ledger.port import Ledger, Position

LIMIT_DEFAULT = 50
LIMIT_MAX = 100_000
REASONS_MAX = 50
"""Kinds of reasons that are counted apart; the rest is one number."""
ABOUT = ("job", "batch", "source", "partition", "offset", "at", "reason", "table")
BYTES = ("key", "value", "headers")
_VALUES = re.compile(r"'[^']*'|\"[^\"]*\"|\b\d[\w.+-]*")


class State(StrEnum):
    """What became of a letter."""

    OPEN = "open"
    REPLAYED = "replayed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A record that was no row, as it came. ``at`` is the record's own time, ``put_aside`` ours."""

    letters: str
    job: JobName
    batch: BatchId
    source: str
    partition: str
    offset: int
    at: datetime | None
    reason: str
    table: str | None
    put_aside: str | None = None
    replayed_by: BatchId | None = None
    key: bytes | None = field(default=None, repr=False)
    value: bytes | None = field(default=None, repr=False)
    headers: tuple[tuple[str, bytes | None], ...] = field(default=(), repr=False)

    @property
    def identity(self) -> str:
        """What names this letter for good, wherever its table is moved to."""
        return f"{self.batch}/{self.partition}/{self.offset}"

    @property
    def state(self) -> State:
        """Whether it has been brought back."""
        return State.OPEN if self.replayed_by is None else State.REPLAYED

    def to_json(self, *, values: bool = False) -> JsonObject:
        """Return the form that ``--json`` prints; the bytes only where they are asked for."""
        body: dict[str, Json] = {
            "letters": self.letters,
            "job": self.job,
            "batch": self.batch,
            "source": self.source,
            "partition": self.partition,
            "offset": str(self.offset),
            "at": None if self.at is None else clock.to_text(self.at),
            "put_aside": self.put_aside,
            "table": self.table,
            "reason": self.reason,
            "state": self.state.value,
            "replayed_by": self.replayed_by,
        }
        if values:
            body |= {"key": _text(self.key), "value": _text(self.value)}
            body["headers"] = [[name, _text(value)] for name, value in self.headers]
        return body


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """Which letters are meant; every field narrows. ``batch`` and ``reason`` may be a part."""

    job: str | None = None
    batch: str | None = None
    reason: str | None = None
    table: str | None = None
    since: str | None = None
    state: State | None = None

    def takes(self, letter: Letter) -> bool:
        """Say whether a letter is one of them."""
        return (
            (self.job is None or letter.job == self.job)
            and (self.batch is None or letter.batch.removeprefix("b-").startswith(self._batch))
            and (self.reason is None or self.reason.casefold() in letter.reason.casefold())
            and (self.table is None or letter.table == self.table)
            and (self.since is None or (letter.put_aside or "") >= self.since)
            and (self.state is None or letter.state is self.state)
        )

    @property
    def _batch(self) -> str:
        return (self.batch or "").removeprefix("b-")


ALL = Which()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonCount:
    """How many letters were put aside for one kind of reason; values in it are left out."""

    reason: str
    open: int
    replayed: int

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {"reason": self.reason, "open": self.open, "replayed": self.replayed}


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The letters that were asked for: how many, why, and the newest of them."""

    tables: tuple[str, ...]
    open: int
    replayed: int
    reasons: tuple[ReasonCount, ...]
    letters: tuple[Letter, ...]

    @property
    def cut(self) -> bool:
        """Whether there are more letters than are shown."""
        return len(self.letters) < self.open + self.replayed

    def to_json(self, *, values: bool = False) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {
            "tables": list(self.tables),
            "open": self.open,
            "replayed": self.replayed,
            "reasons": [reason.to_json() for reason in self.reasons],
            "letters": [letter.to_json(values=values) for letter in self.letters],
            "cut": self.cut,
        }


def source_of(job: str) -> str:
    """Return the name under which the ledger keeps which letters of a job were brought back."""
    return f"dead-letters:{job}"


def list_letters(
    ledger: Ledger,
    catalog: LakeCatalog,
    table: str | None = None,
    *,
    which: Which = ALL,
    limit: int = LIMIT_DEFAULT,
    values: bool = False,
) -> Listing:
    """Count the letters of one table, or of all, and return the newest.

    Raises:
        UsageError: the limit is out of bounds, or the table holds no dead letters.
        TableNotFound: there is no such table.
    """
    if not 0 <= limit <= LIMIT_MAX:
        raise UsageError(f"limit {limit} is not between 0 and {LIMIT_MAX}")
    states = letter_tables(catalog, table)
    counts: dict[str, list[int]] = {}
    found = _counted(read_letters(ledger, states, which=which, values=values), counts)
    newest = heapq.nlargest(max(limit, 1), found, key=_newest)[:limit]
    reasons = [
        ReasonCount(reason=reason, open=count[0], replayed=count[1])
        for reason, count in sorted(counts.items(), key=lambda item: (-sum(item[1]), item[0]))
    ]
    return Listing(
        tables=tuple(state.ref.name for state in states),
        open=sum(reason.open for reason in reasons),
        replayed=sum(reason.replayed for reason in reasons),
        reasons=_first_reasons(reasons),
        letters=tuple(newest),
    )


def letter_tables(catalog: LakeCatalog, table: str | None = None) -> list[TableState]:
    """Return the tables that hold dead letters, known by their columns; or the one that is named.

    Raises:
        UsageError: the table that is named holds none.
    """
    if table is not None:
        state = catalog.load(parse(table))
        if not _holds_letters(state):
            raise UsageError(
                f"table {table} holds no dead letters: it lacks some of the columns "
                f"{', '.join((*ABOUT, *BYTES))}",
                hint="odi-audit dlq list, to see those that do",
            )
        return [state]
    found = []
    for name in catalog.tables():
        try:
            state = catalog.load(name)
        except TableNotFound:
            continue  # dropped since the names were read
        if _holds_letters(state):
            found.append(state)
    return found


def read_letters(
    ledger: Ledger, states: list[TableState], *, which: Which = ALL, values: bool = True
) -> Iterator[Letter]:
    """Yield the letters of some tables, each with what became of it."""
    from odi_audit.catalog.rows import lineage_rows

    back: dict[str, Mapping[str, Position]] = {}
    columns = (*ABOUT, *BYTES) if values else ABOUT
    for state in states:
        times: dict[str, str | None] = {}
        for batch in lineage_rows(state, columns=columns):
            for row in batch.select(columns).to_pylist():
                letter = _letter(state.ref.name, row)
                if letter.job not in back:
                    back[letter.job] = ledger.job_positions(letter.job, source_of(letter.job))
                if letter.batch not in times:
                    landed = ledger.landed(letter.batch, state.ref.uuid)
                    times[letter.batch] = None if landed is None else landed.time
                brought = back[letter.job].get(letter.identity)
                letter = replace(
                    letter,
                    put_aside=times[letter.batch],
                    replayed_by=None if brought is None else brought.batch,
                )
                if which.takes(letter):
                    yield letter


def _letter(letters: str, row: Mapping[str, Any]) -> Letter:
    return Letter(
        letters=letters,
        job=JobName(row["job"]),
        batch=BatchId(row["batch"]),
        source=row["source"],
        partition=row["partition"],
        offset=row["offset"],
        at=row["at"],
        reason=row["reason"],
        table=row["table"],
        key=row.get("key"),
        value=row.get("value"),
        headers=tuple((one["name"], one["value"]) for one in row.get("headers") or ()),
    )


def _holds_letters(state: TableState) -> bool:
    return {column.name for column in state.columns} >= {*ABOUT, *BYTES}


def _counted(letters: Iterator[Letter], counts: dict[str, list[int]]) -> Iterator[Letter]:
    for letter in letters:
        count = counts.setdefault(_VALUES.sub("…", letter.reason), [0, 0])
        count[letter.state is State.REPLAYED] += 1
        yield letter


def _newest(letter: Letter) -> tuple[str, str, int]:
    return letter.put_aside or "", letter.partition, letter.offset


def _first_reasons(reasons: list[ReasonCount]) -> tuple[ReasonCount, ...]:
    if len(reasons) <= REASONS_MAX:
        return tuple(reasons)
    shown, rest = reasons[: REASONS_MAX - 1], reasons[REASONS_MAX - 1 :]
    others = ReasonCount(
        reason=f"{len(rest)} other reasons",
        open=sum(reason.open for reason in rest),
        replayed=sum(reason.replayed for reason in rest),
    )
    return (*shown, others)


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()
