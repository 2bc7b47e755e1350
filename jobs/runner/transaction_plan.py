"""A plan over change events, cut where its records say that transactions end.

Owns the way from records to what each connector tells, and from a cut back to a plan: which ranges
it keeps. Must never decide whether a transaction is whole: that is ``transaction_cut``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from jobs.arrow_path import pieces_of
from jobs.runner.transaction_cut import Cut, Lacking, cut
from jobs.runner.transaction_flow import (
    BEGIN,
    END,
    TOPIC_END,
    UNREADABLE,
    Flow,
    Mark,
    name_of,
    place_of,
)
from odi_audit.model.offsets import Range

if TYPE_CHECKING:
    from confluent_kafka import Message

    from jobs.formats.debezium_transactions import Tell, Told
    from jobs.sources.base import Plan
    from jobs.sources.kafka_read import Piece


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What is known beside the records: the topics that are followed, those of marks among them.

    ``starts`` are the places up to which earlier batches have the marks, ``behind`` the partitions
    that have more than is in the plan.
    """

    topics: Mapping[str, Sequence[int]]
    marks: frozenset[str]
    starts: Mapping[str, int] = field(default_factory=dict)
    behind: Collection[str] = ()
    follows: Callable[[str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortened:
    """A plan that ends with a transaction; None: none has ended, or the first is too large.

    ``lacking`` is what the first one waits for.
    """

    plan: Plan | None
    lacking: Lacking | None = None
    is_large: bool = False


def shortened(
    plan: Plan,
    records: Iterable[tuple[Piece, Sequence[Message]]],
    *,
    tell: Tell,
    around: Around,
    now_ms: int,
    rows_max: int | None = None,
) -> Shortened:
    """Return a plan cut where its records say that transactions end."""
    flows = _flows(plan, around)
    for piece, messages in records:
        flow = flows[_connector(piece.topic, around.marks)]
        told = tell([message.value() for message in messages])
        take = _marks if piece.topic in around.marks else _changes
        take(flow, piece, messages, told)
    ends: dict[str, int] = {}
    lacking: Lacking | None = None
    is_large = False
    for flow in flows.values():
        made = _cut_within(flow, plan, now_ms, _rows(plan, ends), rows_max)
        ends |= made.ends
        lacking = lacking or made.lacking
        is_large |= made.is_large
    return Shortened(plan=_ending(plan, ends), lacking=lacking, is_large=is_large)


def _flows(plan: Plan, around: Around) -> dict[str | None, Flow]:
    """Return what each connector wrote, still without records; those of None have no marks yet."""
    flows: dict[str | None, Flow] = {}
    planned: dict[str, list[int]] = {}
    for piece in pieces_of(plan.offsets):
        planned.setdefault(piece.topic, []).append(piece.partition)
    for topic, partitions in {**planned, **around.topics}.items():
        connector = _connector(topic, around.marks)
        if connector not in flows:
            prefix = (connector or "").removesuffix(TOPIC_END)
            flows[connector] = Flow(
                prefix=prefix, topics={}, follows=around.follows, behind=around.behind
            )
        if connector != topic:
            flows[connector].topics[topic] = partitions
    for connector, start in around.starts.items():
        flows[connector].start = flows[connector].end = start
    for piece in pieces_of(plan.offsets):
        flow = flows[_connector(piece.topic, around.marks)]
        if piece.topic in around.marks:
            flow.name, flow.start, flow.end = piece.name, piece.start, piece.end
        else:
            flow.runs[piece.name] = []
            flow.ends[piece.name] = piece.end
    return flows


def _connector(topic: str, marks: frozenset[str]) -> str | None:
    """Return the topic of marks that belongs to a topic: that with the same prefix, or the only."""
    fits = [name for name in marks if topic.startswith(name.removesuffix(TOPIC_END) + ".")]
    if not fits and len(marks) == 1:
        return next(iter(marks))
    return max(fits, key=len, default=None)


def _marks(flow: Flow, _: Piece, messages: Sequence[Message], told: Sequence[Told | None]) -> None:
    for message, one in zip(messages, told, strict=True):
        at, millis = message.offset() or 0, _millis(message)
        if one is None:
            flow.marks.append(Mark(at=at, millis=millis))
        elif one.status in {BEGIN, END} and one.id is not None:
            counts = {item.data_collection: item.event_count for item in one.data_collections or ()}
            flow.marks.append(
                Mark(
                    at=at,
                    status=one.status,
                    one=name_of(one.id),
                    place=place_of(one.id),
                    tables=counts,
                    millis=millis,
                )
            )


def _changes(
    flow: Flow, piece: Piece, messages: Sequence[Message], told: Sequence[Told | None]
) -> None:
    name, take = piece.name, flow.change
    for message, one in zip(messages, told, strict=True):
        offset = message.offset() or 0
        if one is None:
            take(name, offset, one=UNREADABLE, millis=_millis(message))
            continue
        about, origin = one.transaction, one.source
        if about is None or about.id is None or origin is None:
            take(name, offset, one=None)
            continue
        number, lsn = about.data_collection_order, origin.lsn
        take(
            name,
            offset,
            one=name_of(about.id),
            table=f"{origin.schema or origin.db}.{origin.table}",
            number=number if type(number) is int else None,
            place=("lsn", lsn) if type(lsn) is int else place_of(about.id),
            millis=_millis(message),
        )


def _millis(message: Message) -> int | None:
    kind, when = message.timestamp()
    return when if kind else None


def _cut_within(flow: Flow, plan: Plan, now_ms: int, taken: int, rows_max: int | None) -> Cut:
    if rows_max is None:
        return cut(flow, now_ms=now_ms, rows=lambda _: True)
    left = rows_max - taken
    made = cut(flow, now_ms=now_ms, rows=lambda ends: _rows(plan, ends) <= left)
    if _rows(plan, made.ends) <= left:
        return made
    # No transaction is in it: what a snapshot read, what was delivered again. It may end anywhere.
    ends: dict[str, int] = {}
    for name, end in made.ends.items():
        start = int(plan.offsets.ranges[name].start or 0)
        ends[name] = min(end, start + left)
        left -= ends[name] - start
    return replace(made, ends=ends)


def _rows(plan: Plan, ends: Mapping[str, int]) -> int:
    return sum(end - int(plan.offsets.ranges[name].start or 0) for name, end in ends.items())


def _ending(plan: Plan, ends: Mapping[str, int]) -> Plan | None:
    """Return a plan that ends so, without the topics that it has nothing of any more."""
    ranges = {
        name: Range(part.start, ends.get(name, part.end))
        for name, part in plan.offsets.ranges.items()
    }
    # All partitions of a topic, or none: one that is missing would be taken for a new one. A range
    # that was empty before is there to be written down.
    kept = {gap.partition.rpartition("-")[0] for gap in plan.gaps}
    empty: dict[str, bool] = {}
    for name, part in plan.offsets.ranges.items():
        topic = name.rpartition("-")[0]
        empty[topic] = empty.get(topic, True) and part.start == part.end
        if ranges[name].start != ranges[name].end:
            kept.add(topic)
    if not kept:
        return None
    kept |= {topic for topic, was_empty in empty.items() if was_empty}
    offsets = plan.offsets.only(name for name in ranges if name.rpartition("-")[0] in kept)
    ranges = {name: ranges[name] for name in offsets.ranges}
    rows = sum(int(part.end) - int(part.start or 0) for part in ranges.values())
    return replace(plan, offsets=replace(offsets, ranges=ranges, rows=None), rows=rows)
