"""One job, many topics, a table for each: new ones join while it runs, and all are written once."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import odi_audit as odi
from jobs.runner.kafka_job import KafkaJob
from jobs.runner.loop import Stop, Until, run_job
from jobs.runner.outcome import Done
from jobs.sources.base import Limits
from jobs.spec import parse_spec
from odi_audit.errors import UsageError
from odi_audit.query.detail import batch_detail
from odi_audit.query.offsets import continuity
from odi_audit.query.verify import verify
from odi_audit.workspace import Workspace
from tests.support.independent import Eyes
from tests.support.servers.kafka import Kafka
from tests.support.servers.topics import WAIT_S_MAX

TABLES = 200
SPEC = """
version: 1
job: shop/everything
source:
  type: kafka
  servers: {servers}
  pattern: '{prefix}_[0-9a-z]+'
  value: {{format: json}}
target:
  route:
    by: topic
    table: landing.{{topic}}
    allow: [landing.{prefix}_1*, landing.{prefix}_0*]
    tables_max: {tables_max}
dead_letter: {{table: landing.dead}}
"""


class Producing:
    """Topics made and filled, and what each has been sent."""

    def __init__(self, kafka: Kafka) -> None:
        self.prefix = f"fan{secrets.token_hex(3)}"
        self._settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": kafka.bootstrap,
            "log_level": 0,
        }
        self.sent: dict[str, list[int]] = {}
        self._count = 0

    def names(self, numbers: Sequence[int]) -> list[str]:
        return [f"{self.prefix}_{number:03}" for number in numbers]

    def create(self, names: Sequence[str]) -> None:
        admin = AdminClient(self._settings)
        made = admin.create_topics([NewTopic(name, 1, 1) for name in names])
        for future in made.values():
            future.result(WAIT_S_MAX)

    def send(self, rows: Mapping[str, int]) -> int:
        """Send so many rows to each topic; return how many that is."""
        producer = Producer({**self._settings, "linger.ms": 5})
        for name, count in rows.items():
            for _ in range(count):
                body = {"id": self._count, "of": name, f"only_{name[-2:]}": 1.5}
                producer.produce(name, json.dumps(body).encode())
                self.sent.setdefault(name, []).append(self._count)
                self._count += 1
            producer.poll(0)
        assert producer.flush(WAIT_S_MAX) == 0
        return sum(rows.values())


def test_two_hundred_topics_fill_two_hundred_tables_half_of_them_made_on_the_way(
    kafka: Kafka, lake: Workspace
) -> None:
    producing = Producing(kafka)
    first, later = (producing.names(part) for part in (range(100), range(100, TABLES)))
    producing.create(first)
    left = [producing.send(dict.fromkeys(first, 5))]
    told: list[Done] = []
    stop = Stop()
    phases = ["grow", "small", "end"]

    def tell(done: Done) -> None:
        told.append(done)
        left[0] -= done.records
        assert left[0] >= 0, "a record was read twice"
        if left[0]:
            return
        phase = phases.pop(0)
        if phase == "grow":
            producing.create(later)
            left[0] = producing.send(dict.fromkeys([*first, *later], 5))
        elif phase == "small":
            left[0] = producing.send({first[3]: 7, later[3]: 1})
        else:
            stop.ask("everything is there")

    spec = parse_spec(
        SPEC.format(servers=kafka.bootstrap, prefix=producing.prefix, tables_max=TABLES), {}
    )
    with odi.run(spec.job, lake=lake) as run:
        run_job(run, KafkaJob(spec), Limits(seconds=1), until=Until(), stop=stop, tell=tell)
    eyes = Eyes.on(lake.root)
    for name, sent in producing.sent.items():
        rows = eyes.table(f"landing.{name}").scan().to_arrow()
        assert sorted(rows["id"].to_pylist()) == sent, name
        assert set(rows["of"].to_pylist()) == {name}
        assert f"only_{name[-2:]}" in rows.column_names
    assert len(producing.sent) == TABLES
    # A batch touches only tables that it has records for.
    last = batch_detail(lake.ledger(), lake.catalog(), told[-1].receipt.batch)
    assert {part.table.name for part in last.tables} <= {
        f"landing.{first[3]}", f"landing.{later[3]}",
    }  # fmt: skip
    assert not verify(lake.ledger(), lake.catalog())
    assert not continuity(lake.ledger()).events
    for done in told:
        tables = len(done.receipt.landings)
        print(
            f"{tables} tables in {done.seconds:.1f} s, {done.seconds / tables * 1000:.0f} ms each"
        )


@pytest.mark.parametrize(
    ("topics", "tables_max", "told"),
    [
        (("001", "zzz"), 9, "is not on the list"),
        (("001", "002", "003"), 2, "go to 3 tables"),
    ],
)
def test_a_topic_that_the_spec_does_not_allow_stops_the_job_before_anything_is_written(
    kafka: Kafka, lake: Workspace, topics: tuple[str, ...], tables_max: int, told: str
) -> None:
    producing = Producing(kafka)
    names = [f"{producing.prefix}_{name}" for name in topics]
    producing.create(names)
    producing.send(dict.fromkeys(names, 1))
    text = SPEC.format(servers=kafka.bootstrap, prefix=producing.prefix, tables_max=tables_max)
    spec = parse_spec(text, {})
    with odi.run(spec.job, lake=lake) as run, pytest.raises(UsageError, match=told):
        run_job(run, KafkaJob(spec), Limits(), until=Until(drained=True))
    assert [str(name) for name in lake.catalog().tables()] == ["landing.dead"]
