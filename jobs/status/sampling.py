"""A sample of what the next batch holds, decoded: which columns, which rejects, what a table lacks.

Owns the reading of a few records, decoded as the job itself would. Must never read more than the
sample, nor change a table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from jobs.sources.base import Plan
    from jobs.spec.model import JobSpec
    from jobs.tasks.records import Records
    from odi_audit.catalog import TableState

SAMPLE_MAX = 1_000
"""Records of one partition that are read."""
PARTITIONS_MAX = 20
"""Partitions of one table that are read from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Records of one table: how many were read, how many are no rows, and what the table lacks."""

    records: int = 0
    rejects: int = 0
    reason: str | None = None
    add: Mapping[str, str] = field(default_factory=dict)
    widen: Mapping[str, str] = field(default_factory=dict)


def kafka_sample(
    spec: JobSpec, plan: Plan, topics: Sequence[str], table: TableState | None
) -> Sample:
    """Read the first records that a plan has of some topics, and decode them into a table.

    Without a table they are decoded into the columns that they show themselves.
    """
    import pyarrow as pa

    from jobs.formats.types import together
    from jobs.runner.kafka_formats import format_of

    schema = pa.schema([]) if table is None else _schema(spec, table)
    form, chunks = format_of(spec), _read(spec, plan, topics)
    records = rejects = 0
    reason: str | None = None
    add: list[Mapping[str, str]] = []
    widen: list[Mapping[str, str]] = []
    if table is None:
        shown = [form.decoder(schema).decode(chunk).unknown for chunk in chunks]
        add = [_types(found) for found in shown]
        schema = _widest(shown)
    decoder = form.decoder(schema)
    for chunk in chunks:
        made = decoder.decode(chunk)
        records += len(chunk)
        rejects += len(made.rejects)
        reason = reason or (made.rejects[0].reason if made.rejects else None)
        add.append(_types(made.unknown))
        widen.append(_types(made.wider))
    return Sample(
        records=records,
        rejects=rejects,
        reason=reason,
        add=together(add),
        widen=together(widen),
    )


def _read(spec: JobSpec, plan: Plan, topics: Sequence[str]) -> list[Records]:
    from jobs.arrow_path import pieces_of
    from jobs.sources.kafka import KafkaSource
    from jobs.sources.kafka_read import Piece, read
    from jobs.tasks.records import Records

    assert spec.source.type == "kafka"
    source = KafkaSource(spec.source)
    pieces = [
        Piece(
            topic=piece.topic,
            partition=piece.partition,
            start=piece.start,
            end=min(piece.end, piece.start + SAMPLE_MAX),
        )
        for piece in pieces_of(plan.offsets)
        if piece.topic in topics and piece.start < piece.end
    ]
    return [
        Records(topic=piece.topic, partition=piece.partition, messages=messages)
        for piece, messages in read(
            source.bootstrap,
            source.options,
            pieces[:PARTITIONS_MAX],
            uncommitted=source.uncommitted,
        )
    ]


def _widest(shown: Sequence[Mapping[str, pa.DataType]]) -> pa.Schema:
    """Return the columns of a table that would be made of what records show."""
    import pyarrow as pa

    from jobs.formats.types import together

    best = together(map(_types, shown))
    return pa.schema(
        {
            name: kind
            for found in shown
            for name, kind in found.items()
            if _types({name: kind})[name] == best[name]
        }.items()
    )


def _types(found: Mapping[str, pa.DataType]) -> dict[str, str]:
    from jobs.formats.types import spark_type

    return {name: spark_type(kind) for name, kind in found.items()}


def _schema(spec: JobSpec, table: TableState) -> pa.Schema:
    """Return the columns that records are decoded into: the table's, without what is added."""
    import pyarrow as pa

    from jobs.patterns import names
    from odi_audit.catalog.data_files import arrow_schema_of
    from odi_audit.catalog.loose import loose_view
    from odi_audit.model.provenance import OFFSET, PARTITION

    assert spec.source.type == "kafka"
    changes = spec.source.envelope == "debezium"
    hidden = {PARTITION, OFFSET, *names.added(spec.target, changes=changes)}
    hidden |= {f"_{name}" for name in spec.source.keep}
    whole = arrow_schema_of(loose_view(table))
    return pa.schema([item for item in whole if item.name not in hidden])
