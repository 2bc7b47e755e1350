"""Batches that end where transactions of the source end.

Owns the cut: Debezium writes the end of each transaction, with the number of its changes, to a
topic of its own, and every change says to which transaction it belongs. A plan is shortened to
those transactions that are in it with all their changes. The cut is in the ledger with the batch,
so a restart does not ask again. Must never cut a transaction in two: one that is larger than a
batch stops the job.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from jobs.arrow_path import pieces_of
from jobs.formats.debezium_json import JsonFront
from jobs.formats.decoded import Unreadable
from jobs.sources.kafka_read import Piece, read
from odi_audit.errors import NotSupported, UsageError
from odi_audit.model.offsets import Range

if TYPE_CHECKING:
    from confluent_kafka import Message

    from jobs.sources.base import Plan
    from jobs.sources.kafka import KafkaSource
    from jobs.sources.kafka_values import Watermarks
    from jobs.spec.model import JobSpec

_POSTGRES = re.compile(r"(\d+):(\d+)")
MARKS_BEFORE = 10
"""Marks that are looked at though they are done with: the last of them is an end."""
TOPIC_END = ".transaction"
"""How Debezium names the topic, after the connector's prefix."""


def check(spec: JobSpec) -> None:
    """Refuse a spec whose batches cannot be cut at transactions.

    Raises:
        UsageError, NotSupported: with what to change.
    """
    assert spec.source.type == "kafka"
    if spec.source.pattern is None and not any(map(is_marks, spec.source.topics)):
        raise UsageError(
            "batch.cut_at_transactions needs the topic with the ends of transactions",
            hint=f"add it to source.topics: the connector's prefix and {TOPIC_END}",
        )
    if spec.source.value.format != "json":
        raise NotSupported(
            f"batch.cut_at_transactions reads json, and values are in {spec.source.value.format}"
        )
    if spec.target.route is not None:
        raise NotSupported("batch.cut_at_transactions goes with one table, not with target.route")


def is_marks(topic: str) -> bool:
    """Say whether a topic holds the ends of transactions."""
    return topic.endswith(TOPIC_END)


@dataclass(slots=True)
class _Found:
    """What the records of a plan tell, in the order of their offsets.

    ``ends``: by transaction, the changes that it has in each table. ``marked``: where the topic
    of marks goes on after each. ``begun``: those that were seen to begin. ``past``: the place in
    the log up to which earlier batches have everything. ``changes``: of each partition, offset,
    place in the log, and transaction.
    """

    ends: dict[str, Mapping[str, int]] = field(default_factory=dict)
    marked: dict[str, tuple[str, int]] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    past: int = -1
    changes: dict[str, list[tuple[int, int, str | None]]] = field(default_factory=dict)
    counts: dict[tuple[str, str], int] = field(default_factory=dict)


def cut(plan: Plan, source: KafkaSource) -> Plan | None:
    """Return a plan that ends with a transaction; None while none has ended.

    Raises:
        UsageError: a transaction is larger than a batch may be.
    """
    known = source.look({}).topics
    pieces = [
        _wider(piece, known[piece.topic].partitions[piece.partition])
        if is_marks(piece.topic) and piece.topic in known
        else piece
        for piece in pieces_of(plan.offsets)
    ]
    return shortened(
        plan, read(source.bootstrap, source.options, pieces, uncommitted=source.uncommitted)
    )


def _wider(piece: Piece, marks: Watermarks) -> Piece:
    """Return what is read of the marks: some that are done with, and those that came since."""
    first = max(marks.begin, piece.start - MARKS_BEFORE)
    return replace(piece, start=min(first, piece.start), end=max(marks.end, piece.end))


