"""Jobs on a real broker, database and registry, killed at random: at the end nothing is missing.

Three jobs run beside each other: events appended, a mirror of a database table, payments in Avro.
All are killed with SIGKILL again and again. Meanwhile the broker is killed and started, the
registry and the lineage backend go away and come back, and a table is compacted.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import odi_audit as odi
from odi_audit.errors import CommitConflict
from odi_audit.model.offsets import offsets_from_json
from odi_audit.model.provenance import holds
from odi_audit.model.tables import parse
from odi_audit.query.offsets import continuity
from odi_audit.query.trace import start_trace
from odi_audit.query.verify import verify
from odi_audit.spark.session import session_in
from odi_audit.workspace import Workspace
from tests.support.independent import Eyes
from tests.support.job_chaos import Clicks, Job, Shop, Trouble, as_json, beside, in_avro
from tests.support.marquez import Fault, Receiver, receiver
from tests.support.relaying import events_in, judge
from tests.support.servers.debezium import Captured
from tests.support.servers.kafka import Kafka
from tests.support.servers.registry import Registry
from tests.support.servers.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLS = int(os.environ.get("TEST_CHAOS_KILLS", "30"))
KILLS_EACH = KILLS // 6
"""No job gets off lightly, although some start faster than others."""
MINUTES_MAX = 14
PAYMENT = {
    "type": "record",
    "name": "Payment",
    "fields": [{"name": "id", "type": "long"}, {"name": "payer", "type": "string"}],
}
SPECS = {
    "clicks": """
version: 1
job: chaos/clicks
source: {{type: kafka, servers: "{servers}", topics: [{topic}], value: {{format: json}}}}
batch: {{every: 1s}}
target: {{table: chaos.clicks, provenance: row}}
dead_letter: {{table: chaos.clicks_dead}}
""",
    "payments": """
version: 1
job: chaos/payments
source: {{type: kafka, servers: "{servers}", topics: [{topic}], value: {{format: avro}}}}
registry: {{url: "{registry}", compatibility: NONE, timeout: 3s}}
batch: {{every: 1s}}
target: {{table: chaos.payments, provenance: row}}
dead_letter: {{table: chaos.payments_dead}}
""",
    "customers": """
version: 1
job: chaos/customers
source:
  type: kafka
  servers: "{servers}"
  topics: [{topic}]
  envelope: debezium
  value: {{format: json}}
  key: {{format: json}}
