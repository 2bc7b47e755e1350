"""A task that hands decoded rows to Spark, where a query or a MERGE needs them.

Owns the columns around a row on that way: where it came from, and for a record that is no row the
reason and its bytes. Each task ends with a note that counts what it read. Must never drop a record:
each is a row, a dead letter, or counted as one that changes no row.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobs.formats.debezium_envelope import UNAVAILABLE
from jobs.formats.types import spark_type, together
from jobs.sources.kafka_read import Piece, read
from jobs.tasks import facts
from jobs.tasks.decoders import SchemasSeen
from jobs.tasks.records import Records
from odi_audit.errors import (
    OdiError,
    RuleBroken,
    SourceChanged,
    SourceDenied,
    SourceUnavailable,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from jobs.formats.decoded import Decoded
    from jobs.tasks.decoders import Format

TOPIC, PARTITION, OFFSET = "__odi_topic", "__odi_partition", "__odi_offset"
REASON, KEY, VALUE = "__odi_reason", "__odi_key", "__odi_value"
AT, HEADERS, NEWS = "__odi_at", "__odi_headers", "__odi_news"
AROUND: Mapping[str, str] = {
    TOPIC: "string",
    PARTITION: "string",
    OFFSET: "bigint",
    AT: "timestamp",
    REASON: "string",
    KEY: "binary",
    VALUE: "binary",
    HEADERS: "array<struct<name: string, value: binary>>",
    NEWS: "string",
}
"""Columns around each row, with their types in Spark's words.

``NEWS`` is a note from a task: what it has counted, and fields that the table lacks. Or it is
``PASSED``: a record that changes no row, such as a tombstone, which is there only where the bytes
of every record are kept. Such a row is nothing else.
"""
PASSED = "passed"
_FAILURES: Mapping[str, type[OdiError]] = {
    kind.__name__: kind for kind in (SourceChanged, SourceDenied, SourceUnavailable, RuleBroken)
}
_FAILED = re.compile(r"odi-task-failed:([A-Za-z0-9+/=]+)")
_HEADER_TYPE = (("name", "string"), ("value", "binary"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsWork:
    """What every task of a batch is told. ``options`` may hold a secret: it is never shown.

    ``schema`` is that of the decoded columns, as Arrow writes a schema; ``facts`` are facts of the
    record that the table keeps as columns. ``whole``: every record keeps its bytes.
    """

    bootstrap: str
    schema: bytes
    format: Format
    facts: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    uncommitted: bool = False
    whole: bool = False


class TaskFailed(Exception):
    """What stopped a task, in a form that outlives the way through the JVM."""

    def __init__(self, error: OdiError) -> None:
        body = {"kind": type(error).__name__, "message": error.message, "hint": error.hint}
        packed = base64.b64encode(json.dumps(body).encode()).decode()
        super().__init__(f"{error.message} odi-task-failed:{packed}")


def failure_in(text: str) -> OdiError | None:
    """Return what a task said of its end, where an error's text holds it."""
    found = _FAILED.search(text)
    if found is None:
        return None
    body = json.loads(base64.b64decode(found[1]))
    return _FAILURES[body["kind"]](body["message"], hint=body["hint"])


