"""Where the ingest benchmark runs: one broker, one lake, one Spark, and how time is taken.

Owns the messages, the tables and the clock that every system is measured with. The clock starts
when the job is submitted to a process that is up, and ends at the snapshot that completes the
rows. Must never favour a system: topic, table and catalog are the same for all.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka import Producer
from pyspark.sql import SparkSession

import odi_audit as odi
from benchmarks.ingest_parts import SPARK_KAFKA, flat
from odi_audit.model.tables import parse
from odi_audit.spark import jars
from odi_audit.spark.conf import jars_dir, spark_conf
from odi_audit.workspace import Workspace
from tests.support.servers.kafka import Kafka
from tests.support.servers.topics import QUIET, Topics

COLUMNS = "id bigint, customer string, amount double, kind string"
PARTITIONS = 4
CUSTOMERS, KINDS = 10_007, 7
DELIVERY_WAIT_S_MAX = 300
LOOK_S = 0.1
ROUND_WAIT_S_MAX = 900
"""A system that has not written its rows after this long has failed, not lost."""


class System(Protocol):
    """One of the systems that are compared."""

    name: str
    pid: int

    def ingest(self, topic: str, rows: int, table: str) -> float:
        """Append a topic to an empty table; returns the wall-clock time at which it is complete."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """One round of one system."""

    rows: int
    seconds: float
    cpu_s: float

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.rows / self.seconds


@dataclass(slots=True, kw_only=True)
class Place:
    """A broker with topics and a lake with tables."""

    kafka: Kafka
    lake: Workspace
    spark: SparkSession
    folder: Path
    tables: int = 0

    @property
    def pid(self) -> int:
        """The process above Spark, its workers and everything else of ours."""
        return os.getpid()

    def fill(self, topic: str, rows: int) -> None:
        """Make a topic with messages of about 70 bytes, in turn over its partitions."""
        fill(self.kafka.bootstrap, topic, rows)

    def new_table(self) -> str:
        """Make an empty table; the same properties for every system."""
        self.tables += 1
        name = f"bench.t{self.tables}"
        with odi.run("bench/tables", lake=self.lake) as run:
            run.create_table(name, COLUMNS)
        return name

    def timed(self, system: System, topic: str, rows: int) -> Took:
        """Let a system ingest a topic, and check that every row is there once."""
        table = self.new_table()
        cpu, began = cpu_s(system.pid), time.time()
        ended = system.ingest(topic, rows, table)
        took = Took(rows=rows, seconds=ended - began, cpu_s=cpu_s(system.pid) - cpu)
        self.check(table, rows)
        self.spark.sql(f"DROP TABLE lake.{table} PURGE")
        return took

    def check(self, table: str, rows: int) -> None:
        """Refuse a round whose table does not hold each message once."""
        found = self.spark.sql(
            f"SELECT count(*), count(DISTINCT id), max(id) FROM lake.{table}"
        ).collect()[0]
        if tuple(found) != (rows, rows, rows - 1):
            raise RuntimeError(f"{table} holds {tuple(found)}, expected {rows} rows, each once")

    def complete_at(self, table: str, rows: int, wait_s: float = ROUND_WAIT_S_MAX) -> float:
        """Wait for the snapshot that completes the rows; returns the time that it bears.

        Raises:
            TimeoutError: it did not come.
        """
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline:
            when = self._completed(table, rows)
            if when is not None:
                return when
            time.sleep(LOOK_S)
        raise TimeoutError(f"{table} was not complete after {wait_s:g} s")

    def _completed(self, table: str, rows: int) -> float | None:
        for snapshot in self.lake.catalog().load(parse(table)).snapshots:
            if int(snapshot.summary.get("total-records", "0")) >= rows:
                return datetime.fromisoformat(snapshot.time).timestamp()
        return None


@contextmanager
def place() -> Iterator[Place]:
    """Start the broker and Spark in a folder of their own; all of it is gone afterwards."""
    os.environ["ODI_LOG__LEVEL"] = "error"
    folder = Path(tempfile.mkdtemp(prefix="odi-bench-"))
    kafka = Kafka(heap="1g")
    try:
        kafka.start_first()
        lake = odi.Workspace.init(folder / "lake")
        spark = _session(lake)
        lake.use_spark(spark)
        yield Place(kafka=kafka, lake=lake, spark=spark, folder=folder)
    finally:
        active = SparkSession.getActiveSession()
        if active is not None:
            active.stop()
        kafka.remove()
        shutil.rmtree(folder, ignore_errors=True)


def _session(lake: Workspace) -> SparkSession:
    # As the product starts it, with the jars of Spark's Kafka source on top: one JVM for both.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    jars.ensure(jars_dir(lake.settings), ["core"])
    conf = spark_conf(lake.settings)
    conf["spark.jars"] += "".join(f",{path}" for path in flat(SPARK_KAFKA))
    builder = SparkSession.builder.appName("odi-bench-ingest")
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def fill(bootstrap: str, topic: str, rows: int, partitions: int = PARTITIONS) -> None:
    """Make a topic and write numbered messages into it."""
    Topics(bootstrap).create(topic, partitions)
    deliver(
        bootstrap,
        ({"topic": topic, "value": message(n), "partition": n % partitions} for n in range(rows)),
    )


def deliver(bootstrap: str, records: Iterable[Mapping[str, Any]]) -> None:
    """Write records, each as a producer takes it, and wait until the broker has all of them."""
    producer = Producer(
        {**QUIET, "bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 1_000_000}
    )
    for record in records:
        while True:
            try:
                producer.produce(**record)
                break
            except BufferError:
                producer.poll(LOOK_S)
    if producer.flush(DELIVERY_WAIT_S_MAX):
        raise RuntimeError("not all records were delivered")


def message(number: int) -> bytes:
    """Return a message of about 70 bytes; no dates, whose parsing would decide for some."""
    return b'{"id": %d, "customer": "customer-%d", "amount": %d.5, "kind": "k%d"}' % (
        number, number % CUSTOMERS, number % 1000, number % KINDS,
    )  # fmt: skip


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process and everything below it have used so far.

    On a machine with other load it says more than the clock does. Children that have ended count
    where their parent has waited for them.
    """
    ticks = os.sysconf("SC_CLK_TCK")
    children: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for found in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = found.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        one = int(found.parent.name)
        children.setdefault(int(fields[1]), []).append(one)
        used[one] = sum(int(value) for value in fields[11:15])
    todo, total = [pid], 0
    while todo:
        one = todo.pop()
        total += used.get(one, 0)
        todo += children.get(one, [])
    return total / ticks
