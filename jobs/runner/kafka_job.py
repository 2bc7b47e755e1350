"""A Kafka job as its spec says it: its tables, its decoders, and the path that its rows take.

Owns the choice of the path, and what a topic's table looks like at first. Must never read more of a
topic for that than a sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from jobs.formats.json_rows import JsonDecoder
from jobs.formats.json_rows import why_not as json_cannot
from jobs.formats.types import spark_type
from jobs.runner import tables
from jobs.runner.kafka_arrow import Destination, KafkaArrow
from jobs.runner.outcome import Done
from jobs.runner.unfinished import unfinished
from jobs.sources.base import Choices, Limits, Plan
from jobs.sources.kafka import KafkaSource
from jobs.sources.kafka_read import Piece, read
from jobs.tasks.decoders import Format, JsonFormat, PlainFormat
from odi_audit.errors import NotSupported, UsageError
from odi_audit.model.contract import Contract
from odi_audit.model.provenance import OFFSET, PARTITION
from odi_audit.spark.loose import loose_table

if TYPE_CHECKING:
    from jobs.spec.model import JobSpec
    from jobs.spec.sources import KafkaSource as KafkaSpec
    from odi_audit.committer.run import Run
    from odi_audit.ledger.port import Position
    from odi_audit.spark.live import LiveTable

SAMPLE_MAX = 1_000
"""Records by which the columns of a new table are found, where the spec names none."""


class KafkaJob:
    """One spec with a Kafka source, appended to its tables."""

    path = "arrow"

    def __init__(self, spec: JobSpec) -> None:
        assert spec.source.type == "kafka"
        self._spec = spec
        self._kafka: KafkaSpec = spec.source
        self._source = KafkaSource(spec.source)
        self._identity = ""
        dead = spec.dead_letter
        self._work = KafkaArrow(
            self._source,
            self._destinations,
            None if dead is None else lambda run: tables.make_dead_letters(run, dead.table),
        )

    def prepare(self, run: Run) -> None:
        """Reach the cluster, and make what can be made before the first batch."""
        self._identity = self._source.identity()
        if self._spec.dead_letter is not None:
            tables.make_dead_letters(run, self._spec.dead_letter.table)

    def positions(self, run: Run) -> Mapping[str, Position]:
        """Return where the job stands on this cluster."""
        return run.parts.ledger.job_positions(run.job, self._identity)

    def plan(self, run: Run, limits: Limits, *, choices: Choices, waited_s: float) -> Plan | None:
        """Return the next batch: the rest of one that only some tables have, or a new one."""
        rest = unfinished(run.parts.ledger, run.job)
        if rest is not None:
            return rest
        others = run.parts.ledger.job_sources(run.job)
        return self._source.plan(
            self.positions(run),
            limits,
            choices=choices,
            elsewhere=[name for name in others if name != self._identity],
            waited_s=waited_s,
        )

    def carry_out(self, run: Run, plan: Plan) -> Done:
        """Read, decode, write and commit one batch, once."""
        done = self._work.carry_out(run, plan)
        if done.records:
            self._source.row_bytes = done.bytes / done.records
        return done

    # -- tables ------------------------------------------------------------------------------

    def _destinations(self, run: Run, topics: Sequence[str]) -> list[Destination]:
        by_table: dict[str, list[str]] = {}
        for topic in topics:
            by_table.setdefault(self._table_of(topic), []).append(topic)
        found = []
        for name, fed in by_table.items():
            table = tables.live(run, name) or self._made(run, name, fed)
            found.append(
                Destination(
                    table=table,
                    topics=tuple(fed),
                    format=self._format(),
                    facts=self._facts(),
                    contract=self._contract(),
                )
            )
        return found

    def _table_of(self, topic: str) -> str:
        target = self._spec.target
        if target.route is None:
            assert target.table is not None
            return target.table
        if target.route.by != "topic":
            raise NotSupported("route by field needs Spark's path")
        name = target.route.table.replace("{topic}", topic.replace(".", "_").replace("-", "_"))
        tables.check_allowed(name, target.route.allow)
        return name

    def _made(self, run: Run, name: str, topics: Sequence[str]) -> LiveTable:
        columns = self._columns(topics)
        columns |= self._fact_types()
        return tables.make(run, name, columns, self._spec.target)

    def _columns(self, topics: Sequence[str]) -> dict[str, str]:
        value = self._kafka.value
        if value.columns is not None:
            return {column.name: column.definition for column in value.columns.items}
        if value.format in {"raw", "text"}:
            return {"value": "binary" if value.format == "raw" else "string"}
        found = self._seen(topics)
        if not found:
            raise UsageError(
                f"no record of {', '.join(topics)} shows what the columns are",
                hint="name them in the spec: source.value.columns",
            )
        return found

    def _seen(self, topics: Sequence[str]) -> dict[str, str]:
        import pyarrow as pa

        cluster = self._source.look({})
        decoder = JsonDecoder(pa.schema([]))
        found: dict[str, str] = {}
        for topic in topics:
            for number, marks in sorted(cluster.topics[topic].partitions.items()):
                piece = Piece(
                    topic=topic,
                    partition=number,
                    start=marks.begin,
                    end=min(marks.end, marks.begin + SAMPLE_MAX),
                )
                for _, messages in read(self._source.bootstrap, self._source.options, [piece]):
                    made = decoder.decode([message.value() for message in messages])
                    for name, kind in made.unknown.items():
                        found.setdefault(name, spark_type(kind))
        return found

    def _facts(self) -> tuple[str, ...]:
        kept = tuple(f"_{name}" for name in self._kafka.keep)
        return kept + ((PARTITION, OFFSET) if self._spec.target.provenance == "row" else ())

    def _fact_types(self) -> dict[str, str]:
        from jobs.tasks.facts import SPARK_TYPES

        # The two of the provenance are added by the committer itself.
        return {f"_{name}": SPARK_TYPES[f"_{name}"] for name in self._kafka.keep}

    def _format(self) -> Format:
        value = self._kafka.value
        if value.format in {"raw", "text"}:
            return PlainFormat(kind="raw" if value.format == "raw" else "text")
        if value.format == "json":
            return JsonFormat(strict=self._spec.target.evolve == "strict")
        raise NotSupported(f"values in format {value.format}")

    def _contract(self) -> Contract:
        given = self._spec.contract
        return Contract(key=given.key, required=given.required, rules=given.rules)


def arrow_cannot(spec: JobSpec, table: LiveTable | None) -> str | None:
    """Say why a job cannot take the Arrow path; None where it can."""
    from odi_audit.catalog.data_files import arrow_schema_of
    from odi_audit.catalog.data_files import why_not as files_cannot

    target = spec.target
    reasons = {
        "its source is not Kafka": spec.source.type != "kafka",
        f"its mode is {target.mode}": target.mode != "append",
        "it has a transform": spec.transform is not None,
        "it keeps a raw table too": target.raw is not None,
        "it routes by field": target.route is not None and target.route.by == "field",
        "rows that break the contract are put aside": spec.contract.on_violation == "dead_letter"
        and bool(spec.contract.rules or spec.contract.required or spec.contract.key),
    }
    for reason, holds in reasons.items():
        if holds:
            return reason
    if table is None:
        return None
    described = loose_table(table, "odi")
    return files_cannot(described) or json_cannot(arrow_schema_of(described))
