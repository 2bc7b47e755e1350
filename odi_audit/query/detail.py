"""One batch: everything that the ledger and the tables still say about it.

Owns the joining of a batch's entries with the tables that it touched. Must never fail because a
table is gone or a snapshot has expired: that is part of the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from odi_audit.canonical import JsonObject, digits
from odi_audit.catalog.state import history
from odi_audit.errors import EntryNotFound
from odi_audit.ids import RunId, SnapshotId
from odi_audit.ledger.port import EntryFilter, Ledger
from odi_audit.model.entries import EFFECTS, Entry, Kind
from odi_audit.model.tables import TableRef
from odi_audit.query import facts
from odi_audit.query.batches import BatchSummary, summarise, undoing
from odi_audit.query.consumers import Read, reads
from odi_audit.query.tables import find_table

if TYPE_CHECKING:
    from odi_audit.catalog.lake import LakeCatalog


class SnapshotPlace(StrEnum):
    """Where a landed snapshot is now."""

    MAIN = "main"
    ELSEWHERE = "elsewhere"
    EXPIRED = "expired"
    UNDONE = "undone"
    MISSING = "missing"
    TABLE_GONE = "table-gone"
    NONE = "none"
    NOT_LOOKED = "not-looked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try at the batch: its intent, and how that ended."""

    intent: int
    run: RunId | None
    started: str
    settled: str | None
    outcome: str
    reason: str | None
    reason_code: str | None
    principal: str | None
    code: str | None
    host: str | None
    pid: int | None
    parent_run: str | None
    alive: bool
    recovered: bool

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePart:
    """What the batch did to one table."""

    table: TableRef
    kind: str
    operation: str
    entry: int
    time: str
    snapshot: SnapshotId | None
    place: SnapshotPlace
    sequence_number: int | None
    first_row_id: int | None
    added_rows: int | None
    schema_id: int | None
    rows: int | None
    counts: JsonObject
    source_facts: JsonObject | None
    """What was known of the source after reading, such as the ids of the records' schemas."""
    undone_by: int | None

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {
            "table": self.table.name,
            "table_uuid": self.table.uuid,
            "kind": self.kind,
            "operation": self.operation,
            "entry": self.entry,
            "time": self.time,
            "snapshot": self.snapshot,
            "place": self.place.value,
            "sequence_number": digits(self.sequence_number),
            "first_row_id": digits(self.first_row_id),
            "added_rows": self.added_rows,
            "schema_id": self.schema_id,
            "rows": self.rows,
            "counts": self.counts,
            "source_facts": self.source_facts,
            "undone_by": self.undone_by,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDetail:
    """Everything known about one batch."""

    summary: BatchSummary
    offsets: JsonObject | None
    attempts: tuple[Attempt, ...]
    tables: tuple[TablePart, ...]
    reads: tuple[Read, ...]
    """What the batch's run had begun to read before: what the batch may be made of."""
    entries: tuple[Entry, ...]

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {
            **self.summary.to_json(),
            "offsets": self.offsets,
            "attempts": [attempt.to_json() for attempt in self.attempts],
            "tables": [part.to_json() for part in self.tables],
            "reads": [read.to_json() for read in self.reads],
            "entries": [entry.to_json() for entry in self.entries],
        }


def batch_detail(ledger: Ledger, catalog: LakeCatalog | None, prefix: str) -> BatchDetail:
    """Return everything known about the batch whose id begins with ``prefix``.

    Without a catalog the ledger alone answers, and snapshots are not looked for.

    Raises:
        EntryNotFound: no batch fits. AmbiguousBatch: more than one does.
    """
    batch = ledger.resolve_batch(prefix)
    entries = ledger.batch_entries(batch)
    summary = summarise(ledger, entries)
    if summary is None:
        raise EntryNotFound(
            f"batch {batch} has entries, but no intent among them",
            hint="odi-audit ledger verify",
            batch=batch,
        )
    telling = next(entry for entry in entries if entry.kind is Kind.INTENT)
    attempts = tuple(
        _attempt(ledger, entry, entries) for entry in entries if entry.kind is Kind.INTENT
    )
    return BatchDetail(
        summary=summary,
        offsets=facts.obj(telling.facts, "offsets"),
        attempts=attempts,
        reads=_reads(ledger, summary, attempts),
        tables=tuple(
            _part(ledger, catalog, entry, entry.table)
            for entry in entries
            if entry.kind in EFFECTS and entry.table is not None
        ),
        entries=tuple(entries),
    )


def _attempt(ledger: Ledger, intent: Entry, entries: list[Entry]) -> Attempt:
    mine = [entry for entry in entries if entry.intent == intent.index]
    settling = next((entry for entry in mine if entry.settles), None)
    doubt = next((entry for entry in mine if entry.kind is Kind.UNKNOWN), None)
    telling = settling or doubt
    owner = facts.text(intent.facts, "owner")
    alive = settling is None and owner is not None and ledger.is_alive(owner)
    return Attempt(
        intent=intent.index,
        run=intent.run,
        started=intent.time,
        settled=None if settling is None else settling.time,
        outcome=telling.kind.value if telling else ("in-flight" if alive else "open"),
        reason=None if telling is None else facts.text(telling.facts, "reason"),
        reason_code=facts.text(telling.facts, "code")
        if telling is not None and telling.kind is Kind.REFUSED
        else None,
        principal=facts.text(intent.facts, "principal"),
        code=facts.text(intent.facts, "code"),
        host=facts.text(intent.facts, "host"),
        pid=facts.number(intent.facts, "pid"),
        parent_run=facts.text(intent.facts, "parent_run"),
        alive=alive,
        recovered=intent.recovered,
    )


def _reads(
    ledger: Ledger, summary: BatchSummary, attempts: tuple[Attempt, ...]
) -> tuple[Read, ...]:
    runs = {attempt.parent_run: attempt.intent for attempt in attempts if attempt.parent_run}
    if summary.job is None or not runs:
        return ()
    # A read is recorded when it is confirmed, often after what was made of it.
    return tuple(
        read
        for read in reads(ledger, job=summary.job)
        if read.run in runs and read.began <= runs[read.run]
    )


def _part(ledger: Ledger, catalog: LakeCatalog | None, entry: Entry, table: TableRef) -> TablePart:
    snapshot = facts.text(entry.facts, "snapshot")
    undone = undoing(ledger, entry) if entry.kind is Kind.LANDED else None
    return TablePart(
        table=table,
        kind=entry.kind.value,
        operation=facts.operation(entry),
        entry=entry.index,
        time=entry.time,
        snapshot=None if snapshot is None else SnapshotId(snapshot),
        place=_place(ledger, catalog, table, snapshot, undone is not None),
        sequence_number=facts.number(entry.facts, "sequence_number"),
        first_row_id=facts.number(entry.facts, "first_row_id"),
        added_rows=facts.number(entry.facts, "added_rows"),
        schema_id=facts.number(entry.facts, "schema_id"),
        rows=facts.rows(entry),
        counts=facts.obj(entry.facts, "counts") or {},
        source_facts=facts.obj(entry.facts, "source_facts"),
        undone_by=None if undone is None else undone.index,
    )


def _place(
    ledger: Ledger,
    catalog: LakeCatalog | None,
    table: TableRef,
    snapshot: str | None,
    undone: bool,
) -> SnapshotPlace:
    if snapshot is None:
        return SnapshotPlace.NONE
    if catalog is None:
        return SnapshotPlace.NOT_LOOKED
    state = find_table(catalog, table)
    if state is None:
        return SnapshotPlace.TABLE_GONE
    if any(info.id == snapshot for info in history(state)):
        return SnapshotPlace.MAIN
    if undone:
        return SnapshotPlace.UNDONE
    if any(info.id == snapshot for info in state.snapshots):
        return SnapshotPlace.ELSEWHERE
    where = EntryFilter(kinds=(Kind.MAINTENANCE,), table=table.uuid)
    expired = any(snapshot in facts.texts(entry.facts, "expired") for entry in ledger.find(where))
    return SnapshotPlace.EXPIRED if expired else SnapshotPlace.MISSING
