"""Sending to Kafka with openlineage-python's transport: its producer, and a key for each job.

Owns the wait for the broker's word on each message: what it has not acknowledged is not sent. Must
never leave a message in a queue after it was given up: it would arrive out of order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from openlineage.client.transport.kafka import KafkaConfig, KafkaTransport

from lineage.relay.answers import DONE, Answer, Verdict, no_answer
from lineage.relay.senders import CHUNK_MAX
from lineage.relay.sources import Item
from odi_audit.errors import ConfigError
from odi_audit.redact import redact_text
from odi_audit.settings_models import DestinationSettings

_SAFE = {"acks": "all", "enable.idempotence": "true", "linger.ms": "5"}
"""Every replica has a message before it counts, and a producer's retries make no doubles."""
_TOO_BIG = {"MSG_SIZE_TOO_LARGE", "INVALID_MSG_SIZE", "INVALID_RECORD", "CORRUPT_MESSAGE"}
_TURNED_AWAY = {
    "TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED", "SASL_AUTHENTICATION_FAILED",
    "_AUTHENTICATION", "_SSL", "UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "INVALID_TOPIC_EXCEPTION",
}  # fmt: skip


class KafkaSender:
    """Produces a chunk of messages, and waits for the report on each."""

    chunk_max = CHUNK_MAX
    one_by_one = False

    def __init__(self, settings: DestinationSettings) -> None:
        """Make the producer.

        Raises:
            ConfigError: confluent-kafka is not installed, or does not know a setting.
        """
        timeout_ms = str(int(settings.timeout_s * 1000))
        config = {**_SAFE, "message.timeout.ms": timeout_ms, **settings.kafka}
        try:
            self._transport = KafkaTransport(
                KafkaConfig(
                    config=config,
                    topic=settings.topic or "",
                    messageKey=settings.message_key,
                    flush=False,
                )
            )
        except ModuleNotFoundError:
            raise ConfigError(
                "the kafka transport needs confluent-kafka",
                hint="pip install 'odi-audit[kafka]'",
            ) from None
        except Exception as problem:  # noqa: BLE001 - told as ours
            # The driver has one class for every fault; its text names the setting, not its value.
            raise ConfigError(
                f"lineage.kafka is not accepted: {redact_text(str(problem))}",
                setting="lineage.kafka",
            ) from None
        self._wait_s = settings.timeout_s + 2

    def send(self, items: Sequence[Item]) -> list[Answer]:
        """Produce all, wait until the broker has spoken of each."""
        producer: Any = self._transport.producer
        answers: list[Answer | None] = [None] * len(items)
        for place, item in enumerate(items):
            try:
                producer.produce(
                    topic=self._transport.topic,
                    key=self._transport.message_key or message_key(item.body),
                    value=item.body,
                    on_delivery=_told(answers, place),
                )
            except BufferError:
                answers[place] = no_answer("the producer's queue is full", in_doubt=False)
            except Exception as problem:  # noqa: BLE001 - the driver has one class for all
                answers[place] = _meaning(problem.args[0] if problem.args else None, problem)
        if producer.flush(self._wait_s):
            # Given up: nothing of it may go out later, behind what is sent after it.
            producer.purge()
            producer.flush(1)
        missing = no_answer("the broker did not answer", in_doubt=True)
        return [missing if answer is None else answer for answer in answers]

    def probe(self) -> bool:
        """Say whether the broker knows the topic."""
        producer: Any = self._transport.producer
        try:
            producer.list_topics(self._transport.topic, timeout=self._wait_s)
        except Exception:  # noqa: BLE001 - the driver has one class for all
            return False
        return True

    def close(self) -> None:
        """Let go of the producer."""
        self._transport.close(timeout=1)


def message_key(body: bytes) -> str:
    """Return the key of the library: events of a job, and of its children, keep their order."""
    event = json.loads(body)
    parent = event["run"].get("facets", {}).get("parent", {})
    job = parent.get("root", parent).get("job") or event["job"]
    return f"run:{job['namespace']}/{job['name']}"


def _told(answers: list[Answer | None], place: int) -> Callable[[Any, Any], None]:
    def told(problem: Any, _message: Any) -> None:
        answers[place] = DONE if problem is None else _meaning(problem, problem)

    return told


def _meaning(error: Any, problem: object) -> Answer:
    name = error.name() if hasattr(error, "name") else ""
    reason = redact_text(f"kafka: {name} {problem}").strip()
    if name in _TOO_BIG:
        return Answer(verdict=Verdict.REFUSED, reason=reason)
    if name in _TURNED_AWAY:
        return Answer(verdict=Verdict.STOPPED, reason=reason)
    return no_answer(reason, in_doubt=True)
