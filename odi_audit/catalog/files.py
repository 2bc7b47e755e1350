"""Chosen files of a snapshot, read under one schema: for comparisons, which need not read them all.

Owns the way from a planned file to its rows, or to their lineage alone. Must never choose: the
caller says which files, and which rows of them.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import schema_to_pyarrow

from odi_audit.catalog import rows
from odi_audit.catalog.manifests import PlannedFile, plan
from odi_audit.catalog.rows import FILE_SNAPSHOT, LAST_UPDATED, POSITION, ROW_ID
from odi_audit.catalog.state import SnapshotInfo, TableState, head
from odi_audit.errors import EntryNotFound, StorageError, UsageError
from odi_audit.ids import SnapshotId

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

Progress: TypeAlias = Callable[[int, int], None]
"""Is told how many of how many files have been read."""
NEAR_MATCHES_MAX = 3
FILE_NUMBER = "_file_number"
LINEAGE_TYPES = {
    ROW_ID: pa.int64(),
    LAST_UPDATED: pa.int64(),
    rows.FILE: pa.string(),
    POSITION: pa.int64(),
    FILE_SNAPSHOT: pa.string(),
}
PLACE = [FILE_NUMBER, POSITION]
"""Where a row lies: the one thing that names it in every format."""
VERSION = [ROW_ID, LAST_UPDATED]
"""Which row it is, and which change made it what it is; both null where rows have no ids."""
KEPT = pa.schema(
    [
        (FILE_NUMBER, pa.int32()),
        (POSITION, pa.int64()),
        (ROW_ID, pa.int64()),
        (LAST_UPDATED, pa.int64()),
    ]
)
"""What is kept of a row without its values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Plans and reads files of one table under one schema.

    Where ``missing`` is given, a data file that is gone is named there and gives no rows.
    """

    state: TableState
    schema: Schema
    missing: list[str] | None = None
    progress: Progress | None = None

    def plan(self, snapshot: SnapshotId | None) -> list[PlannedFile]:
        """Return the files of a snapshot with their deletes; none for no snapshot."""
        if snapshot is None:
            return []
        info = found(self.state, snapshot)
        with _readable(self.state):
            return list(plan(self.state.handle, info.manifest_list, self.schema, AlwaysTrue()))

    def lineage(
        self,
        files: Mapping[int, PlannedFile],
        where: str | None = None,
        *,
        after: int | None = None,
    ) -> pa.Table:
        """Return place and version (:data:`KEPT`) of every row that matches; no values.

        ``after`` keeps the rows whose last change has a higher number.
        """
        batches: list[pa.RecordBatch] = []
        for done, (number, file) in enumerate(files.items()):
            if self.progress is not None:
                self.progress(done, len(files))
            for batch in self._read(file, [], where):
                kept = batch
                if after is not None:
                    kept = batch.filter(pc.greater(batch.column(LAST_UPDATED), after))
                label = pa.repeat(pa.scalar(number, pa.int32()), kept.num_rows)
                columns = [label, *(kept.column(name) for name in KEPT.names[1:])]
                batches.append(pa.RecordBatch.from_arrays(columns, schema=KEPT))
        return pa.Table.from_batches(batches, schema=KEPT)

    def values(
        self,
        files: Mapping[int, PlannedFile],
        chosen: pa.Table,
        columns: Sequence[str] | None = None,
    ) -> Iterator[tuple[pa.RecordBatch, pa.Table]]:
        """Yield the values of chosen rows, each batch with those rows of ``chosen`` beside it.

        Raises:
            StorageError: a file does not give all the rows that it gave before.
        """
        target = arrow_schema(self.schema, columns)
        for number, wanted in _by_file(chosen):
            done = 0
            positions = wanted[POSITION].combine_chunks()
            for batch in self._read(files[number], columns):
                mine = batch.filter(pc.is_in(batch.column(POSITION), value_set=positions))
                if mine.num_rows:
                    yield _cast(mine, target), wanted.slice(done, mine.num_rows)
                    done += mine.num_rows
            if done != len(wanted):
                raise StorageError(
                    f"{files[number].path} gave {done} of the {len(wanted)} rows that it gave "
                    "before: it was changed while it was read",
                    hint="odi-audit verify",
                )

    def rows(
        self, file: PlannedFile, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield every living row of a file with its lineage, in the form of :meth:`values`."""
        target = arrow_schema(self.schema, columns)
        for batch in self._read(file, columns):
            yield _cast(batch, target)

    def _read(
        self, file: PlannedFile, columns: Sequence[str] | None, where: str | None = None
    ) -> Iterator[pa.RecordBatch]:
        reader = rows.open_reader(self.state, self.schema, columns, where)
        with _readable(self.state):
            yield from reader.read(file, self.missing)