batch: {{every: 1s}}
target: {{table: chaos.customers, mode: mirror, key: [id]}}
dead_letter: {{table: chaos.customers_dead}}
""",
}


@dataclass(slots=True, kw_only=True)
class Stage:
    """The lake, its servers, and the jobs on it."""

    lake: Workspace
    kafka: Kafka
    registry: Registry
    backend: Receiver
    jobs: dict[str, Job]
    topics: dict[str, str]


@pytest.fixture
def rng() -> random.Random:
    seed = int(os.environ.get("TEST_CHAOS_SEED", secrets.randbelow(10**9)))
    print(f"TEST_CHAOS_SEED={seed}")  # to ask for the same again
    return random.Random(seed)


@pytest.fixture
def stage(
    kafka: Kafka,
    registry: Registry,
    make_lake: Callable[..., Workspace],
    jvm: SparkSession,
    tmp_path: Path,
    rng: random.Random,
) -> Iterator[Stage]:
    lake = make_lake()
    lake.use_spark(session_in(jvm, lake.settings))
    token = secrets.token_hex(3)
    topics = {name: f"{name}-{token}" for name in ("clicks", "payments")}
    topics["customers"] = f"chaos{token}.public.customers"
    for name in ("clicks", "payments"):
        Topics(kafka.bootstrap).create(topics[name], 3)
    with receiver() as backend:
        env = {
            "ODI_LINEAGE__TRANSPORT": "http",
            "ODI_LINEAGE__URL": backend.url,
            "ODI_LINEAGE__RELAY": "thread",
            "ODI_LINEAGE__SETTLE_S": "1",
            "ODI_LINEAGE__RETRY_S_MAX": "2",
            "ODI_SPARK__MASTER": "local[1]",
        }
        jobs = {}
        for name, text in SPECS.items():
            spec = tmp_path / f"{name}.yaml"
            values = {"servers": kafka.bootstrap, "registry": registry.url, "topic": topics[name]}
            spec.write_text(text.format(**values), "utf-8")
            jobs[name] = Job(
                spec=spec, lake=lake.root, env=env, rng=random.Random(rng.randrange(10**9))
            )
        yield Stage(
            lake=lake, kafka=kafka, registry=registry, backend=backend, jobs=jobs, topics=topics
        )


@pytest.mark.alone
@pytest.mark.timeout(1800)
def test_jobs_that_are_killed_at_random_lose_nothing_and_write_nothing_twice(
    stage: Stage, debezium_postgres: Captured, rng: random.Random
) -> None:
    server = debezium_postgres.server
    database = server.new_database()
    shop = Shop(server.url(database), random.Random(rng.randrange(10**9)))
    shop.make()
    prefix = stage.topics["customers"].partition(".")[0]
    debezium_postgres.capture(prefix, database, "public.customers")
    subject = f"{stage.topics['payments']}-value"
    paid = in_avro(PAYMENT, stage.registry.register(subject, PAYMENT))
    bootstrap = stage.kafka.bootstrap
    clicks = Clicks(bootstrap, stage.topics["clicks"], as_json)
    payments = Clicks(bootstrap, stage.topics["payments"], paid)
    troubles = _troubles(stage)
    with beside(
        lambda stop: clicks.work(stop, 200),
        lambda stop: payments.work(stop, 50),
        shop.work,
        *(trouble.work for trouble in troubles),
    ):
        _torment(stage)
    stage.backend.hook = None
    _check_struck(stage, troubles, clicks, payments, shop)
    clicks.flush()
    payments.flush()
    _wait_for_the_last_customer(stage)
    for job in stage.jobs.values():
        job.drain()
        assert not job.problems, job.problems
    _check_events(stage, "clicks", clicks.written)
    _check_events(stage, "payments", payments.written)
    eyes = Eyes.on(stage.lake.root)
    mirror = eyes.rows("chaos.customers", columns=("id", "name", "visits"))
    assert sorted(mirror, key=str) == sorted(shop.rows(), key=str)
    assert not verify(stage.lake.ledger(), stage.lake.catalog())
    assert not continuity(stage.lake.ledger()).events
    _check_lineage(stage)
    debezium_postgres.connect.drop(prefix)


def _torment(stage: Stage) -> None:
    deadline = time.monotonic() + MINUTES_MAX * 60
    stop = threading.Event()
    jobs = stage.jobs.values()

    def enough() -> bool:
        kills = [job.kills for job in jobs]
        return sum(kills) >= KILLS and min(kills) >= KILLS_EACH

    threads = [
        threading.Thread(target=job.torment, args=(enough, stop), daemon=True) for job in jobs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    stop.set()
    for thread in threads:
        thread.join(240)


def _troubles(stage: Stage) -> list[Trouble]:
    lake = stage.lake

    def away() -> None:
        stage.backend.hook = lambda _request: Fault(close="reset")
        time.sleep(8)
        stage.backend.hook = lambda request: Fault(status=503) if request.number % 3 == 0 else None
        time.sleep(8)
        stage.backend.hook = None

    def compact() -> None:
        while parse("chaos.clicks") not in lake.catalog().tables():
            time.sleep(1)  # no job has come so far
        # Where the stream is faster than it, compaction gives way: that is right.
        with suppress(CommitConflict), odi.run("chaos/compaction", lake=lake) as run:
            run.compact("chaos.clicks", options={"rewrite-all": "true"})

    def without_registry() -> None:
        stage.registry.kill()
        time.sleep(6)
        stage.registry.start()

    return [
        Trouble(name="broker", strike=lambda: stage.kafka.restart(crash=True), pause_s=70),
        Trouble(name="registry", strike=without_registry, pause_s=45),
        Trouble(name="backend", strike=away, pause_s=15),
        Trouble(name="compaction", strike=compact, pause_s=40),
    ]


def _check_struck(
    stage: Stage, troubles: list[Trouble], clicks: Clicks, payments: Clicks, shop: Shop
) -> None:
    for name, job in stage.jobs.items():
        assert not job.problems, (name, job.problems)
    kills = {name: job.kills for name, job in stage.jobs.items()}
    assert sum(kills.values()) >= KILLS, kills
    assert min(kills.values()) >= KILLS_EACH, kills
    for trouble in troubles:
        assert not trouble.problems, trouble.problems
        assert trouble.struck, f"{trouble.name} never struck"
    assert stage.backend.fired
    assert min(clicks.written, payments.written, shop.transactions) > 100


def _wait_for_the_last_customer(stage: Stage) -> None:
    topic, topics = stage.topics["customers"], Topics(stage.kafka.bootstrap)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        values = [message.value() for message in topics.read(topic, topics.count(topic))]
        told = [json.loads(value)["after"] or {} for value in values if value]
        if any(after.get("id") == Shop.MARK for after in told):
            return
        time.sleep(1)
    raise AssertionError("the database's last change did not come to its topic")


def _check_events(stage: Stage, name: str, written: int) -> None:
    """The table has each record of the topic once, and each row knows its record and its batch."""
    topic = stage.topics[name]
    messages = Topics(stage.kafka.bootstrap).read(topic, written)
    there = {(f"{topic}-{message.partition()}", message.offset()) for message in messages}
    assert len(there) == written
    found = start_trace(
        stage.lake.ledger(),
        stage.lake.catalog(),
        parse(f"chaos.{name}"),
        columns=["id"],
        source_offset=True,
    )
    ids, seen = [], set()
    for row in found:
        assert row.birth.confidence == "exact", row
        assert row.birth.offsets is not None
        assert row.source_record is not None
        place = (row.source_record.partition, row.source_record.offset)
        assert holds(offsets_from_json(row.birth.offsets), *place), row
        ids.append(row.values["id"])
        seen.add(place)
    assert sorted(map(int, map(str, ids))) == list(range(written))
    assert seen == there
    assert Eyes.on(stage.lake.root).rows(f"chaos.{name}_dead") == []


def _check_lineage(stage: Stage) -> None:
    """Everything that the ledger says has come to the backend; no run is in a wrong state."""
    job = stage.jobs["clicks"]
    done = subprocess.run(
        [sys.executable, "-m", "odi_audit.cli", "relay", "--once", "--lake", str(job.lake)],
        env={**os.environ, **job.env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    came = [(item.index, item.run, item.state) for item in stage.backend.arrivals if item.taken]
    # A request of a killed process may be carried out late: its run's end is then said once more.
    judge(events_in(stage.lake.ledger()), came, stage.backend.states, never_back=False)
