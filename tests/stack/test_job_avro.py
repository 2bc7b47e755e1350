"""Avro in the registry's wire format, over a real Kafka and a real registry: everything once."""

from __future__ import annotations

import io
import json
import secrets
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

import odi_audit as odi
from jobs.runner.frame_job import FrameJob
from jobs.runner.kafka_feed import KafkaFeed
from jobs.runner.kafka_job import KafkaJob
from jobs.runner.loop import Until, run_job
from jobs.runner.outcome import Done, Ran
from jobs.sources.base import Limits
from jobs.spec import parse_spec
from odi_audit.cli.app import app
from odi_audit.errors import ConfigError, OdiError
from odi_audit.ledger.port import EntryFilter
from odi_audit.model.entries import Kind
from odi_audit.query.offsets import continuity
from odi_audit.query.verify import verify
from odi_audit.workspace import Workspace
from tests.support.connect_avro import avro_schema
from tests.support.connect_avro import on_the_wire as connect_wire
from tests.support.independent import Eyes
from tests.support.servers.kafka import Kafka
from tests.support.servers.registry import Registry
from tests.support.servers.topics import QUIET, Topics
from tests.unit.jobs.formats.events import sample

SPEC = """
version: 1
job: shop/orders
source:
  type: kafka
  servers: {servers}
  topics: [{topic}]
  value: {{format: avro}}
registry: {{url: "{registry}", compatibility: {level}, on_weaker: {weaker}}}
target: {{table: shop.orders, partition_by: ["bucket(2, id)"]}}
dead_letter: {{table: shop.dead}}
"""
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
FIRST = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": PRICE},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
SECOND = {**FIRST, "fields": [*FIRST["fields"], {"name": "note", "type": ["null", "string"]}]}  # type: ignore[list-item, misc]
THIRD = {"type": "record", "name": "shop.Order", "fields": [{"name": "id", "type": "string"}]}


@pytest.fixture
def topic(kafka: Kafka) -> str:
    name = f"orders-{secrets.token_hex(3)}"
    Topics(kafka.bootstrap).create(name, 1)
    return name


