"""An append job over a real Kafka: everything once, in order, whatever happens."""

from __future__ import annotations

import json
import secrets
from typing import Any

import odi_audit as odi
from jobs.runner.choose import worker_of
from jobs.runner.kafka_job import KafkaJob
from jobs.runner.loop import Until, run_job
from jobs.runner.outcome import Ran
from jobs.sources.base import NO_CHOICES, Limits
from jobs.sources.kafka import KafkaSource
from jobs.spec import parse_spec
from jobs.status.sampling import kafka_sample
from odi_audit.query.offsets import continuity
from odi_audit.query.verify import verify
from odi_audit.workspace import Workspace
from tests.support.independent import Eyes
from tests.support.servers.kafka import Kafka
from tests.support.servers.topics import Topics

SPEC = """
version: 1
job: shop/clicks
source:
  type: kafka
  servers: {servers}
  topics: [{topic}]
  value: {{format: json}}
target:
  table: shop.clicks
  partition_by: ["bucket(2, id)"]
dead_letter: {{table: shop.dead}}
"""


def value(number: int, **more: Any) -> bytes:
    return json.dumps({"id": number, "name": f"n{number}", **more}).encode()


def run_once(lake: Workspace, text: str, *, rows: int = 10_000, reach: Any = None) -> Ran:
    spec = parse_spec(text, {})
    more = {} if reach is None else {"reach": reach}
    with odi.run(spec.job, lake=lake, **more) as run:
        return run_job(run, KafkaJob(spec), Limits(rows=rows), until=Until(drained=True))


def test_a_topic_is_appended_once_and_grows_its_table(kafka: Kafka, lake: Workspace) -> None:
    topic, topics = f"clicks-{secrets.token_hex(3)}", Topics(kafka.bootstrap)
    topics.create(topic, 3)
    text = SPEC.format(servers=kafka.bootstrap, topic=topic)
    topics.fill(topic, [value(number) for number in range(1000)])
    ran = run_once(lake, text, rows=300)
    assert ran.records == 1000
    assert ran.batches >= 4
    assert run_once(lake, text).batches == 0
    topics.fill(topic, [value(1000), b"broken", value(1001, extra=1.5), b"", value(1002)])
    ran = run_once(lake, text)
    assert (ran.records, ran.rejects) == (5, 2)
    eyes = Eyes.on(lake.root)
    assert sorted(int(row[0]) for row in eyes.rows("shop.clicks")) == list(range(1003))
    assert len(eyes.rows("shop.dead")) == 2
    assert not verify(lake.ledger(), lake.catalog())
    assert not continuity(lake.ledger()).events


def test_keys_become_columns_alike_on_both_paths(kafka: Kafka, lake: Workspace) -> None:
    topic, topics = f"keyed-{secrets.token_hex(3)}", Topics(kafka.bootstrap)
    topics.create(topic)
    pairs: list[tuple[bytes | None, bytes | None]] = [
        (b'{"id": 1}', b'{"name": "a"}'),
        (None, b'{"id": 2, "name": "no key"}'),
        (b'{"id": 3}', b'{"id": 4, "name": "differs"}'),
        (b"three", b'{"id": 3, "name": "no json"}'),
        (b'{"id": 1, "region": "eu"}', b'{"id": 1, "name": "b"}'),
        (b'{"id": 5}', None),
    ]
    topics.send(topic, pairs)
    text = SPEC.format(servers=kafka.bootstrap, topic=topic).replace(
        "value: {format: json}", "value: {format: json}\n  key: {format: json}\n  keep: [offset]"
    )
    source: Any = parse_spec(text, {}).source
    plan = KafkaSource(source).plan({}, Limits(rows=100), choices=NO_CHOICES)
    assert plan is not None
    sample = kafka_sample(parse_spec(text, {}), plan, [topic], None)
    assert (sample.records, sample.rejects) == (6, 3)
    assert sample.add == {"id": "bigint", "name": "string", "region": "string"}
    assert (ran := run_once(lake, text)).rejects == 3
    assert ran.records == 6
    upsert = text.replace("shop/clicks", "shop/latest").replace("shop.clicks", "shop.latest")
    upsert = upsert.replace("shop.dead", "shop.latest_dead").replace(
        "partition_by:", "mode: upsert\n  key: [id]\n  order_by: [_offset]\n  partition_by:"
    )
    spec = parse_spec(upsert, {})
    with odi.run(spec.job, lake=lake) as run:
        worker = worker_of(spec, folder=lake.root)
        assert run_job(run, worker, Limits(rows=100), until=Until(drained=True)).rejects == 3
    assert worker.path == "spark"
    eyes, columns = Eyes.on(lake.root), ("name", "id", "region")
    rows = [("a", 1, None), ("b", 1, "eu"), ("no key", 2, None)]
    assert sorted(eyes.rows("shop.clicks", columns=columns), key=str) == rows
    assert sorted(eyes.rows("shop.latest", columns=columns), key=str) == rows[1:]
    for letters in ("shop.dead", "shop.latest_dead"):
        told = dict(eyes.rows(letters, columns=("offset", "reason")))
        assert told[2] == "column id: the key and the value differ"
        assert told[3].startswith("key: no JSON")
        assert "tombstone" in told[5]
        assert len(told) == 3
    assert not verify(lake.ledger(), lake.catalog())
