"""How every job of a ledger stands, from the ledger alone.

Owns the words for a job's state and the figures of its last batches and its last day. Starts no
JVM and asks no source. Must never settle anything, nor hold more entries than the named limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from jobs.runner.running import holder
from odi_audit import clock
from odi_audit.canonical import Json, JsonObject
from odi_audit.ledger.port import EntryFilter
from odi_audit.model.entries import Entry, Kind
from odi_audit.model.runs import Outcome
from odi_audit.model.shares import Follows

if TYPE_CHECKING:
    from odi_audit.ids import JobName
    from odi_audit.ledger.port import Ledger

DAY = timedelta(days=1)
DAY_ENTRIES_MAX = 20_000
"""Landed entries of a job's last day that are looked at; of more, the newest stand for the rest."""
RATE_LANDED_MAX = 40
"""Landed entries whose rows and times give the throughput."""
INTENTS_LOOKED_AT = 200
"""Of the newest: an attempt that a crash left open is settled by the next start of any run."""


class State(StrEnum):
    """What a job does now, as far as the ledger knows."""

    RUNNING = "running"
    IDLE = "idle"
    REFUSED = "refused"
    FAILED = "failed"
    UNSETTLED = "unsettled"
    NEVER = "never run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """What a job has written within a day; ``scaled`` where it was worked out from a part of it."""

    rows: int
    files: int
    snapshots: int
    scaled: bool

    def to_json(self) -> JsonObject:
        """Return the form for machines."""
        return {
            "rows": self.rows,
            "files": self.files,
            "snapshots": self.snapshots,
            "scaled": self.scaled,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Last:
    """The batch that landed last."""

    batch: str
    time: str
    rows: int

    def to_json(self) -> JsonObject:
        """Return the form for machines."""
        return {"batch": self.batch, "time": self.time, "rows": self.rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One job."""

    job: JobName
    state: State
    note: str | None = None
    owner: str | None = None
    sources: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    last: Last | None = None
    rows_per_s: float | None = None
    day: Day | None = None

    def to_json(self) -> dict[str, Json]:
        """Return the form for machines."""
        return {
            "job": self.job,
            "state": self.state.value,
            "note": self.note,
            "owner": self.owner,
            "sources": list(self.sources),
            "tables": list(self.tables),
            "last_batch": None if self.last is None else self.last.to_json(),
            "rows_per_s": None if self.rows_per_s is None else round(self.rows_per_s, 1),
            "last_day": None if self.day is None else self.day.to_json(),
        }


def standings(ledger: Ledger, now: datetime) -> list[Standing]:
    """Return every job of a ledger, by name."""
    return [standing(ledger, job, now) for job in ledger.jobs()]


def standing(ledger: Ledger, job: JobName, now: datetime) -> Standing:
    """Return how one job stands."""
    intents = ledger.find(
        EntryFilter(kinds=(Kind.INTENT,), job=job), limit=INTENTS_LOOKED_AT, newest_first=True
    )
    landed = ledger.find(
        EntryFilter(kinds=(Kind.LANDED,), job=job), limit=RATE_LANDED_MAX, newest_first=True
    )
    newest = intents[0] if intents else None
    state, note = _state(ledger, job, intents)
    about = {} if newest is None else newest.facts.get("about")
    owner = about.get("owner") if isinstance(about, dict) else None
    return Standing(
        job=job,
        state=state,
        note=note,
        owner=owner if isinstance(owner, str) else None,
        sources=tuple(ledger.job_sources(job)),
        tables=tuple(sorted({entry.table.name for entry in landed if entry.table is not None})),
        last=_last(landed),
        rows_per_s=_rate(ledger, landed),
        day=_day(ledger, job, now),
    )


