"""Kafka as a feed of Spark's path: the records of a plan, decoded in tasks, as a frame.

Owns into which columns records are decoded: those of their table, or, where a transform stands
between, those that the spec names and those that the records of the plan itself show. So the same
plan gives the same rows. Must never keep a position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StructType

from jobs import spark_path
from jobs.arrow_path import cut, pieces_of
from jobs.formats.types import together
from jobs.patterns import names
from jobs.patterns.contracts import puts_aside
from jobs.runner import kafka_columns, kafka_transactions
from jobs.runner.kafka_formats import format_of
from jobs.sources.kafka import KafkaSource
from jobs.sources.kafka_read import Piece, read
from jobs.sources.registry_start import Levels
from jobs.tasks.changes import CONTROL_TYPES
from jobs.tasks.decoders import DebeziumAvroFormat
from jobs.tasks.facts import SPARK_TYPES
from jobs.tasks.records import Records
from jobs.tasks.rows import RowsWork
from odi_audit.errors import UsageError
from odi_audit.model.naming import of_topic
from odi_audit.model.provenance import OFFSET, PARTITION
from odi_audit.model.tables import quote
from odi_audit.spark.plan import origins
from odi_audit.spark.plan.values import Dataset

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from jobs.runner.outcome import Done
    from jobs.runner.tables import Growth
    from jobs.sources.base import Choices, Lag, Limits, Plan
    from jobs.spec.model import JobSpec
    from odi_audit.committer.run import Run
    from odi_audit.ledger.port import Position
    from odi_audit.spark.live import LiveTable

SAMPLE_MAX = 1_000
"""Records of each partition by which the columns of a new table are found."""


class KafkaFeed:
    """The topics of one spec."""

    def __init__(self, spec: JobSpec) -> None:
        assert spec.source.type == "kafka"
        self._spec = spec
        self._kafka = spec.source
        self._source = KafkaSource(spec.source)
        self._identity = ""
        self._levels = Levels(spec)
        self.changes = spec.source.envelope == "debezium"
        route = spec.target.route
        by_field = route is not None and route.by == "field"
        self._whole = spec.target.raw is not None or puts_aside(spec) or by_field
        self._learnt: tuple[object, dict[str, str]] = (None, {})
        self._cutter: kafka_transactions.Cutter | None = None

    def prepare(self, run: Run) -> None:
        """Reach the cluster.

        Raises:
            NotSupported: the spec cuts batches where that cannot be done.
        """
        if self._spec.batch.cut_at_transactions:
            kafka_transactions.check(self._spec)
            tell = kafka_transactions.tell_of(self._spec)
            self._cutter = kafka_transactions.Cutter(self._source, tell)
        self._identity = self._source.identity()
        if self._spec.registry is not None:
            positions = run.parts.ledger.job_positions(run.job, self._identity)
            self._levels.check(self._source.look(positions).topics)

    def identity(self) -> str:
        """Return the name under which the ledger keeps positions on this cluster."""
        return self._identity

    def plan(
        self,
        run: Run,
        positions: Mapping[str, Position],
        limits: Limits,
        *,
        choices: Choices,
        elsewhere: Sequence[str] = (),
        waited_s: float = float("inf"),
    ) -> Plan | None:
        """Return the next batch, or None while none is due."""
        made = self._source.plan(
            positions, limits, choices=choices, elsewhere=elsewhere, waited_s=waited_s
        )
        if made is None or self._cutter is None:
            return made
        now_ms = int(run.parts.clock.now().timestamp() * 1_000)
        cut_short = self._cutter.cut(made, positions, now_ms=now_ms)
        if cut_short is not None or not made.more:
            return cut_short
        # Rows are split evenly over partitions; a transaction may be in a few of them.
        wider = self._source.plan(
            positions, limits.times(kafka_transactions.WIDER_MAX), choices=choices,
            elsewhere=elsewhere, waited_s=waited_s,
        )  # fmt: skip
        assert wider is not None
        return self._cutter.cut(wider, positions, now_ms=now_ms, rows_max=made.rows)

    def columns(self, run: Run, plan: Plan) -> dict[str, str]:  # noqa: ARG002 - its signature
        """Return the columns of the rows, to make a table of.

        Raises:
            UsageError: no record of the plan shows any.
        """
        return self._decoded(plan) | {
            f"_{name}": SPARK_TYPES[f"_{name}"] for name in self._kafka.keep
        }

    def frame(self, run: Run, plan: Plan, table: LiveTable | None) -> DataFrame:
        """Return the records of a plan, as rows, dead letters and notes."""
        facts = self._facts()
        if table is None:
            columns = _struct(self._decoded(plan))
        else:
            other = {*facts, *names.added(self._spec.target, changes=self.changes)}
            columns = StructType([item for item in table.schema.fields if item.name not in other])
        if self.changes:
            for name, kind in CONTROL_TYPES.items():
                columns = columns.add(name, DataType.fromDDL(kind))
        work = RowsWork(
            bootstrap=self._source.bootstrap,
            schema=_arrow(columns).serialize().to_pybytes(),
            format=format_of(self._spec),
            facts=facts,
            options=self._source.options,
            uncommitted=self._source.uncommitted,
            whole=self._whole,
        )
        tasks = run.spark.sparkContext.defaultParallelism
        pieces = pieces_of(plan.offsets)
        self._levels.check(piece.topic for piece in pieces)
        made = spark_path.frame(run.spark, work, cut(pieces, tasks), columns)
        self._remember(made, pieces)
        return made

    def lag(self, run: Run, positions: Mapping[str, Position]) -> Lag:  # noqa: ARG002 - as above
        """Return how far the positions are behind the topics now."""
        return self._source.lag(positions)

    def learn(self, plan: Plan, growth: Growth) -> None:
        """Decode a plan's records into more columns, where no table says which there are."""
        known = together([self._decoded(plan), growth.add])
        self._learnt = (plan.offsets, known | dict(growth.widen))

    def marks(self, plan: Plan) -> frozenset[str]:
        """Return those topics of a plan that hold marks of transactions, and no rows."""
        if self._cutter is None:
            return frozenset()
        return self._cutter.marks() & {piece.topic for piece in pieces_of(plan.offsets)}

    def event_key(self, plan: Plan) -> tuple[str, ...]:
        """Return the columns by which the events themselves tell rows apart; none: not told."""
        from jobs.formats.debezium import event_key

        given = format_of(self._spec)
        front = given.front() if isinstance(given, DebeziumAvroFormat) else None
        for records in self._sample(plan):
            found = event_key(records.keys, front)
            if found:
                return found
        return ()

    def landed(self, done: Done) -> None:
        """Take note of how long records are, so that the next batch keeps its limits."""
        if done.records:
            self._source.row_bytes = done.bytes / done.records

    # -- columns -----------------------------------------------------------------------------

    def _decoded(self, plan: Plan) -> dict[str, str]:
        """Return the columns into which records are decoded where there is no table yet."""
        offsets, learnt = self._learnt
        if offsets == plan.offsets:
            return learnt
        told = kafka_columns.told(self._spec)
        if told is not None:
            return told
        found = self._seen(plan)
        if not found:
            raise UsageError(
                f"no record of {', '.join(sorted({p.topic for p in pieces_of(plan.offsets)}))} "
                "shows what the columns are",
                hint="name them in the spec: source.value.columns",
            )
        self._learnt = (plan.offsets, found)
        return found

    def _seen(self, plan: Plan) -> dict[str, str]:
        records = self._sample(plan)
        return together(
            kafka_columns.shown(side, records) if side.told is None else side.told
            for side in kafka_columns.sides(self._spec)
        )

    def _sample(self, plan: Plan) -> list[Records]:
        # A mark shows neither a column nor a key of a row.
        marks = self.marks(plan)
        pieces = [
            Piece(
                topic=piece.topic,
                partition=piece.partition,
                start=piece.start,
                end=min(piece.end, piece.start + SAMPLE_MAX),
            )
            for piece in pieces_of(plan.offsets)
            if piece.topic not in marks
        ]
        source = self._source
        return [
            Records(topic=piece.topic, partition=piece.partition, messages=messages)
            for piece, messages in read(
                source.bootstrap, source.options, pieces, uncommitted=source.uncommitted
            )
        ]

    def _facts(self) -> tuple[str, ...]:
        kept = tuple(f"_{name}" for name in self._kafka.keep)
        return kept + ((PARTITION, OFFSET) if self._spec.target.provenance == "row" else ())

    def _remember(self, made: DataFrame, pieces: Sequence[Piece]) -> None:
        # Spark sees rows of a data source of ours: it cannot tell the topics behind them.
        topics = sorted({piece.topic for piece in pieces})
        named = [of_topic(self._source.bootstrap, topic) for topic in topics]
        datasets = [Dataset(namespace=it.namespace, name=it.name, kind="TOPIC") for it in named]
        output = made._jdf.queryExecution().analyzed().output()
        origins.remember(int(output.apply(0).exprId().id()), tuple(datasets))


def _struct(columns: Mapping[str, str]) -> StructType:
    made = StructType.fromDDL(", ".join(f"{quote(n)} {kind}" for n, kind in columns.items()))
    assert isinstance(made, StructType)
    return made


def _arrow(columns: StructType) -> pa.Schema:
    return to_arrow_schema(columns)
