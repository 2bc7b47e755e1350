"""Live rows by the write that made them: counted from manifests, and from as few pages as can be.

Owns the counting of living rows by last-updated sequence number and by row id. A file whose rows
inherit their lineage is counted from its manifest entry and the size of its deletion vector; one
that stores lineage gives its statistics or, if those are not enough, the lineage columns alone.
Must never count a row that a delete has taken, and never trusts statistics that may be partial.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.manifest import FileFormat

from odi_audit.catalog import deletes, rows
from odi_audit.catalog.manifests import PlannedFile, plan
from odi_audit.catalog.state import TableState
from odi_audit.errors import NotSupported
from odi_audit.ids import SnapshotId

APPEND = "append"
_BATCH_ROWS = 262_144


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """The living rows of a snapshot, by what made them what they are."""

    rows_count: int
    by_sequence: Mapping[int, int]
    """Rows that have ids, by the sequence number that last changed them."""
    by_file_snapshot: Mapping[SnapshotId | None, int]
    """Rows without ids, by the snapshot that added their file: all that can be said of them."""
    by_start: tuple[int, ...]
    """Rows that have ids, by the range of row ids that they were born in (see ``live_rows``)."""
    files_count: int
    files_read_count: int
    """Files of which data pages were read; the others were counted from metadata."""


def live_rows(
    state: TableState,
    snapshot: SnapshotId | None = None,
    *,
    starts: Sequence[int] = (),
    missing: list[str] | None = None,
) -> Attribution:
    """Count the living rows of a snapshot (else of the head of main).

    ``starts`` are first row ids, sorted: each begins a range that ends where the next begins, the
    last one without end; rows below the first are in no range. Where ``missing`` is given, a data
    file that is needed and gone is named there, and the rest is counted; one that can be counted
    without being opened is not missed.

    Raises:
        EntryNotFound: there is no such snapshot (any more).
        NotSupported: files that are not Parquet.
        StorageError: a file of the table is missing or damaged.
    """
    counter = _Counter(state=state, starts=list(starts))
    info = rows.snapshot_to_read(state, snapshot)
    if info is not None:
        schema = state.handle.schema()
        if info.schema_id is not None and snapshot is not None:
            schema = state.handle.schemas()[info.schema_id]
        counter.reader = rows.open_reader(state, schema, [], None)
        try:
            for file in plan(state.handle, info.manifest_list, schema, AlwaysTrue()):
                counter.add(file, missing)
        except (OSError, pa.ArrowInvalid) as problem:
            raise rows.unreadable(state, info, problem) from problem
    return counter.done()


def live_by_sequence(state: TableState, snapshot: SnapshotId | None = None) -> dict[int, int]:
    """Return the living rows by the sequence number that last changed them."""
    return dict(live_rows(state, snapshot).by_sequence)


def live_by_ranges(
    state: TableState, snapshot: SnapshotId | None, starts: Sequence[int]
) -> list[int]:
    """Return the living rows by the range of row ids that they were born in."""
    return list(live_rows(state, snapshot, starts=starts).by_start)


@dataclass(slots=True, kw_only=True)
class _Counter:
    state: TableState
    starts: list[int]
    reader: rows.Reader | None = None
    by_sequence: Counter[int] = field(default_factory=Counter)
    by_file_snapshot: Counter[SnapshotId | None] = field(default_factory=Counter)
    by_start: Counter[int] = field(default_factory=Counter)
    """By the number of starts at or below the row id: 0 is below the first."""
    rows_count: int = 0
    files_count: int = 0
    files_read_count: int = 0
    _appends: dict[SnapshotId, bool] = field(default_factory=dict)

    def add(self, file: PlannedFile, missing: list[str] | None) -> None:
        self.files_count += 1
        if any(delete.equality_ids for delete in file.deletes):
            self._by_rows(file, missing)
        elif self._inherits(file):
            self._inherited(file)
        elif not self._from_statistics(file):
            self._by_columns(file, missing)

    def done(self) -> Attribution:
        return Attribution(
            rows_count=self.rows_count,
            by_sequence=dict(sorted(self.by_sequence.items())),
            by_file_snapshot=dict(self.by_file_snapshot),
            by_start=tuple(self.by_start[place + 1] for place in range(len(self.starts))),
            files_count=self.files_count,
            files_read_count=self.files_read_count,
        )

    # -- from metadata ------------------------------------------------------------------------

    def _inherits(self, file: PlannedFile) -> bool:
        """Say whether every row of a file surely takes its lineage from the file."""
        if file.first_row_id is None:
            return True
        sizes = file.data_file.column_sizes or {}
        if rows.ROW_ID_FIELD in sizes or rows.LAST_UPDATED_FIELD in sizes:
            return False
        # Statistics may leave columns out. But an append brings new rows only, and those store
        # no lineage: they have none yet when they are written.
        if not self._appends:
            self._appends = {info.id: info.operation == APPEND for info in self.state.snapshots}
        return file.snapshot is not None and self._appends.get(file.snapshot, False)

    def _inherited(self, file: PlannedFile) -> None:
        dead = self._dead(file) if self._needs_positions(file) else None
        live = file.rows_count - (_vector_rows(file) if dead is None else len(dead))
        self.rows_count += live
        first = file.first_row_id
        if first is None:
            self.by_file_snapshot[file.snapshot] += live
            return
        self.by_sequence[file.sequence_number] += live
        if not self.starts:
            return
        for place, low, high in self._ranges(first, first + file.rows_count):
            gone = 0
            if dead is not None:
                gone = _at_or_after(dead, high - first) - _at_or_after(dead, low - first)
            self.by_start[place] += high - low - gone

    def _needs_positions(self, file: PlannedFile) -> bool:
        """Say whether deletes must be read: a vector alone tells how many rows it takes."""
        if not file.deletes:
            return False
        return not _only_vector(file) or (bool(self.starts) and file.first_row_id is not None)

    def _dead(self, file: PlannedFile) -> pa.Array | None:
        return deletes.positions(self.state.handle.io, file)

    def _ranges(self, low: int, high: int) -> Iterator[tuple[int, int, int]]:
        """Cut a run of row ids at the starts; yields each part with its number of starts below."""
        place = bisect_right(self.starts, low)
        while low < high:
            end = min(high, self.starts[place]) if place < len(self.starts) else high
            yield place, low, end
            low, place = end, place + 1

    def _from_statistics(self, file: PlannedFile) -> bool:
        """Count a file whose rows all have one sequence number and one range, if it says so."""
        sequences = _bounds(file, rows.LAST_UPDATED_FIELD)
        if sequences is None or sequences[0] != sequences[1]:
            return False
        if file.deletes and not _only_vector(file):
            return False
        place = 0
        if self.starts:
            ids = _bounds(file, rows.ROW_ID_FIELD)
            if ids is None:
                return False
            place = bisect_right(self.starts, ids[0])
            if place != bisect_right(self.starts, ids[1]):
                return False
        live = file.rows_count - _vector_rows(file)
        self.rows_count += live
        self.by_sequence[sequences[0]] += live
        self.by_start[place] += live
        return True

    # -- from the lineage columns -------------------------------------------------------------

    def _by_columns(self, file: PlannedFile, missing: list[str] | None) -> None:
        if file.format is not FileFormat.PARQUET:
            raise NotSupported(
                f"{file.path} is {file.format.value}: row lineage is read from Parquet only",
                file=file.path,
            )
        dead = self._dead(file)
        stream = rows.open_data(self.state, file, missing)
        if stream is None:
            return
        with stream:
            parquet = pq.ParquetFile(stream)
            have = rows.file_schema(self.state, parquet.schema_arrow)
            stored = {part.field_id: part.name for part in have.fields}
            if not {rows.ROW_ID_FIELD, rows.LAST_UPDATED_FIELD} & set(stored):
                self._inherited(file)
                return
            self.files_read_count += 1
            wanted = [rows.LAST_UPDATED_FIELD, *([rows.ROW_ID_FIELD] if self.starts else [])]
            names = [stored[number] for number in wanted if number in stored]
            start = 0
            for batch in parquet.iter_batches(_BATCH_ROWS, columns=names, use_threads=False):
                self._count(file, batch, stored, start, dead)
                start += batch.num_rows

    def _count(
        self,
        file: PlannedFile,
        batch: pa.RecordBatch,
        stored: Mapping[int, str],
        start: int,
        dead: pa.Array | None,
    ) -> None:
        count = batch.num_rows
        alive = None if dead is None else rows.alive(start, count, dead)
        sequences = _column(batch, stored.get(rows.LAST_UPDATED_FIELD))
        sequences = pc.fill_null(sequences, file.sequence_number)
        ids = None
        if self.starts and file.first_row_id is not None:
            first = file.first_row_id + start
            inherited = pa.arange(first, first + count)
            ids = pc.coalesce(_column(batch, stored.get(rows.ROW_ID_FIELD)), inherited)
        if alive is not None:
            sequences = sequences.filter(alive)
            ids = None if ids is None else ids.filter(alive)
        self._take(sequences, ids)

    def _take(self, sequences: pa.Array, ids: pa.Array | None) -> None:
        self.rows_count += len(sequences)
        for found in pc.value_counts(sequences).to_pylist():
            self.by_sequence[found["values"]] += found["counts"]
        if ids is None or not self.starts:
            return
        places = pc.search_sorted(pa.array(self.starts, pa.int64()), ids, side="right")
        for found in pc.value_counts(places).to_pylist():
            self.by_start[found["values"]] += found["counts"]

    # -- row by row ---------------------------------------------------------------------------

    def _by_rows(self, file: PlannedFile, missing: list[str] | None) -> None:
        """Count a file with equality deletes: only its keys tell which rows are alive."""
        if self.reader is None:
            self.reader = rows.open_reader(self.state, self.state.handle.schema(), [], None)
        self.files_read_count += 1
        for batch in self.reader.read(file, missing):
            if file.first_row_id is None:
                self.rows_count += batch.num_rows
                self.by_file_snapshot[file.snapshot] += batch.num_rows
            else:
                self._take(batch.column(rows.LAST_UPDATED), batch.column(rows.ROW_ID))


def _only_vector(file: PlannedFile) -> bool:
    return len(file.deletes) == 1 and file.deletes[0].is_vector


def _vector_rows(file: PlannedFile) -> int:
    return sum(delete.rows_count for delete in file.deletes if delete.is_vector)


def _at_or_after(ordered: pa.Array, position: int) -> int:
    return int(pc.search_sorted(ordered, pa.scalar(position, pa.int64()), side="left").as_py())


def _column(batch: pa.RecordBatch, name: str | None) -> pa.Array:
    return pa.nulls(batch.num_rows, pa.int64()) if name is None else batch.column(name)


def _bounds(file: PlannedFile, column: int) -> tuple[int, int] | None:
    """Return the least and greatest value of a stored column that holds no null."""
    found = file.data_file
    low, high = (found.lower_bounds or {}).get(column), (found.upper_bounds or {}).get(column)
    if low is None or high is None or (found.null_value_counts or {}).get(column) != 0:
        return None
    return _long(low), _long(high)


def _long(stored: bytes) -> int:
    return int.from_bytes(stored, "little", signed=True)
