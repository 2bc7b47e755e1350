"""What a Kafka cluster says of itself: its id, its topics and their ids, what each partition holds.

Owns the client for metadata and the turning of its errors into ours. Must never read a message,
never decide (kafka_plan does), and never let a secret of the options into an error.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from jobs.sources.kafka_values import Cluster, Subscription, Topic, Watermarks
from odi_audit.errors import ConfigError, SourceDenied, SourceNotFound, SourceUnavailable
from odi_audit.redact import is_secret_key, redact_text, register

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, TopicPartition
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._listoffsets import OffsetSpec

WAIT_S_MAX = 30.0
"""For everything that one look at the cluster asks."""
ASK_S_MAX = 2.0
"""For one try at reaching it: in between we look whether it has refused the login."""
SETTLE_S_MAX = 2.0
"""For a partition that was just added to become known to its broker."""
NEAR_MATCHES_MAX = 3
AT_ONCE_MAX = 5_000
"""Partitions in one request for offsets."""
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The id of all zeros, which a broker without topic ids answers."""


@dataclass(slots=True, kw_only=True)
class KafkaAdmin:
    """A view of one cluster, by the settings of the client library (``security.protocol``, …).

    Ends are those of committed records unless ``uncommitted`` is set: what an open transaction has
    written is not there yet.
    """

    bootstrap: str
    options: Mapping[str, str] = field(default_factory=dict)
    uncommitted: bool = False
    wait_s_max: float = WAIT_S_MAX
    _client: AdminClient | None = None
    _seen: list[KafkaError] = field(default_factory=list)

    def cluster(self, subscription: Subscription, *, known: Collection[str] = ()) -> Cluster:
        """Return the topics that are followed, as they are now.

        A named topic that is not there is an error, unless it is ``known`` from before: then the
        plan says that it was deleted.

        Raises:
            SourceUnavailable: no broker answered in time.
            SourceDenied: the login was refused, or may not see the topics.
            SourceNotFound: a named topic is not there; near matches are in the message.
            ConfigError: an option is not one of the client library's.
        """
        deadline = time.monotonic() + self.wait_s_max
        found = self._reach(deadline)
        names = [name for name in sorted(found.names) if subscription.follows(name)]
        self._check_named(subscription, found.names, known)
        ids = self._ids(names, deadline)
        partitions = [
            (name, number) for name in names if name in ids for number in found.names[name]
        ]
        marks = self._marks(partitions, deadline)
        topics = {
            name: Topic(
                name=name,
                id=ids[name],
                partitions={number: marks[name, number] for number in found.names[name]},
            )
            for name in names
            # A partition that nobody knows any more: the topic was deleted while we looked.
            if name in ids and all((name, number) in marks for number in found.names[name])
        }
        return Cluster(id=found.cluster, bootstrap=self.bootstrap, topics=topics)

    def identity(self) -> str:
        """Return the cluster's id.

        Raises:
            SourceUnavailable, SourceDenied, ConfigError: as :meth:`cluster`.
        """
        return self._reach(time.monotonic() + self.wait_s_max).cluster

    def at_time(self, cluster: Cluster, when: datetime) -> dict[str, int]:
        """Return for each partition the first offset whose record is not older than ``when``.

        Where there is none it is the end of the partition.

        Raises:
            SourceUnavailable, SourceDenied: as :meth:`cluster`.
        """
        from confluent_kafka.admin._listoffsets import OffsetSpec

        deadline = time.monotonic() + self.wait_s_max
        wanted = [(t.name, number) for t in cluster.topics.values() for number in t.partitions]
        spec = OffsetSpec.for_timestamp(int(when.timestamp() * 1000))
        found = self._offsets(wanted, spec, deadline)
        return {
            f"{name}-{number}": place
            if (place := found.get((name, number), -1)) >= 0
            else cluster.topics[name].partitions[number].end
            for name, number in wanted
        }

    # -- the client ------------------------------------------------------------------------------

    def _admin(self) -> AdminClient:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        if self._client is None:
            for key, value in self.options.items():
                if is_secret_key(key):
                    register(value)
            settings: dict[str, Any] = {
                "log_level": 0,  # its errors come to us, not to the terminal
                **self.options,
                "bootstrap.servers": self.bootstrap,
                "error_cb": self._seen.append,
            }
            try:
                self._client = AdminClient(settings)
            except (KafkaException, ValueError, TypeError) as error:
                raise ConfigError(
                    f"the options of the Kafka source are refused: {told(error)}",
                    hint="source.options takes the names of librdkafka, such as "
                    "security.protocol, sasl.mechanism, sasl.username, ssl.ca.location",
                ) from None  # its own text may quote a secret
        return self._client

    def _reach(self, deadline: float) -> _Names:
        """Ask for all topics, again and again until the time is over or the login is refused."""
        from confluent_kafka import KafkaException

        client = self._admin()
        while True:
            left = deadline - time.monotonic()
            self._seen.clear()
            try:
                answer = client.list_topics(timeout=max(0.1, min(ASK_S_MAX, left)))
            except KafkaException as error:
                client.poll(0)
                problem = _denied([*self._seen, error.args[0]]) or error.args[0]
                if _denied([problem]) or left <= ASK_S_MAX:
                    raise self._error("reached", problem) from None
                continue
            names = {
                name: sorted(topic.partitions)
                for name, topic in answer.topics.items()
                if topic.error is None and topic.partitions
            }
            return _Names(cluster=str(answer.cluster_id), names=names)

    def _ids(self, names: Sequence[str], deadline: float) -> dict[str, str | None]:
        """Return the ids of topics, without those of the broker's own and those just deleted."""
        from confluent_kafka import KafkaError, KafkaException, TopicCollection

        if not names:
            return {}
        with self._asking("described"):
            asked = self._admin().describe_topics(
                TopicCollection(list(names)), request_timeout=_left(deadline)
            )
            found: dict[str, str | None] = {}
            for name, future in asked.items():
                try:
                    topic = future.result(_left(deadline))
                except KafkaException as error:
                    if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                        continue
                    raise
                if not topic.is_internal:
                    found[name] = None if str(topic.topic_id) == NO_ID else str(topic.topic_id)
            return found

    def _marks(
        self, partitions: Sequence[tuple[str, int]], deadline: float
    ) -> dict[tuple[str, int], Watermarks]:
        from confluent_kafka.admin._listoffsets import OffsetSpec

        # Ends first: what is cut off in between then counts as gone, and never as there.
        ends = self._offsets(partitions, OffsetSpec.latest(), deadline)  # type: ignore[no-untyped-call]
        begins = self._offsets(partitions, OffsetSpec.earliest(), deadline)  # type: ignore[no-untyped-call]
        return {
            place: Watermarks(begin=begin, end=max(begin, ends[place]))
            for place, begin in begins.items()
            if place in ends
        }

    def _offsets(
        self, partitions: Sequence[tuple[str, int]], spec: OffsetSpec, deadline: float
    ) -> dict[tuple[str, int], int]:
        """Ask for an offset of each partition; one whose leader is being chosen is asked again."""
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        found: dict[tuple[str, int], int] = {}
        waiting = list(partitions)
        settles = time.monotonic() + SETTLE_S_MAX
        with self._asking("asked for its offsets"):
            while waiting:
                again: list[tuple[str, int]] = []
                asked = [TopicPartition(name, number) for name, number in waiting[:AT_ONCE_MAX]]
                for place, future in self._ask_offsets(asked, spec, deadline).items():
                    try:
                        found[place.topic, place.partition] = future.result(_left(deadline)).offset
                    except KafkaException as error:
                        problem, now = error.args[0], time.monotonic()
                        if problem.code() == KafkaError.UNKNOWN_TOPIC_OR_PART and now > settles:
                            continue
                        if not _passing(problem) or now > deadline:
                            raise
                        again.append((place.topic, place.partition))
                waiting = again + waiting[AT_ONCE_MAX:]
                if again:
                    time.sleep(0.1)
        return found

    def _ask_offsets(  # type: ignore[no-untyped-def]  # futures of the library are untyped
        self, asked: list[TopicPartition], spec: OffsetSpec, deadline: float
    ):
        from confluent_kafka import IsolationLevel

        level = (
            IsolationLevel.READ_UNCOMMITTED if self.uncommitted else IsolationLevel.READ_COMMITTED
        )
        return self._admin().list_offsets(
            dict.fromkeys(asked, spec), isolation_level=level, request_timeout=_left(deadline)
        )

    # -- errors ----------------------------------------------------------------------------------

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        from confluent_kafka import KafkaException

        try:
            yield
        except KafkaException as error:
            raise self._error(what, error.args[0]) from None
        except TimeoutError:
            raise SourceUnavailable(
                f"Kafka at {self._where()} could not be {what} within {self.wait_s_max:g} s",
                hint="run the job again when the broker is up",
            ) from None

    def _error(self, what: str, problem: KafkaError) -> SourceDenied | SourceUnavailable:
        message = f"Kafka at {self._where()} could not be {what}: {told(problem)}"
        if _denied([problem]):
            return SourceDenied(
                message,
                hint="check security.protocol, sasl.mechanism, the login and its rights "
                "in source.options",
            )
        return SourceUnavailable(
            message, hint="check source.bootstrap and that the broker is up, then run the job again"
        )

    def _check_named(
        self, subscription: Subscription, there: Collection[str], known: Collection[str]
    ) -> None:
        missing = [
            name
            for name in subscription.topics
            if subscription.follows(name) and name not in there and name not in known
        ]
        if not missing:
            return
        near = difflib.get_close_matches(missing[0], sorted(there), NEAR_MATCHES_MAX)
        meant = f"; did you mean {', '.join(near)}?" if near else ""
        raise SourceNotFound(
            f"Kafka at {self._where()} has no topic {', '.join(missing[:5])}{meant}",
            hint="correct source.topics, make the topic, or follow a pattern: "
            "topics that fit it are read as they appear",
            topics=missing[:5],
            near=near,
        )

    def _where(self) -> str:
        return redact_text(self.bootstrap)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    """What one answer says: which cluster, which topics, which partitions."""

    cluster: str
    names: Mapping[str, Sequence[int]]


def _left(deadline: float) -> float:
    return max(0.1, deadline - time.monotonic())


def _denied(problems: Sequence[KafkaError]) -> KafkaError | None:
    from confluent_kafka import KafkaError

    codes = {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
    return next((problem for problem in problems if problem.code() in codes), None)


def _passing(problem: KafkaError) -> bool:
    from confluent_kafka import KafkaError

    return bool(problem.retriable()) or problem.code() in {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
    }


def told(problem: object) -> str:
    """Return the library's words without its own wrapping, and without a secret."""
    inner = getattr(problem, "args", ()) or (problem,)
    text = inner[0].str() if hasattr(inner[0], "str") else str(inner[0])
    return redact_text(text)
