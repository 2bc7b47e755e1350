"""Which data files a snapshot is made of, with what row lineage needs to know about each.

Owns the reading of manifests in format v3 (pyiceberg reads them as v2, without first row ids),
their inheritance rules, pruning, and the pairing of data files with their deletes. Must never open
a data file: ``rows`` does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from pyiceberg.avro.file import AvroFile
from pyiceberg.expressions.visitors import (
    _InclusiveMetricsEvaluator,
    expression_evaluator,
    inclusive_projection,
    manifest_evaluator,
)
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.schema import Schema
from pyiceberg.transforms import VoidTransform

from odi_audit.ids import SnapshotId

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.io import FileIO
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.table import Table
    from pyiceberg.typedef import Record

VERSION = 3
_FIELDS = {part.field_id: place for place, part in enumerate(DATA_FILE_TYPE[VERSION].fields)}
_LIST_FIELDS = {
    part.field_id: place for place, part in enumerate(MANIFEST_LIST_FILE_SCHEMAS[VERSION].fields)
}
# Iceberg's own field ids of what pyiceberg's classes have no name for.
_FIRST_ROW_ID, _REFERENCED_FILE, _OFFSET, _SIZE = 142, 143, 144, 145
_MANIFEST_FIRST_ROW_ID = 520
_DELETED_PATH = 2147483546
_Place = TypeVar("_Place")
_Found: TypeAlias = defaultdict[_Place, list[tuple[int, "DeleteFile"]]]
"""Delete files, each after its sequence number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteFile:
    """A deletion vector (a part of a Puffin file), a file of positions, or a file of keys.

    ``equality_ids`` are the columns of the keys, by field id; empty for positions.
    """

    path: str
    format: FileFormat
    rows_count: int
    offset: int | None
    size_bytes: int | None
    equality_ids: tuple[int, ...] = ()

    @property
    def is_vector(self) -> bool:
        """Whether this is a deletion vector: its rows are as many as it has positions."""
        return self.format is FileFormat.PUFFIN


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFile:
    """A data file to read. ``snapshot`` is the one that added it to the table."""

    path: str
    format: FileFormat
    rows_count: int
    first_row_id: int | None
    sequence_number: int
    snapshot: SnapshotId | None
    data_file: DataFile
    deletes: tuple[DeleteFile, ...]


def plan(
    table: Table, manifest_list: str, schema: Schema, where: BooleanExpression
) -> Iterator[PlannedFile]:
    """Yield the files of a snapshot that may hold rows matching ``where``, with their deletes."""
    pruner = _Pruner(table=table, schema=schema, where=where)
    data: list[tuple[ManifestEntry, int | None]] = []
    deletes = _Deletes(table)
    for manifest in _manifest_list(table.io, manifest_list):
        if not pruner.manifest(manifest):
            continue
        if manifest.content is ManifestContent.DELETES:
            for entry, _ in _entries(table.io, manifest):
                deletes.add(entry)
        else:
            data.extend(
                (entry, first)
                for entry, first in _entries(table.io, manifest)
                if pruner.file(entry.data_file)
            )
    for entry, first in data:
        yield _planned(entry, first, deletes)


def _planned(entry: ManifestEntry, first_row_id: int | None, deletes: _Deletes) -> PlannedFile:
    snapshot = entry.snapshot_id
    return PlannedFile(
        path=entry.data_file.file_path,
        format=entry.data_file.file_format,
        rows_count=entry.data_file.record_count,
        first_row_id=first_row_id,
        sequence_number=entry.sequence_number or 0,
        snapshot=None if snapshot is None else SnapshotId(str(snapshot)),
        data_file=entry.data_file,
        deletes=deletes.of(entry),
    )


# -- reading ---------------------------------------------------------------------------------


def _manifest_list(io: FileIO, path: str) -> Iterator[ManifestFile]:
    with AvroFile[ManifestFile](
        io.new_input(path),
        MANIFEST_LIST_FILE_SCHEMAS[VERSION],
        read_types={-1: ManifestFile, 508: PartitionFieldSummary},
        read_enums={517: ManifestContent},
    ) as reader:
        yield from reader


