"""Many tables of a real PostgreSQL, one job: each batch shows whole transactions in all of them."""

from __future__ import annotations

import json
import random
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

import odi_audit as odi
from jobs.runner.frame_job import FrameJob
from jobs.runner.kafka_feed import KafkaFeed
from jobs.runner.loop import Until, run_job
from jobs.sources.base import Limits
from jobs.spec import parse_spec
from odi_audit.ids import JobName
from odi_audit.query.offsets import continuity
from odi_audit.query.verify import verify
from tests.support.connect_avro import avro_schema, on_the_wire
from tests.support.independent import Eyes
from tests.support.servers.topics import QUIET, Topics

if TYPE_CHECKING:
    import psycopg

    from jobs.runner.outcome import Ran
    from odi_audit.workspace import Workspace
    from tests.support.servers.debezium import Captured
    from tests.support.servers.kafka import Kafka
    from tests.support.servers.registry import Registry

WAIT_S_MAX = 60
ACCOUNTS, BALANCE = 10, 100
TABLES = ("checking", "savings", "late")
SPEC = r"""
version: 1
job: bank/{name}
source:
  type: kafka
  servers: {servers}
  pattern: '{name}\.(public\.({tables})|transaction)'
  value: {{format: {form}}}
  envelope: debezium
{registry}
batch: {{cut_at_transactions: true}}
target:
  route: {{by: topic, table: "bank.{{topic}}", allow: [bank.*]}}
  mode: mirror
  key: from_event
dead_letter: {{table: bank.dead_{name}}}
"""


def run_once(lake: Workspace, text: str, *, rows: int = 10_000) -> Ran:
    spec = parse_spec(text, {})
    with odi.run(spec.job, lake=lake) as run:
        job = FrameJob(spec, KafkaFeed(spec))
        return run_job(run, job, Limits(rows=rows), until=Until(drained=True))


def open_accounts(connection: psycopg.Connection[Any]) -> None:
    for table in (*TABLES, "notes"):
        connection.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, amount int NOT NULL)")
    for table in TABLES[:2]:
        connection.execute(
            f"INSERT INTO {table} SELECT n, %s FROM generate_series(1, %s) n", [BALANCE, ACCOUNTS]
        )


def transfer(connection: psycopg.Connection[Any], chance: random.Random, to: str) -> None:
    """Move money in one transaction, over as many statements as it takes."""
    with connection.transaction():
        for _ in range(chance.randrange(1, 4)):
            amount, number = chance.randrange(1, 9), chance.randrange(1, ACCOUNTS + 1)
            connection.execute(
                "UPDATE checking SET amount = amount - %s WHERE id = %s", [amount, number]
            )
            connection.execute("INSERT INTO notes SELECT count(*) + 1, 0 FROM notes")
            connection.execute(
                f"INSERT INTO {to} VALUES (%(id)s, %(sum)s) ON CONFLICT (id) DO UPDATE "
                f"SET amount = {to}.amount + %(sum)s",
                {"id": number, "sum": amount},
            )


@dataclass(slots=True)
class Bridge:
    """Copies Debezium's records, in JSON with schemas, into topics in Avro, topic by topic.

    So the tests say which topic is how far behind the others.
    """

    kafka: Kafka
    registry: Registry
    name: str
    copied: dict[str, int] = field(default_factory=dict)

    def wait(self, transactions: int) -> None:
        """Wait until so many transactions have ended in Debezium's own topic."""
        deadline = time.monotonic() + WAIT_S_MAX
        topics, name = Topics(self.kafka.bootstrap), f"{self.name}.transaction"
        ended = 0
        while ended < transactions:
            assert time.monotonic() < deadline, f"{ended} of {transactions} transactions ended"
            found = topics.read(name, topics.count(name)) if transactions else []
            told = [json.loads(message.value() or b"{}")["payload"] for message in found]
            ended = sum(mark["status"] == "END" for mark in told)

    def copy(self, topic: str, part: float = 1.0) -> None:
        """Copy a part of what has come to a topic since."""
        topics, start = Topics(self.kafka.bootstrap), self.copied.get(topic, 0)
        name, to = f"{self.name}.{topic}", f"{self.name}avro.{topic}"
        end = start + round(part * (topics.count(name) - start))
        if topic not in self.copied:
            topics.create(to)
        producer = Producer({**QUIET, "bootstrap.servers": self.kafka.bootstrap})
        for message in topics.read(name, end)[start:]:
            key, value = (
                self._wire(to, side, data)
                for side, data in (("key", message.key()), ("value", message.value()))
            )
            producer.produce(to, value, key)
        assert producer.flush(WAIT_S_MAX) == 0
        assert topics.count(to) >= end
        self.copied[topic] = end

    def _wire(self, topic: str, side: str, data: bytes | None) -> bytes | None:
        if data is None:
            return None
        found = json.loads(data)
        number = self.registry.register(f"{topic}-{side}", avro_schema(found["schema"]))
        return on_the_wire(number, found["schema"], found["payload"])


