"""The relay to a real Kafka: what the broker has not acknowledged is not sent."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

import pytest

from lineage.relay.destinations import Destination, destinations_of
from lineage.relay.relay import Manner
from lineage.relay.sources import LEDGER
from odi_audit.errors import ConfigError
from odi_audit.settings_models import LineageSettings
from tests.support.relaying import (
    ENDS,
    events_in,
    forever,
    judge,
    new_ledger,
    relay_of,
    state_beside,
)
from tests.support.servers.kafka import Kafka


def to_kafka(bootstrap: str, topic: str, **more: str) -> Destination:
    return destinations_of(
        LineageSettings(
            transport="kafka",
            topic=topic,
            timeout_s=5,
            kafka={"bootstrap.servers": bootstrap} | more,
        )
    )[0]


def new_topic(bootstrap: str) -> str:
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"lineage-{secrets.token_hex(4)}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(name, num_partitions=2, replication_factor=1)])
    made[name].result(30)
    return name


def read_all(bootstrap: str, topic: str) -> list[Any]:
    from confluent_kafka import Consumer, TopicPartition

    reader = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "judge", "enable.auto.commit": "false"}
    )
    parts = list(reader.list_topics(topic, timeout=10).topics[topic].partitions)
    found = []
    for part in parts:
        low, high = reader.get_watermark_offsets(TopicPartition(topic, part), timeout=10)
        reader.assign([TopicPartition(topic, part, low)])
        count = 0
        while count < high - low:
            message = reader.poll(10)
            assert message is not None
            assert not message.error()
            found.append(message)
            count += 1
    reader.close()
    return found


def test_every_event_is_in_the_topic_under_the_key_of_its_job(kafka: Kafka, tmp_path: Path) -> None:
    topic = new_topic(kafka.bootstrap)
    ledger = new_ledger(tmp_path, 10)
    store = state_beside(tmp_path / "ledger.db")
    there = to_kafka(kafka.bootstrap, topic)
    assert relay_of(there, ledger, store).run(forever()).sent == 30
    arrived, states = [], {}
    for message in read_all(kafka.bootstrap, topic):
        event = json.loads(message.value())
        run, kind = event["run"]["runId"], event["eventType"]
        arrived.append((event["run"]["facets"]["odi_ledger"]["index"], run, kind))
        states[run] = ENDS.get(kind, "RUNNING")
        assert message.key().startswith(b"run:sales/")
    judge(events_in(ledger), arrived, states)
    assert len(arrived) == 30


def test_nothing_counts_as_sent_while_the_broker_is_away(kafka: Kafka, tmp_path: Path) -> None:
    topic = new_topic(kafka.bootstrap)
    ledger = new_ledger(tmp_path, 3)
    store = state_beside(tmp_path / "ledger.db")
    there = to_kafka("127.0.0.1:1", topic, **{"message.timeout.ms": "500"})
    manner = Manner(retry_s_max=0.05, give_up_after=2)
    outcome = relay_of(there, ledger, store, manner=manner).run(forever())
    assert (outcome.sent, outcome.left, outcome.letters) == (0, 9, 0)
    assert store.positions("default") == {}
    back = to_kafka(kafka.bootstrap, topic)
    assert relay_of(back, ledger, store).run(forever()).left == 0
    assert store.positions("default") == {LEDGER: "9"}
    assert {json.loads(one.value())["eventType"] for one in read_all(kafka.bootstrap, topic)} == {
        "START", "RUNNING", "COMPLETE",
    }  # fmt: skip


def test_a_topic_that_is_not_there_stops_the_relay(kafka: Kafka, tmp_path: Path) -> None:
    ledger = new_ledger(tmp_path, 3)
    store = state_beside(tmp_path / "ledger.db")
    there = to_kafka(kafka.bootstrap, "no-such-topic", **{"message.timeout.ms": "2000"})
    manner = Manner(retry_s_max=0.05, give_up_after=20)
    outcome = relay_of(there, ledger, store, manner=manner).run(forever())
    assert (outcome.sent, outcome.left, outcome.letters) == (0, 9, 0)
    assert "UNKNOWN_TOPIC" in (outcome.stopped or "")


def test_a_setting_that_the_driver_does_not_know_is_told(tmp_path: Path) -> None:
    ledger = new_ledger(tmp_path, 1)
    store = state_beside(tmp_path / "ledger.db")
    there = to_kafka("127.0.0.1:1", "t", **{"no.such.setting": "1"})
    with pytest.raises(ConfigError, match=r"no\.such\.setting"):
        relay_of(there, ledger, store).run(forever())
    ledger.close()
