"""Rows with their lineage: which row id each has, and which sequence number last changed it.

Owns the reading of data files by position, deletes applied. Lineage columns stored in a file win
where they are not null; elsewhere a row inherits from its file. Must never guess: where the
format or the file gives no row id, the answer is null.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import bind, extract_field_ids, translate_column_names
from pyiceberg.io.pyarrow import (
    _get_column_projection_values,
    _to_requested_schema,
    expression_to_pyarrow,
    pyarrow_to_schema,
)
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.table.deletion_vector import DeletionVector, _extract_vector_payload
from pyiceberg.types import ListType, LongType, MapType, NestedField
from pyparsing import ParseException

from odi_audit.catalog.manifests import DeleteFile, PlannedFile, plan
from odi_audit.catalog.state import TableState, head
from odi_audit.errors import EntryNotFound, NotSupported, StorageError, UsageError
from odi_audit.ids import SnapshotId

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

ROW_ID = "_row_id"
LAST_UPDATED = "_last_updated_sequence_number"
FILE = "_file"
POSITION = "_pos"
FILE_SNAPSHOT = "_file_snapshot"
"""The snapshot that added the row's file: all there is to say where rows have no ids."""
LINEAGE_COLUMNS = (ROW_ID, LAST_UPDATED, FILE, POSITION, FILE_SNAPSHOT)

_ROW_ID_FIELD = NestedField(2147483540, ROW_ID, LongType(), required=False)
_LAST_UPDATED_FIELD = NestedField(2147483539, LAST_UPDATED, LongType(), required=False)
_BUFFER_BYTES = 8 * 1024 * 1024


