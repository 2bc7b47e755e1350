"""Reading a range of one Kafka partition, inside a task: exactly these offsets, in order.

Owns the consumer of a task. It belongs to no group and commits nothing: the position is the
ledger's. Must never skip silently: offsets that the broker no longer has end the task, and only
holes that Kafka itself makes (compaction, transactions) are passed over.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.sources.kafka_admin import told
from odi_audit.errors import SourceChanged, SourceDenied, SourceUnavailable

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message

CHUNK_MAX = 50_000
"""Records that are decoded at once: enough to make the cost of a call small."""
IDLE_S_MAX = 60.0
"""Without any record for this long the broker is taken for gone."""
WAIT_S = 0.5
_TUNING: Mapping[str, str] = {
    "fetch.wait.max.ms": "50",
    "fetch.min.bytes": "1",
    "fetch.message.max.bytes": "8388608",
    "queued.min.messages": "200000",
    "queued.max.messages.kbytes": "131072",
}
"""A task reads a known range as fast as it can, and no more than about 128 MB ahead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One partition's part of a batch: ``start`` inclusive, ``end`` exclusive."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def name(self) -> str:
        """The partition's name in the batch's offsets."""
        return f"{self.topic}-{self.partition}"


def read(
    bootstrap: str,
    options: Mapping[str, str],
    pieces: list[Piece],
    *,
    uncommitted: bool = False,
    idle_s_max: float = IDLE_S_MAX,
) -> Iterator[tuple[Piece, list[Message]]]:
    """Yield the records of each piece in order, in chunks; each record once.

    Raises:
        SourceChanged: the broker no longer has the first offset, or the topic.
        SourceUnavailable: no record came for a while.
        SourceDenied: the login was refused.
    """
    with _consumer(bootstrap, options, uncommitted=uncommitted) as (consumer, seen):
        for piece in pieces:
            if piece.start < piece.end:
                for records in _piece(consumer, piece, seen, idle_s_max):
                    yield piece, records


@contextmanager
def _consumer(
    bootstrap: str, options: Mapping[str, str], *, uncommitted: bool
) -> Iterator[tuple[Consumer, list[KafkaError]]]:
    from confluent_kafka import Consumer

    seen: list[KafkaError] = []
    consumer = Consumer(
        {
            **_TUNING,
            **options,
            "bootstrap.servers": bootstrap,
            "group.id": "odi-audit",  # asked for by the library; nothing is ever committed
            "enable.auto.commit": "false",
            "enable.auto.offset.store": "false",
            "auto.offset.reset": "error",
            "enable.partition.eof": "true",
            "isolation.level": "read_uncommitted" if uncommitted else "read_committed",
            "log_level": 0,
            "error_cb": seen.append,
        }
    )
    try:
        yield consumer, seen
    finally:
        consumer.close()


def _piece(
    consumer: Consumer, piece: Piece, seen: list[KafkaError], idle_s_max: float
) -> Iterator[list[Message]]:
    from confluent_kafka import TopicPartition

    consumer.assign([TopicPartition(piece.topic, piece.partition, piece.start)])
    at, quiet_since = piece.start, time.monotonic()
    while at < piece.end:
        got = consumer.consume(num_messages=min(CHUNK_MAX, piece.end - at), timeout=WAIT_S)
        records: list[Message] = []
        for message in got:
            problem = message.error()
            if problem is not None:
                at = max(at, _eof(problem, message, piece))
                continue
            offset = message.offset() or 0
            if offset >= piece.end:
                # What the last offsets of the range held is no record: a mark of a transaction.
                at = piece.end
                break
            records.append(message)
            at = offset + 1
        if records:
            yield records
        if got:
            quiet_since = time.monotonic()
        elif time.monotonic() - quiet_since > idle_s_max:
            raise _silent(piece, at, seen, idle_s_max)
    consumer.unassign()


def _eof(problem: KafkaError, message: Message, piece: Piece) -> int:
    """Return how far the partition reaches, if that is what the error says."""
    from confluent_kafka import KafkaError

    code = problem.code()
    if code == KafkaError._PARTITION_EOF:
        return message.offset() or 0
    if code in {KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET}:
        raise SourceChanged(
            f"partition {piece.name} no longer has offset {piece.start}: its records expired or "
            "were deleted after the batch was planned",
            hint="start the job again: it says which records are missing, and what the choices are",
            partition=piece.name,
        )
    if code in {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION}:
        raise SourceChanged(
            f"partition {piece.name} is gone: the topic was deleted after the batch was planned",
            hint="start the job again when the topic is there",
            partition=piece.name,
        )
    if code in {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
    }:
        raise SourceDenied(f"the broker refuses to let partition {piece.name} be read")
    raise SourceUnavailable(f"partition {piece.name} could not be read: {told(problem)}")


def _silent(piece: Piece, at: int, seen: list[KafkaError], idle_s_max: float) -> SourceUnavailable:
    last = f": {told(seen[-1])}" if seen else ""
    return SourceUnavailable(
        f"partition {piece.name} gave no record for {idle_s_max:g} s at offset {at} of "
        f"{piece.start}…{piece.end}{last}",
        hint="start the job again when the broker answers: nothing of the batch is visible",
        partition=piece.name,
    )
