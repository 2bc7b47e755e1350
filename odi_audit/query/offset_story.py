"""The reading of sources, told in the order of the ledger: what each landed batch continued.

Owns the judgement of one batch after another, and of what was undone since. The order of places
is the committer's (docs/adr/0007). Must never read the ledger: entries come in one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypedDict, cast

from odi_audit.canonical import JsonObject
from odi_audit.ids import BatchId, JobName, TableUuid
from odi_audit.model.entries import Entry
from odi_audit.model.offsets import OffsetKind, Place
from odi_audit.model.shares import Follows
from odi_audit.query import facts
from odi_audit.query.offset_cover import Cover, Point
from odi_audit.query.offset_events import (
    Continuity,
    Event,
    EventKind,
    PartitionLine,
    SourceLine,
    Standing,
)

_SET_LIKE = frozenset({OffsetKind.FILES, OffsetKind.ONCE})
"""Kinds whose partitions are things read once, not places in a line."""
_KINDS = {kind.value: kind for kind in OffsetKind}


class _Where(TypedDict):
    """The fields of an event that say which partition it is about."""

    job: JobName
    table: str
    table_uuid: TableUuid
    source: str
    partition: str


# -- the story -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stand:
    """What one landed batch left of a partition."""

    start: Place | None
    end: Place
    identity: str | None
    batch: BatchId
    index: int


@dataclass(slots=True)
class _Part:
    """One partition under way: the stands that may still be undone, over one that will not be."""

    first: Place | None
    stands: list[_Stand] = field(default_factory=list)
    batches_count: int = 0
    cover: Cover = field(default_factory=Cover)


@dataclass(slots=True, kw_only=True)
class _Line:
    """One (job, table, source) under way."""

    job: JobName
    table: str
    table_uuid: TableUuid
    source: str
    kind: OffsetKind
    parts: dict[str, _Part] = field(default_factory=dict)
    batches_count: int = 0


@dataclass(slots=True, kw_only=True)
class Story:
    """What has been told so far."""

    later: Mapping[tuple[str, TableUuid], int]
    lines: dict[tuple[JobName, TableUuid, str], _Line] = field(default_factory=dict)
    accepted: dict[tuple[int | None, TableUuid | None], Entry] = field(default_factory=dict)
    replays: set[int | None] = field(default_factory=set)
    events: list[Event] = field(default_factory=list)
    doomed: dict[tuple[str, TableUuid], list[tuple[_Line, str, _Stand]]] = field(
        default_factory=dict
    )
    """What has landed, and will be undone further on."""
    undone: list[tuple[_Line, str, _Stand, Entry]] = field(default_factory=list)
    jobs: dict[tuple[JobName, str, str], Cover] = field(default_factory=dict)
    """What each job has brought of a partition, whichever tables got it."""
    passed_over: set[int] = field(default_factory=set)
    """Entries of tables that get only some of their job's rows."""
    unreadable_count: int = 0

    def land(self, entry: Entry) -> None:
        """Take in what a landed batch read."""
        offsets = facts.obj(entry.facts, "offsets")
        if offsets is None or entry.job is None or entry.table is None or entry.batch is None:
            return
        kind = _kind(offsets)
        ranges = facts.obj(offsets, "ranges")
        if ranges is None or kind is None:
            self.unreadable_count += 1
            return
        if kind is OffsetKind.TABLE:
            return  # work of the table on itself: nothing was read
        source = str(offsets.get("source"))
        key = (entry.job, entry.table.uuid, source)
        line = self.lines.get(key)
        if line is None:
            line = self.lines[key] = _Line(
                job=entry.job,
                table=entry.table.name,
                table_uuid=entry.table.uuid,
                source=source,
                kind=kind,
            )
        follows = facts.text(entry.facts, "follows") or Follows.TABLE
        if follows != Follows.TABLE:
            self.passed_over.add(entry.index)
        line.table, line.batches_count = entry.table.name, line.batches_count + 1
        identity = facts.obj(offsets, "identity") or {}
        for partition, pair in ranges.items():
            start, end = cast("Sequence[Place]", pair)
            stand = _Stand(
                start=start,
                end=end,
                identity=facts.text(identity, partition),
                batch=entry.batch,
                index=entry.index,
            )
            self._stand(line, partition, stand, entry)

    def jobs_over_many_tables(self) -> set[JobName]:
        """Return the jobs of which some table gets only some rows."""
        return {event.job for event in self.events if event.entry in self.passed_over}

    def brought(self, entry: Entry) -> None:
        """Take in what a job brought to any table, where only one table's entries were told."""
        offsets = facts.obj(entry.facts, "offsets") or {}
        ranges = facts.obj(offsets, "ranges") or {}
        if entry.job is None or _kind(offsets) in {None, *_SET_LIKE}:
            return
        for partition, pair in ranges.items():
            start, end = cast("Sequence[Place]", pair)
            key = (entry.job, str(offsets.get("source")), partition)
            self.jobs.setdefault(key, Cover()).add(Point(start), Point(end))

    def _stand(self, line: _Line, partition: str, stand: _Stand, entry: Entry) -> None:
        part = line.parts.get(partition)
        if part is None:
            part = line.parts[partition] = _Part(first=stand.start)
        part.batches_count += 1
        last = part.stands[-1] if part.stands else None
        event = self._compare(line, partition, last, stand, entry)
        if event is not None:
            self.events.append(event)
        taken = self.later.get((stand.batch, line.table_uuid), -1) > stand.index
        if taken:
            doomed = self.doomed.setdefault((stand.batch, line.table_uuid), [])
            doomed.append((line, partition, stand))
        if entry.facts.get("moves_position") is not False:
            # Below one that stays, nothing is ever looked at again.
            part.stands = [*part.stands, stand] if taken else [stand]
        if not taken and line.kind not in _SET_LIKE:
            span = (Point(stand.start), Point(stand.end))
            part.cover.add(*span)
            self.jobs.setdefault((line.job, line.source, partition), Cover()).add(*span)

    def _compare(
        self, line: _Line, partition: str, last: _Stand | None, stand: _Stand, entry: Entry
    ) -> Event | None:
        replay = entry.intent in self.replays or bool(facts.number(entry.facts, "generation"))
        kind, start, end = _judged(line.kind, last, stand)
        if kind is None and not replay:
            return None
        standing, reason = Standing.OPEN, None
        if kind is EventKind.GAP:
            agreed = self.accepted.get((entry.intent, line.table_uuid))
            if agreed is not None:
                standing, reason = Standing.ACCEPTED, facts.text(agreed.facts, "reason")
        elif replay:
            standing = Standing.RECORDED
            kind = EventKind.CHANGED if kind is EventKind.CHANGED else EventKind.REPLAY
        return Event(
            kind=kind or EventKind.REPLAY,
            standing=standing,
            **_place(line, partition),
            start=start,
            end=end,
            before=None if last is None else last.batch,
            after=stand.batch,
            entry=entry.index,
            time=entry.time,
            principal=facts.text(entry.facts, "principal"),
            reason=reason,
        )

    def undo(self, entry: Entry) -> None:
        """Take batches out again: positions go back to what is left below."""
        if entry.table is None:
            return
        gone = facts.texts(entry.facts, "undone")
        touched: dict[tuple[int, str], tuple[_Line, str]] = {}
        for batch in gone:
            for line, partition, stand in self.doomed.get((batch, entry.table.uuid), ()):
                if stand.index < entry.index:
                    self.undone.append((line, partition, stand, entry))
                    touched[id(line), partition] = (line, partition)
        for line, partition in touched.values():
            part = line.parts[partition]
            top = part.stands[-1] if part.stands else None
            part.stands = [stand for stand in part.stands if stand.batch not in gone]
            if top is not None and top.batch in gone and line.kind not in _SET_LIKE:
                self.events.append(_rewind(line, partition, part, top, entry))

    def told(self) -> Continuity:
        """Return the answer, with what was filled since marked as such."""
        holes = [hole for item in self.undone for hole in self._hole(*item)]
        judged = [event for event in self.events if not self._is_elsewhere(event)]
        events = [self._filled(event) for event in judged] + holes
        lines = sorted(self.lines.values(), key=lambda line: (line.table, line.job, line.source))
        return Continuity(
            lines=tuple(map(_shown, lines)),
            events=tuple(sorted(events, key=lambda event: event.entry)),
            unreadable_count=self.unreadable_count,
        )

    def _is_elsewhere(self, event: Event) -> bool:
        """Say whether what a table seems to miss is what its job brought to other tables only."""
        if event.kind is not EventKind.GAP or event.entry not in self.passed_over:
            return False
        brought = self.jobs.get((event.job, event.source, event.partition))
        return brought is not None and brought.holds(Point(event.start), Point(event.end))

    def _filled(self, event: Event) -> Event:
        if event.kind is not EventKind.GAP:
            return event
        part = self.lines[event.job, event.table_uuid, event.source].parts[event.partition]
        if not part.cover.holds(Point(event.start), Point(event.end)):
            return event
        filling = next((other for other in self.events if _fills(other, event)), None)
        return replace(
            event,
            standing=Standing.FILLED,
            filled_by=None if filling is None else filling.after,
        )

    def _hole(self, line: _Line, partition: str, stand: _Stand, entry: Entry) -> Iterator[Event]:
        """Say that an undone part is missing, if the job has gone on beyond it without it."""
        part = line.parts[partition]
        if line.kind in _SET_LIKE or not part.stands:
            return
        beyond = Point(stand.end) <= Point(part.stands[-1].end)
        if beyond and not part.cover.holds(Point(stand.start), Point(stand.end)):
            yield Event(
                kind=EventKind.GAP,
                standing=Standing.OPEN,
                **_place(line, partition),
                start=stand.start,
                end=stand.end,
                before=stand.batch,
                after=part.stands[-1].batch,
                entry=entry.index,
                time=entry.time,
                principal=facts.text(entry.facts, "principal"),
                reason=f"batch {stand.batch} was taken out by entry {entry.index}, "
                "and its part was not read again",
            )


