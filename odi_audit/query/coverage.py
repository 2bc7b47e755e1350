"""Coverage: which share of a table's snapshots and rows came through the committer.

Owns the counting by table and period, and the naming of foreign writers. A snapshot is ours if
the ledger says that it landed; stamps alone prove nothing. Must never leave out a foreign
snapshot because it has expired: the ledger recorded it before it went.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from typing import TYPE_CHECKING

from odi_audit.canonical import JsonObject
from odi_audit.catalog.state import SnapshotInfo, TableState, history
from odi_audit.ids import SnapshotId, TableUuid
from odi_audit.ledger.port import EntryFilter, Ledger
from odi_audit.model.entries import Entry, Kind
from odi_audit.model.tables import TableRef
from odi_audit.query import facts
from odi_audit.query.lookup import Named, walk
from odi_audit.query.writers import Writer, recorded_writer, writer
from odi_audit.query.writes import COMPACT, REPLACE

if TYPE_CHECKING:
    from odi_audit.catalog.lake import LakeCatalog

STAMPED = "carries stamps that the ledger does not bear out"


class Period(StrEnum):
    """How long a period is; all begin at midnight UTC."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignWrite:
    """One snapshot that did not come through the committer.

    ``time_exact`` is False where only the moment is known by which it was there.
    """

    table: TableRef
    snapshot: SnapshotId
    time: str
    time_exact: bool
    operation: str
    rows: int
    deleted_rows: int
    writer: Writer
    retained: bool
    in_main: bool
    entry: int | None
    note: str | None

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {
            **{name: getattr(self, name) for name in self.__slots__},
            "table": self.table.name,
            "table_uuid": self.table.uuid,
            "writer": self.writer.to_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What came through the committer, of one table in one period."""

    table: str
    table_uuid: TableUuid
    period: str
    snapshots_count: int
    snapshots_ours_count: int
    rows_count: int
    rows_ours_count: int
    writers: tuple[tuple[str, int], ...]
    """Foreign writers, with the number of their snapshots."""

    @property
    def snapshots_share(self) -> float | None:
        """Share of snapshots, None where there are none."""
        return _share(self.snapshots_ours_count, self.snapshots_count)

    @property
    def rows_share(self) -> float | None:
        """Share of rows written, None where none were."""
        return _share(self.rows_ours_count, self.rows_count)

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {
            "table": self.table,
            "table_uuid": self.table_uuid,
            "period": self.period,
            "snapshots_count": self.snapshots_count,
            "snapshots_ours_count": self.snapshots_ours_count,
            "snapshots_share": self.snapshots_share,
            "rows_count": self.rows_count,
            "rows_ours_count": self.rows_ours_count,
            "rows_share": self.rows_share,
            "foreign_writers": [
                {"writer": name, "snapshots_count": count} for name, count in self.writers
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The shares, by table and period, their totals, and every foreign snapshot."""

    shares: tuple[Share, ...]
    totals: tuple[Share, ...]
    foreign: tuple[ForeignWrite, ...]

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {
            "periods": [share.to_json() for share in self.shares],
            "totals": [share.to_json() for share in self.totals],
            "foreign": [write.to_json() for write in self.foreign],
        }


def coverage(
    ledger: Ledger,
    catalog: LakeCatalog,
    tables: Sequence[Named] | None = None,
    *,
    since: str | None = None,
    until: str | None = None,
    period: Period = Period.DAY,
    stop: int | None = None,
) -> Coverage:
    """Count the snapshots and rows of the named tables, or of all, that came through here."""
    states = _states(catalog, tables)
    count = _Count(
        wanted=None if tables is None else {table.ref.uuid for table in tables},
        kept={uuid: {info.id: info for info in s.snapshots} for uuid, s in states.items()},
        span=(since or "", until or "~"),
        period=period,
    )
    kinds = (Kind.LANDED, Kind.FOREIGN)
    only = tables[0].ref.uuid if tables is not None and len(tables) == 1 else None
    for entry in walk(ledger, EntryFilter(kinds=kinds, table=only), stop=stop):
        count.recorded(entry)
    for state in states.values():
        count.retained(state, ledger)
    return count.told()


def _states(catalog: LakeCatalog, tables: Sequence[Named] | None) -> Mapping[TableUuid, TableState]:
    if tables is not None:
        return {named.ref.uuid: named.state for named in tables if named.state is not None}
    loaded = [catalog.load(name) for name in catalog.tables()]
    return {state.ref.uuid: state for state in loaded}


@dataclass(slots=True)
class _Cell:
    ours: int = 0
    rows_ours: int = 0
    rows: int = 0
    writers: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True, kw_only=True)
