"""A task that reads files of a batch and hands their decoded rows to Spark.

Owns the reading: a file is read once, through its digest, and one that is not what the batch was
planned with fails the batch. Must never drop a record: each is a row, a dead letter, or a note; a
file that cannot be read as a whole fails the batch.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, cast

from jobs.formats.csv_rows import CsvDecoder, csv_options, header_of
from jobs.formats.csv_rows import records as csv_records
from jobs.formats.decoded import Decoded, Unreadable
from jobs.tasks.records import Header, Records
from jobs.tasks.rows import TaskFailed, handed_on
from odi_audit.errors import RuleBroken, SourceUnavailable

if TYPE_CHECKING:
    import pyarrow as pa

FileFormat = Literal["csv", "json", "parquet", "avro"]
CHUNK_BYTES = 8 * 1024 * 1024
"""Of lines decoded at once: enough for Arrow to be quick, little enough to be held twice."""
CHUNK_ROWS = 50_000
"""Of rows of Parquet and Avro decoded at once."""
_READ_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePiece:
    """One file of a batch, as it was when the batch was planned: its size and digest."""

    path: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesWork:
    """What every task of a batch is told. ``schema`` is as Arrow writes one."""

    format: FileFormat
    schema: bytes
    options: Mapping[str, str] = field(default_factory=dict)
    facts: tuple[str, ...] = ()
    strict: bool = False
    notes: bool = True
    """Whether fields that the columns lack are told; not where nothing would use them."""
    rows_max: int | None = None
    """Of each file, for a sample; a file that is not read to its end is not checked."""


@dataclass(frozen=True, kw_only=True)
class FileRecords(Records):
    """Some records of one file, in order; its path is the partition, a line's number the offset."""

    topic: str = ""
    partition: int = 0
    messages: Sequence[Any] = ()
    path: str
    lines: Sequence[int]
    raw: Sequence[bytes | None] | Sequence[Mapping[str, Any]] | pa.Table

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def name(self) -> str:
        """The file's name in the batch's offsets."""
        return self.path

    @property
    def offsets(self) -> list[int]:
        """The number of each record's first line, from 1; of a row, where there are no lines."""
        return list(self.lines)

    @cached_property
    def values(self) -> list[bytes | None]:
        """The bytes of each record; of one that has types, its form in JSON."""
        found = self.raw if isinstance(self.raw, Sequence) else self.raw.to_pylist()
        return [
            item if item is None or isinstance(item, bytes) else _as_json(item) for item in found
        ]

    @property
    def size_bytes(self) -> int:
        """How long the records are; of those with types, as Arrow holds them, or not known."""
        if isinstance(self.raw, Sequence):
            return sum(len(item) for item in self.raw if isinstance(item, bytes))
        return int(self.raw.nbytes)

    @property
    def keys(self) -> list[bytes | None]:
        """Files have no keys."""
        return [None] * len(self)

    @property
    def millis(self) -> list[int | None]:
        """Records of files have no time of their own."""
        return [None] * len(self)

    @property
    def headers(self) -> list[list[Header]]:
        """Files have no headers."""
        return [[] for _ in range(len(self))]


def batches(work: FilesWork, pieces: Sequence[FilePiece]) -> Iterator[pa.RecordBatch]:
    """Yield the records of the files, decoded, as Spark takes them.

    Raises:
        TaskFailed: a file is not what it was, or not of its format.
    """
    import pyarrow as pa

    schema = pa.ipc.read_schema(pa.py_buffer(work.schema))
    try:
        yield from handed_on(decoded(work, pieces, schema), schema, work.facts)
    except (SourceUnavailable, RuleBroken) as error:
        raise TaskFailed(error) from error


def decoded(
    work: FilesWork, pieces: Sequence[FilePiece], schema: pa.Schema
) -> Iterator[tuple[FileRecords, Decoded]]:
    """Yield the records of the files in chunks, with what became of them.

    Raises:
        SourceUnavailable: a file changed since the batch was planned, or is gone; plan again.
        RuleBroken: a file is not of its format, so that none of its records can be told.
    """
    for piece in pieces:
        for records, made in _file(work, piece, schema):
            if not work.notes:
                made.unknown.clear()
            yield records, made


def _file(
    work: FilesWork, piece: FilePiece, schema: pa.Schema
) -> Iterator[tuple[FileRecords, Decoded]]:
    read = {"csv": _csv, "json": _json, "parquet": _parquet, "avro": _avro}[work.format]
    try:
        with _opened(piece, work) as stream:
            left = work.rows_max
            for records, made in read(work, piece, stream, schema):
                yield records, made
                left = None if left is None else left - len(records)
                if left is not None and left <= 0:
                    break
    except FileNotFoundError as error:
        raise SourceUnavailable(
            f"file {piece.path} is gone since the batch was planned",
            hint="start the job again: it plans anew",
        ) from error
    except (OSError, EOFError, Unreadable, ValueError) as error:
        raise RuleBroken(
            f"file {piece.path} cannot be read as {work.format}: {error}",
            hint="repair it under a new name, or take it away",
        ) from error


def _csv(
    work: FilesWork, piece: FilePiece, stream: BinaryIO, schema: pa.Schema
) -> Iterator[tuple[FileRecords, Decoded]]:
    options = csv_options(work.options)
    found = csv_records(stream, options)
    names: Sequence[str] = schema.names
    if options.header:
        first = next(found, None)
        if first is None:
            return
        names = header_of(first[1], options, piece.path)
    decoder = CsvDecoder(schema, names, options, strict=work.strict)
    for chunk in _chunks(found, work):
        lines, values = [number for number, _ in chunk], [value for _, value in chunk]
        yield FileRecords(path=piece.path, lines=lines, raw=values), decoder.decode(values)