def on_the_wire(number: int, schema: Any, row: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


def order(number: int, **more: Any) -> dict[str, Any]:
    price = Decimal(number * 101).scaleb(-2)
    return {"id": number, "price": price, "at": 1_700_000_000_000 + number, "tags": ["a", "b"],
            **more}  # fmt: skip


def spec_for(kafka: Kafka, registry: Registry, topic: str, **more: str) -> str:
    words = {"level": "NONE", "weaker": "warn", **more}
    return SPEC.format(servers=kafka.bootstrap, topic=topic, registry=registry.url, **words)


def run_once(lake: Workspace, text: str, *, rows: int = 10_000) -> Ran:
    spec = parse_spec(text, {})
    with odi.run(spec.job, lake=lake) as run:
        return run_job(run, KafkaJob(spec), Limits(rows=rows), until=Until(drained=True))


def schemas_of(lake: Workspace) -> list[Any]:
    """Return the ids that the ledger keeps for each batch that landed on the table."""
    landed = lake.ledger().find(EntryFilter(kinds=(Kind.LANDED,)))
    found = [item for item in landed if item.table and item.table.name == "shop.orders"]
    return [item.facts.get("source_facts") for item in found]


def test_schemas_evolve_and_what_cannot_be_read_is_put_aside(
    kafka: Kafka, registry: Registry, lake: Workspace, topic: str
) -> None:
    topics, text = Topics(kafka.bootstrap), spec_for(kafka, registry, topic)
    first = registry.register(f"{topic}-value", FIRST)
    topics.fill(topic, [on_the_wire(first, FIRST, order(n)) for n in range(50)])
    assert run_once(lake, text).records == 50
    second = registry.register(f"{topic}-value", SECOND)
    third = registry.register(f"{topic}-value", THIRD)
    topics.fill(
        topic,
        [
            *(on_the_wire(second, SECOND, order(n, note=f"n{n}")) for n in range(50, 99)),
            on_the_wire(first, FIRST, order(99)),
            on_the_wire(third, THIRD, {"id": "a text"}),
            on_the_wire(987_654, FIRST, order(100)),
            b"garbage",
            on_the_wire(first, FIRST, order(101))[:-3],
            None,  # type: ignore[list-item]
        ],
    )
    ran = run_once(lake, text)
    assert (ran.records, ran.rejects) == (55, 5)
    assert run_once(lake, text).batches == 0
    eyes = Eyes.on(lake.root)
    rows = eyes.table("shop.orders").scan().to_arrow().to_pylist()
    assert sorted(row["id"] for row in rows) == list(range(100))
    row = next(row for row in rows if row["id"] == 70)
    assert (row["price"], row["note"], row["tags"]) == (Decimal("70.70"), "n70", ["a", "b"])
    assert row["at"].timestamp() == 1_700_000_000.07
    dead = eyes.table("shop.dead").scan().to_arrow().to_pylist()
    reasons = sorted(item["reason"] for item in dead)
    assert [any(word in reason for reason in reasons) for word in (
        "string does not fit a column of type int64", "schema 987654: the registry",
        "begins with the byte 0x67", "ends in the middle", "tombstone",
    )] == [True] * 5, reasons  # fmt: skip
    told = {"registry": registry.url, "schemas": {topic: [first]}}
    later = {"registry": registry.url, "schemas": {topic: sorted([first, second, third])}}
    assert schemas_of(lake) == [told, later]
    assert not verify(lake.ledger(), lake.catalog())
    assert not continuity(lake.ledger()).events
    traced = _asked("trace", "shop.orders", "--where", "id = 7", "--lake", str(lake.root), "--json")
    born = json.loads(traced)["data"]["rows"][0]["birth"]
    assert born["source_facts"] == told
    page = _asked("batch", born["batch"], "--lake", str(lake.root))
    assert f"{topic} {first}" in page


def _asked(*words: str) -> str:
    answer = CliRunner().invoke(app, list(words))
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def test_a_weaker_level_is_told_or_refused(
    kafka: Kafka,
    registry: Registry,
    lake: Workspace,
    topic: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    number = registry.register(f"{topic}-value", FIRST)
    registry.ask("PUT", f"/config/{topic}-value", {"compatibility": "BACKWARD"})
    Topics(kafka.bootstrap).fill(topic, [on_the_wire(number, FIRST, order(1))])
    text = spec_for(kafka, registry, topic, level="FULL", weaker="refuse")
    told = f"subject {topic}-value has compatibility BACKWARD"
    with pytest.raises(ConfigError, match=told) as no:
        run_once(lake, text)
    assert f"{registry.url}/config/{topic}-value" in str(no.value.hint)
    capfd.readouterr()
    assert run_once(lake, text.replace("refuse", "warn")).records == 1
    told = [line for line in capfd.readouterr().err.splitlines() if '"subject"' in line]
    warned = [(line["subject"], line["found"], line["level"]) for line in map(json.loads, told)]
    assert warned == [(f"{topic}-value", "BACKWARD", "warning")]
    path = lake.root / "weak.yaml"
    path.write_text(text.replace("refuse", "warn"), "utf-8")
    asked = ("jobs", "check", str(path), "--lake", str(lake.root), "--json")
    (weak,) = json.loads(_asked(*asked))["data"]["would"]["weak_subjects"]
    assert (weak["subject"], weak["found"], weak["wanted"]) == (
        f"{topic}-value",
        "BACKWARD",
        "FULL",
    )
    registry.ask("PUT", f"/config/{topic}-value", {"compatibility": "FULL_TRANSITIVE"})
    assert run_once(lake, text).batches == 0


def test_a_registry_that_goes_away_and_comes_back_loses_nothing(
    kafka: Kafka, registry: Registry, lake: Workspace, topic: str
) -> None:
    # The registry numbers schemas by their content: one that no task has seen must be new.
    name = f"note_{secrets.token_hex(3)}"
    unseen = {**FIRST, "fields": [*FIRST["fields"], {"name": name, "type": "string"}]}  # type: ignore[list-item, misc]
    first = registry.register(f"{topic}-value", FIRST)
    second = registry.register(f"{topic}-value", unseen)
    records = [on_the_wire(first, FIRST, order(n)) for n in range(40)]
    records += [on_the_wire(second, unseen, order(n, **{name: "x"})) for n in range(40, 80)]
    Topics(kafka.bootstrap).fill(topic, records)
    spec = parse_spec(spec_for(kafka, registry, topic), {})
    misses: list[OdiError] = []

    def tell(_: Done) -> None:
        if not misses:
            registry.kill()

    def away(error: OdiError) -> None:
        misses.append(error)
        if not registry.running:
            registry.start()

    with odi.run(spec.job, lake=lake) as run:
        ran = run_job(run, KafkaJob(spec), Limits(rows=40), until=Until(batches=2), tell=tell,
                      away=away)  # fmt: skip
    assert ran.records == 80
    assert [error.code for error in misses] == ["ODI-I01"]
    rows = Eyes.on(lake.root).table("shop.orders").scan().to_arrow().to_pylist()
    assert sorted(row["id"] for row in rows) == list(range(80))
    assert [item["schemas"][topic] for item in schemas_of(lake)] == [[first], [second]]
    assert not verify(lake.ledger(), lake.catalog())


CHANGES = """
version: 1
job: shop/mirror
source:
  type: kafka
  servers: {servers}
  topics: [{topic}]
  value: {{format: avro}}
  envelope: debezium
registry: {{url: "{registry}", compatibility: NONE}}
target: {{table: shop.mirror, mode: mirror, key: from_event}}
dead_letter: {{table: shop.dead}}
"""


class Source:
    """A captured table: writes its changes as Debezium and Connect's Avro converter would."""

    def __init__(self, kafka: Kafka, registry: Registry, topic: str) -> None:
        self._registry, self._topic = registry, topic
        self._producer = Producer({**QUIET, "bootstrap.servers": kafka.bootstrap})
        self._schemas = {name: sample(name) for name in ("schema-c", "schema-u-after-ddl")}
        self._lsn = 1000
        self.ids: dict[str, set[int]] = {"key": set(), "value": set()}

    def change(self, op: str, number: int, after: dict[str, Any] | None, *, form: str) -> None:
        given = json.loads(json.dumps(self._schemas[form]))
        payload = given["value"]["payload"]
        payload |= {"op": op, "before": None, "after": None}
        if after is not None:
            row = dict(self._schemas[form]["value"]["payload"]["after"])
            payload["after"] = row | {"id": number, **after}
        self._lsn += 10
        payload["source"] |= {"lsn": self._lsn}
        key = self._wire("key", given["key"]["schema"], {"id": number})
        self.put(key, self._wire("value", given["value"]["schema"], payload))
        if op == "d":
            self.put(key, None)

    def put(self, key: bytes | None, value: bytes | None) -> None:
        self._producer.produce(self._topic, value, key)
        assert self._producer.flush(60) == 0

    def _wire(self, side: str, schema: dict[str, Any], payload: Any) -> bytes:
        number = self._registry.register(f"{self._topic}-{side}", avro_schema(schema))
        self.ids[side].add(number)
        return connect_wire(number, schema, payload)


def test_change_events_in_avro_make_the_mirror_of_their_table(
    kafka: Kafka, registry: Registry, lake: Workspace, topic: str
) -> None:
    source = Source(kafka, registry, topic)
    spec = parse_spec(
        CHANGES.format(servers=kafka.bootstrap, topic=topic, registry=registry.url), {}
    )
    for number in range(1, 5):
        source.change("c", number, {"customer": f"c{number}"}, form="schema-c")

    def run_it() -> Ran:
        with odi.run(spec.job, lake=lake) as run:
            job = FrameJob(spec, KafkaFeed(spec))
            return run_job(run, job, Limits(rows=1000), until=Until(drained=True))

    assert run_it().records == 4
    before = {side: set(ids) for side, ids in source.ids.items()}
    source.change("u", 1, {"customer": "new"}, form="schema-u-after-ddl")
    source.change("d", 2, None, form="schema-u-after-ddl")
    source.put(b"\0\0\0\0\0", b"garbage")
    ran = run_it()
    assert (ran.records, ran.rejects) == (4, 1)
    rows = Eyes.on(lake.root).table("shop.mirror").scan().to_arrow().to_pylist()
    assert {row["id"]: row["customer"] for row in rows} == {1: "new", 3: "c3", 4: "c4"}
    after = sample("schema-u-after-ddl")["value"]["payload"]["after"]
    assert set(after) <= set(rows[0])
    assert next(row for row in rows if row["id"] == 3)["amount"] == Decimal("99.99")
    told = [
        item.facts["source_facts"]
        for item in lake.ledger().find(EntryFilter(kinds=(Kind.LANDED,)))
        if item.table and item.table.name == "shop.mirror"
    ]
    assert told[0] == {
        "registry": registry.url,
        "schemas": {topic: sorted(before["value"])},
        "keys": {topic: sorted(before["key"])},
    }
    assert told[1]["schemas"] == {topic: sorted(source.ids["value"] - before["value"])}  # type: ignore[call-overload, index]
    assert not verify(lake.ledger(), lake.catalog())
