"""Data files that a task writes itself, in Arrow, and that nothing refers to yet.

Owns how rows become Parquet files of a table: field ids, partitions by the table's own transforms,
row groups and file sizes by its properties. It runs inside Spark's Python workers, so what it needs
of the table is a plain value. Must never touch a table's metadata: the committer adds the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from odi_audit.errors import NotSupported
from odi_audit.model.loose import LooseFile, LooseTable

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyiceberg.io import OutputFile
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema

ROW_GROUP_EXPANSION = 4
"""Rows in memory take about this many times the bytes that they take in a compressed row group."""
OPEN_FILES_MAX = 64
"""Partitions that a task writes at once; each holds up to one row group in memory."""
_EPOCH = date(1970, 1, 1)
_CODECS = {"uncompressed": "none", "gzip": "gzip", "snappy": "snappy", "zstd": "zstd", "lz4": "lz4"}
_TEXT_TYPES = frozenset({"boolean", "int", "long", "string", "date"})
"""Types of partition values that Iceberg reads back from a text."""


def schema_of(table: LooseTable) -> Schema:
    """Return the table's schema."""
    from pyiceberg.schema import Schema

    return Schema.model_validate_json(table.schema_json)


def arrow_schema_of(table: LooseTable) -> pa.Schema:
    """Return the schema of the files: columns of the table with their field ids."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    return schema_to_pyarrow(schema_of(table), include_field_ids=True)


def spec_of(table: LooseTable) -> PartitionSpec:
    """Return how the table is partitioned now."""
    from pyiceberg.partitioning import PartitionSpec

    return PartitionSpec.model_validate_json(table.spec_json)


def why_not(table: LooseTable) -> str | None:
    """Say why files of a table cannot be written this way; None where they can."""
    schema, spec = schema_of(table), spec_of(table)
    for item in spec.fields:
        source = schema.find_field(item.source_id)
        if source not in schema.fields:
            return f"partition field {item.name} is taken from inside a struct"
        kind = str(item.transform.result_type(source.field_type))
        if kind not in _TEXT_TYPES:
            return f"partition field {item.name} is of type {kind}"
    return None


def remove_files(table: LooseTable, paths: Iterable[str]) -> None:
    """Remove files that nothing refers to, as far as that can be done: else they are orphans."""
    from pyiceberg.io import load_file_io

    io = load_file_io(dict(table.storage), table.folder)
    for path in paths:
        try:
            io.delete(path)
        except OSError:
            continue


class DataFileWriter:
    """Writes the rows of one task; use it as a context manager.

    ``task`` names it in its files: two tries at one task must not have the same name. An error
    inside the block removes what was written: nobody else knows of it.
    """

    def __init__(self, table: LooseTable, task: str) -> None:
        from pyiceberg.io import load_file_io

        self._table = table
        self._task = task
        self._arrow = arrow_schema_of(table)
        self._schema = schema_of(table)
        self._spec = spec_of(table)
        self._io = load_file_io(dict(table.storage), table.folder)
        self._open: dict[tuple[str | None, ...], _File] = {}
        self._done: list[LooseFile] = []
        self._count = 0

    def __enter__(self) -> DataFileWriter:
        """Start; nothing is created before there are rows."""
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Remove what was written if the block raised."""
        if error is None:
            return
        for held in self._open.values():
            held.abort()
        paths = [held.path for held in self._open.values()] + [item.path for item in self._done]
        self._open.clear()
        remove_files(self._table, paths)

    def write(self, rows: pa.Table) -> None:
        """Take in rows; their columns are the table's, by name.

        Raises:
            ArrowInvalid: a value does not fit its column.
            ValueError: a required column holds a null, or a column is missing.
        """
        if rows.num_rows == 0:
            return
        fitted = _fitted(rows, self._arrow)
        for key, part in self._parts(fitted):
            held = self._open.get(key)
            if held is None:
                held = self._opened(key)
            held.add(part)
            if held.bytes_written >= self._table.file_bytes:
                self._close(key)

    def close(self) -> list[LooseFile]:
        """Finish every file and return them all."""
        for key in list(self._open):
            self._close(key)
        return self._done

    def _opened(self, key: tuple[str | None, ...]) -> _File:
        if len(self._open) >= OPEN_FILES_MAX:
            self._close(next(iter(self._open)))
        path = f"{self._table.folder}/{self._table.prefix}-{self._task}-{self._count:05}.parquet"
        self._count += 1
        held = self._open[key] = _File(
            path=path,
            output=self._io.new_output(path),
            schema=self._arrow,
            codec=_codec(self._table.codec),
            group_bytes=self._table.row_group_bytes * ROW_GROUP_EXPANSION,
        )
        return held

    def _close(self, key: tuple[str | None, ...]) -> None:
        held = self._open.pop(key)
        size = held.close()
        self._done.append(LooseFile(path=held.path, rows=held.rows, bytes=size, partition=key))

    def _parts(self, rows: pa.Table) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self._spec.fields:
            yield (), rows
            return
        values = [self._partition_values(item, rows) for item in self._spec.fields]
        names = [f"p{place}" for place in range(len(values))]
        keyed = pa.table(dict(zip(names, values, strict=True)))
        distinct = keyed.group_by(names).aggregate([]).to_pylist()
        for item in distinct:
            key = tuple(
                _text(found, item[name])
                for found, name in zip(self._spec.fields, names, strict=True)
            )
            if len(distinct) == 1:
                yield key, rows
                return
            mask = None
            for name in names:
                value = item[name]
                same = (
                    pc.is_null(keyed[name])
                    if value is None
                    else pc.fill_null(pc.equal(keyed[name], value), False)  # noqa: FBT003
                )
                mask = same if mask is None else pc.and_(mask, same)
            yield key, rows.filter(mask)

    def _partition_values(self, item: PartitionField, rows: pa.Table) -> pa.ChunkedArray:
        source = self._schema.find_field(item.source_id)
        transform = item.transform.pyarrow_transform(source.field_type)
        return transform(rows[source.name])


