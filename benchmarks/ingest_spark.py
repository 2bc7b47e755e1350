"""The two systems that share one Spark: our job, and Spark's own streaming sink into Iceberg.

Owns how each is submitted. Our time ends when the ledger has the last batch, which is a little
after its snapshot. Must never give one of them settings of the session that the other has not.
"""

from __future__ import annotations

import secrets
import time

from pyspark.sql import functions as fn

import odi_audit as odi
from benchmarks.ingest_place import COLUMNS, Place
from jobs.runner.kafka_job import KafkaJob
from jobs.runner.loop import Until, run_job
from jobs.sources.base import Limits
from jobs.spec import parse_spec

SINK_BATCH_ROWS = 500_000
OUR_BATCH_ROWS = 500_000
"""The default of a spec (``batch.rows``), and what the sink is given: commits are alike."""
SPEC = """
version: 1
job: bench/{name}
source:
  type: kafka
  servers: {servers}
  topics: [{topic}]
  value: {{format: json, columns: "{columns}"}}
target: {{table: {table}}}
dead_letter: {{table: bench.dead}}
"""


class Ours:
    """A job of this project, as its spec says it."""

    name = "ours"

    def __init__(self, place: Place) -> None:
        self._place = place
        self.pid = place.pid

    def ingest(self, topic: str, rows: int, table: str) -> float:
        """Run a new job until the topic is drained."""
        name = f"{table.replace('.', '_')}_{secrets.token_hex(3)}"
        text = SPEC.format(
            name=name, servers=self._place.kafka.bootstrap, topic=topic, columns=COLUMNS,
            table=table,
        )  # fmt: skip
        spec = parse_spec(text, {})
        ended: list[float] = []
        with odi.run(spec.job, lake=self._place.lake) as run:
            ran = run_job(
                run,
                KafkaJob(spec),
                Limits(rows=OUR_BATCH_ROWS),
                until=Until(drained=True),
                tell=lambda _done: ended.append(time.time()),
            )
        if ran.records != rows or ran.rejects:
            raise RuntimeError(f"our job read {ran.records} records, {ran.rejects} not readable")
        return ended[-1]


class SparkSink:
    """Spark's Kafka source, ``from_json``, and Iceberg's sink for Spark's streams."""

    name = "spark_sink"

    def __init__(self, place: Place) -> None:
        self._place = place
        self.pid = place.pid

    def ingest(self, topic: str, rows: int, table: str) -> float:
        """Run a stream over everything that is there."""
        place = self._place
        lines = (
            place.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", place.kafka.bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", SINK_BATCH_ROWS)
            .load()
        )
        parsed = lines.select(fn.from_json(fn.col("value").cast("string"), COLUMNS).alias("v"))
        checkpoints = place.folder / "checkpoints" / table
        stream = (
            parsed.select("v.*")
            .writeStream.format("iceberg")
            .outputMode("append")
            .option("checkpointLocation", str(checkpoints))
            .trigger(availableNow=True)
            .toTable(f"lake.{table}")
        )
        stream.awaitTermination()
        return place.complete_at(table, rows)