def shortened(plan: Plan, records: Iterable[tuple[Piece, Sequence[Message]]]) -> Plan | None:
    """Return a plan cut where its records say that transactions end; None: nowhere yet.

    Raises:
        UsageError: a transaction is larger than a batch may be.
    """
    found = _found(plan, records)
    topics = {name.rpartition("-")[0] for name in found.changes}
    whole = _whole(found, topics)
    ends: dict[str, int] = {}
    for name, changes in found.changes.items():
        ends[name] = next(
            (offset for offset, lsn, one in changes if not _may_go(one, lsn, whole, found)),
            int(plan.offsets.ranges[name].end),
        )
    for name, part in plan.offsets.ranges.items():
        if is_marks(name.rpartition("-")[0]):
            after = [
                at for one, (held, at) in found.marked.items() if held == name and one in whole
            ]
            ends[name] = max(after, default=int(part.start or 0))
    ranges = {
        name: Range(part.start, ends.get(name, part.end))
        for name, part in plan.offsets.ranges.items()
    }
    if all(part.start == part.end for part in ranges.values()):
        if plan.more:
            raise UsageError(
                f"a transaction has more changes than the {plan.rows} of a batch",
                hint="raise batch.rows or batch.bytes, or leave cut_at_transactions out",
            )
        return None
    offsets = replace(plan.offsets, ranges=ranges, rows=None)
    rows = sum(int(part.end) - int(part.start or 0) for part in ranges.values())
    return replace(plan, offsets=offsets, rows=rows)


def _may_go(one: str | None, lsn: int, whole: set[str], found: _Found) -> bool:
    """Say whether a change may be in the batch.

    A change of a transaction that was seen neither to begin nor to end, from a place in the log
    that is done with, was delivered once more: its transaction is in an earlier batch.
    """
    if one is None or one in whole:
        return True
    return one not in found.begun and one not in found.ends and lsn <= found.past


def _whole(found: _Found, topics: Iterable[str]) -> set[str]:
    """Return the transactions that are there with all changes, up to the first that is not."""
    whole: set[str] = set()
    followed = list(topics)
    for one, tables in found.ends.items():
        for table, count in tables.items():
            fed = any(topic.endswith(f".{table}") for topic in followed)
            if fed and found.counts.get((one, table), 0) < count:
                return whole
        whole.add(one)
    return whole


def _found(plan: Plan, records: Iterable[tuple[Piece, Sequence[Message]]]) -> _Found:
    found, front = _Found(), JsonFront()
    for piece in pieces_of(plan.offsets):
        if not is_marks(piece.topic):
            found.changes[piece.name] = []
    for piece, messages in records:
        for message in messages:
            if is_marks(piece.topic):
                part = plan.offsets.ranges[piece.name]
                _mark(found, piece.name, message, front, part)
            else:
                _change(found, piece.name, message, front)
    return found


def _mark(found: _Found, name: str, message: Message, front: JsonFront, part: Range) -> None:
    payload, at = _payload(message, front), message.offset() or 0
    status, told = payload.get("status"), payload.get("id")
    if status not in {"BEGIN", "END"} or not isinstance(told, str):
        return
    one = _one(told)
    if at < int(part.start or 0):
        place = _POSTGRES.fullmatch(told)
        if status == "END" and place is not None:
            found.past = max(found.past, int(place[2]))
        return
    found.begun.add(one)
    if status == "END" and at < int(part.end):
        tables = payload.get("data_collections") or []
        counts = {str(item["data_collection"]): int(item["event_count"]) for item in tables}
        found.ends[one] = counts
        found.marked[one] = (name, at + 1)


def _change(found: _Found, name: str, message: Message, front: JsonFront) -> None:
    payload = _payload(message, front)
    about = payload.get("transaction")
    one = _one(about["id"]) if isinstance(about, dict) and "id" in about else None
    origin = payload.get("source")
    lsn = origin.get("lsn") if isinstance(origin, dict) else None
    place = lsn if isinstance(lsn, int) else sys.maxsize
    found.changes[name].append((message.offset() or 0, place, one))
    if one is not None and isinstance(origin, dict):
        table = f"{origin.get('schema') or origin.get('db')}.{origin.get('table')}"
        found.counts[(one, table)] = found.counts.get((one, table), 0) + 1


def _one(name: object) -> str:
    """Return what all marks and changes of a transaction have in common.

    For PostgreSQL its number: behind the colon stands where each mark itself lies in the log.
    """
    found = _POSTGRES.fullmatch(str(name))
    return str(name) if found is None else found[1]


def _payload(message: Message, front: JsonFront) -> dict[str, Any]:
    value = message.value()
    if value is None:
        return {}
    try:
        return front.value(value)[0]
    except Unreadable:
        # It will be a dead letter; it says nothing of transactions.
        return {}
