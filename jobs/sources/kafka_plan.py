"""The next batch of Kafka topics: a pure function of positions and of what the cluster holds.

Owns the rule that nothing is skipped and nothing is read twice: where the cluster is not what the
positions say (records expired, a topic recreated, another cluster), the plan stops and names the
choices. The same input gives the same plan. Must never reach the broker: kafka_admin asks it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jobs.sources.base import ACCEPT_GAP, NO_CHOICES, REPLAY, Choices, Gap, Limits, Plan, share
from jobs.sources.kafka_values import (
    EARLIEST,
    Cluster,
    Start,
    StartAt,
    Subscription,
    Topic,
    Watermarks,
)
from odi_audit.errors import OffsetGap, Refused, SourceChanged, UsageError
from odi_audit.ledger.port import Position
from odi_audit.model.offsets import kafka

SHOWN_MAX = 5
"""How many partitions an error names; the rest is a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One partition and what can be read of it."""

    topic: str
    number: int
    start: int
    end: int
    served: int = -1
    """Index of the ledger's entry that last moved it; -1 where none did."""
    kept: bool = False
    """In the plan also without rows, so that where it starts is written down."""
    gap: Gap | None = None
    again: bool = False
    """It has taken the place of another, and is read from its beginning."""

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.number}"


def plan(
    cluster: Cluster,
    positions: Mapping[str, Position],
    *,
    subscription: Subscription,
    start: Start = EARLIEST,
    limits: Limits | None = None,
    choices: Choices = NO_CHOICES,
    elsewhere: Sequence[str] = (),
    begun: bool = False,
    waited_s: float = float("inf"),
    row_bytes: float | None = None,
) -> Plan | None:
    """Return the next batch, or None while none is due.

    ``positions`` are the ledger's for ``cluster.source``; ``elsewhere`` are the other Kafka
    sources under which the job has positions. ``begun`` says that the job has planned before, also
    where it has found nothing yet. ``waited_s`` is how long ago the last batch was, and
    ``row_bytes`` how long rows have been lately.

    A topic that fits the pattern and appears after the job has begun is read from its beginning,
    whatever the start rule: what came before the job saw it would be lost. So is a new partition.

    Raises:
        SourceChanged: another cluster, a topic deleted or made anew, partitions or records lost.
        OffsetGap: records expired before they were read.
        UsageError: a given start offset is not there.
    """
    limits = limits or Limits()
    moved = bool(elsewhere) and not positions
    if moved and not choices.generation:
        raise _other_cluster(cluster, elsewhere)
    followed = _followed(cluster, positions, subscription)
    begun = begun or bool(positions)
    if start.at is StartAt.OFFSETS and not begun:
        _check_given(cluster, start)
    rule = EARLIEST if begun and subscription.pattern is not None else start
    found: list[_Part] = []
    news: list[str] = []
    for name in sorted(cluster.topics):
        if subscription.follows(name):
            topic, known = cluster.topics[name], followed.get(name, {})
            found.extend(_parts(topic, known, rule, choices=choices))
            if begun:
                news.extend(_news(topic, known))
    return _cut(
        cluster,
        _checked(found, choices),
        limits=limits,
        choices=choices,
        moved=moved,
        waited_s=waited_s,
        row_bytes=row_bytes,
        news=tuple(news),
    )


def behind(cluster: Cluster, positions: Mapping[str, Position]) -> dict[str, int]:
    """Return how many records each partition has behind its position, or behind its beginning."""
    found: dict[str, int] = {}
    for topic in cluster.topics.values():
        for number, marks in topic.partitions.items():
            name = f"{topic.name}-{number}"
            last = positions.get(name)
            begin = marks.begin if last is None else max(marks.begin, _offset(last))
            found[name] = max(0, marks.end - begin)
    return found


# -- what is there, against what the ledger says ---------------------------------------------------


def _followed(
    cluster: Cluster, positions: Mapping[str, Position], subscription: Subscription
) -> dict[str, dict[int, Position]]:
    """Sort positions by topic; those of topics that the job no longer follows are left out."""
    found: dict[str, dict[int, Position]] = {}
    for name, position in positions.items():
        topic, _, number = name.rpartition("-")
        if topic and number.isdigit() and subscription.follows(topic):
            found.setdefault(topic, {})[int(number)] = position
    gone = sorted(topic for topic in found if topic not in cluster.topics)
    if gone:
        raise SourceChanged(
            f"{len(gone)} of the topics that were read are not on {cluster.source} any more: "
            f"{_listed(gone)}; whether everything in them was read cannot be told",
            hint="make the topic again, or take it out of the job: source.topics, source.exclude",
            source=cluster.source,
            topics=gone[:SHOWN_MAX],
        )
    return found


