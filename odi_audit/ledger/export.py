"""Export: the whole ledger as Parquet or JSON Lines, streamed.

Owns the columns of the export. A line of the JSON Lines form is exactly the bytes that were hashed,
so the tree can be recomputed from the file alone. Must never leave half a file under its name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from odi_audit import clock
from odi_audit.canonical import encode
from odi_audit.errors import StorageError
from odi_audit.ledger import reading
from odi_audit.ledger.port import Ledger, StoredEntry

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP_ENTRIES: Final = 20_000
"""About 20 MB of entries held at a time."""


class Form(StrEnum):
    """The forms of an export."""

    PARQUET = "parquet"
    JSONL = "jsonl"


def export(
    ledger: Ledger, path: Path, form: Form, progress: Callable[[int], None] | None = None
) -> int:
    """Write every entry to ``path``, which appears when it is whole; return how many.

    Raises:
        StorageError: the file cannot be written. LedgerBroken: an entry cannot be read.
    """
    try:
        with _whole(path) as draft:
            write = _parquet if form is Form.PARQUET else _json_lines
            return write(ledger, draft, progress)
    except OSError as problem:
        raise StorageError(
            f"export {path} cannot be written: {problem.strerror or problem}",
            hint=f"df -h {path.parent}",
            path=str(path),
        ) from problem


def _json_lines(ledger: Ledger, path: Path, progress: Callable[[int], None] | None) -> int:
    count = 0
    with path.open("wb") as stream:
        for raw in ledger.stored():
            stream.write(raw.body + b"\n")
            count += 1
            if progress and count % ROW_GROUP_ENTRIES == 0:
                progress(count)
    return count


def _parquet(ledger: Ledger, path: Path, progress: Callable[[int], None] | None) -> int:
    import pyarrow.parquet as pq

    schema = _schema()
    count = 0
    entries = ledger.stored()
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        while some := list(islice(entries, ROW_GROUP_ENTRIES)):
            writer.write_table(_table(some, schema))
            count += len(some)
            if progress:
                progress(count)
    return count


def _schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("index", pa.int64(), nullable=False),
            pa.field("time", pa.timestamp("us", tz="UTC"), nullable=False),
            pa.field("kind", pa.string(), nullable=False),
            pa.field("job", pa.string()),
            pa.field("run", pa.string()),
            pa.field("batch", pa.string()),
            pa.field("table_uuid", pa.string()),
            pa.field("table_name", pa.string()),
            pa.field("intent", pa.int64()),
            pa.field("settles", pa.bool_(), nullable=False),
            pa.field("recovered", pa.bool_(), nullable=False),
            pa.field("facts", pa.string(), nullable=False),
            pa.field("entry", pa.string(), nullable=False),
            pa.field("leaf_hash", pa.binary(), nullable=False),
        ]
    )


def _table(some: list[StoredEntry], schema: pa.Schema) -> pa.Table:
    import pyarrow as pa

    columns: dict[str, list[object]] = {name: [] for name in schema.names}
    for raw in some:
        entry = reading.decode(raw.body, raw.index)
        row: dict[str, object] = {
            "index": entry.index,
            "time": clock.from_text(entry.time),
            "kind": entry.kind.value,
            "job": entry.job,
            "run": entry.run,
            "batch": entry.batch,
            "table_uuid": entry.table.uuid if entry.table else None,
            "table_name": entry.table.name if entry.table else None,
            "intent": entry.intent,
            "settles": entry.settles,
            "recovered": entry.recovered,
            "facts": encode(entry.facts).decode("utf-8"),
            "entry": raw.body.decode("utf-8"),
            "leaf_hash": raw.leaf,
        }
        for name, value in row.items():
            columns[name].append(value)
    return pa.table(columns, schema=schema)


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """Give a draft's name; put the draft in its place when it is complete and on the disk."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        yield draft
        with draft.open("rb+") as stream:
            os.fsync(stream.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