def _entries(io: FileIO, manifest: ManifestFile) -> Iterator[tuple[ManifestEntry, int | None]]:
    """Yield the live entries of a manifest, each with its file's first row id.

    A file without one takes the manifest's next; under a manifest without one (from before the
    upgrade to v3) no file has any, whatever it says.
    """
    next_row_id = cast("int | None", manifest[_LIST_FIELDS[_MANIFEST_FIRST_ROW_ID]])
    with AvroFile[ManifestEntry](
        io.new_input(manifest.manifest_path),
        MANIFEST_ENTRY_SCHEMAS[VERSION],
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as reader:
        for entry in reader:
            if entry.status is ManifestEntryStatus.DELETED:
                continue
            _inherit(entry, manifest)
            first = None
            if next_row_id is not None:
                first = cast("int | None", entry.data_file[_FIELDS[_FIRST_ROW_ID]])
                if first is None:
                    first = next_row_id
                    next_row_id += entry.data_file.record_count
            yield entry, first


def _inherit(entry: ManifestEntry, manifest: ManifestFile) -> None:
    if entry.snapshot_id is None and manifest.added_snapshot_id is not None:
        entry.snapshot_id = manifest.added_snapshot_id
    added = entry.status is ManifestEntryStatus.ADDED
    if entry.sequence_number is None and (added or manifest.sequence_number == 0):
        entry.sequence_number = manifest.sequence_number
    entry.data_file.spec_id = manifest.partition_spec_id


# -- pruning ---------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Pruner:
    """Decides by partition and by column statistics what cannot hold a matching row."""

    table: Table
    schema: Schema
    where: BooleanExpression
    _manifests: dict[int, Callable[[ManifestFile], bool]] = field(default_factory=dict)
    _partitions: dict[int, Callable[[Record], bool]] = field(default_factory=dict)
    _metrics: Callable[[DataFile], bool] | None = None

    def manifest(self, manifest: ManifestFile) -> bool:
        spec_id = manifest.partition_spec_id
        if spec_id not in self._manifests:
            self._manifests[spec_id] = manifest_evaluator(
                self._spec(spec_id), self.schema, self._projected(spec_id), case_sensitive=True
            )
        return self._manifests[spec_id](manifest)

    def file(self, file: DataFile) -> bool:
        spec_id = file.spec_id
        if spec_id not in self._partitions:
            partition = Schema(*self._spec(spec_id).partition_type(self.schema).fields)
            self._partitions[spec_id] = cast(
                "Callable[[Record], bool]",
                expression_evaluator(partition, self._projected(spec_id), case_sensitive=True),
            )
        if self._metrics is None:
            self._metrics = _InclusiveMetricsEvaluator(
                self.schema, self.where, case_sensitive=True
            ).eval
        return self._partitions[spec_id](file.partition) and self._metrics(file)

    def _spec(self, spec_id: int) -> PartitionSpec:
        return self.table.specs()[spec_id]

    def _projected(self, spec_id: int) -> BooleanExpression:
        return inclusive_projection(self.schema, self._spec(spec_id), case_sensitive=True)(
            self.where
        )


# -- deletes ---------------------------------------------------------------------------------


class _Deletes:
    """The delete files of a snapshot, found by the data file that they apply to."""

    def __init__(self, table: Table) -> None:
        self._vectors: dict[str, DeleteFile] = {}
        self._by_path: _Found[str] = defaultdict(list)
        self._by_partition: _Found[tuple[int, tuple[object, ...]]] = defaultdict(list)
        self._keys: _Found[tuple[int, tuple[object, ...]]] = defaultdict(list)
        self._keys_everywhere: list[tuple[int, DeleteFile]] = []
        self._unpartitioned = {
            number
            for number, spec in table.specs().items()
            if all(isinstance(part.transform, VoidTransform) for part in spec.fields)
        }

    def add(self, entry: ManifestEntry) -> None:
        file = entry.data_file
        made = (
            entry.sequence_number or 0,
            DeleteFile(
                path=file.file_path,
                format=file.file_format,
                rows_count=file.record_count,
                offset=cast("int | None", file[_FIELDS[_OFFSET]]),
                size_bytes=cast("int | None", file[_FIELDS[_SIZE]]),
                equality_ids=tuple(file.equality_ids or ()),
            ),
        )
        if file.content is DataFileContent.EQUALITY_DELETES:
            # Without a partition of its own it applies to the whole table.
            if file.spec_id in self._unpartitioned:
                self._keys_everywhere.append(made)
            else:
                self._keys[file.spec_id, _partition(file)].append(made)
            return
        target = _target(file)
        if file.file_format is FileFormat.PUFFIN and target is not None:
            self._vectors[target] = made[1]
        elif target is not None:
            self._by_path[target].append(made)
        else:
            self._by_partition[file.spec_id, _partition(file)].append(made)

    def of(self, entry: ManifestEntry) -> tuple[DeleteFile, ...]:
        """Return what applies to a file: positions as old as it or newer, keys only newer."""
        file = entry.data_file
        sequence = entry.sequence_number or 0
        place = (file.spec_id, _partition(file))
        keys = [*self._keys_everywhere, *self._keys.get(place, ())]
        equality = tuple(delete for newer, delete in keys if newer > sequence)
        vector = self._vectors.get(file.file_path)
        if vector is not None:
            # A vector holds everything that position deletes said before it.
            return (vector, *equality)
        candidates = [
            *self._by_path.get(file.file_path, ()),
            *self._by_partition.get(place, ()),
        ]
        return (*(delete for newer, delete in candidates if newer >= sequence), *equality)


def _target(file: DataFile) -> str | None:
    named = cast("str | None", file[_FIELDS[_REFERENCED_FILE]])
    if named is not None:
        return named
    lower = (file.lower_bounds or {}).get(_DELETED_PATH)
    upper = (file.upper_bounds or {}).get(_DELETED_PATH)
    # Bounds are cut after some length: only whole, equal ones name a file.
    if lower is not None and lower == upper:
        return lower.decode()
    return None


def _partition(file: DataFile) -> tuple[object, ...]:
    return tuple(file.partition[place] for place in range(len(file.partition)))