def _parts(
    topic: Topic, known: Mapping[int, Position], rule: Start, *, choices: Choices
) -> list[_Part]:
    """Say for each partition of a topic where to go on, or why that cannot be said."""
    replaced = {number for number, last in known.items() if _is_other(last, topic)}
    anew = bool(known) and replaced == set(known)
    changed = sorted(replaced) if anew else sorted(replaced & set(topic.partitions))
    if changed and not choices.generation:
        raise _recreated(topic, known, changed)
    _check_not_shrunk(topic, known)
    found: list[_Part] = []
    for number, marks in sorted(topic.partitions.items()):
        last = known.get(number)
        if not known:
            found.append(_first(topic, number, marks, rule))
        elif last is not None and number not in replaced:
            found.append(_going_on(topic, number, marks, last))
        else:
            found.append(_added(topic, number, marks, anew=anew, again=number in replaced))
    return found


def _first(topic: Topic, number: int, marks: Watermarks, rule: Start) -> _Part:
    """Begin a topic that was never read: by the rule, for all of its partitions at once.

    All are written down by the first batch, also those it has no rows of: a partition that is not
    is one that was added later. Where everything begins at the earliest that can wait for rows.
    """
    holds = any(other.end > other.begin for other in topic.partitions.values())
    return _Part(
        topic=topic.name,
        number=number,
        start=_begins(topic, number, marks, rule),
        end=marks.end,
        kept=holds or rule.at is not StartAt.EARLIEST,
    )


def _added(topic: Topic, number: int, marks: Watermarks, *, anew: bool, again: bool) -> _Part:
    """Begin a partition that was added to a topic, or one of a topic that was made anew."""
    # A partition that is added begins at 0: what is missing there was never read.
    missed = marks.begin > 0 and not anew
    name = f"{topic.name}-{number}"
    return _Part(
        topic=topic.name,
        number=number,
        start=marks.begin,
        end=marks.end,
        kept=anew or again or missed,
        gap=Gap(partition=name, start=0, end=marks.begin) if missed else None,
        again=anew or again,
    )


def _going_on(topic: Topic, number: int, marks: Watermarks, last: Position) -> _Part:
    place, name = _offset(last), f"{topic.name}-{number}"
    expired = place < marks.begin
    return _Part(
        topic=topic.name,
        number=number,
        start=marks.begin if expired else place,
        end=marks.end,
        served=last.index,
        kept=expired,
        gap=Gap(partition=name, start=place, end=marks.begin) if expired else None,
    )


def _begins(topic: Topic, number: int, marks: Watermarks, start: Start) -> int:
    name = f"{topic.name}-{number}"
    match start.at:
        case StartAt.EARLIEST:
            return marks.begin
        case StartAt.LATEST:
            return marks.end
        case StartAt.TIMESTAMP:
            return min(max(start.places.get(name, marks.end), marks.begin), marks.end)
        case StartAt.OFFSETS:
            given = start.places.get(name, marks.begin)
            if not marks.begin <= given <= marks.end:
                raise UsageError(
                    f"source.start gives offset {given} for {name}, which holds "
                    f"{marks.begin} to before {marks.end}",
                    hint="give an offset that is there, or start: earliest",
                    partition=name,
                )
            return given


def _is_other(position: Position, topic: Topic) -> bool:
    return None not in (position.identity, topic.id) and position.identity != topic.id


def _offset(position: Position) -> int:
    if not isinstance(position.end, int):
        raise UsageError(
            f"batch {position.batch} left {position.partition} at {position.end!r}, "
            "which is no offset of Kafka"
        )
    return position.end


# -- what stops the job ----------------------------------------------------------------------------


def _checked(parts: Iterable[_Part], choices: Choices) -> list[_Part]:
    """Pass the parts on, unless records are missing that nobody has accepted to miss."""
    found = list(parts)
    lost = [part for part in found if part.start > part.end]
    if lost:
        raise SourceChanged(
            "records that were read are not in Kafka any more: "
            + _listed([f"{p.name}: read up to {p.start}, ends at {p.end}" for p in lost])
            + "; the partition was cut (an unclean election, a restored backup), and new records "
            "take the offsets of those that were read",
            hint="odi-audit undo the batches behind that end and run again, "
            "or read the topic under a new job name",
            partitions=[part.name for part in lost[:SHOWN_MAX]],
        )
    gaps = [part.gap for part in found if part.gap is not None]
    if gaps and choices.accept_gap is None:
        count = sum(int(gap.end) - int(gap.start) for gap in gaps)
        raise OffsetGap(
            f"up to {count} records expired before they were read: "
            + _listed([f"{g.partition}: read up to {g.start}, begins at {g.end}" for g in gaps]),
            hint='to go on behind them, for a reason that is recorded: --accept-gap "why"; '
            "to lose nothing, bring them back from where they are kept first",
            choice=ACCEPT_GAP,
            partitions=[gap.partition for gap in gaps[:SHOWN_MAX]],
        )
    return found