def _judged(
    kind: OffsetKind, last: _Stand | None, stand: _Stand
) -> tuple[EventKind | None, Place | None, Place]:
    """Compare a batch with the one before it; return the break and the part in question."""
    if last is None:
        return None, stand.start, stand.end
    if kind is OffsetKind.FILES and stand.end != last.end:
        return EventKind.CHANGED, last.end, stand.end
    if kind in _SET_LIKE:
        return EventKind.OVERLAP, None, stand.end
    if stand.identity is not None and last.identity not in {None, stand.identity}:
        return EventKind.CHANGED, stand.start, stand.end
    if stand.start == last.end:
        return None, stand.start, stand.end
    if Point(last.end) < Point(stand.start):
        assert stand.start is not None
        return EventKind.GAP, last.end, stand.start
    if Point(stand.end) < Point(last.end):
        return EventKind.REWIND, stand.start, stand.end
    return EventKind.OVERLAP, stand.start, last.end


def _rewind(line: _Line, partition: str, part: _Part, top: _Stand, entry: Entry) -> Event:
    left = part.stands[-1] if part.stands else None
    return Event(
        kind=EventKind.REWIND,
        standing=Standing.RECORDED,
        **_place(line, partition),
        start=part.first if left is None else left.end,
        end=top.end,
        before=None if left is None else left.batch,
        after=top.batch,
        entry=entry.index,
        time=entry.time,
        principal=facts.text(entry.facts, "principal"),
        reason=f"{entry.kind.value} recorded by entry {entry.index}",
    )


