"""The desk: what each answer means for an event, its run and the destination.

Owns every decision of the relay: again, park, hold, say once more, pause. It is told the time, and
returns what must be written down before anything is sent. Must never send or store by itself.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from lineage.relay.answers import Answer, Verdict, backoff_s
from lineage.relay.sources import Item, Step
from lineage.relay.state import Changes, Doubt, Letter, Stand
from lineage.relay.window import Way, Window, Work
from odi_audit import clock
from odi_audit.ids import RunId

SUSPECT_MAX = 8
"""A backend that fails over an event time and again, and takes others meanwhile, means the event.
Marquez answers 500 for ever to a facet that it cannot read."""
CHANCE_MAX, FAILING_SHARE_MAX = 1e-4, 0.75
"""Where it fails over others too, an event is parked only when so many failures in a row would be
less likely than this by chance; at most that share of failures is taken for chance."""
UNHEARD_MAX = 50
"""The same for an event that is never answered."""
LETTERS_MAX = 10_000
"""More refusals than this are no longer about events."""
STOPPED_PAUSE_S = 300.0
"""How long a destination that turns us away is left alone."""
DOUBT_S_MAX = 600.0
"""No request is still under way after this."""

_BEHIND = Answer(verdict=Verdict.REFUSED, reason="an earlier event of its run is parked")


@dataclass(slots=True, kw_only=True)
class Desk:
    """The state of one destination in memory; everything that must last goes into ``Changes``."""

    settle_s: float
    retry_s_max: float
    chance: random.Random
    window: Window = field(default_factory=Window)
    held: dict[RunId, int] = field(default_factory=dict)
    """Runs with letters, and how many."""
    doubts: dict[RunId, Doubt] = field(default_factory=dict)
    settled: set[tuple[str, str]] = field(default_factory=set)
    """Events above the positions that an earlier relay settled."""
    streak: int = 0
    """Failures in a row, of whatever event."""
    last_done: float = float("-inf")
    paused_until: float = float("-inf")
    stopped: str | None = None
    was_stopped: bool = False
    """An earlier relay was turned away, and it is still written so."""
    wants_probe: bool = False
    _taken: int = 0
    _suspects: int = 0
    """Answers that took an event, and those that failed over one, of whatever event."""
    _letters: set[tuple[str, str]] = field(default_factory=set)
    _echoes: dict[RunId, Work] = field(default_factory=dict)

    # -- what comes in ----------------------------------------------------------------------------

    def admit(self, source: str, step: Step, at: str, changes: Changes) -> None:
        """Take a step of a source; events of a held run are parked behind its letters."""
        parked: set[str] = set()
        for item in step.items:
            if (source, item.key) not in self.settled and self._is_held(item.run):
                self._write_letter(item, Stand.HELD, _BEHIND, at, changes)
                parked.add(item.key)
        self.window.add_step(
            source,
            step,
            settled=lambda key: key in parked or (source, key) in self.settled,
        )
        self.settled -= {(source, item.key) for item in step.items}

    def ask_again(self, item: Item, letter: Letter) -> None:
        """Queue a letter that somebody wants tried again."""
        if (item.source, item.key) not in self._letters:
            self._letters.add((item.source, item.key))
            self.window.add(
                Work(item=item, way=Way.LETTER, tries=letter.tries, first_at=letter.first_at)
            )

    def only_letters(self, there: set[tuple[str, str]]) -> None:
        """Cancel letters on their way that were dropped meanwhile."""
        for work in self.window.works():
            if work.way is Way.LETTER and (work.item.source, work.item.key) not in there:
                work.cancelled = True

    def due_echoes(self, moment: datetime, changes: Changes) -> list[Doubt]:
        """Return the ends that are to be said once more now; forget doubts that are too old."""
        now = clock.to_text(moment)
        old = clock.to_text(moment - timedelta(seconds=DOUBT_S_MAX))
        due: list[Doubt] = []
        for doubt in list(self.doubts.values()):
            if doubt.echo is None:
                if doubt.since < old:
                    self._no_doubt(doubt.run, changes)
            elif doubt.run in self._echoes or self._is_held(doubt.run):
                continue
            elif (doubt.due_at or now) <= now:
                due.append(doubt)
        return due

    def echo(self, item: Item) -> None:
        """Queue the end of a run once more."""
        work = Work(item=item, way=Way.ECHO)
        self._echoes[item.run] = work
        self.window.add(work)

    def no_echo(self, run: RunId, changes: Changes) -> None:
        """Give an echo up: its event is no longer there."""
        self._no_doubt(run, changes)

    @property
    def echoes_left(self) -> bool:
        """Whether an end is still to be said once more."""
        return any(doubt.echo is not None for doubt in self.doubts.values())

    # -- what goes out ----------------------------------------------------------------------------

    def take(self, now: float, at: str, most: int, changes: Changes) -> list[Work]:
        """Give out what may be sent now; it is marked as under way in the changes."""
        if now < self.paused_until:
            return []
        if self.streak:
            # After a failure one event feels its way; when it gets through, all lanes follow.
            most = 0 if self.window.in_flight else min(most, 1)
        works: list[Work] = []
        while len(works) < most:
            taken = self.window.take(now, most - len(works))
            if not taken:
                break
            for work in taken:
                if work.cancelled:
                    self._leave(work, changes)
                elif work.item.fault is not None:
                    fault = Answer(verdict=Verdict.REFUSED, reason=work.item.fault)
                    self._park(work, fault, at, changes)
                else:
                    work.first_at = work.first_at or at
                    works.append(work)
        changes.sending += [work.item for work in works if work.way is not Way.ECHO]
        return works

    def _leave(self, work: Work, changes: Changes) -> None:
        self.window.settle(work)
        self._letters.discard((work.item.source, work.item.key))
        if work.way is Way.LETTER:
            changes.unmarked.append(work.item)
        elif self._echoes.get(work.item.run) is work:
            del self._echoes[work.item.run]

    # -- answers ----------------------------------------------------------------------------------

    def answered(
        self, work: Work, answer: Answer, now: float, moment: datetime, changes: Changes
    ) -> None:
        """Decide what an answer means."""
        at = clock.to_text(moment)
        if answer.verdict is Verdict.DONE:
            self._done(work, now, moment, changes)
            return
        if answer.verdict is not Verdict.REFUSED and work.way is not Way.ECHO:
            # It is not under way any more; where it may still arrive, there is a doubt for that.
            changes.unmarked.append(work.item)
        if answer.verdict is Verdict.UNSENT:
            self.window.again(work, now)
            return
        work.tries += 1
        changes.error = f"{work.item.key} {work.item.state}: {answer.reason}"
        if answer.in_doubt:
            self._doubt(work.item, at, changes)
        if answer.verdict is Verdict.REFUSED:
            # Whoever refuses an event answers: the destination is well.
            self.streak, self.last_done = 0, now
            self._park(work, answer, at, changes)
        elif answer.verdict is Verdict.STOPPED:
            self.stop(answer.reason, now, changes)
            self.window.again(work, self.paused_until)
        else:
            self._later(work, answer, now, at, changes)

    def well(self, now: float) -> None:
        """Take note that the destination answered a question that needs no event."""
        self.last_done = now

    def stop(self, reason: str, now: float, changes: Changes) -> None:
        """Leave a destination alone that turns us away."""
        self.streak += 1
        self.stopped = changes.stopped = changes.error = reason
        self.paused_until = now + STOPPED_PAUSE_S

    def _done(self, work: Work, now: float, moment: datetime, changes: Changes) -> None:
        item = work.item
        self.streak, self.last_done = 0, now
        self._taken += 1
        if self.stopped is not None or self.was_stopped:
            self.stopped, self.was_stopped, changes.going = None, False, True
        changes.sent += 1
        self.window.settle(work)
        match work.way:
            case Way.ECHO:
                self._echoes.pop(item.run, None)
                self._no_doubt(item.run, changes)
                return
            case Way.LETTER:
                self._letters.discard((item.source, item.key))
                changes.letters_gone.append(item)
                self._release(item.run)
            case Way.STREAM:
                changes.settled.append(item)
        if item.ends:
            self._ended(item, moment, changes)

    def _later(self, work: Work, answer: Answer, now: float, at: str, changes: Changes) -> None:
        self.streak += 1
        if work.failing_since is None:
            work.failing_since = now
            work.seen_before = (self._taken, self._suspects)
        self._suspects += answer.suspect
        work.suspect_in_row = work.suspect_in_row + 1 if answer.suspect else 0
        work.unheard_in_row = work.unheard_in_row + 1 if answer.status is None else 0
        suspicious = work.suspect_in_row >= max(SUSPECT_MAX, self._by_chance(work))
        if suspicious or work.unheard_in_row >= UNHEARD_MAX:
            if self.last_done > work.failing_since:
                reason = f"{answer.reason} ({work.tries} times, while others were taken)"
                self._park(work, replace(answer, reason=reason), at, changes)
                return
            self.wants_probe = True
        wait_s = answer.wait_s
        if answer.everybody:
            pause_s = wait_s
            if pause_s is None:
                pause_s = backoff_s(self.streak - 1, self.retry_s_max, self.chance)
            self.paused_until = max(self.paused_until, now + pause_s)
        if wait_s is None:
            wait_s = backoff_s(work.tries - 1, self.retry_s_max, self.chance)
        self.window.again(work, now + wait_s)

    def _by_chance(self, work: Work) -> int:
        """Return how many failures in a row an event may have while others fail like it."""
        taken, suspects = work.seen_before
        others = self._suspects - suspects - work.suspect_in_row
        share = others / max(1, others + self._taken - taken)
        if share <= 0:
            return 0
        return math.ceil(math.log(CHANCE_MAX) / math.log(min(share, FAILING_SHARE_MAX)))

    # -- parking ----------------------------------------------------------------------------------

    def _park(self, work: Work, answer: Answer, at: str, changes: Changes) -> None:
        """Park an event, and whatever of its run is queued behind it."""
        if work.way is Way.ECHO:
            # It was taken before; whatever the destination has now against it, it has it.
            self.window.settle(work)
            self._echoes.pop(work.item.run, None)
            self._no_doubt(work.item.run, changes)
            return
        rest = self.window.behind(work)
        self.window.settle(work)
        self._to_letters(work, Stand.PARKED, answer, at, changes)
        for later in rest:
            if later.way is Way.ECHO:
                self._echoes.pop(later.item.run, None)
            else:
                self._to_letters(later, Stand.HELD, _BEHIND, at, changes)

    def _to_letters(
        self, work: Work, stand: Stand, answer: Answer, at: str, changes: Changes
    ) -> None:
        if work.way is Way.LETTER:
            self._letters.discard((work.item.source, work.item.key))
            changes.unmarked.append(work.item)
            self._release(work.item.run)
        self._write_letter(
            work.item, stand, answer, at, changes, tries=work.tries, first_at=work.first_at,
            fresh=work.way is Way.STREAM,
        )  # fmt: skip

    def _write_letter(
        self,
        item: Item,
        stand: Stand,
        answer: Answer,
        at: str,
        changes: Changes,
        *,
        tries: int = 0,
        first_at: str | None = None,
        fresh: bool = True,
    ) -> None:
        self.held[item.run] = self.held.get(item.run, 0) + 1
        if fresh:
            changes.settled.append(item)
        changes.letters.append(
            Letter(
                source=item.source,
                key=item.key,
                run=item.run,
                state=item.state,
                stand=stand,
                reason=answer.reason,
                status=answer.status,
                tries=tries,
                first_at=first_at or at,
                last_at=at,
            )
        )

    def _is_held(self, run: RunId) -> bool:
        # While letters of the run are on their way, what follows queues behind them.
        return run in self.held and not self.window.has(run)

    def _release(self, run: RunId) -> None:
        left = self.held.get(run, 0) - 1
        if left > 0:
            self.held[run] = left
        else:
            self.held.pop(run, None)

    # -- doubts -----------------------------------------------------------------------------------

    def doubted(self, items: Sequence[tuple[str, str, RunId]], at: str, changes: Changes) -> None:
        """Take note of events that were under way when an earlier relay ended."""
        for source, key, run in items:
            self._write_doubt(run, source, key, at, changes)

    def _doubt(self, item: Item, at: str, changes: Changes) -> None:
        self._write_doubt(item.run, item.source, item.key, at, changes)

    def _write_doubt(self, run: RunId, source: str, key: str, at: str, changes: Changes) -> None:
        # The first event in doubt is kept: the end of the run comes after it in any case.
        before = self.doubts.get(run)
        self.doubts[run] = Doubt(
            run=run, source=source, key=key if before is None else before.key, since=at
        )
        if before is not None and before.echo is not None:
            self.doubts[run] = replace(before, since=at)
        changes.doubts.append(self.doubts[run])

    def _ended(self, item: Item, moment: datetime, changes: Changes) -> None:
        """Once a run's end is acknowledged, see whether it must be said once more."""
        doubt = self.doubts.get(item.run)
        if doubt is None or doubt.key == item.key:
            return
        due_at = clock.to_text(moment + timedelta(seconds=self.settle_s))
        self.doubts[item.run] = replace(doubt, echo=item.key, due_at=due_at)
        changes.doubts.append(self.doubts[item.run])
        older = self._echoes.pop(item.run, None)
        if older is not None:
            older.cancelled = True

    def _no_doubt(self, run: RunId, changes: Changes) -> None:
        if self.doubts.pop(run, None) is not None:
            changes.doubts_gone.append(run)