def batches(work: RowsWork, pieces: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
    """Yield the records of the pieces, decoded, as Spark takes them; the last is a note.

    Raises:
        TaskFailed: the source could not be read.
    """
    try:
        yield from _batches(work, pieces)
    except tuple(_FAILURES.values()) as error:
        raise TaskFailed(error) from error


def _batches(work: RowsWork, pieces: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    schema = pa.ipc.read_schema(pa.py_buffer(work.schema))
    decoder = work.format.decoder(schema)

    def decoded() -> Iterator[tuple[Records, Decoded]]:
        for piece, messages in read(
            work.bootstrap, work.options, list(pieces), uncommitted=work.uncommitted
        ):
            records = Records(topic=piece.topic, partition=piece.partition, messages=messages)
            yield records, decoder.decode(records)

    yield from handed_on(decoded(), schema, work.facts, whole=work.whole)


def handed_on(
    decoded: Iterable[tuple[Records, Decoded]],
    schema: pa.Schema,
    kept: Sequence[str],
    *,
    whole: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield decoded records as Spark takes them; the last is a note of what was counted."""
    import pyarrow as pa

    shape = _shape(schema, kept)
    lacking: dict[str, dict[str, str]] = {"unknown": {}, "wider": {}}
    counts = dict.fromkeys(("records", "rows", "rejects", "passed", "bytes"), 0)
    written = SchemasSeen()
    for records, made in decoded:
        written.take(records.topic, made)
        for kind, found in (("unknown", made.unknown), ("wider", made.wider)):
            fields = {name: spark_type(value) for name, value in found.items()}
            lacking[kind] = together([lacking[kind], fields])
        passed = len(records) - made.rows.num_rows - len(made.rejects)
        counts["records"] += len(records)
        counts["rows"] += made.rows.num_rows
        counts["rejects"] += len(made.rejects)
        counts["passed"] += passed
        counts["bytes"] += records.size_bytes
        if made.rows.num_rows:
            yield from _rows(made, records, kept, shape, whole=whole).to_batches()
        if made.rejects:
            yield from _rejects(made, records, shape).to_batches()
        if passed and whole:
            yield from _passed(made, records, shape).to_batches()
    note = json.dumps({**counts, **lacking, "written": written.to_json()})
    yield from _filled({NEWS: pa.array([note])}, 1, shape).to_batches()


def _shape(schema: pa.Schema, kept: Sequence[str]) -> pa.Schema:
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "bigint": pa.int64(),
        "int": pa.int32(),
        "binary": pa.binary(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    header = pa.list_(pa.struct([(name, types[kind]) for name, kind in _HEADER_TYPE]))
    columns = [item.with_nullable(nullable=True).remove_metadata() for item in schema]
    columns += [pa.field(name, types.get(facts.SPARK_TYPES[name], header)) for name in kept]
    columns += [pa.field(name, types.get(kind, header)) for name, kind in AROUND.items()]
    return pa.schema(columns)


def _rows(
    made: Decoded, records: Records, kept: Sequence[str], shape: pa.Schema, *, whole: bool
) -> pa.Table:
    columns = {name: made.rows[name] for name in made.rows.column_names}
    columns |= dict(zip(kept, facts.columns(kept, records, made.places), strict=True))
    columns |= _around(records, made.places)
    if whole:
        columns |= _bytes(records, made.places)
    elif UNAVAILABLE in columns and columns[UNAVAILABLE].null_count < made.rows.num_rows:
        # Where the values that it leaves out are not found, such a change is a dead letter.
        columns |= _bytes(records, made.places, only=columns[UNAVAILABLE].is_valid())
    return _filled(columns, made.rows.num_rows, shape)


def _rejects(made: Decoded, records: Records, shape: pa.Schema) -> pa.Table:
    import pyarrow as pa

    places = [item.place for item in made.rejects]
    columns = _around(records, places) | _bytes(records, places)
    columns[REASON] = pa.array([item.reason for item in made.rejects])
    return _filled(columns, len(places), shape)


def _passed(made: Decoded, records: Records, shape: pa.Schema) -> pa.Table:
    import pyarrow as pa

    known = {*made.places, *(item.place for item in made.rejects)}
    places = [place for place in range(len(records)) if place not in known]
    columns = _around(records, places) | _bytes(records, places)
    columns[NEWS] = pa.array([PASSED] * len(places))
    return _filled(columns, len(places), shape)


def _bytes(
    records: Records, places: Sequence[int], *, only: pa.ChunkedArray | None = None
) -> dict[str, pa.Array]:
    """Return the bytes of records; of those that ``only`` says, where it is given."""
    import pyarrow as pa

    if only is not None:
        kept = list(zip(places, only.to_pylist(), strict=True))
        rank = iter(range(len(kept)))
        back = pa.array([next(rank) if wanted else None for _, wanted in kept], pa.int64())
        some = _bytes(records, [place for place, wanted in kept if wanted])
        return {name: column.take(back) for name, column in some.items()}
    return {
        KEY: pa.array([records.keys[place] for place in places], pa.binary()),
        VALUE: pa.array([records.values[place] for place in places], pa.binary()),
        HEADERS: facts.columns(["_headers"], records, places)[0],
    }


def _around(records: Records, places: Sequence[int]) -> dict[str, pa.Array]:
    names = {TOPIC: "_topic", PARTITION: "_source_partition", OFFSET: "_offset", AT: "_timestamp"}
    made = facts.columns(list(names.values()), records, places)
    return dict(zip(names, made, strict=True))


def _filled(columns: Mapping[str, pa.Array], count: int, shape: pa.Schema) -> pa.Table:
    import pyarrow as pa

    return pa.table(
        [
            columns[item.name].cast(item.type)
            if item.name in columns
            else pa.nulls(count, item.type)
            for item in shape
        ],
        schema=shape,
    )
