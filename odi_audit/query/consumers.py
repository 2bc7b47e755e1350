"""Consumers: who reads which table, how far each has come, and how far behind it is.

Owns the reading of READ entries: a consumer's position is its newest confirmed read of changes.
Must never move a position (``odi_audit.reading`` does), and must never let a consumer go on past
changes that it has not seen: where its place has expired, it has to choose.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from odi_audit.canonical import JsonObject, digits
from odi_audit.catalog.state import SnapshotInfo, TableState, head, history
from odi_audit.errors import EntryNotFound, LedgerLocked, UsageError
from odi_audit.ids import JobName, RunId, SnapshotId, TableUuid
from odi_audit.ledger.port import EntryFilter, Ledger
from odi_audit.model.entries import Entry, Kind
from odi_audit.model.tables import TableRef
from odi_audit.query import facts
from odi_audit.query.places import resolve_place
from odi_audit.query.tables import find_table
from odi_audit.query.writes import is_compaction

if TYPE_CHECKING:
    from odi_audit.catalog.lake import LakeCatalog

START = "start"
"""Where a reading begins that wants every row, whatever was read before."""
OLDEST = "oldest"
"""Where a reading begins that gives up on what the expired snapshots would have shown."""
NAME_LENGTH_MAX = 200
_PAGE = 500
_CONFIRMING = threading.Lock()
"""One confirmation at a time in this process; the ledger's hold does the same between processes."""