def sums(lake: Workspace, prefix: str) -> list[int]:
    """Return what all accounts hold together after each batch, by the tables' own snapshots."""
    eyes = Eyes.on(lake.root)
    amounts: dict[str, dict[int, int]] = {}
    for table in TABLES:
        name = f"bank.{prefix}_public_{table}"
        if not eyes._catalog.table_exists(name):
            continue
        for snapshot in eyes.history(name):
            held = eyes.table(name).scan(snapshot_id=snapshot["snapshot-id"]).to_arrow()
            intent = int(snapshot["summary"]["odi.intent"])
            amounts.setdefault(name, {})[intent] = sum(held["amount"].to_pylist())
    batches = sorted({intent for found in amounts.values() for intent in found})
    return [
        sum(max((i, total) for i, total in found.items() if i <= batch)[1]
            for found in amounts.values() if min(found) <= batch)
        for batch in batches
    ]  # fmt: skip


def test_tables_of_one_batch_show_the_same_transactions(
    debezium_postgres: Captured, kafka: Kafka, registry: Registry, lake: Workspace
) -> None:
    name, chance = f"bank{secrets.token_hex(3)}", random.Random(7)
    server, whole = debezium_postgres.server, 2 * ACCOUNTS * BALANCE
    bridge, database = Bridge(kafka, registry, name), server.new_database()
    words = {"servers": kafka.bootstrap, "tables": "|".join(TABLES)}
    in_avro = SPEC.format(
        name=f"{name}avro",
        form="avro",
        registry=f'registry: {{url: "{registry.url}", compatibility: NONE}}',
        **words,
    )
    with server.admin(database) as connection:
        open_accounts(connection)
        json_converter = "org.apache.kafka.connect.json.JsonConverter"
        debezium_postgres.capture(
            name, database, "public.*", value_converter=json_converter,
            key_converter=json_converter, value_converter_schemas_enable="true",
            key_converter_schemas_enable="true",
        )  # fmt: skip
        # The snapshot: there is no transaction yet, and no topic for one.
        for table in TABLES[:2]:
            Topics(kafka.bootstrap).read(f"{name}.public.{table}", ACCOUNTS)
            bridge.copy(f"public.{table}")
        run_once(lake, in_avro)
        assert sums(lake, f"{name}avro")[-1] == whole

        for _ in range(8):
            transfer(connection, chance, "savings")
        bridge.wait(8)
    # One topic is behind the others: what is whole up to there goes, and no more.
    bridge.copy("transaction")
    bridge.copy("public.checking")
    bridge.copy("public.savings", 0.5)
    ran = run_once(lake, in_avro)
    assert ran.batches == 1
    with server.admin(database) as connection:
        for to in ("savings", "late", "late"):
            transfer(connection, chance, to)
        bridge.wait(11)
    Topics(kafka.bootstrap).fill(f"{name}avro.public.checking", [b"no change event"])
    # A table whose topic is not there yet is waited for, because it will be followed.
    for topic in ("transaction", "public.checking", "public.savings"):
        bridge.copy(topic)
    run_once(lake, in_avro, rows=12)
    bridge.copy("public.late")
    run_once(lake, in_avro)
    # A transaction of which no table is followed: its marks are passed over, and nothing else.
    with server.admin(database) as connection:
        connection.execute("INSERT INTO notes VALUES (0, 0)")
        bridge.wait(12)
    bridge.copy("transaction")
    ran = run_once(lake, in_avro)
    assert (ran.batches, ran.records) == (1, 2)
    found = sums(lake, f"{name}avro")
    assert found == [whole] * len(found)
    assert len(found) >= 5

    # The same from Debezium's own topics, in JSON, in small batches.
    in_json = SPEC.format(name=name, form="json", registry="", **words)
    assert run_once(lake, in_json, rows=40).batches > 1
    found = sums(lake, name)
    # The snapshot may come in parts; it is no transaction.
    assert found[found.index(whole) :] == [whole] * (len(found) - found.index(whole))
    with server.admin(database) as connection:
        for table in TABLES:
            held = sorted(connection.execute(f"SELECT id, amount FROM {table}").fetchall())
            for prefix in (name, f"{name}avro"):
                rows = Eyes.on(lake.root).rows(
                    f"bank.{prefix}_public_{table}", columns=("id", "amount")
                )
                assert sorted(rows) == held  # type: ignore[type-var]
    dead = Eyes.on(lake.root).table(f"bank.dead_{name}avro").scan().to_arrow().to_pylist()
    assert len(dead) == 1
    assert not verify(lake.ledger(), lake.catalog())
    assert not continuity(lake.ledger()).events
    (source,) = {line.source for line in continuity(lake.ledger()).lines}
    for prefix in (name, f"{name}avro"):
        places = lake.ledger().job_positions(JobName(f"bank/{prefix}"), source)
        assert places[f"{prefix}.transaction-0"].end == 24
    debezium_postgres.connect.drop(name)