def _json(
    work: FilesWork, piece: FilePiece, stream: BinaryIO, schema: pa.Schema
) -> Iterator[tuple[FileRecords, Decoded]]:
    from jobs.formats.csv_rows import BOM
    from jobs.formats.json_rows import JsonDecoder

    decoder = JsonDecoder(schema, strict=work.strict)
    found = (
        (number, line.removeprefix(BOM) if number == 1 else line)
        for number, line in enumerate(stream, start=1)
        if line.strip()
    )
    for chunk in _chunks(found, work):
        lines, values = [number for number, _ in chunk], [value.strip() for _, value in chunk]
        yield FileRecords(path=piece.path, lines=lines, raw=values), decoder.decode(values)


def _chunks(
    found: Iterator[tuple[int, bytes]], work: FilesWork
) -> Iterator[list[tuple[int, bytes]]]:
    held: list[tuple[int, bytes]] = []
    size = 0
    for item in found:
        held.append(item)
        size += len(item[1])
        if size >= CHUNK_BYTES or (work.rows_max is not None and len(held) >= work.rows_max):
            yield held
            held, size = [], 0
    if held:
        yield held


def _parquet(
    work: FilesWork, piece: FilePiece, stream: BinaryIO, schema: pa.Schema
) -> Iterator[tuple[FileRecords, Decoded]]:
    import pyarrow as pa
    from pyarrow import parquet

    from jobs.formats.typed_rows import ArrowDecoder

    decoder = ArrowDecoder(schema, strict=work.strict)
    first = 1
    with parquet.ParquetFile(stream) as file:
        for batch in file.iter_batches(batch_size=CHUNK_ROWS):
            table = pa.Table.from_batches([batch])
            lines = range(first, first + table.num_rows)
            yield FileRecords(path=piece.path, lines=lines, raw=table), decoder.decode(table)
            first += table.num_rows
        if first == 1:
            # No row, but columns that the table may lack.
            empty = file.schema_arrow.empty_table()
            yield FileRecords(path=piece.path, lines=(), raw=empty), decoder.decode(empty)


def _avro(
    work: FilesWork, piece: FilePiece, stream: BinaryIO, schema: pa.Schema
) -> Iterator[tuple[FileRecords, Decoded]]:
    import fastavro

    from jobs.formats.typed_rows import ObjectDecoder

    decoder = ObjectDecoder(schema, strict=work.strict)
    rows_max = CHUNK_ROWS if work.rows_max is None else min(CHUNK_ROWS, work.rows_max)
    held: list[Mapping[str, Any]] = []
    first = 1
    for record in _ended(fastavro.reader(stream)):
        if not isinstance(record, Mapping):
            raise Unreadable(f"its records are of type {type(record).__name__}, not records")
        held.append(record)
        if len(held) >= rows_max:
            lines = range(first, first + len(held))
            yield FileRecords(path=piece.path, lines=lines, raw=held), decoder.decode(held)
            first, held = first + len(held), []
    if held:
        lines = range(first, first + len(held))
        yield FileRecords(path=piece.path, lines=lines, raw=held), decoder.decode(held)


def _ended(records: Iterator[Any]) -> Iterator[Any]:
    # Whatever its reader raises over a damaged block, the file is the one that is wrong.
    try:
        yield from records
    except (OSError, ValueError, EOFError):
        raise
    except Exception as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from error


# -- the bytes -------------------------------------------------------------------------------------


class _Digested(io.RawIOBase):
    """The bytes of a file, which pass through its digest while they are read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self._size = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        self._digest.update(data)
        self._size += len(data)
        buffer[: len(data)] = data
        return len(data)

    def content(self) -> str:
        """Read what is left, and return size and digest of the whole."""
        while self.read(_READ_BYTES):
            pass
        return f"{self._size}:{self._digest.hexdigest()}"


@contextmanager
def _opened(piece: FilePiece, work: FilesWork) -> Iterator[BinaryIO]:
    """Open a file; at the end it must have been the one that was planned."""
    whole = work.rows_max is None
    with Path(piece.path).open("rb") as file:
        if work.format in {"parquet", "avro"} or not whole:
            # Read from any place: digested first, and looked at again behind the reading.
            before = os.fstat(file.fileno())
            if whole:
                _check(piece, _Digested(file).content())
                file.seek(0)
            yield _unpacked(piece, file)
            after = os.fstat(file.fileno())
            if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
                _check(piece, f"{after.st_size} bytes, changed while it was read")
            return
        digested = _Digested(file)
        yield _unpacked(piece, cast("BinaryIO", io.BufferedReader(digested, _READ_BYTES)))
        _check(piece, digested.content())


def _unpacked(piece: FilePiece, stream: BinaryIO) -> BinaryIO:
    return cast("BinaryIO", gzip.open(stream)) if piece.path.endswith(".gz") else stream


def _check(piece: FilePiece, found: str) -> None:
    if found != piece.content:
        raise SourceUnavailable(
            f"file {piece.path} changed since the batch was planned: expected {piece.content}, "
            f"found {found}; nothing of the batch is in",
            hint="start the job again: it plans anew; give a file its name when it is complete",
        )


def _as_json(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, default=str, ensure_ascii=False).encode()
