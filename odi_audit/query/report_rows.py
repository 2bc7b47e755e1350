"""The rows of each report.

Owns which entries and snapshots make a row, and the columns. Must never hold the rows of a report
that can be made one by one.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from odi_audit.canonical import JsonObject
from odi_audit.catalog.state import TableState
from odi_audit.errors import EntryNotFound
from odi_audit.ids import TableUuid
from odi_audit.ledger.port import EntryFilter, Ledger
from odi_audit.model.entries import Entry, Kind
from odi_audit.model.names import NAMING
from odi_audit.query import facts
from odi_audit.query.coverage import ForeignWrite, coverage
from odi_audit.query.dropped import rows_dropped
from odi_audit.query.lookup import Named, walk
from odi_audit.query.offsets import continuity
from odi_audit.query.timeline import describe, schema_steps

if TYPE_CHECKING:
    from odi_audit.catalog.lake import LakeCatalog

Cell: TypeAlias = str | int | bool | None
Row: TypeAlias = tuple[Cell, ...]

_REPLACING = frozenset({"overwrite", "overwrite_partitions"})
_BACK = (Kind.ROLLBACK, Kind.UNDO)
_OFFSET_REFUSALS = {"ODI-G04": "gap", "ODI-G05": "overlap", "ODI-G06": "changed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a report is about. Entries from index ``stop`` on are left out."""

    ledger: Ledger
    catalog: LakeCatalog
    since: str | None
    until: str | None
    tables: tuple[Named, ...] | None
    stop: int

    def entries(self, *kinds: Kind) -> Iterator[Entry]:
        """Yield the entries of the period about the tables."""
        only = self.tables[0].ref.uuid if self.tables and len(self.tables) == 1 else None
        where = EntryFilter(kinds=kinds, table=only, since=self.since, until=self.until)
        for entry in walk(self.ledger, where, stop=self.stop):
            if self.wants(None if entry.table is None else entry.table.uuid):
                yield entry

    def wants(self, uuid: TableUuid | None) -> bool:
        """Say whether a table is among the named ones."""
        return self.tables is None or any(table.ref.uuid == uuid for table in self.tables)

    def holds(self, time: str) -> bool:
        """Say whether a moment is in the period."""
        return (self.since or "") <= time and (self.until is None or time < self.until)

    def states(self) -> Iterator[TableState]:
        """Yield the tables that the catalog has."""
        if self.tables is None:
            for name in self.catalog.tables():
                yield self.catalog.load(name)
        else:
            yield from (named.state for named in self.tables if named.state is not None)


WRITES = (
    "time", "table", "operation", "rows", "batch", "job", "run", "principal", "code", "source",
    "offsets", "snapshot", "undone_by", "recovered", "entry",
)  # fmt: skip


def _writes(scope: Scope) -> Iterator[Row]:
    for entry in scope.entries(Kind.LANDED):
        known, offsets = entry.facts, facts.obj(entry.facts, "offsets")
        yield (
            entry.time, _table(entry), facts.operation(entry), facts.rows(entry), entry.batch,
            entry.job, entry.run, facts.text(known, "principal"), facts.text(known, "code"),
            None if offsets is None else facts.text(offsets, "source"),
            facts.describe_offsets(offsets), facts.text(known, "snapshot"),
            _undone_by(scope.ledger, entry), entry.recovered, entry.index,
        )  # fmt: skip


SCHEMA_CHANGES = (
    "time", "table", "change", "columns_before", "columns_after", "principal", "code", "job",
    "batch", "entry",
)  # fmt: skip


_WHOLE = {Kind.TABLE_CREATED: "table created", Kind.TABLE_DROPPED: "table dropped"}


def _schema_changes(scope: Scope) -> Iterator[Row]:
    for entry in scope.entries(*NAMING, Kind.SCHEMA_CHANGE):
        known = entry.facts
        created, renamed = (entry.kind is kind for kind in (Kind.TABLE_CREATED, Kind.TABLE_RENAMED))
        steps = f"table renamed {describe(entry)}" if renamed else ", ".join(schema_steps(known))
        yield (
            entry.time,
            _table(entry),
            _WHOLE.get(entry.kind) or steps or "schema changed",
            None if created else _columns(facts.obj(known, "before")),
            _columns(facts.obj(known, "schema" if created else "after")),
            facts.text(known, "principal"),
            facts.text(known, "code"),
            entry.job,
            entry.batch,
            entry.index,
        )


DELETIONS = (
    "time", "table", "operation", "rows_deleted", "condition", "principal", "code", "job", "batch",
    "snapshot", "foreign", "detail", "entry",
)  # fmt: skip


def _deletions(scope: Scope) -> Iterator[Row]:
    return heapq.merge(_own_deletions(scope), _foreign_deletions(scope), key=_first)


