"""An append job over a real Kafka: everything once, in order, whatever happens."""

from __future__ import annotations

import json
import secrets
from typing import Any

import odi_audit as odi
from jobs.runner.kafka_job import KafkaJob
from jobs.runner.loop import Until, run_job
from jobs.runner.outcome import Ran
from jobs.sources.base import Limits
from jobs.spec import parse_spec
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
