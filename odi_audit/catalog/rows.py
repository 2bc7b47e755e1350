"""Rows with their lineage: which row id each has, and which sequence number last changed it.

Owns the reading of data files by position, deletes applied, a row group at a time. Lineage columns
stored in a file win where they are not null; elsewhere a row inherits from its file. Must never
guess: where the format or the file gives no row id, the answer is null.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io.pyarrow import _get_column_projection_values, pyarrow_to_schema
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.types import LongType, NestedField

from odi_audit.catalog import deletes, filters
from odi_audit.catalog.manifests import PlannedFile, plan
from odi_audit.catalog.predicates import Predicate, matches, pruning, row_groups, terms
from odi_audit.catalog.projection import leaves, project
from odi_audit.catalog.state import SnapshotInfo, TableState, head
from odi_audit.errors import EntryNotFound, NotSupported, StorageError, UsageError
from odi_audit.ids import SnapshotId

if TYPE_CHECKING:
    from pyiceberg.io import InputStream

ROW_ID = "_row_id"
LAST_UPDATED = "_last_updated_sequence_number"
FILE = "_file"
POSITION = "_pos"
FILE_SNAPSHOT = "_file_snapshot"
"""The snapshot that added the row's file: all there is to say where rows have no ids."""
LINEAGE_COLUMNS = (ROW_ID, LAST_UPDATED, FILE, POSITION, FILE_SNAPSHOT)
ROW_ID_FIELD, LAST_UPDATED_FIELD = 2147483540, 2147483539
"""The format's own ids of the lineage columns, where a file stores them."""

_LINEAGE = (
    NestedField(ROW_ID_FIELD, ROW_ID, LongType(), required=False),
    NestedField(LAST_UPDATED_FIELD, LAST_UPDATED, LongType(), required=False),
)
_BUFFER_BYTES = 8 * 1024 * 1024
_BATCH_ROWS = 65_536
"""Rows decoded at a time: what bounds the memory of a scan."""
_NEAR_MATCHES_MAX = 3


