"""A Kafka job as its spec says it: its tables, its decoders, and the path that its rows take.

Owns the choice of the path, and what a topic's table looks like at first. Must never read more of a
topic for that than a sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from jobs.formats.json_rows import why_not as json_cannot
from jobs.formats.types import together
from jobs.runner import kafka_columns, tables
from jobs.runner.kafka_arrow import Destination, KafkaArrow
from jobs.runner.kafka_columns import Side
from jobs.runner.kafka_formats import format_of
from jobs.runner.outcome import Done
from jobs.runner.unfinished import unfinished
from jobs.sources.base import Choices, Lag, Limits, Plan
from jobs.sources.kafka import KafkaSource
from jobs.sources.kafka_read import Piece, read
from jobs.sources.registry_start import Levels, registered
from jobs.tasks.decoders import Format
from jobs.tasks.records import Records
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
        self._levels = Levels(spec)
        self._there: set[str] = set()
        """Tables that were there in an earlier batch; they are looked at anew in each."""
        self._cut = False
        """Whether the last batch left topics out, which are due at once."""
        dead = spec.dead_letter
        self._work = KafkaArrow(
            self._source,
            self._destinations,
            None if dead is None else lambda run: tables.make_dead_letters(run, dead.table),
        )

    def prepare(self, run: Run) -> None:
        """Reach the cluster, and make what can be made before the first batch."""
        self._identity = self._source.identity()
        if self._spec.registry is not None:
            self._levels.check(self._source.look(self.positions(run)).topics)
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
        positions = self.positions(run)
        plan = self._source.plan(
            positions,
            limits,
            choices=choices,
            elsewhere=[name for name in others if name != self._identity],
            waited_s=float("inf") if self._cut else waited_s,
        )
        self._cut = False
        if plan is None or self._spec.target.route is None:
            return plan
        self._check_routes([*positions, *plan.offsets.ranges])
        room = run.parts.settings.limits.batch_tables_max - (self._spec.dead_letter is not None)
        made = narrowed(plan, positions, room)
        self._cut = made is not plan
        return made

    def carry_out(self, run: Run, plan: Plan) -> Done:
        """Read, decode, write and commit one batch, once."""
        done = self._work.carry_out(run, plan)
        if done.records:
            self._source.row_bytes = done.bytes / done.records
        return done

    def lag(self, run: Run) -> Lag:
        """Return how far the job is behind its topics now."""
        return self._source.lag(self.positions(run))

    # -- tables ------------------------------------------------------------------------------

    def _destinations(self, run: Run, topics: Sequence[str]) -> list[Destination]:
        self._levels.check(topics)
        by_table: dict[str, list[str]] = {}
        for topic in topics:
            by_table.setdefault(self._table_of(topic), []).append(topic)
        known = self._there
        found = {name: tables.live(run, name, expected=name in known) for name in by_table}
        self._there = known | set(by_table)
        columns = self._columns({n: by_table[n] for n, there in found.items() if there is None})
        target, kept = self._spec.target, self._fact_types()
        return [
            Destination(
                table=there or tables.make(run, name, columns[name] | kept, target),
                topics=tuple(by_table[name]),
                format=self._format(),
                facts=self._facts(),
                contract=self._contract(),
            )
            for name, there in found.items()
        ]

    def _check_routes(self, partitions: Sequence[str]) -> None:
        route = self._spec.target.route
        if route is None or route.by != "topic":
            return
        names: dict[str, str] = {}
        for topic in sorted({name.rpartition("-")[0] for name in partitions}):
            name = table_of(route.table, topic)
            if name in names:
                raise UsageError(
                    f"topics {names[name]} and {topic} would both go to table {name}",
                    hint="take one of them out of source.pattern, and give it a job of its own",
                    table=name,
                )
            names[name] = topic
        if len(names) > route.tables_max:
            raise UsageError(
                f"the topics of job {self._spec.job} go to {len(names)} tables, but its spec says "
                f"tables_max: {route.tables_max}",
                hint="raise target.route.tables_max, or narrow source.pattern",
                tables=len(names),
            )

    def _table_of(self, topic: str) -> str:
        target = self._spec.target
        if target.route is None:
            assert target.table is not None
            return target.table
        if target.route.by != "topic":
            raise NotSupported("route by field needs Spark's path")
        name = table_of(target.route.table, topic)
        tables.check_allowed(name, target.route.allow)
        return name

    def _columns(self, new: Mapping[str, Sequence[str]]) -> dict[str, dict[str, str]]:
        """Return the columns of tables that are not there yet, by the topics that feed them."""
        told = kafka_columns.told(self._spec)
        if told is not None:
            return {name: dict(told) for name in new}
        seen = self._seen([topic for fed in new.values() for topic in fed])
        found: dict[str, dict[str, str]] = {}
        for name, fed in new.items():
            columns = found[name] = together(seen[topic] for topic in fed)
            if not columns:
                raise UsageError(
                    f"no record of {', '.join(fed)} shows what the columns of {name} are",
                    hint="name them in the spec: source.value.columns",
                )
        return found

    def _seen(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return the fields that each topic has, by its sides: told, registered, or in a sample."""
        by_side: list[dict[str, dict[str, str]]] = []
        for side in kafka_columns.sides(self._spec):
            if side.told is not None:
                by_side.append(dict.fromkeys(topics, side.told))
                continue
            found = registered(self._spec, topics, side.name)
            rest = [topic for topic in topics if topic not in found]
            by_side.append(found | self._shown(side, rest))
        return {topic: together(found[topic] for found in by_side) for topic in topics}

    def _shown(self, side: Side, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return the fields that a sample of each topic shows; one consumer reads them all."""
        found: dict[str, dict[str, str]] = {topic: {} for topic in topics}
        if not topics:
            return found
        known = self._source.look({}).topics
        pieces = [
            Piece(
                topic=topic,
                partition=number,
                start=marks.begin,
                end=min(marks.end, marks.begin + SAMPLE_MAX),
            )
            for topic in topics
            for number, marks in sorted(known[topic].partitions.items())
        ]
        source = self._source
        for piece, messages in read(
            source.bootstrap, source.options, pieces, uncommitted=source.uncommitted
        ):
            records = Records(topic=piece.topic, partition=piece.partition, messages=messages)
            fields = kafka_columns.shown(side, [records])
            found[piece.topic] = together([found[piece.topic], fields])
        return found

    def _facts(self) -> tuple[str, ...]:
        kept = tuple(f"_{name}" for name in self._kafka.keep)
        return kept + ((PARTITION, OFFSET) if self._spec.target.provenance == "row" else ())

    def _fact_types(self) -> dict[str, str]:
        from jobs.tasks.facts import SPARK_TYPES

        # The two of the provenance are added by the committer itself.
        return {f"_{name}": SPARK_TYPES[f"_{name}"] for name in self._kafka.keep}

    def _format(self) -> Format:
        return format_of(self._spec)

    def _contract(self) -> Contract:
        given = self._spec.contract
        return Contract(key=given.key, required=given.required, rules=given.rules)


def narrowed(plan: Plan, positions: Mapping[str, Position], topics_max: int) -> Plan:
    """Return a plan over at most so many topics: those that were served longest ago.

    Every topic has its own table here, and so its own share of the offsets: what is left out comes
    in the next batch. Topics with a gap go first, because that was accepted for this batch.
    """
    parts: dict[str, list[str]] = {}
    for name in plan.offsets.ranges:
        parts.setdefault(name.rpartition("-")[0], []).append(name)
    if len(parts) <= topics_max:
        return plan
    gaps = {gap.partition.rpartition("-")[0] for gap in plan.gaps}

    def turn(topic: str) -> tuple[bool, int, str]:
        served = [positions[name].index for name in parts[topic] if name in positions]
        return topic not in gaps, max(served, default=-1), topic

    kept = [name for topic in sorted(parts, key=turn)[:topics_max] for name in parts[topic]]
    offsets = plan.offsets.only(kept)
    rows = sum(
        part.end - part.start
        for part in offsets.ranges.values()
        if isinstance(part.start, int) and isinstance(part.end, int)
    )
    return replace(plan, offsets=offsets, rows=rows, more=True)


def table_of(template: str, topic: str) -> str:
    """Return the name of the table that a topic's records go to."""
    return template.replace("{topic}", topic.replace(".", "_").replace("-", "_"))


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
    if spec.source.type == "kafka" and spec.source.value.format == "avro":
        return files_cannot(described)
    return files_cannot(described) or json_cannot(arrow_schema_of(described))
