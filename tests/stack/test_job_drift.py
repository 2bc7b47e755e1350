"""Schemas that drift while a job runs: what fits is taken in, what does not is kept aside."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import odi_audit as odi
from jobs.runner.kafka_job import KafkaJob
from jobs.runner.loop import Stop, Until, run_job
from jobs.runner.outcome import Done
from jobs.sources.base import Limits
from jobs.spec import parse_spec
from odi_audit.errors import RuleBroken
from odi_audit.model.tables import parse
from odi_audit.query.lookup import find_named
from odi_audit.query.offsets import continuity
from odi_audit.query.timeline import timeline
from odi_audit.query.verify import verify
from odi_audit.workspace import Workspace
from tests.support.independent import Eyes
from tests.support.servers.kafka import Kafka
from tests.support.servers.topics import Topics

SPEC = """
version: 1
job: shop/devices
source:
  type: kafka
  servers: {servers}
  topics: [{topic}]
  value:
    format: json
    columns: "id bigint not null, n int, f float, d decimal(5,2), s string, at struct<x: int>"
target:
  table: shop.devices
  evolve: {evolve}
{dead}
"""
DEAD = "dead_letter: {table: shop.dead}"
FITS = {"n": 1, "f": 0.5, "d": 1.25, "s": "s", "at": {"x": 1}}


class Producer:
    """Writes numbered records, phase after phase; remembers what it wrote."""

    def __init__(self, kafka: Kafka) -> None:
        self.topics = Topics(kafka.bootstrap)
        self.topic = f"devices-{secrets.token_hex(3)}"
        self.topics.create(self.topic, 2)
        self.sent: list[dict[str, Any]] = []

    def send(self, *records: dict[str, Any], times: int = 10) -> list[int]:
        """Write each record so many times, each with an id of its own; return their places."""
        first = len(self.sent)
        made = [
            {"id": first + place, **record}
            for place, record in enumerate(record for record in records for _ in range(times))
        ]
        self.sent += made
        self.topics.fill(self.topic, [json.dumps(item).encode() for item in made])
        return list(range(first, len(self.sent)))


def run_phases(
    lake: Workspace, text: str, phases: Sequence[Callable[[], list[int]]]
) -> list[list[Done]]:
    """Run one job without a stop; the next phase is produced when the last one has landed."""
    spec = parse_spec(text, {})
    stop, todo, left = Stop(), list(phases), [0]
    told: list[list[Done]] = [[]]

    def next_phase() -> None:
        left[0] = len(todo.pop(0)())

    def tell(done: Done) -> None:
        told[-1].append(done)
        left[0] -= done.records
        assert left[0] >= 0
        if left[0] == 0 and todo:
            told.append([])
            next_phase()
        elif left[0] == 0:
            stop.ask("every phase is there")

    next_phase()
    with odi.run(spec.job, lake=lake) as run:
        run_job(run, KafkaJob(spec), Limits(seconds=0.2), until=Until(), stop=stop, tell=tell)
    return told


def test_a_table_grows_with_its_producer_and_what_would_narrow_it_is_kept_aside(
    kafka: Kafka, lake: Workspace
) -> None:
    producer = Producer(kafka)
    text = SPEC.format(
        servers=kafka.bootstrap, topic=producer.topic, evolve="permissive", dead=DEAD
    )
    refused: list[int] = []

    def narrowing() -> list[int]:
        good = producer.send(FITS, times=5)
        bad = producer.send(
            {**FITS, "s": 7}, {**FITS, "n": 1.5}, {**FITS, "n": "12"}, {**FITS, "extra": 3},
            {**FITS, "at": "here"}, {**FITS, "d": 1.234}, {**FITS, "id": None}, times=2,
        )  # fmt: skip
        refused.extend(bad)
        return good + bad

    phases: list[Callable[[], list[int]]] = [
        lambda: producer.send(FITS),
        lambda: producer.send(FITS, {**FITS, "extra": "new", "at": {"x": 1, "y": 2.5}}),
        lambda: producer.send({**FITS, "n": 2**40, "d": 123456.78}, {**FITS, "f": 1e300}),
        narrowing,
    ]
    told = run_phases(lake, text, phases)
    grown = [[table for done in phase for table in done.grown] for phase in told]
    assert grown == [[], ["shop.devices"], ["shop.devices"], []]
    eyes = Eyes.on(lake.root)
    table = eyes.table("shop.devices")
    kinds = {item.name: str(item.field_type) for item in table.schema().fields}
    assert (kinds["n"], kinds["f"], kinds["d"], kinds["extra"]) == (
        "long", "double", "decimal(18, 2)", "string",
    )  # fmt: skip
    # Nothing is lost, and nothing is there twice: each record is a row or a dead letter.
    rows = {row["id"]: row for row in table.scan().to_arrow().to_pylist()}
    letters = eyes.table("shop.dead").scan().to_arrow().to_pylist()
    dead = [json.loads(letter["value"]) for letter in letters]
    assert len(table.scan().to_arrow()) == len(rows) == len(producer.sent) - len(refused)
    assert sorted(dead, key=str) == sorted(
        (item for place, item in enumerate(producer.sent) if place in refused), key=str
    )
    for place, item in enumerate(producer.sent):
        if place not in refused:
            row = rows[place]
            assert (row["n"], row["f"], float(row["d"])) == (item["n"], item["f"], item["d"])
            assert row["extra"] == item.get("extra")
            assert row["at"]["y"] == item["at"].get("y")
    told_why = {letter["reason"] for letter in letters}
    assert all(told_why)
    assert len(told_why) >= 6, "each kind of record that does not fit has its own reason"
    # The history says which batch brought which column.
    brought = {
        event.detail: event
        for event in timeline(
            lake.ledger(), find_named(lake.ledger(), lake.catalog(), parse("shop.devices"))
        )
        if event.operation == "evolve_schema"
    }
    first, second = told[1][0].receipt.batch, told[2][0].receipt.batch
    assert any("add extra string" in detail and first in detail for detail in map(str, brought))
    assert any("widen n bigint" in detail and second in detail for detail in map(str, brought))
    assert not verify(lake.ledger(), lake.catalog())
    assert not continuity(lake.ledger()).events


def test_a_strict_job_changes_no_table_and_keeps_strange_records_aside(
    kafka: Kafka, lake: Workspace
) -> None:
    producer = Producer(kafka)
    text = SPEC.format(servers=kafka.bootstrap, topic=producer.topic, evolve="strict", dead=DEAD)
    strange = [{**FITS, "extra": 1}, {**FITS, "n": 2**40}, {**FITS, "at": {"x": 1, "y": 2}}]
    told = run_phases(
        lake, text, [lambda: producer.send(FITS), lambda: producer.send(FITS, *strange, times=3)]
    )
    assert [done.grown for phase in told for done in phase if done.grown] == []
    eyes = Eyes.on(lake.root)
    assert len(eyes.metadata("shop.devices")["schemas"]) == 1
    assert len(eyes.rows("shop.devices")) == 13
    dead = [
        json.loads(letter["value"])
        for letter in eyes.table("shop.dead").scan().to_arrow().to_pylist()
    ]
    assert sorted(dead, key=str) == sorted(producer.sent[13:], key=str)
    assert not verify(lake.ledger(), lake.catalog())


def test_a_strict_job_without_a_table_for_dead_letters_refuses_the_batch(
    kafka: Kafka, lake: Workspace
) -> None:
    producer = Producer(kafka)
    text = SPEC.format(servers=kafka.bootstrap, topic=producer.topic, evolve="strict", dead="")
    with pytest.raises(RuleBroken, match="3 of 13 records") as refused:
        run_phases(
            lake,
            text,
            [
                lambda: producer.send(FITS),
                lambda: producer.send(FITS) + producer.send({**FITS, "extra": 1}, times=3),
            ],
        )
    assert "dead_letter" in str(refused.value.hint)
    eyes = Eyes.on(lake.root)
    assert len(eyes.rows("shop.devices")) == 10
    assert not verify(lake.ledger(), lake.catalog())
