"""Many tables against one: the same number of rows, routed by topic, in one batch each.

Owns the two jobs and their topics. Tables are there before anything is timed. Must never change
what a batch is: all its tables are staged, then published, as always.
"""

from __future__ import annotations

import time

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import odi_audit as odi
from benchmarks.ingest_place import (
    COLUMNS,
    DELIVERY_WAIT_S_MAX,
    Place,
    Took,
    cpu_s,
    deliver,
    message,
)
from jobs.runner.kafka_job import KafkaJob
from jobs.runner.loop import Until, run_job
from jobs.sources.base import Limits
from jobs.spec import parse_spec
from tests.support.servers.topics import QUIET

TABLES = 200
SPEC = """
version: 1
job: bench/{name}
source:
  type: kafka
  servers: {servers}
  pattern: '{name}_[0-9]+'
  value: {{format: json, columns: "{columns}"}}
target:
  route: {{by: topic, table: "many.{{topic}}", allow: ["many.*"], tables_max: {tables}}}
dead_letter: {{table: many.dead}}
"""


def many_rounds(place: Place, *, rows: int, rounds: int) -> tuple[list[Took], list[Took]]:
    """Return the rounds of the job with many tables, and of the one with a single table."""
    wide, narrow = _Routed(place, "wide", TABLES), _Routed(place, "narrow", 1)
    for job in (wide, narrow):
        job.round(rows)  # makes the tables
    many: list[Took] = []
    one: list[Took] = []
    for number in range(rounds):
        turns = [(wide, many), (narrow, one)]
        for job, kept in turns if number % 2 == 0 else reversed(turns):
            kept.append(job.round(rows))
    return many, one


class _Routed:
    """A job over topics of its own, each into its table."""

    def __init__(self, place: Place, name: str, tables: int) -> None:
        self._place = place
        self._topics = [f"{name}_{number}" for number in range(tables)]
        self._spec = parse_spec(
            SPEC.format(
                name=name, servers=place.kafka.bootstrap, columns=COLUMNS, tables=TABLES
            ),
            {},
        )  # fmt: skip
        admin = AdminClient({**QUIET, "bootstrap.servers": place.kafka.bootstrap})
        made = admin.create_topics(
            [NewTopic(topic, num_partitions=1, replication_factor=1) for topic in self._topics]
        )
        for future in made.values():
            future.result(DELIVERY_WAIT_S_MAX)

    def round(self, rows: int) -> Took:
        """Write rows, spread over the topics, and ingest them, in as many batches as it takes."""
        self._fill(rows)
        with odi.run(self._spec.job, lake=self._place.lake) as run:
            ended: list[float] = []
            pid = self._place.pid
            cpu, began = cpu_s(pid), time.time()
            ran = run_job(
                run,
                KafkaJob(self._spec),
                Limits(rows=rows),
                until=Until(drained=True),
                tell=lambda _done: ended.append(time.time()),
            )
            if ran.records != rows:
                raise RuntimeError(f"{ran.records} of {rows} records were read")
            return Took(rows=rows, seconds=ended[-1] - began, cpu_s=cpu_s(pid) - cpu)

    def _fill(self, rows: int) -> None:
        topics = self._topics
        deliver(
            self._place.kafka.bootstrap,
            ({"topic": topics[n % len(topics)], "value": message(n)} for n in range(rows)),
        )
