"""Deletes, read: the positions that are gone from a data file, and the keys that are gone.

Owns deletion vectors, position deletes and equality deletes as sets that rows are asked against.
Must never decide which of them apply to a file: ``manifests`` does, by sequence number and
partition. A delete file that is missing is always an error, since rows would come back without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.table.deletion_vector import DeletionVector, _extract_vector_payload

from odi_audit.catalog.manifests import DeleteFile, PlannedFile
from odi_audit.catalog.projection import leaves, project
from odi_audit.errors import NotSupported, StorageError

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table


def positions(io: FileIO, file: PlannedFile) -> pa.Array | None:
    """Return the positions that are deleted from a file, sorted and each once; None for none."""
    chunks: list[pa.Array] = []
    for delete in file.deletes:
        if delete.equality_ids:
            continue
        if delete.is_vector:
            chunks.extend(_vector(io, delete))
        else:
            chunks.extend(_positions(io, delete, file.path))
    if not chunks:
        return None
    found = pa.concat_arrays(chunks)
    # A vector is sorted already, and holds nothing twice.
    return found if len(file.deletes) == 1 and file.deletes[0].is_vector else found.unique().sort()


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
    _check_format(delete)
    with io.new_input(delete.path).open() as stream:
        fragment = ds.ParquetFileFormat().make_fragment(stream)
        found = fragment.to_table(columns=["pos"], filter=pc.field("file_path") == path)
        yield from found["pos"].chunks


# -- keys ------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Keys:
    """The equality deletes of one table. Keeps the last set that was read: files share them."""

    table: Table
    schema: Schema
    _last: tuple[tuple[DeleteFile, ...], tuple[KeySet, ...]] = field(default=((), ()))

    def of(self, file: PlannedFile) -> tuple[KeySet, ...]:
        """Return the sets of keys that are deleted from a file, one for each choice of columns.

        Raises:
            NotSupported: a file of them is not Parquet.
        """
        wanted = tuple(delete for delete in file.deletes if delete.equality_ids)
        if wanted != self._last[0]:
            by_columns: dict[tuple[int, ...], list[DeleteFile]] = {}
            for delete in wanted:
                by_columns.setdefault(tuple(sorted(delete.equality_ids)), []).append(delete)
            made = (self._read(ids, files) for ids, files in by_columns.items())
            self._last = (wanted, tuple(keys for keys in made if keys is not None))
        return self._last[1]

    def _read(self, ids: tuple[int, ...], files: Sequence[DeleteFile]) -> KeySet | None:
        schema = self._key_schema(ids)
        tables = [table for file in files for table in self._rows(file, ids, schema)]
        return KeySet.of(ids, schema, pa.concat_tables(tables)) if tables else None

    def _key_schema(self, ids: tuple[int, ...]) -> Schema:
        # A column of the key may have been dropped since: then an older schema knows it.
        older = sorted(self.table.schemas().items(), reverse=True)
        for schema in (self.schema, *(schema for _, schema in older)):
            if set(ids) <= schema.field_ids:
                return prune_columns(schema, set(ids), select_full_types=True)
        raise StorageError(f"equality deletes name columns that no schema has: {list(ids)}")

    def _rows(self, file: DeleteFile, ids: tuple[int, ...], schema: Schema) -> Iterator[pa.Table]:
        _check_format(file)
        with self.table.io.new_input(file.path).open() as stream:
            parquet = pq.ParquetFile(stream)
            have = pyarrow_to_schema(
                parquet.schema_arrow,
                self.table.name_mapping(),
                downcast_ns_timestamp_to_us=self.table.metadata.format_version <= 2,
                format_version=self.table.metadata.format_version,
            )
            for batch in parquet.iter_batches():
                columns = dict(zip(batch.schema.names, batch.columns, strict=True))
                made = project(columns, batch.num_rows, have, schema, {})
                found = leaves(schema.fields, made)
                yield pa.table([_plain(found[number]) for number in ids], _names(ids))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySet:
    """Keys as numbers: each column's values are numbered, and a key is the number of its parts.

    Null equals null here, as the format has it for deletes.
    """

    ids: tuple[int, ...]
    schema: Schema
    values: tuple[pa.Array, ...]
    """The distinct values of each column of the key."""
    prefixes: tuple[pa.Array, ...]
    """The distinct numbers of the key's first one, two, … columns taken together."""

    @classmethod
    def of(cls, ids: tuple[int, ...], schema: Schema, keys: pa.Table) -> KeySet:
        """Number the keys of a table whose columns are in the order of ``ids``."""
        columns = [column.combine_chunks() for column in keys.columns]
        values = tuple(column.unique() for column in columns)
        prefixes: list[pa.Array] = []
        number = pa.repeat(pa.scalar(0, pa.int64()), keys.num_rows)
        for column, known in zip(columns, values, strict=True):
            number = _joined(number, column, known)
            prefixes.append(number.unique())
            number = _numbered(number, prefixes[-1])
        return cls(ids=ids, schema=schema, values=values, prefixes=tuple(prefixes))

    def holds(self, columns: Mapping[int, pa.Array], rows_count: int) -> pa.Array:
        """Return for each row whether its key is in the set."""
        number = pa.repeat(pa.scalar(0, pa.int64()), rows_count)
        for place, known, prefix in zip(self.ids, self.values, self.prefixes, strict=True):
            number = _numbered(_joined(number, _plain(columns[place]), known), prefix)
        return number.is_valid()


def _joined(number: pa.Array, column: pa.Array, known: pa.Array) -> pa.Array:
    part = _numbered(column, known)
    return pc.add(pc.multiply(number, pa.scalar(len(known), pa.int64())), part)


def _numbered(column: pa.Array, known: pa.Array) -> pa.Array:
    # Null where the value is not known: that runs through every sum.
    return pc.index_in(column, value_set=known).cast(pa.int64())


def _plain(column: pa.Array) -> pa.Array:
    return column.storage if isinstance(column, pa.ExtensionArray) else column


def _names(ids: tuple[int, ...]) -> list[str]:
    return [str(number) for number in ids]


def _check_format(delete: DeleteFile) -> None:
    if delete.format is not FileFormat.PARQUET:
        raise NotSupported(
            f"delete file {delete.path} is {delete.format.value}: only Parquet and Puffin are read",
            file=delete.path,
        )
