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

    Without a table they are decoded into the columns that the spec names, if any.
    """
    import pyarrow as pa

    from jobs.arrow_path import pieces_of
    from jobs.formats.types import spark_type, together
    from jobs.runner.kafka_formats import format_of
    from jobs.sources.kafka import KafkaSource
    from jobs.sources.kafka_read import Piece, read
    from jobs.tasks.records import Records

    assert spec.source.type == "kafka"
    source = KafkaSource(spec.source)
    schema = pa.schema([]) if table is None else _schema(spec, table)
    decoder = format_of(spec).decoder(schema)
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
    records = rejects = 0
    reason: str | None = None
    add: list[Mapping[str, str]] = []
    widen: list[Mapping[str, str]] = []
    for piece, messages in read(
        source.bootstrap, source.options, pieces[:PARTITIONS_MAX], uncommitted=source.uncommitted
    ):
        made = decoder.decode(
            Records(topic=piece.topic, partition=piece.partition, messages=messages)
        )
        records += len(messages)
        rejects += len(made.rejects)
        reason = reason or (made.rejects[0].reason if made.rejects else None)
        add.append({name: spark_type(kind) for name, kind in made.unknown.items()})
        widen.append({name: spark_type(kind) for name, kind in made.wider.items()})
    return Sample(
        records=records,
        rejects=rejects,
        reason=reason,
        add=together(add),
        widen=together(widen),
    )


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
