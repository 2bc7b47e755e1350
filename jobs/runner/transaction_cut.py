"""Where a batch of change events may end: a pure function of what its records say.

Owns the judgement which transactions are in a plan with all their changes, over all topics that a
connector fills (docs/adr/0024). Must never read a record, and never let a transaction go in part:
where that cannot be told it waits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from jobs.runner.transaction_flow import (
    BEGIN,
    END,
    UNREADABLE,
    Flow,
    Mark,
    Place,
    Run,
    in_a_topic,
)

SETTLE_MS = 60_000
"""What rests on a guess is done only this long after the record in question came: a change may
still be on its way while the end of its transaction is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacking:
    """What the first transaction waits for that is not there."""

    transaction: str
    table: str
    there: int
    wanted: int
    millis: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Where a flow may end: by partition, marks included.

    ``is_large`` says that a transaction is there as a whole, and is too large for a batch.
    """

    ends: Mapping[str, int]
    lacking: Lacking | None = None
    is_large: bool = False


def cut(flow: Flow, *, now_ms: int, rows: Callable[[Mapping[str, int]], bool]) -> Cut:
    """Return the last place at which nothing of a transaction is left behind.

    ``rows`` says whether a batch that ends so is small enough.
    """
    judge = _Judge(flow, now_ms)
    whole = judge.reached(list(judge.whole()))
    fitting, too_many = 0, len(whole) + 1
    while too_many - fitting > 1:
        count = (fitting + too_many) // 2 if too_many <= len(whole) else len(whole)
        if rows(judge.ends(judge.reached(whole[:count]))):
            fitting = count
        else:
            too_many = count
    taken = judge.reached(whole[:fitting])
    large = bool(whole) and not taken
    return Cut(ends=judge.ends(taken), lacking=judge.lacking, is_large=large)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    """An end of a transaction in the plan. ``waits``: its changes are to be counted.

    ``known`` is False where the mark itself cannot be read.
    """

    mark: Mark
    one: str
    waits: bool
    known: bool = True


class _Judge:
    """Judges one flow."""

    def __init__(self, flow: Flow, now_ms: int) -> None:
        self._flow = flow
        self._now_ms = now_ms
        self._done: set[str] = set()
        """Transactions that ended before the plan."""
        self._past: dict[str, int] = {}
        """How far, on each line, transactions had ended before the plan."""
        for mark in flow.marks:
            if mark.status != END:
                continue
            if mark.at >= flow.start:
                # Ends come in the order of the log: this one did, further back than was read.
                if self._is_past(mark.place):
                    self._done.add(mark.one)
                continue
            self._done.add(mark.one)
            if mark.place is not None:
                line, place = mark.place
                self._past[line] = max(place, self._past.get(line, 0))
        self._told = {mark.one for mark in flow.marks if mark.at >= flow.start}
        """Transactions that have a mark in the plan, or behind it."""
        self._ends_told = {
            mark.one for mark in flow.marks if mark.at >= flow.start and mark.status == END
        }
        self._ended = list(self._ends_in_order())
        self._order: dict[str, float] = {}
        for number, end in enumerate(self._ended):
            self._order.setdefault(end.one, number)
        self._taken: dict[tuple[str, int], str] = {}
        """Records that cannot be read and that were taken for a change of a transaction."""
        self._fed: dict[str, Collection[str] | None] = {}
        self.lacking: Lacking | None = None

    # -- which transactions are whole ----------------------------------------------------------

    def whole(self) -> Iterator[_Ended]:
        """Yield the transactions that are there with all changes, up to the first that is not."""
        for end in self._ended:
            if not self._is_whole(end):
                return
            yield end

    def _ends_in_order(self) -> Iterator[_Ended]:
        """Yield the ends that lie in the plan: marks of transactions follow one another."""
        flow = self._flow
        begun: set[str] = set()
        open_one, blind = "", False
        for mark in flow.marks:
            if not flow.start <= mark.at < flow.end:
                continue
            if mark.status == BEGIN:
                begun.add(mark.one)
                open_one = mark.one
            elif mark.status == END:
                # One that was not seen to begin has its other part before the place where the job
                # began, or is the second end of one whose first is in an earlier batch.
                waits = mark.one not in self._done and (blind or mark.one in begun)
                yield _Ended(mark=mark, one=mark.one, waits=waits)
                open_one, blind = "", False
            elif open_one and open_one not in self._ends_told:
                yield _Ended(mark=mark, one=open_one, waits=True, known=False)
                open_one = ""
            else:
                blind = True  # it may have been a begin

    def _is_whole(self, end: _Ended) -> bool:
        if not end.waits:
            return True
        if not end.known:
            # How many changes it has is not known: it is over once another has begun.
            over = any(m.status is not None and m.at > end.mark.at for m in self._flow.marks)
            return over and self._is_through(end, self._flow.topics)
        for table, count in end.mark.tables.items():
            topics = self._topics_of(table)
            if topics is None:
                continue
            there = len(self._flow.seen.get((end.one, table), ()))
            if there >= count or self._nothing_more(end, topics):
                continue
            if self._take_unreadable(end, topics, count - there):
                continue
            self.lacking = Lacking(
                transaction=end.one,
                table=table,
                there=there,
                wanted=count,
                millis=end.mark.millis,
            )
            return False
        return True

    def _topics_of(self, table: str) -> Collection[str] | None:
        """Return the topics of a table; none: not there yet. None: the job does not follow it."""
        if table not in self._fed:
            flow, name = self._flow, in_a_topic(table)
            own = f"{flow.prefix}.{name}"
            found = flow.fed.get(table, set()) | ({own} & flow.topics.keys())
            if not found:
                found = {topic for topic in flow.topics if topic.endswith(f".{name}")}
            self._fed[table] = found if found or flow.follows(own) else None
        return self._fed[table]

    def _nothing_more(self, end: _Ended, topics: Collection[str]) -> bool:
        """Say whether in every partition something of a later transaction is there.

        A connector writes to a partition in the order of the log: what is missing before that
        does not come any more.
        """
        names = self._partitions(topics)
        return bool(names) and all(self._goes_on(end, name) for name in names)

    def _is_through(self, end: _Ended, topics: Collection[str]) -> bool:
        """Say whether nothing more is to be expected, as far as that can be told."""
        behind = self._flow.behind
        return self._is_settled(end.mark.millis) and all(
            name not in behind or self._goes_on(end, name) for name in self._partitions(topics)
        )

    def _goes_on(self, end: _Ended, name: str) -> bool:
        """Say whether a partition has something of a later transaction."""
        mine = self._order[end.one]
        return any(run.one and self._order_of(run) > mine for run in self._flow.runs.get(name, ()))

    def _partitions(self, topics: Collection[str]) -> list[str]:
        held = self._flow.topics
        return [f"{topic}-{number}" for topic in topics for number in held.get(topic, ())]

    def _order_of(self, run: Run) -> float:
        assert run.one
        if run.one in self._done:
            return -1
        if run.one in self._order:
            return self._order[run.one]
        # A place that is done with proves nothing: a long transaction begins before others end,
        # and what is delivered again has its marks behind it. Nothing compares with that.
        unsure = run.one not in self._told and self._is_past(run.place)
        return math.nan if unsure else math.inf

    def _take_unreadable(self, end: _Ended, topics: Collection[str], count: int) -> bool:
        """Take records that cannot be read for the missing changes, where they can be those."""
        if not self._is_through(end, topics):
            return False
        mine = self._order[end.one]
        found: list[tuple[float, str, int]] = []
        for name, runs in self._flow.runs.items():
            if name.rpartition("-")[0] not in topics:
                continue
            before, waiting = -1.0, list[int]()
            for run in runs:
                if run.one == UNREADABLE and (name, run.first) not in self._taken:
                    waiting.append(run.first)
                elif run.one:
                    order = self._order_of(run)
                    if before <= mine <= order:
                        found += [(order, name, first) for first in waiting]
                    before, waiting = order, []
            if before <= mine:
                found += [(math.inf, name, first) for first in waiting]
        # First those that can be of the fewest others.
        taken = sorted(found)[:count]
        if len(taken) == count:
            self._taken |= {(name, first): end.one for _, name, first in taken}
        return len(taken) == count

    # -- where the batch ends ------------------------------------------------------------------

    def reached(self, whole: list[_Ended]) -> list[_Ended]:
        """Return those that a batch with no others holds in full.

        What is delivered again may lie behind something that must wait.
        """
        while True:
            ends = self.ends(whole)
            cut_off = next((n for n, end in enumerate(whole) if self._is_cut(end, ends)), None)
            if cut_off is None:
                return whole
            whole = whole[:cut_off]

    def _is_cut(self, end: _Ended, ends: Mapping[str, int]) -> bool:
        places = self._flow.last.get(end.one, {}) if end.waits else {}
        return any(ends[name] <= offset for name, offset in places.items())

    def ends(self, whole: Collection[_Ended]) -> dict[str, int]:
        """Return where each partition ends, if these transactions are in the batch."""
        gone = {end.one for end in whole}
        flow = self._flow
        made = {name: self._end(name, runs, gone) for name, runs in flow.runs.items()}
        if flow.name is not None:
            made[flow.name] = max((end.mark.at + 1 for end in whole), default=flow.start)
        return made

    def _end(self, name: str, runs: list[Run], gone: Collection[str]) -> int:
        held: Run | None = None
        last: Run | None = None
        top = -1.0
        for run in runs:
            one = run.one
            if one == UNREADABLE:
                one = self._taken.get((name, run.first), UNREADABLE)
                if one == UNREADABLE:
                    # It may be a change of the transaction that comes next, and goes with it.
                    held, last = held or run, run
                    continue
            if one is None or one in self._done:
                continue
            if one not in gone:
                return (held or run).first
            if self._order[one] >= top:  # else it is delivered again, and tells of nothing before
                held, top = None, self._order[one]
        if held is not None and last is not None and self._may_have_owner(name, last, gone):
            return held.first
        return self._flow.ends[name]

    def _may_have_owner(self, name: str, run: Run, gone: Collection[str]) -> bool:
        """Say whether a record that cannot be read may be of a transaction that is to come."""
        if not self._is_settled(run.millis):
            return True
        topic = name.rpartition("-")[0]
        for mark in self._flow.marks:
            if mark.at < self._flow.start or mark.one in gone or mark.one in self._done:
                continue
            if mark.status == END and any(
                topic in (self._topics_of(table) or ()) for table in mark.tables
            ):
                return True
            near = (mark.millis or 0) <= (run.millis or 0) + SETTLE_MS
            if mark.status == BEGIN and near and mark.one not in self._ends_told:
                return True
        return False

    def _is_past(self, place: Place | None) -> bool:
        return place is not None and place[1] <= self._past.get(place[0], -1)

    def _is_settled(self, millis: int | None) -> bool:
        return millis is None or self._now_ms - millis >= SETTLE_MS
