"""The relay of one destination: reads, writes down what it is about to do, sends, writes down.

Owns the loop. Each round is one transaction, and nothing is sent that is not written down as under
way; so whoever comes after a death at any point knows what may have arrived. Must never send
without the lease, and must never raise for a fault of the destination.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from lineage.relay.desk import LETTERS_MAX, Desk
from lineage.relay.destinations import Destination
from lineage.relay.lanes import Lanes
from lineage.relay.senders import Sender, make_sender
from lineage.relay.sources import Source
from lineage.relay.state import Changes, Lease, Stand, StateStore
from lineage.relay.window import ITEMS_MAX
from odi_audit import clock, logs
from odi_audit.errors import RelayHeld

log = logs.get_logger(__name__)

LEASE_S = 30.0
"""A holder that is cut off is replaced after this; a dead one at once."""
_LEASE_SURE = 0.9
"""The share of a lease in which nothing needs to be asked: clocks are not quite alike."""
POLL_S = 0.5
"""How often the source, the lease and the orders of people are looked at when nothing else is."""
NOT_YET_S = 0.005
"""How soon a source is asked again that is still making what comes next."""
PAGE_MIN = 50
ITEMS_LOW = ITEMS_MAX // 2
"""More is read when fewer events than this are in memory."""
GIVE_UP_AFTER = 6
"""Failures in a row after which ``--once`` ends: with backoff, a quarter of a minute or so."""
SAY_EVERY_S = 60.0


def nowhere(_point: str) -> None:
    """Be reached, and do nothing: the road of every relay that is not a fault test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a relay goes about it.

    ``follow`` goes on as long as ``wanted`` says so, and then to the end of what there is, or to
    the first failure. ``duty`` is the share of time that it may be busy: in a process
    that does something else, less than one. ``stop_s`` is how long answers are waited for at the
    end, if the destination answers at all.
    """

    settle_s: float = 30.0
    retry_s_max: float = 60.0
    follow: bool = False
    wanted: Callable[[], bool] = lambda: True
    duty: float = 1.0
    stop_s: float = 1.0
    lease_s: float = LEASE_S
    give_up_after: int = GIVE_UP_AFTER


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a relay ended. ``left`` counts entries that are not delivered and not parked."""

    destination: str
    sent: int
    left: int
    letters: int
    stopped: str | None
    error: str | None