def lineage_rows(
    state: TableState,
    where: str | None = None,
    columns: Sequence[str] | None = None,
    snapshot: SnapshotId | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that match ``where``, with :data:`LINEAGE_COLUMNS` after the columns asked.

    ``where`` is a pyiceberg filter such as ``order_id = 7``; None takes every row. Without
    ``snapshot`` the head of main is read, under the current schema; an older snapshot is read
    under its own.

    Raises:
        UsageError: the filter cannot be read, or names a column or a value that does not fit.
        EntryNotFound: there is no such snapshot (any more).
        NotSupported: equality deletes, or files that are not Parquet.
        StorageError: a file of the table is missing or damaged.
    """
    chosen = snapshot or head(state)
    if chosen is None:
        return
    info = state.snapshot(chosen)
    if info is None:
        raise EntryNotFound(
            f"table {state.ref.name} has no snapshot {chosen}: it has expired or never was",
            hint=f"odi-audit batches --table {state.ref.name}",
            snapshot=chosen,
        )
    schema = state.handle.schema()
    if snapshot is not None and info.schema_id is not None:
        schema = state.handle.schemas()[info.schema_id]
    row_filter = _parse(where)
    reader = _Reader(
        state=state,
        schema=schema,
        projected=_projected(state, schema, columns),
        bound=_bind(schema, row_filter, where),
    )
    try:
        for file in plan(state.handle, info.manifest_list, schema, row_filter):
            yield from reader.read(file)
    except (OSError, pa.ArrowInvalid) as problem:
        raise StorageError(
            f"table {state.ref.name}, snapshot {chosen}: a file cannot be read: {problem}",
            hint="odi-audit verify",
            table=state.ref.name,
        ) from problem


def _parse(where: str | None) -> BooleanExpression:
    if where is None:
        return AlwaysTrue()
    try:
        return parse(where)
    except (ParseException, ValueError) as problem:
        # The parser's own message lists its whole grammar.
        place = f"near character {problem.loc + 1}" if isinstance(problem, ParseException) else ""
        raise UsageError(
            f"the filter {where!r} cannot be read: {place or problem}",
            hint="write it like: order_id = 7 and region = 'north'",
        ) from problem


def _bind(schema: Schema, row_filter: BooleanExpression, where: str | None) -> BooleanExpression:
    try:
        return bind(schema, row_filter, case_sensitive=True)
    except (ValueError, TypeError) as problem:
        names = ", ".join(column.name for column in schema.fields)
        raise UsageError(
            f"the filter {where!r} does not fit the table: {problem}",
            hint=f"the columns are: {names} (a decimal needs all its digits: 8.50, not 8.5)",
        ) from problem


def _projected(state: TableState, schema: Schema, columns: Sequence[str] | None) -> Schema:
    try:
        picked = schema if columns is None else schema.select(*columns)
    except ValueError as problem:
        names = ", ".join(column.name for column in schema.fields)
        raise UsageError(
            f"table {state.ref.name}: {problem}", hint=f"the columns are: {names}"
        ) from problem
    return Schema(*picked.fields, _ROW_ID_FIELD, _LAST_UPDATED_FIELD)


# -- one file --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """Reads files of one table, under one schema and one filter."""

    state: TableState
    schema: Schema
    projected: Schema
    bound: BooleanExpression

    def read(self, file: PlannedFile) -> Iterator[pa.RecordBatch]:
        if file.format is not FileFormat.PARQUET:
            raise NotSupported(
                f"{file.path} is {file.format.value}: row lineage is read from Parquet only",
                file=file.path,
            )
        table = self.state.handle
        deleted = _deleted(table.io, file)
        with table.io.new_input(file.path).open() as stream:
            form = ds.ParquetFileFormat(pre_buffer=True, buffer_size=_BUFFER_BYTES)
            fragment = form.make_fragment(stream)
            view = self._view(file, fragment.physical_schema)
            for group, start in _groups(fragment, view):
                wanted = _wanted(group, start, view, deleted)
                if wanted is None or len(wanted):
                    yield from self._rows(file, group, start, view, wanted)

    def _view(self, file: PlannedFile, physical: pa.Schema) -> _View:
        table = self.state.handle
        downcast = self.state.format_version <= 2
        file_schema = pyarrow_to_schema(
            physical,
            table.name_mapping(),
            downcast_ns_timestamp_to_us=downcast,
            format_version=table.metadata.format_version,
        )
        constants = _get_column_projection_values(
            file.data_file,
            self.projected,
            self.schema,
            table.specs().get(file.data_file.spec_id),
            file_schema.field_ids,
        )
        arrow_filter = None
        if not isinstance(self.bound, AlwaysTrue):
            translated = translate_column_names(
                self.bound, file_schema, case_sensitive=True, projected_field_values=constants
            )
            in_file = bind(file_schema, translated, case_sensitive=True)
            arrow_filter = expression_to_pyarrow(in_file, file_schema)
        filter_ids = extract_field_ids(self.bound) & file_schema.field_ids
        return _View(
            physical=physical,
            file_schema=prune_columns(
                file_schema, _leaf_ids(self.projected), select_full_types=False
            ),
            filter_names=[
                column.name
                for column in prune_columns(file_schema, filter_ids, select_full_types=False).fields
            ],
            arrow_filter=arrow_filter,
            constants=constants,
            downcast=downcast,
        )

    def _rows(
        self,
        file: PlannedFile,
        group: ds.ParquetFileFragment,
        start: int,
        view: _View,
        wanted: pa.Array | None,
    ) -> Iterator[pa.RecordBatch]:
        names = [column.name for column in view.file_schema.fields]
        scanner = ds.Scanner.from_fragment(group, schema=view.physical, columns=names)
        for whole in scanner.to_batches():
            batch, positions = whole, pa.arange(start, start + whole.num_rows)
            start += whole.num_rows
            if wanted is not None:
                mask = pc.is_in(positions, value_set=wanted)
                batch, positions = batch.filter(mask), positions.filter(mask)
            if batch.num_rows == 0:
                continue
            made = _to_requested_schema(
                self.projected,
                view.file_schema,
                batch,
                downcast_ns_timestamp_to_us=view.downcast,
                projected_missing_fields=view.constants,
                allow_timestamp_tz_mismatch=True,
            )
            yield _with_lineage(made, file, positions)


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """How the table's schema and filter look from inside one file."""

    physical: pa.Schema
    file_schema: Schema
    filter_names: list[str]
    arrow_filter: pc.Expression | None
    constants: dict[int, object]
    downcast: bool


def _leaf_ids(schema: Schema) -> set[int]:
    return {
        number
        for number in schema.field_ids
        if not isinstance(schema.find_type(number), (MapType, ListType))
    }


def _groups(
    fragment: ds.ParquetFileFragment, view: _View
) -> Iterator[tuple[ds.ParquetFileFragment, int]]:
    """Yield the row groups that may match, each with the position of its first row."""
    starts = [0]
    for group in fragment.row_groups:
        starts.append(starts[-1] + group.num_rows)
    for part in fragment.split_by_row_group(view.arrow_filter, schema=view.physical):
        yield part, starts[part.row_groups[0].id]


def _wanted(
    group: ds.ParquetFileFragment, start: int, view: _View, deleted: pa.Array | None
) -> pa.Array | None:
    """Return the positions of the group's matching, living rows; None for all of them.

    Reads no more than the filter's columns, so that a group without a match costs little.
    """
    if view.arrow_filter is None and deleted is None:
        return None
    count = group.row_groups[0].num_rows
    positions = pa.arange(start, start + count)
    table = pa.table({POSITION: positions})
    if view.arrow_filter is not None and view.filter_names:
        table = group.to_table(schema=view.physical, columns=view.filter_names)
        table = table.append_column(POSITION, positions)
    if deleted is not None:
        table = table.filter(pc.invert(pc.is_in(table[POSITION], value_set=deleted)))
    if view.arrow_filter is not None:
        table = table.filter(view.arrow_filter)
    return table[POSITION].combine_chunks()


def _with_lineage(batch: pa.RecordBatch, file: PlannedFile, positions: pa.Array) -> pa.RecordBatch:
    count = batch.num_rows
    names = [name for name in batch.schema.names if name not in (ROW_ID, LAST_UPDATED)]
    row_ids = sequences = pa.nulls(count, pa.int64())
    if file.first_row_id is not None:
        inherited = pc.add(positions, pa.scalar(file.first_row_id, pa.int64()))
        row_ids = pc.coalesce(batch.column(ROW_ID), inherited)
        sequences = pc.fill_null(batch.column(LAST_UPDATED), file.sequence_number)
    return pa.RecordBatch.from_arrays(
        [
            *(batch.column(name) for name in names),
            row_ids,
            sequences,
            pa.repeat(pa.scalar(file.path), count),
            positions,
            pa.repeat(pa.scalar(file.snapshot, pa.string()), count),
        ],
        names=[*names, *LINEAGE_COLUMNS],
    )


# -- deletes ---------------------------------------------------------------------------------


def _deleted(io: FileIO, file: PlannedFile) -> pa.Array | None:
    if not file.deletes:
        return None
    chunks: list[pa.Array] = []
    for delete in file.deletes:
        if delete.format is FileFormat.PUFFIN:
            chunks.extend(_vector(io, delete))
        elif delete.format is FileFormat.PARQUET:
            chunks.extend(_positions(io, delete, file.path))
        else:
            raise NotSupported(
                f"delete file {delete.path} is {delete.format.value}: only Parquet and Puffin "
                "are read",
                file=delete.path,
            )
    return pa.concat_arrays(chunks) if chunks else None


def _vector(io: FileIO, delete: DeleteFile) -> Iterator[pa.Array]:
    if delete.offset is None or delete.size_bytes is None:
        raise StorageError(f"deletion vector in {delete.path} has no place in its file")
    with io.new_input(delete.path).open() as stream:
        stream.seek(delete.offset)
        blob = stream.read(delete.size_bytes)
    for high, bitmap in enumerate(
        DeletionVector._deserialize_bitmap(_extract_vector_payload(blob))
    ):
        low = pa.Array.from_buffers(
            pa.uint32(), len(bitmap), [None, pa.py_buffer(bitmap.to_array())]
        )
        yield pc.add(low.cast(pa.int64()), pa.scalar(high << 32, pa.int64()))


def _positions(io: FileIO, delete: DeleteFile, path: str) -> Iterator[pa.Array]:
    with io.new_input(delete.path).open() as stream:
        fragment = ds.ParquetFileFormat().make_fragment(stream)
        found = fragment.to_table(columns=["pos"], filter=pc.field("file_path") == path)
        yield from found["pos"].chunks
