"""Diff: what is different in a table between two batches, snapshots, tags, branches or times.

Owns the counts, the columns that differ, and the samples. Rows are counted as changed where a
value differs; those that were only written anew are counted apart. Must never hold the values of
rows that are in one state only: of those a few are shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from odi_audit.canonical import Json, JsonObject, digits
from odi_audit.catalog.state import Column, SnapshotInfo, TableState
from odi_audit.errors import UsageError
from odi_audit.ids import BatchId, SnapshotId
from odi_audit.ledger.port import Ledger
from odi_audit.model.tables import TableName
from odi_audit.query.dropped import load_table
from odi_audit.query.places import batch_of, batches_by_sequence, resolve_place, rollback_of
from odi_audit.query.seen import plain

if TYPE_CHECKING:
    import pyarrow as pa

    from odi_audit.catalog.changes import Comparison, Side
    from odi_audit.catalog.files import Progress
    from odi_audit.catalog.lake import LakeCatalog

ROW_ID = "_row_id"
LAST_UPDATED = "_last_updated_sequence_number"
LIMIT_DEFAULT = 5
LIMIT_MAX = 10_000


class MatchedBy(StrEnum):
    """What told that two rows are the same one."""

    ROW_ID = "row id"
    KEY = "key"
    VALUES = "values"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffPlace:
    """One of the two states: how it was asked for, and what that is."""

    asked: str
    snapshot: SnapshotId
    sequence_number: int
    time: str
    batch: BatchId | None

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {
            "asked": self.asked,
            "snapshot": self.snapshot,
            "sequence_number": str(self.sequence_number),
            "time": self.time,
            "batch": self.batch,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffRow:
    """One row that differs. ``batch`` made the difference; None where that cannot be told."""

    change: str
    row_id: int | None
    batch: BatchId | None
    values: Mapping[str, Json]
    differences: Mapping[str, tuple[Json, Json]]

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {
            "change": self.change,
            "row_id": digits(self.row_id),
            "batch": self.batch,
            "values": dict(self.values),
            "differences": {name: list(pair) for name, pair in self.differences.items()},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaDiff:
    """How the columns of the two states differ; a column is known by its id."""

    added: tuple[str, ...]
    dropped: tuple[str, ...]
    renamed: Mapping[str, str]
    retyped: Mapping[str, tuple[str, str]]

    @property
    def none(self) -> bool:
        """Whether the columns are the same."""
        return not (self.added or self.dropped or self.renamed or self.retyped)

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {
            "added": list(self.added),
            "dropped": list(self.dropped),
            "renamed": dict(self.renamed),
            "retyped": {name: list(pair) for name, pair in self.retyped.items()},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """Two states of a table compared, under the columns of the second."""

    table: str
    before: DiffPlace
    after: DiffPlace
    matched_by: MatchedBy
    key: tuple[str, ...]
    where: str | None
    added: int
    removed: int
    changed: int
    rewritten: int
    columns: Mapping[str, int]
    schema: SchemaDiff
    samples: tuple[DiffRow, ...]
    missing: tuple[str, ...]
    """Data files that are gone: their rows are in no count."""
    untold: int
    """Rows whose other image may lie in one of those: they are in no other count either."""

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {
            "table": self.table,
            "before": self.before.to_json(),
            "after": self.after.to_json(),
            "matched_by": self.matched_by.value,
            "key": list(self.key),
            "where": self.where,
            "added": self.added,
            "removed": self.removed,
            "changed": self.changed,
            "rewritten": self.rewritten,
            "columns": dict(self.columns),
            "schema": self.schema.to_json(),
            "samples": [row.to_json() for row in self.samples],
            "missing": list(self.missing),
            "untold": self.untold,
        }


def diff(
    ledger: Ledger,
    catalog: LakeCatalog,
    table: TableName,
    before: str,
    after: str,
    *,
    key: Sequence[str] = (),
    where: str | None = None,
    limit: int = LIMIT_DEFAULT,
    progress: Progress | None = None,
) -> Diff:
    """Compare two states of a table; at most ``limit`` samples of each kind are in the answer.

    Without ``key``, rows are matched by their ids, or by all their values where they have none:
    then no row is changed, only removed and added. Data files that are gone are named, and the
    rest is compared; files that an append brought are counted without being opened.

    Raises:
        TableNotFound, EntryNotFound: there is no such table, or no such place in its history.
        UsageError: the filter or the key does not fit, or the limit is out of bounds.
    """
    if not 0 <= limit <= LIMIT_MAX:
        raise UsageError(f"limit {limit} is not between 0 and {LIMIT_MAX}")
    from odi_audit.catalog.changes import compare

    state = load_table(ledger, catalog, table)
    first, second = (resolve_place(ledger, state, place) for place in (before, after))
    missing: list[str] = []
    compared = compare(
        state, first.id, second.id, key=key, where=where, missing=missing, progress=progress
    )
    batches: dict[int | None, BatchId] = dict(batches_by_sequence(ledger, state).items())
    pairs = _Pairs(compared, batches, limit)
    pairs.read()
    added = _alone(compared, compared.after, limit)
    removed = _alone(compared, compared.before, limit)
    removers = _removers(ledger, compared, first, second, removed)
    samples = [
        *(_row("added", row, batches.get(_number(row, LAST_UPDATED)), {}) for row in added),
        *(_row("removed", row, removers.get(_number(row, ROW_ID)), {}) for row in removed),
        *pairs.samples,
    ]
    return Diff(
        table=state.ref.name,
        before=_place(ledger, state, before, first),
        after=_place(ledger, state, after, second),
        matched_by=_matched_by(compared, key),
        key=tuple(key),
        where=where,
        added=compared.inserted_count,
        removed=compared.deleted_count,
        changed=pairs.changed,
        rewritten=pairs.rewritten,
        columns={name: count for name, count in pairs.columns.items() if count},
        schema=_schema_diff(_columns(state, first), _columns(state, second)),
        samples=tuple(samples),
        missing=tuple(sorted(set(missing))),
        untold=compared.untold_count,
    )


# -- rows ------------------------------------------------------------------------------------


class _Pairs:
    """The two images of each updated row, compared column by column."""

    def __init__(
        self, compared: Comparison, batches: Mapping[int | None, BatchId], limit: int
    ) -> None:
        self._compared = compared
        self._batches = batches
        self._limit = limit
        self.changed = 0
        self.rewritten = 0
        self.columns: dict[str, int] = {}
        self.samples: list[DiffRow] = []

    def read(self) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        from odi_audit.catalog.changes import PAIR

        before, after = self._compared.before, self._compared.after
        parts = [
            pa.Table.from_batches([batch]).append_column(PAIR, about[PAIR])
            for batch, about in self._compared.values(before, before.paired)
        ]
        if not parts:
            return
        held = pa.concat_tables(parts).combine_chunks()
        for batch, about in self._compared.values(after, after.paired):
            places = pc.index_in(about[PAIR], value_set=held[PAIR].combine_chunks())
            self._compare(held.take(places), pa.Table.from_batches([batch]))

    def _compare(self, old: pa.Table, new: pa.Table) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        differing = pa.repeat(pa.scalar(value=False), len(new))
        marks: dict[str, pa.Array] = {}
        for name in _own(new.schema.names):
            marks[name] = _differs(old[name], new[name])
            self.columns[name] = self.columns.get(name, 0) + (pc.sum(marks[name]).as_py() or 0)
            differing = pc.or_(differing, marks[name])
        count = pc.sum(differing).as_py() or 0
        self.changed += count
        self.rewritten += len(new) - count
        wanted = pc.indices_nonzero(differing).slice(0, self._limit - len(self.samples))
        olds, news = old.take(wanted).to_pylist(), new.take(wanted).to_pylist()
        for at, was, now in zip(wanted.to_pylist(), olds, news, strict=True):
            names = [name for name, mark in marks.items() if mark[at].as_py()]
            differences = {name: (plain(was[name]), plain(now[name])) for name in names}
            batch = self._batches.get(_number(now, LAST_UPDATED))
            self.samples.append(_row("changed", now, batch, differences))


def _differs(old: pa.ChunkedArray, new: pa.ChunkedArray) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_nested(new.type):
        pairs = zip(old.to_pylist(), new.to_pylist(), strict=True)
        return pa.array([repr(was) != repr(now) for was, now in pairs], pa.bool_())
    nulls = pc.xor(pc.is_null(old), pc.is_null(new))
    values = pc.not_equal(old, new)
    if pa.types.is_floating(new.type):
        values = pc.and_not(values, pc.and_(pc.is_nan(old), pc.is_nan(new)))
    return pc.or_(nulls, pc.fill_null(values, fill_value=False)).combine_chunks()


def _alone(compared: Comparison, side: Side, limit: int) -> list[dict[str, object]]:
    from odi_audit.catalog.files import PLACE

    chosen = side.alone.sort_by([(name, "ascending") for name in PLACE]).slice(0, limit)
    found = [row for batch, _ in compared.values(side, chosen) for row in batch.to_pylist()]
    for batch in compared.whole_values(side) if len(found) < limit else ():
        found.extend(batch.slice(0, limit - len(found)).to_pylist())
        if len(found) == limit:
            break
    return found


def _removers(
    ledger: Ledger,
    compared: Comparison,
    first: SnapshotInfo,
    second: SnapshotInfo,
    removed: Sequence[Mapping[str, object]],
) -> dict[int | None, BatchId | None]:
    """Return which batch took which row, by row id; None stands for the rows without one."""
    import pyarrow as pa

    from odi_audit.catalog.changes import removals

    state = compared.state
    ids = pa.array([_number(row, ROW_ID) for row in removed], pa.int64())
    missing: list[str] = []
    taken_by = removals(state, first.id, second.id, ids, missing=missing)
    # A rollback took what no write did; with a file gone, a write may have.
    undoer = rollback_of(ledger, state, first.id) if removed and not missing else None
    if compared.missing is not None:
        compared.missing.extend(missing)
    return dict.fromkeys(ids.to_pylist(), undoer) | {
        row_id: batch_of(ledger, state, snapshot)
        for snapshot, taken in taken_by.items()
        for row_id in taken.to_pylist()
    }


def _row(
    change: str,
    row: Mapping[str, object],
    batch: BatchId | None,
    differences: Mapping[str, tuple[Json, Json]],
) -> DiffRow:
    return DiffRow(
        change=change,
        row_id=_number(row, ROW_ID),
        batch=batch,
        values={name: plain(row[name]) for name in _own(list(row))},
        differences=differences,
    )


def _number(row: Mapping[str, object], name: str) -> int | None:
    value = row[name]
    return value if isinstance(value, int) else None


def _own(names: Sequence[str]) -> list[str]:
    from odi_audit.catalog.changes import CHANGE_COLUMNS

    return [name for name in names if name not in CHANGE_COLUMNS]


# -- places and schemas ----------------------------------------------------------------------


def _place(ledger: Ledger, state: TableState, asked: str, info: SnapshotInfo) -> DiffPlace:
    return DiffPlace(
        asked=asked,
        snapshot=info.id,
        sequence_number=info.sequence_number,
        time=info.time,
        batch=batch_of(ledger, state, info.id),
    )


def _matched_by(compared: Comparison, key: Sequence[str]) -> MatchedBy:
    if key:
        return MatchedBy.KEY
    return MatchedBy.ROW_ID if compared.state.has_row_ids else MatchedBy.VALUES


def _columns(state: TableState, info: SnapshotInfo) -> tuple[Column, ...]:
    if info.schema_id is None or info.id == state.current_snapshot:
        return state.columns
    return state.schemas[info.schema_id]


def _schema_diff(before: Sequence[Column], after: Sequence[Column]) -> SchemaDiff:
    old = {column.id: column for column in before}
    new = {column.id: column for column in after}
    both = [(old[number], new[number]) for number in new if number in old]
    return SchemaDiff(
        added=tuple(column.name for number, column in new.items() if number not in old),
        dropped=tuple(column.name for number, column in old.items() if number not in new),
        renamed={was.name: now.name for was, now in both if was.name != now.name},
        retyped={now.name: (was.type, now.type) for was, now in both if was.type != now.type},
    )