def _fills(event: Event, gap: Event) -> bool:
    same = (event.job, event.table_uuid, event.source, event.partition) == (
        gap.job,
        gap.table_uuid,
        gap.source,
        gap.partition,
    )
    return (
        same
        and event.entry > gap.entry
        and event.kind in {EventKind.REPLAY, EventKind.OVERLAP, EventKind.REWIND}
        and Point(event.start) < Point(gap.end)
        and Point(gap.start) < Point(event.end)
    )


def _place(line: _Line, partition: str) -> _Where:
    return {
        "job": line.job,
        "table": line.table,
        "table_uuid": line.table_uuid,
        "source": line.source,
        "partition": partition,
    }


def _shown(line: _Line) -> SourceLine:
    parts = {} if line.kind in _SET_LIKE else line.parts
    return SourceLine(
        job=line.job,
        table=line.table,
        table_uuid=line.table_uuid,
        source=line.source,
        kind=line.kind,
        partitions_count=len(line.parts),
        batches_count=line.batches_count,
        partitions=tuple(
            PartitionLine(
                partition=name,
                first=part.first,
                last=part.stands[-1].end if part.stands else None,
                batches_count=part.batches_count,
                last_batch=part.stands[-1].batch if part.stands else None,
            )
            for name, part in sorted(parts.items())
        ),
    )


def _kind(offsets: JsonObject) -> OffsetKind | None:
    return _KINDS.get(str(offsets.get("kind")))  # none for a later version's kind