class _Count:
    wanted: set[TableUuid] | None
    kept: Mapping[TableUuid, dict[SnapshotId, SnapshotInfo]]
    span: tuple[str, str]
    period: Period
    names: dict[TableUuid, str] = field(default_factory=dict)
    cells: dict[tuple[TableUuid, str], _Cell] = field(default_factory=dict)
    ours: set[tuple[TableUuid, str]] = field(default_factory=set)
    """Snapshots that the table still has and the ledger says have landed."""
    foreign: list[ForeignWrite] = field(default_factory=list)

    def recorded(self, entry: Entry) -> None:
        """Count an entry that tells of a snapshot."""
        snapshot = facts.text(entry.facts, "snapshot")
        if entry.table is None or snapshot is None:
            return
        uuid = entry.table.uuid
        if self.wanted is not None and uuid not in self.wanted:
            return
        self.names.setdefault(uuid, entry.table.name)
        retained = snapshot in self.kept.get(uuid, {})
        if entry.kind is Kind.LANDED:
            if retained:
                self.ours.add((uuid, snapshot))
            time = facts.text(entry.facts, "committed_at") or entry.time
            if self._in_span(time):
                rows = 0 if facts.operation(entry) == COMPACT else facts.counted_rows(entry) or 0
                cell = self._cell(uuid, time)
                cell.ours, cell.rows_ours = cell.ours + 1, cell.rows_ours + rows
                cell.rows += rows
        elif not retained:
            self._add(_expired(entry, entry.table, SnapshotId(snapshot)))

    def retained(self, state: TableState, ledger: Ledger) -> None:
        """Count the snapshots that the table has and the ledger does not know."""
        self.names[state.ref.uuid] = state.ref.name
        main = {info.id for info in history(state)}
        for info in state.snapshots:
            if (state.ref.uuid, info.id) in self.ours:
                continue
            if info.batch is not None and (info.id not in main or ledger.open_attempts(info.batch)):
                continue  # staged and not published, or on its way
            self._add(_kept(info, state.ref, in_main=info.id in main))

    def _add(self, write: ForeignWrite) -> None:
        if self._in_span(write.time):
            self.foreign.append(write)
            cell = self._cell(write.table.uuid, write.time)
            cell.rows += write.rows
            cell.writers[write.note or str(write.writer)] += 1

    def _in_span(self, time: str) -> bool:
        return self.span[0] <= time < self.span[1]

    def _cell(self, uuid: TableUuid, time: str) -> _Cell:
        return self.cells.setdefault((uuid, label(time, self.period)), _Cell())

    def told(self) -> Coverage:
        """Return the counts, by table name and period."""
        keys = sorted(self.cells, key=lambda key: (self.names[key[0]], key[0], key[1]))
        return Coverage(
            shares=tuple(self._share(uuid, part, [self.cells[uuid, part]]) for uuid, part in keys),
            totals=tuple(
                self._share(uuid, "all", [self.cells[key] for key in keys if key[0] == uuid])
                for uuid in dict.fromkeys(key[0] for key in keys)
            ),
            foreign=tuple(sorted(self.foreign, key=lambda write: (write.time, write.snapshot))),
        )

    def _share(self, uuid: TableUuid, part: str, cells: Sequence[_Cell]) -> Share:
        writers: Counter[str] = Counter()
        for cell in cells:
            writers.update(cell.writers)
        ours = sum(cell.ours for cell in cells)
        return Share(
            table=self.names[uuid],
            table_uuid=uuid,
            period=part,
            snapshots_count=ours + writers.total(),
            snapshots_ours_count=ours,
            rows_count=sum(cell.rows for cell in cells),
            rows_ours_count=sum(cell.rows_ours for cell in cells),
            writers=tuple(sorted(writers.items(), key=lambda item: (-item[1], item[0]))),
        )


def label(time: str, period: Period) -> str:
    """Name the period that a moment is in: ``2026-11-16``, ``2026-W47``, ``2026-11``."""
    if period is Period.DAY:
        return time[:10]
    if period is Period.MONTH:
        return time[:7]
    year, week, _ = date.fromisoformat(time[:10]).isocalendar()
    return f"{year:04d}-W{week:02d}"


def _expired(entry: Entry, table: TableRef, snapshot: SnapshotId) -> ForeignWrite:
    exact = facts.text(entry.facts, "committed_at")
    operation = facts.text(entry.facts, "operation") or "unknown"
    counts = facts.obj(entry.facts, "counts") or {}
    return ForeignWrite(
        table=table,
        snapshot=snapshot,
        time=exact or entry.time,
        time_exact=exact is not None,
        operation=operation,
        rows=0 if operation == REPLACE else facts.number(counts, "added-records") or 0,
        deleted_rows=0 if operation == REPLACE else _deleted(counts),
        writer=recorded_writer(entry),
        retained=False,
        in_main=False,
        entry=entry.index,
        note=None,
    )


def _kept(info: SnapshotInfo, table: TableRef, *, in_main: bool) -> ForeignWrite:
    compaction = info.operation == REPLACE
    return ForeignWrite(
        table=table,
        snapshot=info.id,
        time=info.time,
        time_exact=True,
        operation=info.operation or "unknown",
        rows=0 if compaction else facts.number(info.summary, "added-records") or 0,
        deleted_rows=0 if compaction else _deleted(info.summary),
        writer=writer(info.summary),
        retained=True,
        in_main=in_main,
        entry=None,
        note=None if info.batch is None else f"{STAMPED} ({info.batch})",
    )


def _deleted(counts: Mapping[str, str] | JsonObject) -> int:
    removed = facts.number(counts, "deleted-records") or 0
    return removed + (facts.number(counts, "added-position-deletes") or 0)


def _share(part: int, whole: int) -> float | None:
    return None if whole == 0 else round(part / whole, 6)