def _own_deletions(scope: Scope) -> Iterator[Row]:
    for entry in scope.entries(Kind.LANDED, Kind.ERASURE, Kind.TABLE_DROPPED, *_BACK):
        known, deleted = entry.facts, _deleted_rows(entry)
        if entry.kind is Kind.LANDED and not deleted and facts.operation(entry) != "delete":
            continue
        yield (
            entry.time, _table(entry), facts.operation(entry), deleted,
            _condition(scope.ledger, entry), facts.text(known, "principal"),
            facts.text(known, "code"), entry.job, entry.batch, facts.text(known, "snapshot"),
            False, describe(entry), entry.index,
        )  # fmt: skip


def _foreign_deletions(scope: Scope) -> Iterator[Row]:
    for write in _foreign(scope):
        if write.deleted_rows:
            by = f"rows removed or rewritten by {write.note or write.writer}"
            yield (
                write.time, write.table.name, write.operation, write.deleted_rows, None,
                write.writer.user, None, None, None, write.snapshot, True, by, write.entry,
            )  # fmt: skip


def _first(row: Row) -> str:
    return str(row[0])


def _deleted_rows(entry: Entry) -> int | None:
    counts = facts.obj(entry.facts, "counts") or {}
    operation = facts.operation(entry)
    if entry.kind in _BACK:
        return None
    if entry.kind is Kind.TABLE_DROPPED:
        return rows_dropped(entry)
    if operation == "upsert":
        return facts.number(counts, "rows-deleted")
    if operation in _REPLACING:
        removed = facts.number(counts, "deleted-records") or 0
        return removed + (facts.number(counts, "added-position-deletes") or 0)
    return facts.rows(entry) if operation == "delete" or entry.kind is Kind.ERASURE else 0


REPLAYS_AND_GAPS = (
    "time", "what", "standing", "table", "job", "source", "partition", "start", "end",
    "batch_before", "batch_after", "principal", "reason", "entry",
)  # fmt: skip


def _replays_and_gaps(scope: Scope) -> Iterator[Row]:
    only = scope.tables[0].ref.uuid if scope.tables and len(scope.tables) == 1 else None
    rows: list[tuple[int, Row]] = []
    for event in continuity(scope.ledger, table=only, stop=scope.stop).events:
        if scope.holds(event.time) and scope.wants(event.table_uuid):
            row: Row = (
                event.time, event.kind.value, event.standing.value, event.table, event.job,
                event.source, event.partition, event.start, event.end, event.before, event.after,
                event.principal, event.reason, event.entry,
            )  # fmt: skip
            rows.append((event.entry, row))
    for entry in scope.entries(Kind.REFUSED):
        what = _OFFSET_REFUSALS.get(facts.text(entry.facts, "code") or "")
        if what is not None:
            rows.append((entry.index, _refused(scope.ledger, entry, what)))
    yield from (row for _, row in sorted(rows, key=lambda item: item[0]))


def _refused(ledger: Ledger, entry: Entry, what: str) -> Row:
    intent = _intent(ledger, entry)
    offsets = None if intent is None else facts.obj(intent.facts, "offsets")
    return (
        entry.time,
        what,
        "refused",
        _table(entry),
        entry.job,
        None if offsets is None else facts.text(offsets, "source"),
        facts.describe_offsets(offsets),
        None,
        None,
        None,
        entry.batch,
        None if intent is None else facts.text(intent.facts, "principal"),
        facts.text(entry.facts, "reason"),
        entry.index,
    )


FOREIGN_WRITES = (
    "time", "time_exact", "table", "operation", "rows_written", "rows_deleted", "engine",
    "engine_version", "application", "application_name", "user", "snapshot", "retained",
    "in_main", "note", "entry",
)  # fmt: skip


def _foreign_writes(scope: Scope) -> Iterator[Row]:
    for write in _foreign(scope):
        by = write.writer
        yield (
            write.time, write.time_exact, write.table.name, write.operation, write.rows,
            write.deleted_rows, by.engine, by.engine_version, by.application, by.application_name,
            by.user, write.snapshot, write.retained, write.in_main, write.note, write.entry,
        )  # fmt: skip


def _foreign(scope: Scope) -> tuple[ForeignWrite, ...]:
    return coverage(
        scope.ledger,
        scope.catalog,
        scope.tables,
        since=scope.since,
        until=scope.until,
        stop=scope.stop,
    ).foreign


RETENTION = (
    "table", "what", "time", "principal", "job", "batch", "snapshots", "oldest_snapshot",
    "oldest_snapshot_time", "ledger_since", "ledger_landed_snapshots", "detail", "entry",
)  # fmt: skip


@dataclass(slots=True)
class _Kept:
    """What the ledger has on one table."""

    name: str = ""
    since: str | None = None
    landed: int = 0
    expiries: list[Entry] = field(default_factory=list)
    dropped: Entry | None = None