class Mode(StrEnum):
    """What was read: the changes since the last time, or one whole state."""

    CHANGES = "changes"
    STABLE = "stable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One confirmed read, as its entry recorded it. Only one of changes moves a position.

    ``skipped`` says that the position was moved without reading. ``began`` is the size of the
    ledger when the read began; ``since`` a moment before which nothing can come from it.
    """

    entry: int
    time: str
    consumer: str
    mode: Mode
    table: TableRef
    from_snapshot: SnapshotId | None
    from_sequence: int | None
    to_snapshot: SnapshotId | None
    to_sequence: int | None
    rows: int | None
    principal: str | None
    job: JobName | None
    run: RunId | None
    skipped: bool
    began: int
    since: str

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {
            "entry": self.entry,
            "time": self.time,
            "consumer": self.consumer,
            "mode": self.mode.value,
            "table": self.table.name,
            "from_snapshot": self.from_snapshot,
            "from_sequence": digits(self.from_sequence),
            "to_snapshot": self.to_snapshot,
            "to_sequence": digits(self.to_sequence),
            "rows": self.rows,
            "principal": self.principal,
            "job": self.job,
            "run": self.run,
            "skipped": self.skipped,
        }


class Standing(StrEnum):
    """How a consumer's position stands to its table."""

    CURRENT = "current"
    BEHIND = "behind"
    ROLLED_BACK = "rolled-back"
    EXPIRED = "expired"
    TABLE_GONE = "table-gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerState:
    """A consumer of a table. ``lag_batches`` counts the writes that it has not read."""

    position: Read
    standing: Standing
    lag_batches: int | None

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {
            **self.position.to_json(),
            "standing": self.standing.value,
            "lag_batches": self.lag_batches,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """What a consumer is to read next: from its position (None: everything) to the head."""

    start: SnapshotInfo | None
    end: SnapshotInfo | None
    position: Read | None

    @property
    def none(self) -> bool:
        """Whether there is nothing to read."""
        return self.end is None or (self.start is not None and self.start.id == self.end.id)


def check_consumer(name: str) -> str:
    """Return a consumer's name, checked.

    Raises:
        UsageError: it is empty, too long, or has a space at an end or a control character.
    """
    if not name or name != name.strip() or len(name) > NAME_LENGTH_MAX or not name.isprintable():
        raise UsageError(
            f"consumer name {name[:NAME_LENGTH_MAX]!r} is empty, has a space at an end or a "
            f"control character, or is over {NAME_LENGTH_MAX} characters",
            hint='name it like consumer="billing"',
        )
    return name


def reads(
    ledger: Ledger, table: TableUuid | None = None, *, job: JobName | None = None
) -> list[Read]:
    """Return every confirmed read, oldest first; of one table or by one job where it is given."""
    where = EntryFilter(kinds=(Kind.READ,), table=table, job=job)
    return list(_read(ledger.find(where)))


def position(ledger: Ledger, table: TableUuid, consumer: str) -> Read | None:
    """Return a consumer's position on a table; None where it has read no changes yet."""
    where = EntryFilter(kinds=(Kind.READ,), table=table)
    limit: int | None = _PAGE
    while True:
        found = ledger.find(where, limit=limit, newest_first=True)
        for read in _read(found):
            if read.consumer == consumer and read.mode is Mode.CHANGES:
                return read
        if limit is None or len(found) < limit:
            return None
        limit = None


def pending(ledger: Ledger, state: TableState, consumer: str, since: str | None = None) -> Pending:
    """Return what a consumer is to read next.

    Without ``since`` it goes on where it stopped, and a new one reads everything. ``start`` reads
    everything anew, ``oldest`` what changed since the oldest snapshot that is kept; else ``since``
    is a batch, a snapshot, a tag, a branch or a time.

    Raises:
        EntryNotFound: the place has expired or never was; the choices are in the message.
    """
    at = position(ledger, state.ref.uuid, consumer)
    current = head(state)
    end = None if current is None else state.snapshot(current)
    start: SnapshotInfo | None = None
    if since == OLDEST:
        start = next(reversed(history(state)), None)
    elif since is not None and since != START:
        start = resolve_place(ledger, state, since)
    elif since is None and at is not None and at.to_snapshot is not None:
        start = state.snapshot(at.to_snapshot)
        if start is None:
            raise _expired(state, consumer, at)
    return Pending(start=start, end=end, position=at)


@contextmanager
def confirming(ledger: Ledger, table: TableRef, consumer: str) -> Iterator[None]:
    """Keep others of the same consumer out, from a look at its position to the entry that moves it.

    Raises:
        LedgerLocked: another process is at it; what it records will have moved the position.
    """
    owner = f"consumer:{table.uuid}:{consumer}"
    with _CONFIRMING:
        try:
            ledger.hold(owner)
        except LedgerLocked as problem:
            raise LedgerLocked(
                f"another process reads {table.name} as consumer {consumer} and confirms it right "
                "now: this reading is not confirmed",
                hint="odi-audit read --list",
                consumer=consumer,
            ) from problem
        try:
            yield
        finally:
            ledger.release(owner)


def list_consumers(
    ledger: Ledger, catalog: LakeCatalog, table: TableUuid | None = None
) -> list[ConsumerState]:
    """Return every consumer with its position, sorted by table and name."""
    newest: dict[tuple[str, str], Read] = {}
    for read in reads(ledger, table):
        if read.mode is Mode.CHANGES:
            newest[read.table.uuid, read.consumer] = read
    states: dict[str, TableState | None] = {}
    for read in newest.values():
        if read.table.uuid not in states:
            states[read.table.uuid] = find_table(catalog, read.table)
    made = [consumer_state(read, states[read.table.uuid]) for read in newest.values()]
    return sorted(made, key=lambda item: (item.position.table.name, item.position.consumer))


def consumer_state(read: Read, state: TableState | None) -> ConsumerState:
    """Say how a position stands to its table, under the name that this has now."""
    if state is None:
        return ConsumerState(position=read, standing=Standing.TABLE_GONE, lag_batches=None)
    read, main = replace(read, table=state.ref), history(state)
    lag = writes_between(main, read.to_sequence)
    if any(info.id == read.to_snapshot for info in main):
        standing = Standing.CURRENT if main[0].id == read.to_snapshot else Standing.BEHIND
    elif read.to_snapshot is not None and state.snapshot(read.to_snapshot) is not None:
        standing = Standing.ROLLED_BACK
    else:
        standing = Standing.EXPIRED
    return ConsumerState(position=read, standing=standing, lag_batches=lag)


def writes_between(
    main: Iterable[SnapshotInfo], after: int | None, until: int | None = None
) -> int:
    """Count the writes of main with a number after one and up to another; no compactions."""
    return sum(
        1
        for info in main
        if info.sequence_number > (after or 0)
        and (until is None or info.sequence_number <= until)
        and not is_compaction(info)
    )


def _expired(state: TableState, consumer: str, at: Read) -> EntryNotFound:
    oldest = next(reversed(history(state)), None)
    since = "" if oldest is None else f" (snapshot {oldest.id} of {oldest.time})"
    return EntryNotFound(
        f"consumer {consumer} has read {state.ref.name} up to snapshot {at.to_snapshot}, which has "
        f"expired: what changed since then cannot be told. Choose: since={START!r} reads every row "
        f"anew; since={OLDEST!r} reads what changed since the oldest snapshot that is kept{since}, "
        "and leaves out what changed before it",
        hint=f"odi-audit read {state.ref.name} --consumer {consumer} --since {START}",
        consumer=consumer,
        snapshot=at.to_snapshot,
        table=state.ref.name,
    )


def _read(entries: Iterable[Entry]) -> Iterable[Read]:
    for entry in entries:
        kept = entry.facts
        consumer, mode = facts.text(kept, "consumer"), facts.text(kept, "mode")
        if entry.table is None or consumer is None:
            continue
        began = facts.number(kept, "began")
        yield Read(
            entry=entry.index,
            time=entry.time,
            consumer=consumer,
            mode=Mode.STABLE if mode == Mode.STABLE else Mode.CHANGES,
            table=entry.table,
            from_snapshot=_snapshot(kept, "from_snapshot"),
            from_sequence=facts.number(kept, "from_sequence"),
            to_snapshot=_snapshot(kept, "to_snapshot"),
            to_sequence=facts.number(kept, "to_sequence"),
            rows=facts.number(kept, "rows"),
            principal=facts.text(kept, "principal"),
            job=entry.job,
            run=entry.run,
            skipped=kept.get("skipped") is True,
            began=entry.index if began is None else began,
            since=_earliest(kept, entry),
        )


def _earliest(kept: JsonObject, entry: Entry) -> str:
    moments = (facts.text(kept, "began_at"), facts.text(kept, "to_time"))
    return min((moment for moment in moments if moment is not None), default=entry.time)


def _snapshot(kept: JsonObject, key: str) -> SnapshotId | None:
    found = facts.text(kept, key)
    return None if found is None else SnapshotId(found)
