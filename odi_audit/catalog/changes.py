"""Changes between two snapshots: which rows came, went, and were changed.

Owns the comparing of two states of a table, whether or not one descends from the other. Only files
that differ are opened; of those, first the lineage alone is read, then the values of changed rows.
A row is the same where its id and its last change are: what a compaction moved has not changed.
Where rows have no ids, their keys or their values tell (:mod:`odi_audit.catalog.matching`). Must
never report a row as changed only because it lies in another file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from odi_audit.catalog import matching, rows
from odi_audit.catalog.files import (
    FILE_NUMBER,
    KEPT,
    LINEAGE_TYPES,
    PLACE,
    VERSION,
    Files,
    Progress,
    arrow_schema,
    check_columns,
    schema_at,
)
from odi_audit.catalog.manifests import PlannedFile
from odi_audit.catalog.rows import ROW_ID
from odi_audit.catalog.state import SnapshotInfo, TableState
from odi_audit.catalog.steps import appended_since, grown_since, removing_steps
from odi_audit.ids import SnapshotId

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

CHANGE = "_change"
PAIR = matching.PAIR
CHANGE_COLUMNS = (CHANGE, *rows.LINEAGE_COLUMNS, PAIR)
"""What follows the table's own columns. ``_pair`` joins the two images of one update."""


class Change(StrEnum):
    """What happened to a row; an update has two images."""

    INSERT = "insert"
    DELETE = "delete"
    UPDATE_BEFORE = "update_before"
    UPDATE_AFTER = "update_after"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The rows of one snapshot that are not the same in the other, and the files they are in.

    ``rows`` has no values: place, version, and the pair that the row makes with one of the other
    side (null: it makes none). ``whole`` are files of which that is known without a look: every
    row of theirs is new, so that none is listed in ``rows``. ``untold`` are rows whose like may be
    in a file of the other side that is gone: whether they differ cannot be told.
    """

    files: Mapping[int, PlannedFile]
    rows: pa.Table
    whole: Mapping[int, PlannedFile] = field(default_factory=dict)
    untold: pa.Table = field(default_factory=KEPT.empty_table)

    @property
    def paired(self) -> pa.Table:
        """The images of updates."""
        return self.rows.filter(pc.is_valid(self.rows[PAIR]))

    @property
    def alone(self) -> pa.Table:
        """The rows that the other snapshot does not have; those of whole files apart."""
        return self.rows.filter(pc.is_null(self.rows[PAIR]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two snapshots compared; values are read when asked for.

    ``missing`` names the data files that were to be read and are gone, as they are met; None: the
    first of them is an error.
    """

    state: TableState
    schema: Schema
    before: Side
    after: Side
    missing: list[str] | None = None

    @property
    def inserted_count(self) -> int:
        """Rows that only the second snapshot has."""
        gone = frozenset(self.missing or ())
        files = self.after.whole.values()
        whole = sum(file.rows_count for file in files if file.path not in gone)
        return int(self.after.rows[PAIR].null_count) + whole

    @property
    def deleted_count(self) -> int:
        """Rows that only the first snapshot has."""
        return int(self.before.rows[PAIR].null_count)

    @property
    def updated_count(self) -> int:
        """Rows that both have, written anew in between."""
        return int(len(self.after.rows) - self.after.rows[PAIR].null_count)

    @property
    def untold_count(self) -> int:
        """Rows of which it cannot be told whether they came, went or changed."""
        return len(self.before.untold) + len(self.after.untold)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the changed rows, under the second snapshot's schema, :data:`CHANGE_COLUMNS` last.

        All images from before come first (``delete``, ``update_before``), then all from after:
        whoever applies them in this order, by any key, ends with the second snapshot.
        """
        sides = (
            (self.before, Change.DELETE, Change.UPDATE_BEFORE),
            (self.after, Change.INSERT, Change.UPDATE_AFTER),
        )
        for side, alone, paired in sides:
            for batch, about in self.values(side, side.rows, columns):
                label = pc.if_else(pc.is_null(about[PAIR]), alone.value, paired.value)
                yield _with_change(batch, label.combine_chunks(), about[PAIR].combine_chunks())
            for batch in self.whole_values(side, columns):
                count = batch.num_rows
                label = pa.repeat(pa.scalar(alone.value), count)
                yield _with_change(batch, label, pa.nulls(count, pa.int64()))

    def values(
        self, side: Side, chosen: pa.Table, columns: Sequence[str] | None = None
    ) -> Iterator[tuple[pa.RecordBatch, pa.Table]]:
        """Yield the values of some rows of a side, each batch with what is known of its rows."""
        return self._files.values(side.files, chosen, columns)

    def whole_values(
        self, side: Side, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a side's whole files."""
        for file in side.whole.values():
            yield from self._files.rows(file, columns)

    @property
    def _files(self) -> Files:
        return Files(state=self.state, schema=self.schema, missing=self.missing)


