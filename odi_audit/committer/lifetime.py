"""The life of a run on record: that it began, how it ended, and that it died without a word.

Owns both entries and which end is told (docs/adr/0025-runs-on-record.md). Whether a batch landed
never rests on them. Must never keep text of somebody else's error: it may hold values of rows.
"""

from __future__ import annotations

from dataclasses import replace

from odi_audit import logs
from odi_audit.committer import records
from odi_audit.committer.parts import Parts
from odi_audit.committer.surroundings import whereabouts
from odi_audit.errors import LedgerConflict, OdiError
from odi_audit.ids import JobName, RunId
from odi_audit.ledger.port import Ledger
from odi_audit.model.entries import Entry
from odi_audit.model.runs import Outcome

log = logs.get_logger(__name__)

DEAD = "its process died without telling how the run ended"


class Stopped(BaseException):
    """Somebody stopped what a run was doing; never raised, only told as the run's end."""


def begin(parts: Parts, job: JobName, run: RunId, *, streaming: bool) -> Entry:
    """Record that a run has begun; its owner must be held already.

    Raises:
        OdiError: the ledger does not take it. No ledger, no run.
    """
    draft = records.run_started(
        job,
        run,
        principal=parts.principal,
        code=parts.code,
        owner=parts.owner,
        **({"streaming": True} if streaming else {}),
        **whereabouts(parts),
    )
    return parts.ledger.append(draft)[0]


def end(ledger: Ledger, started: Entry, error: BaseException | None) -> None:
    """Record how a run ended, while its owner is still held.

    Somebody may have taken it for dead meanwhile; then what is true is recorded after that.

    Raises:
        OdiError: the ledger does not take it.
    """
    outcome, code, reason = _how(error)
    draft = records.run_ended(started, outcome, error_code=code, reason=reason)
    try:
        ledger.append(draft)
    except LedgerConflict:
        ledger.append(replace(draft, settles=False))


def end_in_error(ledger: Ledger, started: Entry, error: BaseException) -> None:
    """Record the end of a run that an error ends; that error is what its caller must see.

    Where the ledger fails too, the next run of anybody records that this one is gone.
    """
    try:
        end(ledger, started, error)
    except OdiError as problem:
        error.add_note(f"the end of run {started.run} was not recorded: {problem.message}")
        log.warning("the end of this run was not recorded", error=problem.message)


def dead(ledger: Ledger) -> list[Entry]:
    """Return the starts of runs that never ended and whose process is gone."""
    return [
        started
        for started in ledger.open_runs()
        if not ledger.is_alive(str(started.facts.get("owner", "")))
    ]


def end_dead(ledger: Ledger) -> list[Entry]:
    """Record of each dead run that it died; returns their starts."""
    ended: list[Entry] = []
    for started in dead(ledger):
        try:
            ledger.append(records.run_ended(started, Outcome.DIED, reason=DEAD))
        except LedgerConflict:
            continue  # somebody else has said so in this moment
        ended.append(started)
        log.info("a run had died", job=started.job, run=started.run, since=started.time)
    return ended


def _how(error: BaseException | None) -> tuple[Outcome, str | None, str | None]:
    if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
        return Outcome.COMPLETED, None, None
    if isinstance(error, OdiError):
        return Outcome.FAILED, error.code, error.record
    name = type(error).__name__
    if isinstance(error, Exception):
        return Outcome.FAILED, None, f"{name} was raised in the run"
    reason = str(error) if isinstance(error, Stopped) else f"the run was stopped by {name}"
    return Outcome.STOPPED, None, reason