def _other_cluster(cluster: Cluster, elsewhere: Sequence[str]) -> Refused:
    return SourceChanged(
        f"{cluster.bootstrap} is {cluster.source} now, but the job has read from "
        f"{_listed(sorted(elsewhere))}: another cluster answers, whose offsets mean other records",
        hint="correct source.servers; to read the new cluster from the start rule on purpose: "
        "--replay 1 (or higher)",
        choice=REPLAY,
        source=cluster.source,
        elsewhere=sorted(elsewhere)[:SHOWN_MAX],
    )


def _recreated(topic: Topic, known: Mapping[int, Position], changed: Sequence[int]) -> Refused:
    last = known[changed[0]]
    return SourceChanged(
        f"topic {topic.name} was deleted and made again: its id was {last.identity} in batch "
        f"{last.batch} and is {topic.id}, so its offsets mean other records "
        f"(partitions {_listed([str(number) for number in changed])})",
        hint="to read the new topic from its beginning: --replay 1 (or higher); "
        "to keep the two apart, read it under a new job name",
        choice=REPLAY,
        topic=topic.name,
        was=last.identity,
        found=topic.id,
    )


def _check_not_shrunk(topic: Topic, known: Mapping[int, Position]) -> None:
    # Partitions of the topic that had this name before are not missed.
    missing = [number for number in sorted(known) if number not in topic.partitions]
    shrunk = [number for number in missing if not _is_other(known[number], topic)]
    if topic.id is not None and any(last.identity == topic.id for last in known.values()):
        # Positions from before topic ids were recorded belong to the topic before, too.
        shrunk = [number for number in shrunk if known[number].identity is not None]
    if shrunk:
        names = [f"{topic.name}-{number}" for number in shrunk]
        raise SourceChanged(
            f"topic {topic.name} has {len(topic.partitions)} partitions, but {_listed(names)} "
            "had been read: a topic never loses partitions, so it is not the one it was",
            hint="read it under a new job name",
            topic=topic.name,
            partitions=names[:SHOWN_MAX],
        )


def _check_given(cluster: Cluster, start: Start) -> None:
    there = {f"{t.name}-{number}" for t in cluster.topics.values() for number in t.partitions}
    strange = sorted(set(start.places) - there)
    if strange:
        raise UsageError(
            f"source.start gives offsets for partitions that are not there: {_listed(strange)}",
            hint=f"there are {_listed(sorted(there))}",
            partitions=strange[:SHOWN_MAX],
        )


# -- the batch -------------------------------------------------------------------------------------


def _cut(
    cluster: Cluster,
    parts: Sequence[_Part],
    *,
    limits: Limits,
    choices: Choices,
    moved: bool,
    waited_s: float,
    row_bytes: float | None,
    news: tuple[str, ...],
) -> Plan | None:
    backlog = {part.name: part.end - part.start for part in parts}
    total, rows_max = sum(backlog.values()), limits.rows_max(row_bytes)
    written_down = any(part.kept for part in parts)
    if not total and not written_down:
        return None
    if total < rows_max and waited_s < limits.seconds and not written_down:
        return None
    granted = share(backlog, rows_max, {part.name: part.served for part in parts})
    topics: dict[str, dict[int, tuple[int, int]]] = {}
    for part in parts:
        if part.kept or granted[part.name]:
            stop = part.start + granted[part.name]
            topics.setdefault(part.topic, {})[part.number] = (part.start, stop)
    gaps = tuple(part.gap for part in parts if part.gap is not None)
    taken = sum(granted.values())
    return Plan(
        offsets=kafka(
            topics,
            bootstrap=cluster.bootstrap,
            cluster_id=cluster.id,
            topic_ids={name: i for name in topics if (i := cluster.topics[name].id) is not None},
        ),
        rows=taken,
        more=taken < total,
        accept_gap=choices.accept_gap if gaps else None,
        generation=choices.generation if moved or any(part.again for part in parts) else 0,
        gaps=gaps,
        news=news,
    )


def _news(topic: Topic, known: Mapping[int, Position]) -> list[str]:
    if not known:
        return [f"topic {topic.name} is new, with {len(topic.partitions)} partitions"]
    new = [f"{topic.name}-{number}" for number in sorted(topic.partitions) if number not in known]
    return [f"topic {topic.name} has new partitions: {_listed(new)}"] if new else []


def _listed(items: Sequence[str]) -> str:
    more = f" and {len(items) - SHOWN_MAX} more" if len(items) > SHOWN_MAX else ""
    return ", ".join(items[:SHOWN_MAX]) + more