class _File:
    """One file being written: rows are gathered into row groups of the right size."""

    def __init__(
        self, *, path: str, output: OutputFile, schema: pa.Schema, codec: str, group_bytes: int
    ) -> None:
        import pyarrow.parquet as pq

        self.path = path
        self.rows = 0
        self._stream: Any = output.create(overwrite=True)
        self._writer: pq.ParquetWriter = pq.ParquetWriter(
            self._stream,
            schema,
            compression=codec,
            version="2.6",
            store_decimal_as_integer=True,
        )
        self._group_bytes = group_bytes
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0

    @property
    def bytes_written(self) -> int:
        """How big the file is by now, without what waits for its row group."""
        return int(self._stream.tell())

    def add(self, rows: pa.Table) -> None:
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        self.rows += rows.num_rows
        if self._waiting_bytes >= self._group_bytes:
            self._flush()

    def close(self) -> int:
        self._flush()
        self._writer.close()
        size = int(self._stream.tell())
        self._stream.close()
        return size

    def abort(self) -> None:
        self._waiting.clear()
        try:
            self._writer.close()
            self._stream.close()
        except OSError:
            return

    def _flush(self) -> None:
        import pyarrow as pa

        if self._waiting:
            together = pa.concat_tables(self._waiting)
            self._writer.write_table(together, row_group_size=max(together.num_rows, 1))
            self._waiting.clear()
            self._waiting_bytes = 0


def _fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    import pyarrow as pa

    missing = [name for name in schema.names if name not in rows.column_names]
    if missing:
        raise ValueError(f"rows lack the columns {', '.join(missing)}")
    fitted = rows.select(schema.names)
    for item in schema:
        if not item.nullable and fitted[item.name].null_count:
            raise ValueError(f"column {item.name} is required, and null in some rows")
    if fitted.schema.equals(schema):
        return fitted
    return pa.table(
        [fitted[item.name].cast(item.type) for item in schema],
        schema=schema,
    )


def _codec(name: str) -> str:
    if name.lower() not in _CODECS:
        raise NotSupported(f"data files with compression {name} cannot be written in Arrow")
    return _CODECS[name.lower()]


def _text(item: PartitionField, value: object) -> str | None:
    """Write a partition value as Iceberg reads it back from a text."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if str(item.transform) == "day" and isinstance(value, int):
        return (_EPOCH + timedelta(days=value)).isoformat()
    return value.isoformat() if isinstance(value, date) else str(value)
