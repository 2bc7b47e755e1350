"""The loop around a job: plan, carry out, wait; until it is told to stop.

Owns when a batch is due and why a run ends. A signal ends it between two batches, or abandons the
one under way. Must never catch what a batch raises, except to wait for a source that is away.
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
from typing import TYPE_CHECKING, Protocol

from jobs.runner.outcome import Done, Ran
from jobs.sources.base import NO_CHOICES, Choices, Limits, Plan
from odi_audit import logs
from odi_audit.errors import OdiError, SourceUnavailable

if TYPE_CHECKING:
    from odi_audit.committer.run import Run
    from odi_audit.ledger.port import Position

log = logs.get_logger(__name__)

LOOK_S = 1.0
"""How often a source is asked that had nothing."""
AWAY_S_MAX = 60.0
"""A source that is away is asked at least this often."""


class Worker(Protocol):
    """What a job does: where it stands, what comes next, and how a batch is carried out."""

    path: str

    def prepare(self, run: Run) -> None:
        """Check what can be checked before the first batch."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Until:
    """When a run ends: with the source read to its end, at a time, or after so many batches."""

    drained: bool = False
    deadline: float | None = None
    """Of :func:`time.monotonic`."""
    batches: int | None = None


class Stop:
    """Says that a run should end; set by a signal or by whoever holds it."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.reason = ""

    def ask(self, reason: str) -> None:
        """Ask the run to end after the batch under way."""
        self.reason = self.reason or reason
        self._event.set()

    def __bool__(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float) -> None:
        """Sleep, but not longer than until somebody asks to stop."""
        self._event.wait(seconds)


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

    Raises:
        Refused, CommitConflict, OutcomeUnknown, SourceChanged: somebody must decide.
        SourceUnavailable: only where the run was to end with the source.
    """
    stop = stop or Stop()
    began = last = time.monotonic()
    counts = {"batches": 0, "records": 0, "rejects": 0}
    misses = 0
    worker.prepare(run)
    reason = ""
    while not (reason := _ended(until, stop, counts["batches"])):
        waited = float("inf") if until.drained else time.monotonic() - last
        try:
            plan = worker.plan(run, limits, choices=choices, waited_s=waited)
            done = None if plan is None else worker.carry_out(run, plan)
        except SourceUnavailable as error:
            if until.drained:
                raise
            misses += 1
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
        tell(done)
    return Ran(**counts, seconds=time.monotonic() - began, reason=reason)


@contextmanager
def stopped_by_signals(stop: Stop) -> Iterator[None]:
    """Let SIGTERM and SIGINT end the run after its batch; a second one ends it at once."""

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