def change_schema(
    state: TableState, after: SnapshotInfo | None, columns: Sequence[str] | None = None
) -> pa.Schema:
    """Return the schema of :meth:`Comparison.batches`; of a table without snapshots too."""
    schema = state.handle.schema() if after is None else schema_at(state, after.id)
    kinds = {CHANGE: pa.string(), **LINEAGE_TYPES, PAIR: pa.int64()}
    own = arrow_schema(schema, columns)
    return pa.schema([*own, *(pa.field(name, kind) for name, kind in kinds.items())])


def changes(
    state: TableState,
    before: SnapshotId | None,
    after: SnapshotId,
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    key: Sequence[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that changed between two snapshots: :meth:`Comparison.batches` of them."""
    return compare(state, before, after, where=where, key=key).batches(columns)


def compare(
    state: TableState,
    before: SnapshotId | None,
    after: SnapshotId,
    *,
    where: str | None = None,
    key: Sequence[str] = (),
    missing: list[str] | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare two snapshots; without ``before``, every row of ``after`` is an insert.

    Rows are matched by row id; by ``key`` where it is given (then values decide whether a row has
    changed); where there are no ids, by all their values. ``where`` keeps a change if the row
    matched before or after it. An update that left all values as they were is an update still,
    unless a key is given. Where ``missing`` is given, a data file that is gone is named there, and
    the rest is compared; a file that need not be opened is not missed.

    Raises:
        UsageError: the filter or the key does not fit the table.
        EntryNotFound: there is no such snapshot (any more).
        StorageError: a file of the table is missing or damaged.
    """
    gone: list[str] | None = None if missing is None else []
    files = Files(state=state, schema=schema_at(state, after), missing=gone, progress=progress)
    check_columns(state, key, after)
    look = where is not None or (bool(key) and before is not None)
    old, new = _without_unchanged(*_differing(files, before, after, look=look))
    if key:
        old, new = _matched(files, old, new, matching.by_key, key)
    else:
        old, new = _paired(old, new.rows[ROW_ID]), _paired(new, old.rows[ROW_ID])
        if old.rows[ROW_ID].null_count or new.rows[ROW_ID].null_count:
            old, new = _matched(files, old, new, matching.by_values, ())
    if gone and missing is not None:
        missing.extend(gone)
        appends = set() if key else appended_since(state, before, after)
        old, new = _without_untold(old, new, frozenset(gone), appends)
    if where is not None:
        old, new = _filtered(files, old, new, where)
    return Comparison(state=state, schema=files.schema, before=old, after=new, missing=missing)


def removals(
    state: TableState,
    before: SnapshotId,
    after: SnapshotId,
    row_ids: pa.Array,
    *,
    missing: list[str] | None = None,
) -> dict[SnapshotId, pa.Array]:
    """Return which snapshots took rows away on the way from ``before`` to ``after``.

    Rows of which the retained snapshots do not show it (an expired one took them, or a rollback)
    are in no answer; nor are those that a file which is gone would show. Where only one snapshot
    can have done it, nothing is read.
    """
    steps, whole = removing_steps(state, before, after)
    if whole and len(steps) == 1:
        return {steps[0].id: row_ids} if len(row_ids) else {}
    taken: dict[SnapshotId, pa.Array] = {}
    left = row_ids
    for info in steps:
        if not len(left):
            break
        compared = compare(state, info.parent, info.id, missing=missing)
        gone = compared.before.alone[ROW_ID].combine_chunks()
        here = pc.is_in(left, value_set=gone, skip_nulls=True)
        mine, left = left.filter(here), left.filter(pc.invert(here))
        if len(mine):
            taken[info.id] = mine
    return taken


# -- matching --------------------------------------------------------------------------------


def _differing(
    files: Files, before: SnapshotId | None, after: SnapshotId, *, look: bool
) -> tuple[Side, Side]:
    """Return what is to be looked at of each side; a file has one number on both.

    ``look`` says that every row must be looked at, also in files that are known to be all new.
    """
    old, new = files.plan(before), files.plan(after)
    same = {_identity(file) for file in old} & {_identity(file) for file in new}
    appends = set() if look else appended_since(files.state, before, after)
    since = grown_since(files.state, before, after)
    numbers: dict[str, int] = {}
    sides: list[Side] = []
    for planned, is_after in ((old, False), (new, True)):
        mine: dict[int, PlannedFile] = {}
        whole: dict[int, PlannedFile] = {}
        for file in planned:
            # Where rows were only ever added, the first side has nothing to show.
            if _identity(file) in same or (since is not None and not is_after):
                continue
            number = numbers.setdefault(file.path, len(numbers))
            known = is_after and not look and not file.deletes
            is_new = before is None or (file.first_row_id is not None and file.snapshot in appends)
            (whole if known and is_new else mine)[number] = file
        lineage = files.lineage(mine, after=since)
        sides.append(Side(files=mine, rows=lineage, whole=whole))
    return sides[0], sides[1]


def _identity(file: PlannedFile) -> tuple[object, ...]:
    # Row ids are no part of it: an upgrade to v3 numbers rows without touching them.
    return (file.path, frozenset(file.deletes))


def _without_unchanged(old: Side, new: Side) -> tuple[Side, Side]:
    """Take out what both sides have: the same place in a file, or the same version of a row."""
    for keys in (PLACE, VERSION):
        if not len(old.rows) or not len(new.rows):
            break
        ours, theirs = old.rows, new.rows
        old = replace(old, rows=_only_in(ours, theirs, keys))
        new = replace(new, rows=_only_in(theirs, ours, keys))
    return _paired(old, None), _paired(new, None)


def _only_in(ours: pa.Table, theirs: pa.Table, keys: list[str]) -> pa.Table:
    # Nulls equal nothing here: a row without an id is kept, as it must be.
    return ours.join(theirs.select(keys), keys=keys, join_type="left anti").select(KEPT.names)


def _paired(side: Side, others: pa.ChunkedArray | None) -> Side:
    """Pair the rows whose ids are among ``others``."""
    made = side.rows.select(KEPT.names)
    pair = pa.nulls(len(made), pa.int64())
    if others is not None and len(others) and len(made):
        both = pc.is_in(made[ROW_ID], value_set=others.combine_chunks(), skip_nulls=True)
        pair = pc.if_else(both, made[ROW_ID], pa.scalar(None, pa.int64()))
    return replace(side, rows=made.append_column(PAIR, pair))


def _matched(
    files: Files, old: Side, new: Side, match: matching.Matcher, key: Sequence[str]
) -> tuple[Side, Side]:
    """Match by what must be read for it: only rows that have no pair yet are."""
    left, right = match(
        matching.digests(files.values(old.files, old.alone), key),
        matching.digests(files.values(new.files, new.alone), key),
    )
    return (
        replace(old, rows=_together(old.paired, left)),
        replace(new, rows=_together(new.paired, right)),
    )


def _without_untold(
    old: Side, new: Side, gone: frozenset[str], appends: set[SnapshotId]
) -> tuple[Side, Side]:
    """Set aside the rows without a pair, if it may lie in a file of the other side that is gone.

    A row with an id in a file that an append has brought since has no like before.
    """
    fresh = {
        number
        for number, file in new.files.items()
        if file.first_row_id is not None and file.snapshot in appends
    }
    lost_old = any(file.path in gone for file in old.files.values())
    lost_new = any(file.path in gone for number, file in new.files.items() if number not in fresh)
    return (
        _set_aside(old, set()) if lost_new else old,
        _set_aside(new, fresh) if lost_old else new,
    )


def _set_aside(side: Side, sure: set[int]) -> Side:
    known = pc.is_in(side.alone[FILE_NUMBER], value_set=pa.array(sorted(sure), pa.int32()))
    return replace(
        side,
        rows=_together(side.paired, side.alone.filter(known)),
        untold=side.alone.filter(pc.invert(known)),
    )


def _filtered(files: Files, old: Side, new: Side, where: str) -> tuple[Side, Side]:
    """Keep the changes whose row matches the filter before or after."""
    matching_rows = [files.lineage(side.files, where).select(PLACE) for side in (old, new)]
    old, new = (
        replace(side, untold=side.untold.join(found, keys=PLACE, join_type="left semi"))
        for side, found in zip((old, new), matching_rows, strict=True)
    )
    hits = [
        side.rows.join(found, keys=PLACE, join_type="left semi")
        for side, found in zip((old, new), matching_rows, strict=True)
    ]
    pairs = pa.chunked_array([chunk for hit in hits for chunk in hit[PAIR].chunks], pa.int64())
    kept: list[Side] = []
    for side, hit in zip((old, new), hits, strict=True):
        others = side.paired.join(hit.select(PLACE), keys=PLACE, join_type="left anti")
        mine = pc.is_in(others[PAIR], value_set=pairs.combine_chunks(), skip_nulls=True)
        kept.append(replace(side, rows=_together(hit, others.filter(mine))))
    return kept[0], kept[1]


def _together(*parts: pa.Table) -> pa.Table:
    return pa.concat_tables([part.select([*KEPT.names, PAIR]) for part in parts])


def _with_change(batch: pa.RecordBatch, label: pa.Array, pair: pa.Array) -> pa.RecordBatch:
    own = batch.num_columns - len(LINEAGE_TYPES)
    names = batch.schema.names
    return pa.RecordBatch.from_arrays(
        [*batch.columns[:own], label, *batch.columns[own:], pair],
        names=[*names[:own], CHANGE, *names[own:], PAIR],
    )
