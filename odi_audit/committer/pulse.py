"""The pulse of a run: an entry from time to time which says that something long is under way.

Owns the thread and what it records (docs/adr/0019-pulse.md). It tells people and backends that a
batch of hours, or a stream without news, has not been forgotten; nobody decides by it who is alive
(docs/adr/0006-liveness.md). Must never raise into a run, nor touch what the run itself holds open.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from datetime import datetime

from odi_audit import clock, logs
from odi_audit.canonical import Json
from odi_audit.committer.parts import Parts, nobody
from odi_audit.errors import OdiError
from odi_audit.ledger import open_ledger
from odi_audit.ledger.port import EntryFilter, Ledger
from odi_audit.model.entries import Draft, Entry, Kind
from odi_audit.settings import ledger_url

log = logs.get_logger(__name__)

IDLE_BEATS = 3
"""A run without an open batch is told this much more seldom: a ledger is kept for ever."""
LOOKED_AT = 20
"""Newest intents of the job that are looked at: a run has one batch under way at a time."""


def start(parts: Parts, started: Entry) -> Callable[[], None]:
    """Begin to record the pulse of a run, from its start; what is returned ends that, at once."""
    every_s = parts.settings.run.pulse_s
    if not every_s:
        return nobody
    over = threading.Event()
    pulse = _Pulse(parts, started, every_s, over)
    threading.Thread(target=pulse.go, name="odi-pulse", daemon=True).start()
    return over.set


class _Pulse:
    """One run's thread."""

    def __init__(self, parts: Parts, started: Entry, every_s: float, over: threading.Event) -> None:
        self._parts = parts
        self._started = started
        self._every_s = every_s
        self._over = over
        self._quiet = 0

    def go(self) -> None:
        while not self._over.wait(self._every_s):
            try:
                # A connection of its own, and only for this moment: batches are mostly short.
                settings = self._parts.settings
                url, wait_s = ledger_url(settings), settings.ledger.busy_timeout_s
                now = self._parts.clock
                with closing(open_ledger(url, clock=now, busy_timeout_s=wait_s)) as ledger:
                    self._beat(ledger)
            except OdiError as error:
                # The run itself will say more, if it needs the ledger.
                log.warning("the pulse of this run was not recorded", error=error.message)

    def _beat(self, ledger: Ledger) -> None:
        where = EntryFilter(kinds=(Kind.INTENT,), job=self._started.job)
        mine = [
            entry
            for entry in ledger.find(where, limit=LOOKED_AT, newest_first=True)
            if entry.facts.get("owner") == self._parts.owner
        ]
        long = [
            entry
            for entry in mine
            if ledger.settled_by(entry.index) is None
            and self._since(clock.from_text(entry.time)) >= self._every_s
        ]
        self._quiet += 1
        if not long and self._quiet < IDLE_BEATS:
            return
        if self._over.is_set():
            return
        self._quiet = 0
        ledger.append(*([self._of_batch(entry) for entry in long] or [self._of_run()]))

    def _of_batch(self, intent: Entry) -> Draft:
        return Draft(
            kind=Kind.ALIVE,
            job=self._started.job,
            run=intent.run,
            batch=intent.batch,
            intent=intent.index,
            facts={"after_s": int(self._since(clock.from_text(intent.time)))},
        )

    def _of_run(self) -> Draft:
        # It names the start of the run: told after the end of it, it would give no event.
        started = self._started
        facts: dict[str, Json] = {
            "after_s": int(self._since(clock.from_text(started.time))),
            "started": started.index,
        }
        if started.facts.get("streaming"):
            facts["stream"] = True
        return Draft(kind=Kind.ALIVE, job=started.job, run=started.run, facts=facts)

    def _since(self, moment: datetime) -> float:
        return (self._parts.clock.now() - moment).total_seconds()