def _retention(scope: Scope) -> Iterator[Row]:
    known: dict[TableUuid, _Kept] = {}
    kinds = (*NAMING, Kind.LANDED, Kind.MAINTENANCE)
    for entry in walk(scope.ledger, EntryFilter(kinds=kinds), stop=scope.stop):
        if entry.table is None or not scope.wants(entry.table.uuid):
            continue
        kept = known.setdefault(entry.table.uuid, _Kept())
        kept.name, kept.since = entry.table.name, kept.since or entry.time
        kept.landed += entry.kind is Kind.LANDED
        if entry.kind is Kind.TABLE_DROPPED:
            kept.dropped = entry
        if "expired" in entry.facts and scope.holds(entry.time):
            kept.expiries.append(entry)
    states = {state.ref.uuid: state for state in scope.states()}
    names = {uuid: kept.name for uuid, kept in known.items()}
    names |= {uuid: state.ref.name for uuid, state in states.items()}
    for uuid, name in sorted(names.items(), key=lambda item: item[1]):
        yield from _table_retention(name, states.get(uuid), known.get(uuid, _Kept()))


def _table_retention(name: str, state: TableState | None, kept: _Kept) -> Iterator[Row]:
    oldest = min(state.snapshots, key=lambda info: info.time, default=None) if state else None
    dropped = kept.dropped if state is None else None
    yield (
        name,
        "retained" if state is not None else "table gone" if dropped is None else "table dropped",
        None if dropped is None else dropped.time,
        None if dropped is None else facts.text(dropped.facts, "principal"),
        None if dropped is None else dropped.job,
        None if dropped is None else dropped.batch,
        0 if state is None else len(state.snapshots),
        None if oldest is None else oldest.id,
        None if oldest is None else oldest.time,
        kept.since,
        kept.landed,
        _on_record(kept, dropped),
        None if dropped is None else dropped.index,
    )
    for entry in kept.expiries:
        older = facts.text(entry.facts, "older_than")
        yield (
            name,
            "expiry",
            entry.time,
            facts.text(entry.facts, "principal"),
            entry.job,
            entry.batch,
            len(facts.texts(entry.facts, "expired")),
            None,
            None,
            None,
            None,
            f"older than {older}, keeping the last {entry.facts.get('retain_last')}",
            entry.index,
        )


def _on_record(kept: _Kept, dropped: Entry | None) -> str | None:
    if dropped is not None:
        return describe(dropped)
    return None if kept.since else "the ledger has nothing on this table"


ACCESS = (
    "time", "consumer", "mode", "principal", "table", "from_snapshot", "to_snapshot", "rows",
    "columns", "condition", "skipped", "job", "run", "entry",
)  # fmt: skip


def _access(scope: Scope) -> Iterator[Row]:
    for entry in scope.entries(Kind.READ):
        known = entry.facts
        yield (
            entry.time, facts.text(known, "consumer"), facts.text(known, "mode"),
            facts.text(known, "principal"), _table(entry), facts.text(known, "from_snapshot"),
            facts.text(known, "to_snapshot"), facts.number(known, "rows"),
            ", ".join(facts.texts(known, "columns")) or None, facts.text(known, "where"),
            known.get("skipped") is True, entry.job, entry.run, entry.index,
        )  # fmt: skip


Maker: TypeAlias = Callable[[Scope], Iterator[Row]]
MAKERS: Mapping[str, tuple[tuple[str, ...], Maker]] = {
    "writes": (WRITES, _writes),
    "schema-changes": (SCHEMA_CHANGES, _schema_changes),
    "deletions": (DELETIONS, _deletions),
    "replays-and-gaps": (REPLAYS_AND_GAPS, _replays_and_gaps),
    "foreign-writes": (FOREIGN_WRITES, _foreign_writes),
    "retention": (RETENTION, _retention),
    "access": (ACCESS, _access),
}
"""Of each report, its columns and what makes its rows."""


# -- leaves ----------------------------------------------------------------------------------


def _table(entry: Entry) -> str | None:
    return None if entry.table is None else entry.table.name


def _undone_by(ledger: Ledger, entry: Entry) -> int | None:
    if entry.batch is None or entry.table is None:
        return None
    undone = ledger.undone(entry.batch, entry.table.uuid)
    return None if undone is None else undone.index


def _intent(ledger: Ledger, entry: Entry) -> Entry | None:
    try:
        return None if entry.intent is None else ledger.get(entry.intent)
    except EntryNotFound:
        return None


def _condition(ledger: Ledger, entry: Entry) -> str | None:
    """Return the condition of a deletion, as the intent recorded it: without its values."""
    intent = _intent(ledger, entry)
    if intent is None or entry.table is None:
        return None
    for operation in facts.objects(intent.facts, "operations"):
        arguments = facts.obj(operation, "arguments")
        if arguments is not None and operation.get("table_uuid") == entry.table.uuid:
            return facts.text(arguments, "where")
    return None


def _columns(schema: JsonObject | None) -> str | None:
    if schema is None:
        return None
    fields = facts.objects(schema, "fields")
    return ", ".join(f"{item.get('name')} {_type(item)}" for item in fields)


def _type(column: JsonObject) -> str:
    nested = facts.obj(column, "type")
    return str(column.get("type") if nested is None else nested.get("type"))
