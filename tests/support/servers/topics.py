"""What tests do to a broker past everything under test: topics made, filled, read and cut."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

WAIT_S_MAX = 60
QUIET: dict[str, str | int] = {"log_level": 0}
"""A broker that a test has stopped is no news."""


@dataclass(frozen=True, slots=True)
class Topics:
    """The tests' own way to a broker."""

    bootstrap: str

    def create(self, name: str, partitions: int = 1, **config: str) -> None:
        """Make a topic; ``config`` has ``_`` for ``.``."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
        admin = self._admin()  # its answers die with it
        admin.create_topics([new])[name].result(WAIT_S_MAX)
        self._until(lambda known: name in known)

    def delete(self, name: str) -> None:
        """Delete a topic, and wait until the broker has forgotten it."""
        admin = self._admin()
        admin.delete_topics([name])[name].result(WAIT_S_MAX)
        self._until(lambda known: name not in known)

    def widen(self, name: str, partitions: int) -> None:
        """Give a topic more partitions."""
        admin = self._admin()
        admin.create_partitions([NewPartitions(name, partitions)])[name].result(WAIT_S_MAX)
        self._until(lambda known: known.get(name) == partitions)

    def cut(self, name: str, partition: int, before: int) -> None:
        """Delete the records before an offset (DeleteRecords)."""
        place = TopicPartition(name, partition, before)
        admin = self._admin()
        for future in admin.delete_records([place]).values():
            future.result(WAIT_S_MAX)

    def fill(self, name: str, values: Iterable[bytes], partition: int = -1, **more: str) -> None:
        """Write values, in order, and wait until the broker has them; ``more`` as in config."""
        self.send(name, ((None, value) for value in values), partition, **more)

    def send(
        self,
        name: str,
        pairs: Iterable[tuple[bytes | None, bytes | None]],
        partition: int = -1,
        **more: str,
    ) -> None:
        """Write keys and values, as :meth:`fill` does values."""
        settings = {key.replace("_", "."): value for key, value in more.items()}
        producer = Producer(
            {**QUIET, "bootstrap.servers": self.bootstrap, "enable.idempotence": True,
             "linger.ms": 5, **settings}
        )  # fmt: skip
        problems: list[str] = []
        for key, value in pairs:
            producer.produce(
                name, value, key, partition=partition,
                on_delivery=lambda error, _: problems.append(str(error)) if error else None,
            )  # fmt: skip
            producer.poll(0)
        left = producer.flush(WAIT_S_MAX)
        if left or problems:
            raise RuntimeError(f"{name}: {left} messages were not delivered: {problems[:3]}")

    def read(self, name: str, count: int, *, wait_s: float = WAIT_S_MAX) -> list[Message]:
        """Read a topic from its beginning until ``count`` messages have come.

        Raises:
            TimeoutError: they did not come.
        """
        consumer = Consumer(
            {**QUIET, "bootstrap.servers": self.bootstrap, "group.id": f"odi-tests-{name}",
             "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        )  # fmt: skip
        try:
            found: list[Message] = []
            deadline = time.monotonic() + wait_s
            assigned = False
            while len(found) < count:
                if not assigned:
                    known = consumer.list_topics(name, timeout=WAIT_S_MAX).topics[name]
                    if known.error is None and known.partitions:
                        consumer.assign([TopicPartition(name, p, 0) for p in known.partitions])
                        assigned = True
                came = consumer.consume(count - len(found), timeout=0.5)
                found.extend(message for message in came if message.error() is None)
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{name}: {len(found)} of {count} messages came")
            return found
        finally:
            consumer.close()

    def count(self, name: str) -> int:
        """Return how many records a topic has, where none was ever deleted."""
        consumer = Consumer({**QUIET, "bootstrap.servers": self.bootstrap, "group.id": "odi-tests"})
        try:
            parts = consumer.list_topics(name, timeout=WAIT_S_MAX).topics[name].partitions
            return sum(
                consumer.get_watermark_offsets(TopicPartition(name, part), timeout=WAIT_S_MAX)[1]
                for part in parts
            )
        finally:
            consumer.close()

    def _known(self) -> Mapping[str, int]:
        topics = self._admin().list_topics(timeout=WAIT_S_MAX).topics
        return {name: len(topic.partitions) for name, topic in topics.items() if not topic.error}

    def _until(self, holds: Callable[[Mapping[str, int]], bool]) -> None:
        deadline = time.monotonic() + WAIT_S_MAX
        while not holds(self._known()):
            if time.monotonic() > deadline:
                raise TimeoutError("the broker did not do it in time")
            time.sleep(0.05)

    def _admin(self) -> AdminClient:
        return AdminClient({**QUIET, "bootstrap.servers": self.bootstrap})
