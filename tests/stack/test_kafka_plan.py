"""Planning against a real broker: what happens to topics, and what the next batch makes of it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import pytest
from confluent_kafka import Producer

from jobs.sources.base import Choices, Limits, Plan
from jobs.sources.kafka_admin import KafkaAdmin
from jobs.sources.kafka_plan import plan
from jobs.sources.kafka_values import Cluster, Start, StartAt, Subscription
from odi_audit.committer import continuity
from odi_audit.errors import (
    ConfigError,
    OffsetGap,
    SourceChanged,
    SourceDenied,
    SourceNotFound,
    SourceUnavailable,
)
from odi_audit.ids import BatchId
from odi_audit.ledger.port import Position
from tests.support.servers.kafka import PASSWORD, READER, Kafka
from tests.support.servers.process import free_port
from tests.support.servers.topics import QUIET, Topics
from tests.support.servers.toxiproxy import Toxiproxy

SEEN_WAIT_S_MAX = 30


@pytest.fixture
def topics(kafka: Kafka) -> Topics:
    return Topics(kafka.bootstrap)


@pytest.fixture
def admin(kafka: Kafka) -> KafkaAdmin:
    return KafkaAdmin(bootstrap=kafka.bootstrap)


@pytest.fixture
def name() -> str:
    return f"orders-{secrets.token_hex(4)}"


class Job:
    """A job's memory: what the ledger would answer, moved by the committer's own rule."""

    def __init__(self, admin: KafkaAdmin, subscription: Subscription, start: Start) -> None:
        self.admin, self.subscription, self.start = admin, subscription, start
        self.positions: dict[str, Position] = {}
        self.batches = 0

    def look(self) -> Cluster:
        known = {name.rpartition("-")[0] for name in self.positions}
        return self.admin.cluster(self.subscription, known=known)

    def plan(self, choices: Choices | None = None, rows: int = 1_000_000) -> Plan | None:
        return plan(
            self.look(), self.positions, subscription=self.subscription, start=self.start,
            limits=Limits(rows=rows), choices=choices or Choices(),
        )  # fmt: skip

    def read(
        self, choices: Choices | None = None, rows: int = 1_000_000
    ) -> dict[str, tuple[object, object]]:
        """Plan a batch, land it, and return its ranges."""
        made = self.plan(choices, rows)
        if made is None:
            return {}
        verdict = continuity.check(
            made.offsets, self.positions, replay=made.generation > 0,
            accept_gap=made.accept_gap is not None, where="t",
        )  # fmt: skip
        assert verdict.moves
        self.batches += 1
        for partition, part in made.offsets.ranges.items():
            self.positions[partition] = Position(
                partition=partition, start=part.start, end=part.end, index=self.batches,
                identity=made.offsets.identity.get(partition), batch=BatchId(f"b-{self.batches}"),
            )  # fmt: skip
        return {key: (part.start, part.end) for key, part in made.offsets.ranges.items()}


@pytest.fixture
def job(admin: KafkaAdmin, name: str) -> Job:
    return Job(admin, Subscription(topics=(name,)), Start())


def values(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SEEN_WAIT_S_MAX
    while not holds():
        assert time.monotonic() < deadline, "the broker did not do it in time"
        time.sleep(0.1)


def test_the_cluster_says_who_it_is_and_what_it_holds(
    topics: Topics, admin: KafkaAdmin, kafka: Kafka, name: str
) -> None:
    topics.create(name, partitions=2)
    topics.fill(name, values(7), partition=1)
    found = admin.cluster(Subscription(topics=(name,)))
    assert found.id == kafka.cluster_id == admin.identity()
    held = found.topics[name]
    assert held.id
    assert {n: (m.begin, m.end) for n, m in held.partitions.items()} == {0: (0, 0), 1: (0, 7)}


def test_the_same_topic_has_the_same_id_after_the_broker_was_killed(
    topics: Topics, job: Job, kafka: Kafka, name: str
) -> None:
    topics.create(name)
    topics.fill(name, values(5))
    assert job.read() == {f"{name}-0": (0, 5)}
    kafka.restart(crash=True)
    topics.fill(name, values(2))
    assert job.read() == {f"{name}-0": (5, 7)}


def test_a_topic_deleted_and_made_again_is_found_out(topics: Topics, job: Job, name: str) -> None:
    topics.create(name)
    topics.fill(name, values(5))
    job.read()
    topics.delete(name)
    with pytest.raises(SourceChanged, match="not on kafka://"):
        job.plan()
    topics.create(name)
    topics.fill(name, values(8))  # more than before: by offsets alone nothing would be noticed
    with pytest.raises(SourceChanged, match="made again"):
        job.plan()
    assert job.read(Choices(generation=1)) == {f"{name}-0": (0, 8)}
    topics.fill(name, values(1))
    assert job.read() == {f"{name}-0": (8, 9)}


def test_records_that_were_deleted_unread_are_a_gap(topics: Topics, job: Job, name: str) -> None:
    topics.create(name, partitions=2)
    topics.fill(name, values(10), partition=0)
    topics.fill(name, values(10), partition=1)
    job.read(rows=8)
    topics.cut(name, 0, 3)  # read already: no loss
    assert job.plan() is not None
    topics.cut(name, 0, 9)
    with pytest.raises(OffsetGap, match="read up to 4, begins at 9"):
        job.plan()
    allowed = Choices(accept_gap="cut by the test")
    assert job.read(allowed) == {f"{name}-0": (9, 10), f"{name}-1": (4, 10)}
    assert job.plan() is None


def test_records_that_expired_unread_are_a_gap(topics: Topics, job: Job, name: str) -> None:
    topics.create(name, retention_ms="3600000")
    topics.fill(name, values(4))
    job.read()
    short = f"{name}-short"
    topics.create(short, retention_ms="1500")
    expiring = Job(job.admin, Subscription(topics=(short,)), Start())
    topics.fill(short, values(4))
    expiring.read(rows=2)
    wait_until(lambda: expiring.look().topics[short].partitions[0].begin == 4)
    with pytest.raises(OffsetGap, match="read up to 2, begins at 4"):
        expiring.plan()
    assert expiring.read(Choices(accept_gap="retention")) == {f"{short}-0": (4, 4)}
    assert expiring.plan() is None
    assert job.plan() is None


def test_added_partitions_are_read_from_their_beginning(
    topics: Topics, admin: KafkaAdmin, name: str
) -> None:
    latest = Job(admin, Subscription(topics=(name,)), Start(at=StartAt.LATEST))
    topics.create(name)
    topics.fill(name, values(5))
    assert latest.read() == {f"{name}-0": (5, 5)}
    topics.widen(name, 3)
    topics.fill(name, values(4), partition=2)
    assert latest.read() == {f"{name}-2": (0, 4)}


def test_a_topic_that_fits_the_pattern_is_picked_up_when_it_appears(
    topics: Topics, admin: KafkaAdmin, name: str
) -> None:
    job = Job(admin, Subscription(pattern=rf"{name}\..*"), Start(at=StartAt.LATEST))
    assert job.read() == {}
    topics.create(f"{name}.a")
    topics.fill(f"{name}.a", values(3))
    assert job.read() == {f"{name}.a-0": (3, 3)}
    topics.create(f"{name}.b")
    topics.create(f"x{name}.c")
    topics.fill(f"{name}.b", values(2))
    topics.fill(f"x{name}.c", values(2))
    assert job.read() == {f"{name}.b-0": (0, 2)}


def test_the_brokers_own_topics_fit_no_pattern(
    topics: Topics, admin: KafkaAdmin, name: str
) -> None:
    topics.create(name)
    transact(topics.bootstrap, name, commit=True)  # makes __transaction_state
    found = admin.cluster(Subscription(pattern=".*"))
    assert name in found.topics
    assert not [topic for topic in found.topics if topic.startswith("__")]


def test_records_of_an_open_transaction_are_not_planned(
    topics: Topics, job: Job, kafka: Kafka, name: str
) -> None:
    topics.create(name)
    topics.fill(name, values(2))
    producer = transact(kafka.bootstrap, name, commit=False)
    assert job.read() == {f"{name}-0": (0, 2)}
    every = KafkaAdmin(bootstrap=kafka.bootstrap, uncommitted=True)
    assert every.cluster(job.subscription).topics[name].partitions[0].end == 3
    producer.commit_transaction(30)
    wait_until(lambda: job.plan() is not None)
    assert job.read() == {f"{name}-0": (2, 4)}  # the record, and the marker behind it


def transact(bootstrap: str, name: str, *, commit: bool) -> Producer:
    producer = Producer(
        {**QUIET, "bootstrap.servers": bootstrap, "transactional.id": secrets.token_hex(4)}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"in a transaction", partition=0)
    producer.flush(30)
    if commit:
        producer.commit_transaction(30)
    return producer


def test_a_start_by_time_is_answered_by_the_broker(
    topics: Topics, admin: KafkaAdmin, name: str
) -> None:
    topics.create(name, partitions=2)
    topics.fill(name, values(3), partition=0)
    time.sleep(0.05)
    moment = datetime.now(UTC)
    time.sleep(0.05)
    topics.fill(name, values(2), partition=0)
    subscription = Subscription(topics=(name,))
    places = admin.at_time(admin.cluster(subscription), moment)
    assert places == {f"{name}-0": 3, f"{name}-1": 0}
    job = Job(admin, subscription, Start(at=StartAt.TIMESTAMP, places=places))
    assert job.read() == {f"{name}-0": (3, 5), f"{name}-1": (0, 0)}


# -- errors ----------------------------------------------------------------------------------------


def test_an_unknown_topic_is_named_with_its_near_matches(
    topics: Topics, admin: KafkaAdmin, name: str
) -> None:
    topics.create(name)
    with pytest.raises(SourceNotFound, match=rf"did you mean {name}\b"):
        admin.cluster(Subscription(topics=(name + "x",)))


def test_a_broker_that_is_not_there_is_said_so_in_time() -> None:
    nowhere = KafkaAdmin(bootstrap=f"127.0.0.1:{free_port()}", wait_s_max=1)
    start = time.monotonic()
    with pytest.raises(SourceUnavailable, match=r"127\.0\.0\.1"):
        nowhere.identity()
    assert time.monotonic() - start < 5


def test_a_broker_that_hangs_is_given_up_in_time(kafka: Kafka, toxiproxy: Toxiproxy) -> None:
    view = KafkaAdmin(bootstrap=kafka.bootstrap_wire, wait_s_max=3)
    with toxiproxy.proxy("hang", listen=kafka.wire_port, upstream=kafka.behind_port):
        assert view.identity() == kafka.cluster_id
        with toxiproxy.toxic("hang", "timeout", timeout=0):
            start = time.monotonic()
            with pytest.raises(SourceUnavailable):
                view.cluster(Subscription(pattern=".*"))
            assert time.monotonic() - start < 8
        assert view.identity() == kafka.cluster_id


def login(kafka: Kafka, password: str) -> KafkaAdmin:
    options: Mapping[str, str] = {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
        "sasl.username": READER, "sasl.password": password,
    }  # fmt: skip
    return KafkaAdmin(bootstrap=kafka.bootstrap_login, options=options)


def test_a_wrong_password_is_told_at_once_and_never_shown(kafka: Kafka) -> None:
    assert login(kafka, PASSWORD).identity() == kafka.cluster_id
    start = time.monotonic()
    with pytest.raises(SourceDenied) as caught:
        login(kafka, "hunter2-wrong").identity()
    assert time.monotonic() - start < 10
    assert "hunter2-wrong" not in f"{caught.value}{caught.value.facts}"


def test_an_option_that_the_client_does_not_know_is_named_without_its_value(kafka: Kafka) -> None:
    view = KafkaAdmin(bootstrap=kafka.bootstrap, options={"sasl.pasword": "hunter2-secret"})
    with pytest.raises(ConfigError, match=r"sasl\.pasword") as caught:
        view.identity()
    assert "hunter2" not in str(caught.value)