def lineage_rows(
    state: TableState,
    where: str | None = None,
    columns: Sequence[str] | None = None,
    snapshot: SnapshotId | None = None,
    *,
    missing: list[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that match ``where``, with :data:`LINEAGE_COLUMNS` after the columns asked.

    ``where`` is a filter such as ``order_id = 7`` (see ``filters``); None takes every row. Without
    ``snapshot`` the head of main is read, under the current schema; an older snapshot is read
    under its own. Where ``missing`` is given, a data file that is gone is named there, and the
    rest is answered.

    Raises:
        UsageError: the filter cannot be read, or names a column or a value that does not fit.
        EntryNotFound: there is no such snapshot (any more).
        NotSupported: files that are not Parquet.
        StorageError: a file of the table is missing or damaged.
    """
    info = snapshot_to_read(state, snapshot)
    if info is None:
        return
    schema = state.handle.schema()
    if snapshot is not None and info.schema_id is not None:
        schema = state.handle.schemas()[info.schema_id]
    reader = open_reader(state, schema, columns, where)
    try:
        for file in plan(state.handle, info.manifest_list, schema, reader.pruning):
            yield from reader.read(file, missing)
    except (OSError, pa.ArrowInvalid) as problem:
        raise unreadable(state, info, problem) from problem


def snapshot_to_read(state: TableState, snapshot: SnapshotId | None) -> SnapshotInfo | None:
    """Return the snapshot asked for, else the head of main; None where there is none yet.

    Raises:
        EntryNotFound: there is no such snapshot (any more).
    """
    chosen = snapshot or head(state)
    info = None if chosen is None else state.snapshot(chosen)
    if info is None and chosen is not None:
        raise EntryNotFound(
            f"table {state.ref.name} has no snapshot {chosen}: it has expired or never was",
            hint=f"odi-audit batches --table {state.ref.name}",
            snapshot=chosen,
        )
    return info


def unreadable(state: TableState, info: SnapshotInfo, problem: Exception) -> StorageError:
    """Make the error for a file that is missing or damaged."""
    return StorageError(
        f"table {state.ref.name}, snapshot {info.id}: a file cannot be read: {problem}",
        hint="odi-audit verify",
        table=state.ref.name,
    )


def open_reader(
    state: TableState, schema: Schema, columns: Sequence[str] | None, where: str | None
) -> Reader:
    """Return a reader of a table's files under one schema and one filter.

    Raises:
        UsageError: the filter cannot be read, or a column is not there.
    """
    return Reader(
        state=state,
        schema=schema,
        projected=_projected(state, schema, columns),
        where=None if where is None else filters.read(where, schema),
    )


def _projected(state: TableState, schema: Schema, columns: Sequence[str] | None) -> Schema:
    if columns is None:
        return Schema(*schema.fields, *_LINEAGE)
    known = schema.column_names
    for name in columns:
        if name not in known:
            near = difflib.get_close_matches(name, known, _NEAR_MATCHES_MAX)
            meant = f"; did you mean {', '.join(near)}?" if near else ""
            raise UsageError(
                f"table {state.ref.name} has no column {name}{meant}",
                hint=f"the columns are: {', '.join(part.name for part in schema.fields)}",
                near=near,
            )
    return Schema(*schema.select(*columns).fields, *_LINEAGE)


# -- one file --------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Reader:
    """Reads files of one table, under one schema and one filter."""

    state: TableState
    schema: Schema
    projected: Schema
    where: Predicate | None
    _filter_schema: Schema = field(init=False)
    _keys: deletes.Keys = field(init=False)

    def __post_init__(self) -> None:
        wanted = set() if self.where is None else set(terms(self.where))
        self._filter_schema = prune_columns(self.schema, wanted, select_full_types=True)
        self._keys = deletes.Keys(table=self.state.handle, schema=self.schema)

    @property
    def pruning(self) -> BooleanExpression:
        """What a file's statistics must allow for it to be read."""
        return AlwaysTrue() if self.where is None else pruning(self.where)

    def read(self, file: PlannedFile, missing: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the matching, living rows of a file; name it in ``missing`` where it is gone."""
        if file.format is not FileFormat.PARQUET:
            raise NotSupported(
                f"{file.path} is {file.format.value}: row lineage is read from Parquet only",
                file=file.path,
            )
        dead, keys = deletes.positions(self.state.handle.io, file), self._keys.of(file)
        stream = open_data(self.state, file, missing)
        if stream is None:
            return
        with stream:
            yield from self._open(file, stream).rows(dead, keys)

    def _open(self, file: PlannedFile, stream: InputStream) -> _OpenFile:
        table = self.state.handle
        form = ds.ParquetFileFormat(pre_buffer=True, buffer_size=_BUFFER_BYTES)
        fragment = form.make_fragment(stream)
        have = file_schema(self.state, fragment.physical_schema)
        constants = _get_column_projection_values(
            file.data_file,
            self.schema,
            self.schema,
            table.specs().get(file.data_file.spec_id),
            have.field_ids,
        )
        return _OpenFile(
            file=file,
            fragment=fragment,
            # Another way into the same stream: a scanner decodes a whole row group, however large,
            # before the first of its rows can be had.
            parquet=pq.ParquetFile(stream, metadata=fragment.metadata, buffer_size=_BUFFER_BYTES),
            have=have,
            want=self.projected,
            where=self.where,
            filter_schema=self._filter_schema,
            constants=constants,
        )


def open_data(
    state: TableState, file: PlannedFile, missing: list[str] | None
) -> InputStream | None:
    """Open a data file; where it is gone and ``missing`` is given, name it there."""
    try:
        return state.handle.io.new_input(file.path).open()
    except FileNotFoundError:
        if missing is None:
            raise
        missing.append(file.path)
        return None


def file_schema(state: TableState, physical: pa.Schema) -> Schema:
    """Return the schema of a Parquet file, with ids from it or from the table's name mapping."""
    table = state.handle
    return pyarrow_to_schema(
        physical,
        table.name_mapping(),
        downcast_ns_timestamp_to_us=state.format_version <= 2,
        format_version=table.metadata.format_version,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenFile:
    """A data file, and how the table's schema and filter look from inside it."""

    file: PlannedFile
    fragment: ds.ParquetFileFragment
    parquet: pq.ParquetFile
    have: Schema
    want: Schema
    where: Predicate | None
    filter_schema: Schema
    constants: Mapping[int, object]

    def rows(
        self, dead: pa.Array | None, keys: Sequence[deletes.KeySet]
    ) -> Iterator[pa.RecordBatch]:
        for group, start in self._groups():
            chosen = None
            if self.where is not None or keys:
                chosen = self._chosen(group, start, dead, keys)
                if not len(chosen):
                    continue
            yield from self._values(group, start, dead, chosen)

    def _groups(self) -> Iterator[tuple[ds.ParquetFileFragment, int]]:
        """Yield the row groups that may match, each with the position of its first row."""
        starts = [0]
        for group in self.fragment.row_groups:
            starts.append(starts[-1] + group.num_rows)
        condition = None
        if self.where is not None:
            condition = row_groups(self.where, self._same_type())
        physical = self.fragment.physical_schema
        for part in self.fragment.split_by_row_group(condition, schema=physical):
            yield part, starts[part.row_groups[0].id]

    def _same_type(self) -> dict[int, str]:
        known = {part.field_id: part.field_type for part in self.filter_schema.fields}
        return {
            part.field_id: part.name
            for part in self.have.fields
            if known.get(part.field_id) == part.field_type
        }

    def _chosen(
        self,
        group: ds.ParquetFileFragment,
        start: int,
        dead: pa.Array | None,
        keys: Sequence[deletes.KeySet],
    ) -> pa.Array:
        """Return the positions of the group's matching, living rows.

        Reads no more than the columns that decide, so that a group without a match costs little.
        """
        schemas = [self.filter_schema, *(key_set.schema for key_set in keys)]
        found: list[pa.Array] = []
        for columns, count in self._scan(group, schemas):
            mask = alive(start, count, dead)
            if self.where is not None:
                mask = pc.and_kleene(
                    mask, matches(self.where, self._leaves(columns, count, schemas[0]), count)
                )
            for key_set in keys:
                held = key_set.holds(self._leaves(columns, count, key_set.schema), count)
                mask = pc.and_kleene(mask, pc.invert(held))
            found.append(pa.arange(start, start + count).filter(mask))
            start += count
        return pa.concat_arrays(found) if found else pa.array([], pa.int64())

    def _leaves(
        self, columns: Mapping[str, pa.Array], count: int, schema: Schema
    ) -> dict[int, pa.Array]:
        made = project(columns, count, self.have, schema, self.constants)
        return leaves(schema.fields, made)

    def _values(
        self,
        group: ds.ParquetFileFragment,
        start: int,
        dead: pa.Array | None,
        chosen: pa.Array | None,
    ) -> Iterator[pa.RecordBatch]:
        last = None if chosen is None else chosen[-1].as_py()
        for found, count in self._scan(group, [self.want]):
            columns, positions = found, pa.arange(start, start + count)
            if chosen is not None:
                positions = _between(chosen, start, start + count)
            elif dead is not None:
                positions = positions.filter(alive(start, count, dead))
            if len(positions) < count:
                places = pc.subtract(positions, pa.scalar(start, pa.int64()))
                columns = {name: column.take(places) for name, column in found.items()}
            start += count
            if len(positions):
                made = project(columns, len(positions), self.have, self.want, self.constants)
                yield _with_lineage(made, self.want, self.file, positions)
            if last is not None and last < start:
                return

    def _scan(
        self, group: ds.ParquetFileFragment, schemas: Sequence[Schema]
    ) -> Iterator[tuple[dict[str, pa.Array], int]]:
        """Yield the file's own columns that the schemas need, part by part, with the row count."""
        needed = {part.field_id for schema in schemas for part in schema.fields}
        names = [part.name for part in self.have.fields if part.field_id in needed]
        total = group.row_groups[0].num_rows
        if not names:
            for low in range(0, total, _BATCH_ROWS):
                yield {}, min(_BATCH_ROWS, total - low)
        elif any("." in name for name in names):
            # Parquet's own reader would take such a name for a path into a struct.
            physical = self.fragment.physical_schema
            for batch in group.to_batches(schema=physical, columns=names, batch_size=_BATCH_ROWS):
                yield dict(zip(names, batch.columns, strict=True)), batch.num_rows
        else:
            groups = [group.row_groups[0].id]
            for batch in self.parquet.iter_batches(_BATCH_ROWS, row_groups=groups, columns=names):
                yield {name: batch.column(name) for name in names}, batch.num_rows


def alive(start: int, count: int, dead: pa.Array | None) -> pa.Array:
    """Return for each of the rows from ``start`` on whether no position delete names it."""
    gone = None if dead is None else _between(dead, start, start + count)
    if gone is None or not len(gone):
        return pa.repeat(pa.scalar(value=True), count)
    return pc.invert(pc.is_in(pa.arange(start, start + count), value_set=gone))


def _between(ordered: pa.Array, low: int, high: int) -> pa.Array:
    ends = pc.search_sorted(ordered, pa.array([low, high], pa.int64()), side="left").to_pylist()
    return ordered.slice(ends[0], ends[1] - ends[0])


def _with_lineage(
    columns: Sequence[pa.Array], want: Schema, file: PlannedFile, positions: pa.Array
) -> pa.RecordBatch:
    count = len(positions)
    *values, stored_ids, stored_sequences = columns
    names = [part.name for part in want.fields[: len(values)]]
    row_ids = sequences = pa.nulls(count, pa.int64())
    if file.first_row_id is not None:
        inherited = pc.add(positions, pa.scalar(file.first_row_id, pa.int64()))
        row_ids = pc.coalesce(stored_ids, inherited)
        sequences = pc.fill_null(stored_sequences, file.sequence_number)
    return pa.RecordBatch.from_arrays(
        [
            *values,
            row_ids,
            sequences,
            pa.repeat(pa.scalar(file.path), count),
            positions,
            pa.repeat(pa.scalar(file.snapshot, pa.string()), count),
        ],
        names=[*names, *LINEAGE_COLUMNS],
    )
