"""A dual table over a real Kafka: the raw copy is never behind the curated table."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any

import odi_audit as odi
from jobs.runner.frame_job import FrameJob
from jobs.runner.kafka_feed import KafkaFeed
from jobs.runner.loop import Until, run_job
from jobs.sources.base import Limits
from jobs.spec import parse_spec
from odi_audit.query.offsets import continuity
from odi_audit.query.verify import verify
from odi_audit.workspace import Workspace
from tests.support.independent import Eyes
from tests.support.killed import Killed
from tests.support.servers.topics import Topics

if TYPE_CHECKING:
    from jobs.runner.outcome import Ran
    from tests.support.servers.kafka import Kafka

SPEC = """
version: 1
job: shop/prices
source:
  type: kafka
  servers: {servers}
  topics: [{topic}]
  value: {{format: json}}
  keep: [offset]
transform: SELECT id, upper(name) AS name, price, _offset FROM batch
target:
  table: shop.prices
  mode: upsert
  key: [id]
  order_by: [_offset]
  raw: {{table: shop.prices_raw}}
contract:
  rules: {{dear: price < 1000}}
  on_violation: dead_letter
dead_letter: {{table: shop.dead}}
"""


def run_once(lake: Workspace, text: str, *, die_at: str = "") -> Ran | None:
    spec = parse_spec(text, {})

    def reach(place: str) -> None:
        if place == die_at:
            raise Killed(place)

    try:
        with odi.run(spec.job, lake=lake, reach=reach) as run:
            job = FrameJob(spec, KafkaFeed(spec))
            return run_job(run, job, Limits(rows=10_000), until=Until(drained=True))
    except Killed:
        return None


def price(number: int, name: str, amount: float) -> bytes:
    return json.dumps({"id": number, "name": name, "price": amount}).encode()


def test_raw_comes_first_and_the_rest_rolls_forward(kafka: Kafka, lake: Workspace) -> None:
    topic, topics = f"prices-{secrets.token_hex(3)}", Topics(kafka.bootstrap)
    topics.create(topic, 1)
    text = SPEC.format(servers=kafka.bootstrap, topic=topic)
    values = [price(1, "a", 1.5), price(2, "b", 2.5), b"{broken", price(1, "c", 3.5)]
    topics.fill(topic, values)
    ran = run_once(lake, text)
    assert ran is not None
    assert (ran.records, ran.rejects) == (4, 1)
    more = [price(3, "d", 1.0), price(2, "e", 5000.0), price(4, "f", 1.0)]
    topics.fill(topic, more)
    # Dead letters, then raw, then curated: dead in between, only the first two are in sight.
    assert run_once(lake, text, die_at="published:1") is None
    assert len(rows(lake, "shop.prices_raw", "offset")) == 7
    assert rows(lake, "shop.prices", "id", "name") == [(1, "C"), (2, "B")]
    ran = run_once(lake, text)
    assert ran is not None
    assert rows(lake, "shop.prices", "id", "name") == [(1, "C"), (2, "B"), (3, "D"), (4, "F")]
    raw = rows(lake, "shop.prices_raw", "offset", "value")
    assert raw == list(enumerate([*values, *more]))
    dead = rows(lake, "shop.dead", "offset", "reason", "value")
    dear = "rule dear is broken: price < 1000"
    assert dead == [
        # What the transform made is no record any more: it is kept as it was made.
        (-1, dear, b'{"id":2,"name":"E","price":5000.0,"_offset":5}'),
        (2, dead[1][1], b"{broken"),
    ]
    assert not verify(lake.ledger(), lake.catalog())
    assert not continuity(lake.ledger()).events


def rows(lake: Workspace, table: str, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(Eyes.on(lake.root).rows(table, columns=columns))
