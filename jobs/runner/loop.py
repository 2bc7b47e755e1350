"""The loop around a job: plan, carry out, wait; until it is told to stop.

Owns when a batch is due and why a run ends. A signal ends it between two batches, a second one
abandons the one under way. Must never catch what a batch raises, except to wait for a source that
is away, and, where the run is to go on, to try again what is known not to have happened.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from jobs.runner.outcome import Done, Ran
from jobs.sources.base import NO_CHOICES, Choices, Lag, Limits, Plan
from odi_audit import clock
from odi_audit.errors import (
    CatalogUnavailable,
    CommitConflict,
    OdiError,
    SourceUnavailable,
    WriteFailed,
)
from odi_audit.ledger.port import EntryFilter
from odi_audit.model.entries import Kind

if TYPE_CHECKING:
    from odi_audit.committer.run import Run
    from odi_audit.ledger.port import Position

LOOK_S = 1.0
"""How often a source is asked that had nothing."""
AWAY_S_MAX = 60.0
"""A source that is away is asked at least this often."""
AGAIN_MAX = 5
"""Tries in a row at a batch that was not published for a reason that may pass."""
NOT_PUBLISHED = (CommitConflict, WriteFailed, CatalogUnavailable)
"""After these nothing of the batch is visible, and doing the same again is safe."""
NAP_S = 0.1
"""A signal is seen within this time."""


class Worker(Protocol):
    """What a job does: where it stands, what comes next, and how a batch is carried out."""

    path: str

    def prepare(self, run: Run) -> None:
        """Check what can be checked before the first batch; done again where it failed."""
        ...

    def positions(self, run: Run) -> Mapping[str, Position]:
        """Return where the job stands, from the ledger."""
        ...

    def plan(self, run: Run, limits: Limits, *, choices: Choices, waited_s: float) -> Plan | None:
        """Return the next batch, or None while none is due."""
        ...

    def carry_out(self, run: Run, plan: Plan) -> Done:
        """Read, decode, write and commit one batch, once."""
        ...


@runtime_checkable
class Measured(Protocol):
    """A worker that can say how far it is behind its source."""

    def lag(self, run: Run) -> Lag | None:
        """Return the lag now; None where it cannot be told."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Until:
    """When a run ends: with the source read to its end, at a time, or after so many batches."""

    drained: bool = False
    deadline: float | None = None
    """Of :func:`time.monotonic`."""
    batches: int | None = None


class Stop:
    """Says that a run should end; set by a signal or by whoever holds it.

    A plain flag: a signal's handler must not wait for a lock that its own thread may hold.
    """

    def __init__(self) -> None:
        self._asked = False
        self.reason = ""

    def ask(self, reason: str) -> None:
        """Ask the run to end after the batch under way."""
        self.reason = self.reason or reason
        self._asked = True

    def __bool__(self) -> bool:
        return self._asked

    def wait(self, seconds: float) -> None:
        """Sleep, but not longer than until somebody asks to stop."""
        end = time.monotonic() + seconds
        while not self._asked and (left := end - time.monotonic()) > 0:
            time.sleep(min(NAP_S, left))


def run_job(
    run: Run,
    worker: Worker,
    limits: Limits,
    *,
    until: Until,
    choices: Choices = NO_CHOICES,
    stop: Stop | None = None,
    tell: Callable[[Done], None] = lambda _done: None,
    away: Callable[[OdiError], None] = lambda _error: None,
) -> Ran:
    """Carry out batch after batch; returns when the end that was asked for has come.

    ``away`` is told of each try that failed and is made again.

    Raises:
        Refused, CommitConflict, OutcomeUnknown, SourceChanged: somebody must decide.
        SourceUnavailable: only where the run was to end with the source.
    """
    stop = Stop() if stop is None else stop  # one that nobody has asked is false
    began = time.monotonic()
    counts = {"batches": 0, "records": 0, "rejects": 0, "bytes": 0}
    misses, prepared = 0, False
    last = began - since_last_batch(run)
    reason = ""
    while not (reason := _ended(until, stop, counts["batches"])):
        waited = float("inf") if until.drained else time.monotonic() - last
        try:
            if not prepared:
                worker.prepare(run)
                prepared = True
            plan = worker.plan(run, limits, choices=choices, waited_s=waited)
            done = None if plan is None else worker.carry_out(run, plan)
        except (SourceUnavailable, *NOT_PUBLISHED) as error:
            misses += 1
            if until.drained or (isinstance(error, NOT_PUBLISHED) and misses >= AGAIN_MAX):
                raise
            away(error)
            stop.wait(min(AWAY_S_MAX, 2**misses) * random.uniform(0.5, 1))
            continue
        misses, choices = 0, NO_CHOICES if done is not None else choices
        if done is None:
            if until.drained:
                reason = "the source is read to its end"
                break
            stop.wait(LOOK_S)
            continue
        last = time.monotonic()
        counts["batches"] += 1
        counts["records"] += done.records
        counts["rejects"] += done.rejects
        counts["bytes"] += done.bytes
        tell(done)
    return Ran(**counts, seconds=time.monotonic() - began, reason=reason, reached_source=prepared)


def since_last_batch(run: Run) -> float:
    """Return how many seconds ago the job's last batch landed, whichever run did that."""
    where = EntryFilter(kinds=(Kind.LANDED,), job=run.job)
    for entry in run.parts.ledger.find(where, limit=1, newest_first=True):
        return max(0.0, (run.parts.clock.now() - clock.from_text(entry.time)).total_seconds())
    return float("inf")


@contextmanager
def stopped_by_signals(stop: Stop) -> Iterator[None]:
    """Let SIGTERM and SIGINT end the run after its batch; a second one ends it at once.

    To be entered again once Spark has started: it takes SIGINT for itself. Outside the main thread
    there are no signals to take.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, _frame: FrameType | None) -> None:
        if stop:
            raise KeyboardInterrupt
        stop.ask(f"told to stop by {signal.Signals(number).name}")

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _ended(until: Until, stop: Stop, batches: int) -> str:
    if stop:
        return stop.reason
    if until.batches is not None and batches >= until.batches:
        return f"{batches} batches are done"
    if until.deadline is not None and time.monotonic() >= until.deadline:
        return "its time is over"
    return ""
