"""Reading a range of one Kafka partition, inside a task: exactly these offsets, in order.

Owns the consumer of a task. It belongs to no group and commits nothing: the position is the
ledger's. Must never skip silently: offsets that the broker no longer has end the task, and only
holes that Kafka itself makes (compaction, transactions) are passed over.
"""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.sources.kafka_admin import told
from odi_audit.errors import SourceChanged, SourceDenied, SourceUnavailable

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message

CHUNK_MAX = 20_000
"""Records that are decoded at once: enough to make the cost of a call small, few enough to stay in
a processor's cache (docs/adr/0017)."""
SMALL_ROWS_MAX, TOGETHER_MAX = 1_000, 100
"""Pieces of at most so many records are read together, so many at once: that bounds the memory."""
IDLE_S_MAX = 60.0
"""Without any record for this long the broker is taken for gone."""
WAIT_S = 0.5
_TUNING: Mapping[str, str] = {
    "fetch.wait.max.ms": "50",
    "fetch.min.bytes": "1",
    "fetch.message.max.bytes": "2097152",
    "queued.min.messages": "50000",
    "queued.max.messages.kbytes": "65536",
    "fetch.queue.backoff.ms": "5",
}
"""A task reads a known range as fast as it can, and not far ahead: what lies behind its end is
fetched for nothing. With the library's own backoff of a second a queue this short would run dry.
A job's own options come after these (docs/adr/0017)."""


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
        for bunch in bunches(piece for piece in pieces if piece.start < piece.end):
            if len(bunch) > 1:
                yield from _together(consumer, bunch, seen, idle_s_max)
                continue
            for records in _piece(consumer, bunch[0], seen, idle_s_max):
                yield bunch[0], records


def bunches(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Cut pieces, in their order, into those that are read at once: small ones together.

    To begin a partition costs about a second in the client; a batch over hundreds of topics must
    not wait for them one after another.
    """
    bunch: list[Piece] = []
    names: set[str] = set()
    for piece in pieces:
        small = piece.end - piece.start <= SMALL_ROWS_MAX
        if bunch and (not small or len(bunch) == TOGETHER_MAX or piece.name in names):
            yield bunch
            bunch, names = [], set()
        if small:
            bunch.append(piece)
            names.add(piece.name)
        else:
            yield [piece]
    if bunch:
        yield bunch


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
        with _uncollected():
            got = consumer.consume(num_messages=min(CHUNK_MAX, piece.end - at), timeout=WAIT_S)
        records, at = _taken(got, at, piece)
        if records:
            yield records
        if got:
            quiet_since = time.monotonic()
        elif time.monotonic() - quiet_since > idle_s_max:
            raise _silent(piece, at, seen, idle_s_max)
    consumer.unassign()


def _together(
    consumer: Consumer, pieces: Sequence[Piece], seen: list[KafkaError], idle_s_max: float
) -> Iterator[tuple[Piece, list[Message]]]:
    """Read small pieces of different partitions at once; each is yielded whole, in their order."""
    from confluent_kafka import TopicPartition

    todo = {(piece.topic, piece.partition): piece for piece in pieces}
    at = {key: piece.start for key, piece in todo.items()}
    held: dict[tuple[str, int], list[Message]] = {key: [] for key in todo}
    waiting, quiet_since = deque(pieces), time.monotonic()
    consumer.assign([TopicPartition(one.topic, one.partition, one.start) for one in pieces])
    while todo:
        left = sum(piece.end - at[key] for key, piece in todo.items())
        with _uncollected():
            got = consumer.consume(num_messages=min(CHUNK_MAX, left), timeout=WAIT_S)
        by_part: dict[tuple[str, int], list[Message]] = {}
        for message in got:
            by_part.setdefault((message.topic() or "", message.partition() or 0), []).append(
                message
            )
        for key, messages in by_part.items():
            if key not in todo:
                if key not in held:  # an error that names no partition
                    _taken(messages, 0, waiting[0])
                continue  # else what lies behind the end of its range
            records, at[key] = _taken(messages, at[key], todo[key])
            held[key] += records
            if at[key] >= todo[key].end:
                del todo[key]
        while waiting and (waiting[0].topic, waiting[0].partition) not in todo:
            piece = waiting.popleft()
            records = held[piece.topic, piece.partition]
            held[piece.topic, piece.partition] = []
            if records:
                yield piece, records
        if got:
            quiet_since = time.monotonic()
        elif time.monotonic() - quiet_since > idle_s_max:
            raise _silent(waiting[0], at[waiting[0].topic, waiting[0].partition], seen, idle_s_max)
    consumer.unassign()


def _taken(got: list[Message], at: int, piece: Piece) -> tuple[list[Message], int]:
    """Return the records of the piece among the messages that came, and the offset behind them."""
    from confluent_kafka import Message

    last = (got[-1].offset() or 0) if got else at
    if last < piece.end and not any(map(Message.error, got)):
        return got, last + 1 if got else at
    records: list[Message] = []
    for message in got:
        problem = message.error()
        if problem is not None:
            at = max(at, _eof(problem, message, piece))
            continue
        offset = message.offset() or 0
        if offset >= piece.end:
            # What the last offsets of the range held is no record: a mark of a transaction.
            return records, piece.end
        records.append(message)
        at = offset + 1
    return records, at


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep Python from looking for garbage while thousands of messages are made.

    It would look at each of them again and again, and there is none among them.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


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