class Relay:
    """Sends the events of its sources to one destination, while it has the lease."""

    def __init__(
        self,
        destination: Destination,
        sources: Sequence[Source],
        store: StateStore,
        *,
        holder: str,
        now: clock.Clock,
        manner: Manner,
        make: Callable[[Destination], Sender] = make_sender,
        chance: random.Random | None = None,
        reach: Callable[[str], None] = nowhere,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Take the parts; ``store`` knows the destination already (see ``operate.begin``)."""
        self._destination = destination
        self._name = destination.name
        self._sources = {source.name: source for source in sources}
        self._store = store
        self._holder = holder
        self._clock = now
        self._manner = manner
        self._make = make
        self._reach = reach
        self._progress = progress
        self._desk = Desk(
            settle_s=manner.settle_s,
            retry_s_max=manner.retry_s_max,
            chance=chance or random.Random(),
        )
        self._read: dict[str, str | None] = {}
        self._read_at: dict[str, float] = {}
        self._ended: set[str] = set()
        self._orders = -1
        self._looked_at = float("-inf")
        self._error: str | None = None
        self._sent = self._steps = self._total = 0

    def run(self, stop: threading.Event) -> Outcome:
        """Relay until everything is sent, or with ``follow`` until ``stop`` is set.

        Raises:
            RelayHeld: somebody else has the lease, or took it over; nothing is lost.
            RelayStateUnavailable, LedgerUnavailable, LedgerBroken: nothing more is sent.
        """
        began = time.monotonic()
        lease = self._acquire()
        self._reach("leased")
        lanes = Lanes(lambda: self._make(self._destination), self._destination.lanes, self._name)
        lanes.valid_until = began + self._manner.lease_s * _LEASE_SURE
        try:
            self._load(lease)
            while not self._is_over(stop, lanes):
                lease = self._round(lease, lanes, stop)
            self._finish(lease, lanes)
            self._store.release(lease)
        finally:
            lanes.close()
            for source in self._sources.values():
                source.close()
        return self.outcome()

    def outcome(self) -> Outcome:
        """Say how things stand."""
        positions = self._store.positions(self._name)
        left = sum(
            source.lag(positions.get(name)).entries for name, source in self._sources.items()
        )
        return Outcome(
            destination=self._name,
            sent=self._sent,
            left=left,
            letters=sum(self._store.letter_counts(self._name).values()),
            stopped=self._desk.stopped,
            error=self._error,
        )

    # -- start and end ----------------------------------------------------------------------------

    def _acquire(self) -> Lease:
        moment = self._clock.now()
        until = clock.to_text(moment + timedelta(seconds=self._manner.lease_s))
        return self._store.acquire(self._name, self._holder, clock.to_text(moment), until)

    def _load(self, lease: Lease) -> None:
        """Take up what an earlier relay left."""
        changes = self._changes()
        desk = self._desk
        self._read = dict.fromkeys(self._sources) | dict(self._store.positions(self._name))
        facts = self._store.facts(self._name)
        desk.was_stopped = facts is not None and facts.stopped is not None
        desk.held = self._store.letter_counts(self._name)
        desk.doubts = {doubt.run: doubt for doubt in self._store.doubts(self._name)}
        marks = self._store.marks(self._name)
        desk.settled = {(mark.source, mark.key) for mark in marks if mark.settled}
        under_way = [(mark.source, mark.key, mark.run) for mark in marks if not mark.settled]
        desk.doubted(under_way, changes.at or "", changes)
        if not self._manner.follow:
            for source in self._sources.values():
                source.freeze()
        self._total = sum(
            source.lag(self._read[name]).entries for name, source in self._sources.items()
        )
        if not changes.is_empty:
            self._store.write(lease, changes)
            log.info(
                "an earlier relay ended in the middle",
                destination=self._name,
                events=len(under_way),
            )

    def _is_over(self, stop: threading.Event, lanes: Lanes) -> bool:
        if stop.is_set():
            return True
        if self._gives_up:
            return not lanes.busy
        if self._manner.follow and self._manner.wanted():
            return False
        desk = self._desk
        at_end = len(self._ended) == len(self._sources)
        return at_end and desk.window.is_empty and not desk.echoes_left

    @property
    def _gives_up(self) -> bool:
        """Whether the destination is left for another day: nothing more is sent."""
        follow = self._manner.follow
        if follow and self._manner.wanted():
            return False
        most = 1 if follow else self._manner.give_up_after
        return self._desk.stopped is not None or self._desk.streak >= most

    def _finish(self, lease: Lease, lanes: Lanes) -> None:
        """Wait a moment for the answers that are still to come, if any come at all."""
        until = time.monotonic() + (0 if self._desk.streak else self._manner.stop_s)
        while lanes.busy and (left := until - time.monotonic()) > 0:
            changes = self._changes()
            self._collect(lanes, min(left, POLL_S), changes)
            self._pass(changes)
            self._write(lease, changes)

    # -- one round --------------------------------------------------------------------------------

    def _round(self, lease: Lease, lanes: Lanes, stop: threading.Event) -> Lease:
        began = time.monotonic()
        changes = self._changes()
        desk = self._desk
        self._collect(lanes, self._wait_s(lanes), changes)
        at = changes.at = clock.to_text(self._clock.now())
        if time.monotonic() - self._looked_at >= POLL_S:
            lease = self._look(lease, lanes, changes)
        self._fill(lanes, at, changes)
        works = []
        if not stop.is_set() and not self._gives_up:
            works = desk.take(time.monotonic(), at, lanes.free * lanes.chunk_max, changes)
        self._pass(changes)
        self._write(lease, changes)
        if works:
            lanes.submit(works)
            self._reach("submitted")
        if desk.wants_probe and lanes.free:
            desk.wants_probe = False
            lanes.probe()
        if self._manner.duty < 1:
            busy_s = time.monotonic() - began
            stop.wait(min(busy_s * (1 / self._manner.duty - 1), POLL_S))
        return lease

    def _collect(self, lanes: Lanes, wait_s: float, changes: Changes) -> None:
        results = lanes.collect(wait_s)
        if results:
            self._reach("answered")
        now, moment = time.monotonic(), self._clock.now()
        for result in results:
            if result.well:
                self._desk.well(now)
            for work, answer in zip(result.works, result.answers, strict=True):
                was = self._desk.streak
                self._desk.answered(work, answer, now, moment, changes)
                if self._desk.streak > was and was % 10 == 0:
                    log.warning(
                        "lineage events wait",
                        destination=self._name,
                        address=self._destination.address,
                        error=answer.reason,
                        failures=self._desk.streak,
                    )
        self._sent += changes.sent
        self._error = changes.error or (None if changes.sent else self._error)

    def _wait_s(self, lanes: Lanes) -> float:
        """Return how long this round may wait for answers before it has something else to do."""
        desk, now = self._desk, time.monotonic()
        waits = [self._looked_at + POLL_S - now]
        if self._has_room:
            waits += [self._read_at.get(name, now) - now for name in self._sources]
        due = desk.window.next_at()
        if due is not None and lanes.free and not (desk.streak and desk.window.in_flight):
            waits.append(max(due, desk.paused_until) - now)
        return min(max(min(waits), 0.0), POLL_S)

    def _look(self, lease: Lease, lanes: Lanes, changes: Changes) -> Lease:
        """From time to time: keep the lease, hear what people ordered, say what is due again."""
        self._looked_at = time.monotonic()
        moment = self._clock.now()
        lease_s = self._manner.lease_s
        if lease.until < clock.to_text(moment + timedelta(seconds=lease_s / 2)):
            until = clock.to_text(moment + timedelta(seconds=lease_s))
            lease = self._store.renew(lease, until)
            lanes.valid_until = self._looked_at + lease_s * _LEASE_SURE
        facts = self._store.facts(self._name)
        if facts is not None and facts.orders != self._orders:
            self._orders = facts.orders
            self._hear()
        for doubt in self._desk.due_echoes(moment, changes):
            source = self._sources.get(doubt.source)
            item = None if source is None or doubt.echo is None else source.fetch(doubt.echo)
            if item is None:
                self._desk.no_echo(doubt.run, changes)
            else:
                self._desk.echo(item)
        if sum(self._desk.held.values()) > LETTERS_MAX and self._desk.stopped is None:
            reason = f"more than {LETTERS_MAX:,} events were refused: something else is wrong"
            self._desk.stop(reason, time.monotonic(), changes)
            log.error("the relay stopped", destination=self._name, reason=reason)
        return lease

    def _hear(self) -> None:
        """Take up letters that somebody wants tried again, and forget those that were dropped."""
        letters = self._store.letters(self._name)
        self._desk.held = self._store.letter_counts(self._name)
        self._desk.only_letters({(letter.source, letter.key) for letter in letters})
        for letter in letters:
            source = self._sources.get(letter.source)
            if letter.stand is Stand.RETRY and source is not None:
                item = source.fetch(letter.key)
                if item is not None:
                    self._desk.ask_again(item, letter)

    def _fill(self, lanes: Lanes, at: str, changes: Changes) -> None:
        """Read more of each source, where there is room for it."""
        now = time.monotonic()
        for name, source in self._sources.items():
            if not self._has_room:
                return
            if self._read_at.get(name, now) > now:
                continue
            steps = source.read(self._read.get(name), max(PAGE_MIN, lanes.chunk_max))
            if steps is None:
                self._read_at[name] = now + NOT_YET_S
                continue
            for step in steps:
                self._desk.admit(name, step, at, changes)
                self._read[name] = step.after
            if steps:
                self._ended.discard(name)
            else:
                self._ended.add(name)
                self._read_at[name] = now + POLL_S

    @property
    def _has_room(self) -> bool:
        window = self._desk.window
        return window.has_room and window.items < ITEMS_LOW and self._desk.stopped is None

    def _pass(self, changes: Changes) -> None:
        for name in self._sources:
            passed = self._desk.window.passed(name)
            if passed is not None:
                changes.passed[name] = (passed.after, passed.keys)
                self._steps += passed.steps
        if self._progress is not None and changes.passed:
            self._progress(self._steps, max(self._total, self._steps))

    def _write(self, lease: Lease, changes: Changes) -> None:
        if changes.is_empty:
            return
        self._reach("before-write")
        self._store.write(lease, changes)
        self._reach("written")

    def _changes(self) -> Changes:
        return Changes(at=clock.to_text(self._clock.now()))


def follow(
    make: Callable[[], Relay],
    stop: threading.Event,
    *,
    wanted: Callable[[], bool] = lambda: True,
    patience_s: float = LEASE_S / 6,
) -> Outcome | None:
    """Relay until stopped; where another relay has the lease, wait and take over from it."""
    told = False
    while not stop.is_set() and wanted():
        try:
            return make().run(stop)
        except RelayHeld as held:
            if not told:
                log.info("another relay sends; this one waits to take over", reason=held.message)
            told = True
            stop.wait(patience_s)
    return None