def schema_at(state: TableState, snapshot: SnapshotId) -> Schema:
    """Return the schema that a snapshot is read under: the current one for the head of main."""
    info = found(state, snapshot)
    if snapshot == head(state) or info.schema_id is None:
        return state.handle.schema()
    return state.handle.schemas()[info.schema_id]


def found(state: TableState, snapshot: SnapshotId) -> SnapshotInfo:
    """Return a snapshot that must be there.

    Raises:
        EntryNotFound: it is not (any more).
    """
    info = state.snapshot(snapshot)
    if info is None:
        raise EntryNotFound(
            f"table {state.ref.name} has no snapshot {snapshot}: it has expired or never was",
            hint=f"odi-audit batches --table {state.ref.name}",
            snapshot=snapshot,
        )
    return info


def rows_at(
    state: TableState,
    snapshot: SnapshotId,
    columns: Sequence[str] | None = None,
    where: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a snapshot without their lineage, all batches under one schema."""
    target = arrow_schema(schema_at(state, snapshot), columns)
    for batch in rows.lineage_rows(state, where, columns, snapshot):
        arrays = [batch.column(column.name).cast(column.type) for column in target]
        yield pa.RecordBatch.from_arrays(arrays, schema=target)


def check_columns(
    state: TableState, columns: Sequence[str] | None, snapshot: SnapshotId | None = None
) -> None:
    """See that columns are there, in a snapshot or now.

    Raises:
        UsageError: one is not; near matches are in the message.
    """
    schema = state.handle.schema() if snapshot is None else schema_at(state, snapshot)
    names = [column.name for column in schema.fields]
    for name in columns or ():
        if name not in names:
            near = difflib.get_close_matches(name, names, n=NEAR_MATCHES_MAX, cutoff=0.5)
            tail = f"; did you mean {' or '.join(near)}?" if near else ""
            raise UsageError(
                f"table {state.ref.name} has no column {name}{tail}",
                hint=f"the columns are: {', '.join(names)}",
            )


def arrow_schema(schema: Schema, columns: Sequence[str] | None) -> pa.Schema:
    """Return the columns asked for as Arrow has them."""
    picked = schema if columns is None else schema.select(*columns)
    made = schema_to_pyarrow(picked, include_field_ids=False)
    return pa.schema([pa.field(column.name, column.type) for column in made])


@contextmanager
def _readable(state: TableState) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowInvalid) as problem:
        raise StorageError(
            f"table {state.ref.name}: a file cannot be read: {problem}",
            hint="odi-audit verify",
            table=state.ref.name,
        ) from problem


def _by_file(chosen: pa.Table) -> Iterable[tuple[int, pa.Table]]:
    if not len(chosen):
        return
    ordered = chosen.sort_by([(name, "ascending") for name in PLACE])
    start = 0
    for count in pc.value_counts(ordered[FILE_NUMBER].combine_chunks()).to_pylist():
        yield count["values"], ordered.slice(start, count["counts"])
        start += count["counts"]


def _cast(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    # Files of different writers give one column as string here and large_string there.
    made = [batch.column(column.name).cast(column.type) for column in target]
    made += [batch.column(name).cast(kind) for name, kind in LINEAGE_TYPES.items()]
    return pa.RecordBatch.from_arrays(made, names=[*target.names, *LINEAGE_TYPES])
