"""The events that are on their way: per run strictly in order, runs beside each other.

Owns the queues in memory, and which step of a source is settled as a whole. Pure: it is told the
time and never sends or stores. Must never give out an event before the earlier ones of its run are
settled, and must never hold more than its limits.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from lineage.relay.sources import Item, Step
from odi_audit.checks import must
from odi_audit.ids import RunId

ITEMS_MAX = 1_000
"""Events in memory: enough that runs which wait do not hold the others."""
BYTES_MAX = 64 * 1024 * 1024
"""An event has at most 256 KB, so a thousand of them would be four times this."""


class Way(StrEnum):
    """Why an event is sent."""

    STREAM = "stream"
    LETTER = "letter"
    """It was parked, and somebody asked for another try."""
    ECHO = "echo"
    """It was sent and ended its run; it is said once more, for an earlier one may come late."""


@dataclass(slots=True, kw_only=True, eq=False)
class Work:
    """An event on its way, and how it fared so far."""

    item: Item
    way: Way
    step: _Open | None = None
    tries: int = 0
    suspect_in_row: int = 0
    unheard_in_row: int = 0
    failing_since: float | None = None
    seen_before: tuple[int, int] = (0, 0)
    """What others had met with by then: events taken, and failures."""
    first_at: str | None = None
    in_flight: bool = False
    cancelled: bool = False
    """Not to be sent after all: dropped, or overtaken by a later end of its run."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Open:
    """A step of a source with events that are not settled yet."""

    after: str
    keys: tuple[str, ...]
    left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """Settled steps at the front: the position after them, and the keys of their events."""

    after: str
    keys: tuple[str, ...]
    steps: int


@dataclass(slots=True)
class Window:
    """Queues of runs, and the open steps of each source."""

    _queues: dict[RunId, deque[Work]] = field(default_factory=dict)
    _ready: deque[RunId] = field(default_factory=deque)
    _waiting: list[tuple[float, int, RunId]] = field(default_factory=list)
    _steps: dict[str, deque[_Open]] = field(default_factory=dict)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    items: int = 0
    size_bytes: int = 0
    in_flight: int = 0

    @property
    def has_room(self) -> bool:
        """Whether more may be read."""
        return self.items < ITEMS_MAX and self.size_bytes < BYTES_MAX

    @property
    def is_empty(self) -> bool:
        """Whether nothing is on its way, and no step is open."""
        return not self._queues and not any(self._steps.values())

    def add_step(self, source: str, step: Step, *, settled: Callable[[str], bool]) -> list[Work]:
        """Take a step; returns the events of it that are not settled, now queued."""
        fresh = [item for item in step.items if not settled(item.key)]
        opened = _Open(
            after=step.after, keys=tuple(item.key for item in step.items), left=len(fresh)
        )
        self._steps.setdefault(source, deque()).append(opened)
        works = [Work(item=item, way=Way.STREAM, step=opened) for item in fresh]
        for work in works:
            self.add(work)
        return works

    def has(self, run: RunId) -> bool:
        """Say whether an event of a run is on its way."""
        return run in self._queues

    def works(self) -> Iterator[Work]:
        """Yield everything that is on its way."""
        return itertools.chain.from_iterable(self._queues.values())

    def add(self, work: Work) -> None:
        """Queue an event behind the others of its run."""
        run = work.item.run
        queue = self._queues.get(run)
        if queue is None:
            queue = self._queues[run] = deque()
            self._ready.append(run)
        queue.append(work)
        self.items += 1
        self.size_bytes += len(work.item.body)

    def take(self, now: float, most: int) -> list[Work]:
        """Give out the first events of up to ``most`` runs whose time has come."""
        while self._waiting and self._waiting[0][0] <= now:
            self._ready.append(heapq.heappop(self._waiting)[2])
        taken: list[Work] = []
        while self._ready and len(taken) < most:
            work = self._queues[self._ready.popleft()][0]
            must(not work.in_flight, "an event is sent once at a time", key=work.item.key)
            work.in_flight = True
            taken.append(work)
        self.in_flight += len(taken)
        return taken

    def settle(self, work: Work) -> None:
        """Say that an event needs no more sending; the next of its run may go."""
        run = work.item.run
        queue = self._queues[run]
        must(queue[0] is work, "events of a run are settled in order", key=work.item.key)
        queue.popleft()
        self._forget(work)
        if queue:
            self._ready.append(run)
        else:
            del self._queues[run]

    def again(self, work: Work, at: float) -> None:
        """Have an event wait until a moment, and its run with it."""
        work.in_flight = False
        self.in_flight -= 1
        heapq.heappush(self._waiting, (at, next(self._numbers), work.item.run))

    def behind(self, work: Work) -> list[Work]:
        """Take out what is queued behind an event: it will not be sent now."""
        queue = self._queues[work.item.run]
        must(queue[0] is work, "an event is refused when it is its run's first", key=work.item.key)
        rest = list(queue)[1:]
        del self._queues[work.item.run]
        self._queues[work.item.run] = deque([work])
        for later in rest:
            self._forget(later)
        return rest

    def passed(self, source: str) -> Passed | None:
        """Take the settled steps off the front of a source; None if the first is still open."""
        steps = self._steps.get(source)
        keys: list[str] = []
        after: str | None = None
        count = 0
        while steps and not steps[0].left:
            first = steps.popleft()
            after = first.after
            keys += first.keys
            count += 1
        return None if after is None else Passed(after=after, keys=tuple(keys), steps=count)

    def next_at(self) -> float | None:
        """Return when the next waiting event's time comes; minus infinity if one is ready."""
        if self._ready:
            return float("-inf")
        return self._waiting[0][0] if self._waiting else None

    def _forget(self, work: Work) -> None:
        self.items -= 1
        self.size_bytes -= len(work.item.body)
        if work.in_flight:
            work.in_flight = False
            self.in_flight -= 1
        if work.step is not None:
            work.step.left -= 1
