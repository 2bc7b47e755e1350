"""A task that hands decoded rows to Spark, where a query or a MERGE needs them.

Owns the columns around a row on that way: where it came from, and for a record that is no row the
reason and its bytes. Must never drop a record: each is a row, a dead letter, or a note.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobs.formats.types import spark_type
from jobs.sources.kafka_read import Piece, read
from jobs.tasks import facts
from jobs.tasks.records import Records

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

``NEWS`` is a note from a task, about fields that the table lacks; such a row is nothing else.
"""
_HEADER_TYPE = (("name", "string"), ("value", "binary"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsWork:
    """What every task of a batch is told. ``options`` may hold a secret: it is never shown.

    ``schema`` is that of the decoded columns, as Arrow writes a schema; ``facts`` are facts of the
    record that the table keeps as columns.
    """

    bootstrap: str
    schema: bytes
    format: Format
    facts: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    uncommitted: bool = False


def batches(work: RowsWork, pieces: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
    """Yield the records of the pieces, decoded, as Spark takes them."""
    import pyarrow as pa

    schema = pa.ipc.read_schema(pa.py_buffer(work.schema))
    decoder = work.format.decoder(schema)
    shape = _shape(schema, work.facts)
    news: dict[str, dict[str, str]] = {"unknown": {}, "wider": {}}
    for piece, messages in read(
        work.bootstrap, work.options, list(pieces), uncommitted=work.uncommitted
    ):
        records = Records(topic=piece.topic, partition=piece.partition, messages=messages)
        made = decoder.decode(records)
        for kind, found in (("unknown", made.unknown), ("wider", made.wider)):
            news[kind].update({name: spark_type(value) for name, value in found.items()})
        if made.rows.num_rows:
            yield from _rows(made, records, work.facts, shape).to_batches()
        if made.rejects:
            yield from _rejects(made, records, shape).to_batches()
    if any(news.values()):
        yield from _filled({NEWS: pa.array([json.dumps(news)])}, 1, shape).to_batches()


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


def _rows(made: Decoded, records: Records, kept: Sequence[str], shape: pa.Schema) -> pa.Table:
    columns = {name: made.rows[name] for name in made.rows.column_names}
    columns |= dict(zip(kept, facts.columns(kept, records, made.places), strict=True))
    columns |= _around(records, made.places)
    return _filled(columns, made.rows.num_rows, shape)


def _rejects(made: Decoded, records: Records, shape: pa.Schema) -> pa.Table:
    import pyarrow as pa

    places = [item.place for item in made.rejects]
    columns = _around(records, places) | {
        REASON: pa.array([item.reason for item in made.rejects]),
        KEY: pa.array([records.keys[place] for place in places], pa.binary()),
        VALUE: pa.array([records.values[place] for place in places], pa.binary()),
        HEADERS: facts.columns(["_headers"], records, places)[0],
    }
    return _filled(columns, len(places), shape)


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