def _state(ledger: Ledger, job: JobName, intents: Sequence[Entry]) -> tuple[State, str | None]:
    runs = ledger.find(
        EntryFilter(kinds=(Kind.RUN_STARTED, Kind.RUN_ENDED), job=job), limit=1, newest_first=True
    )
    newest = runs[0] if runs else None
    if not intents and newest is None and not ledger.is_alive(holder(job)):
        return State.NEVER, None
    owners = {entry.facts.get("owner") for entry in (*intents[:1], *runs)} | {holder(job)}
    if any(isinstance(owner, str) and ledger.is_alive(owner) for owner in owners):
        return State.RUNNING, None
    if intents and ledger.open_intents(job=job, first=intents[-1].index):
        return State.UNSETTLED, "a crash left a batch open: odi-audit reconcile"
    ended = ledger.find(
        EntryFilter(kinds=(Kind.LANDED, Kind.REFUSED), job=job), limit=1, newest_first=True
    )
    if ended and ended[0].kind is Kind.REFUSED:
        facts = ended[0].facts
        return State.REFUSED, f"{facts.get('code')}: {facts.get('reason')}"
    return _how_it_ended(newest)


def _how_it_ended(newest: Entry | None) -> tuple[State, str | None]:
    """Return what the last run of a job left behind, where no batch of it is in the way."""
    if newest is None:
        return State.IDLE, None
    outcome = newest.facts.get("outcome") if newest.kind is Kind.RUN_ENDED else Outcome.DIED
    if outcome == Outcome.FAILED:
        code, reason = newest.facts.get("error_code"), newest.facts.get("reason")
        return State.FAILED, str(reason) if code is None else f"{code}: {reason}"
    if outcome == Outcome.DIED:
        return State.FAILED, "the process of its last run died; the next run goes on where it was"
    return State.IDLE, None


def _last(landed: Sequence[Entry]) -> Last | None:
    if not landed or landed[0].batch is None:
        return None
    batch = landed[0].batch
    same = [entry for entry in landed if entry.batch == batch]
    return Last(batch=batch, time=landed[0].time, rows=sum(map(_rows, same)))


def _rate(ledger: Ledger, landed: Sequence[Entry]) -> float | None:
    """Return rows per second over the last attempts, each from its intent to its last landing."""
    ends: dict[int, str] = {}
    rows: dict[int, int] = {}
    for entry in landed:
        if entry.intent is not None:
            ends[entry.intent] = max(ends.get(entry.intent, ""), entry.time)
            rows[entry.intent] = rows.get(entry.intent, 0) + _rows(entry)
    seconds = sum(_between(ledger.get(intent).time, end) for intent, end in ends.items())
    return sum(rows.values()) / seconds if seconds > 0 else None


def _day(ledger: Ledger, job: JobName, now: datetime) -> Day | None:
    where = EntryFilter(kinds=(Kind.LANDED,), job=job, since=clock.to_text(now - DAY))
    found = ledger.find(where, limit=DAY_ENTRIES_MAX, newest_first=True)
    if not found:
        return None
    cut = len(found) == DAY_ENTRIES_MAX
    span = max(1.0, _between(found[-1].time, clock.to_text(now)))
    scale = DAY.total_seconds() / span if cut else 1.0
    return Day(
        rows=round(sum(map(_rows, found)) * scale),
        files=round(sum(_count(entry, "added-data-files") for entry in found) * scale),
        snapshots=round(sum(entry.facts.get("snapshot") is not None for entry in found) * scale),
        scaled=cut,
    )


def _rows(entry: Entry) -> int:
    # A side table has records that are rows of no table, or the same rows once more.
    if entry.facts.get("follows") == Follows.NOTHING.value:
        return 0
    return _count(entry, "added-records")


def _count(entry: Entry, name: str) -> int:
    counts = entry.facts.get("counts")
    value = counts.get(name) if isinstance(counts, dict) else None
    return value if isinstance(value, int) else 0


def _between(start: str, end: str) -> float:
    return (clock.from_text(end) - clock.from_text(start)).total_seconds()
