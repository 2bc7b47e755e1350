"""Batches: a list of them, newest first, and everything known about one.

Owns how entries add up to a batch's state. Must never read the whole ledger when the question is
narrowed, nor open a table that the batch did not touch.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from odi_audit.canonical import JsonObject
from odi_audit.errors import UsageError
from odi_audit.ids import BatchId, JobName, RunId, TableUuid
from odi_audit.ledger.port import EntryFilter, Ledger
from odi_audit.model.entries import EFFECTS, Entry, Kind
from odi_audit.query import facts
from odi_audit.query.lookup import first_since, newer_first, newest, with_open

LIMIT_DEFAULT = 50
LIMIT_MAX = 100_000
"""More lines than anyone reads; whoever needs all exports the ledger."""
_UNLANDED = (Kind.REFUSED, Kind.ABANDONED, Kind.UNKNOWN)


class BatchState(StrEnum):
    """How a batch stands."""

    IN_FLIGHT = "in-flight"
    OPEN = "open"
    LANDED = "landed"
    PARTLY_LANDED = "partly-landed"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    ABANDONED = "abandoned"
    UNDONE = "undone"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSummary:
    """One line about a batch. ``started`` is when its last attempt began."""

    batch: BatchId
    job: JobName | None
    run: RunId | None
    state: BatchState
    tables: tuple[str, ...]
    operations: tuple[str, ...]
    rows: int | None
    source: str | None
    offsets: str
    generation: int | None
    started: str
    settled: str | None
    attempts: int
    intent: int
    recovered: bool

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {
            "batch": self.batch,
            "job": self.job,
            "run": self.run,
            "state": self.state.value,
            "tables": list(self.tables),
            "operations": list(self.operations),
            "rows": self.rows,
            "source": self.source,
            "offsets": self.offsets,
            "generation": self.generation,
            "started": self.started,
            "settled": self.settled,
            "attempts": self.attempts,
            "intent": self.intent,
            "recovered": self.recovered,
        }


def list_batches(
    ledger: Ledger,
    *,
    table: TableUuid | None = None,
    job: JobName | None = None,
    since: str | None = None,
    until: str | None = None,
    state: BatchState | None = None,
    limit: int = LIMIT_DEFAULT,
) -> list[BatchSummary]:
    """Return batches, newest first. Times are in the ledger's form (:mod:`odi_audit.query.since`).

    Raises:
        UsageError: the limit is not between 1 and :data:`LIMIT_MAX`.
    """
    if not 1 <= limit <= LIMIT_MAX:
        raise UsageError(f"limit {limit} is not between 1 and {LIMIT_MAX}")
    found: dict[BatchId, BatchSummary | None] = {}
    kept = 0
    for batch in _candidates(ledger, table=table, job=job, since=since, until=until, state=state):
        if batch in found:
            continue
        summary = summarise(ledger, ledger.batch_entries(batch))
        fits = (
            summary is not None
            and (job is None or summary.job == job)
            and (state is None or summary.state is state)
            and (since is None or summary.started >= since)
            and (until is None or summary.started < until)
        )
        found[batch] = summary if fits else None
        kept += fits
        if kept == limit:
            break
    summaries = [summary for summary in found.values() if summary is not None]
    return sorted(summaries, key=lambda summary: summary.intent, reverse=True)


class Standing(Protocol):
    """What must be asked to say how a batch stands: the ledger, or what was read from it."""

    def undone(self, batch: BatchId, table: TableUuid) -> Entry | None:
        """Return the entry that took a landed batch out of a table again."""
        ...

    def is_alive(self, owner: str) -> bool:
        """Say whether the process that holds ``owner`` still lives."""
        ...


def summarise(ledger: Standing, entries: list[Entry]) -> BatchSummary | None:
    """Add up everything recorded about one batch; None where it never had an intent."""
    intents = [entry for entry in entries if entry.kind is Kind.INTENT]
    if not intents:
        return None
    effects = [entry for entry in entries if entry.kind in EFFECTS]
    last = intents[-1]
    # The attempt that was carried through says more than one that came after it in vain.
    telling = _carried(intents, effects) or last
    planned = facts.objects(telling.facts, "operations")
    counts = [count for count in map(facts.rows, effects) if count is not None]
    offsets = facts.obj(telling.facts, "offsets")
    settling = [entry for entry in entries if entry.settles]
    return BatchSummary(
        batch=BatchId(str(last.batch)),
        job=telling.job,
        run=telling.run,
        state=batch_state(ledger, entries),
        tables=_unique(
            [entry.table.name for entry in effects if entry.table is not None]
            + [str(item.get("table")) for item in planned]
        ),
        operations=_unique(
            [str(item.get("op")) for item in planned] or [facts.operation(e) for e in effects]
        ),
        rows=sum(counts) if counts else None,
        source=None if offsets is None else facts.text(offsets, "source"),
        offsets=facts.describe_offsets(offsets),
        generation=facts.number(telling.facts, "generation"),
        started=last.time,
        settled=settling[-1].time if settling else None,
        attempts=len(intents),
        intent=last.index,
        recovered=telling.recovered,
    )


def batch_state(ledger: Standing, entries: list[Entry]) -> BatchState:
    """Decide how a batch stands, from its entries in order."""
    settled = {entry.intent: entry for entry in entries if entry.settles}
    if any(entry.kind in EFFECTS for entry in settled.values()):
        return BatchState.UNDONE if _undone(ledger, entries) else BatchState.LANDED
    unsettled = [
        entry for entry in entries if entry.kind is Kind.INTENT and entry.index not in settled
    ]
    if any(_alive(ledger, intent) for intent in unsettled):
        return BatchState.IN_FLIGHT
    doubtful = {entry.intent for entry in entries if entry.kind is Kind.UNKNOWN}
    if any(intent.index in doubtful for intent in unsettled):
        return BatchState.UNKNOWN
    if any(entry.kind in EFFECTS for entry in entries):
        return BatchState.PARTLY_LANDED
    if unsettled:
        return BatchState.OPEN
    final = max(settled.values(), key=lambda entry: entry.index)
    return BatchState.REFUSED if final.kind is Kind.REFUSED else BatchState.ABANDONED


def _undone(ledger: Standing, entries: list[Entry]) -> bool:
    landed = [entry for entry in entries if entry.kind is Kind.LANDED and entry.table is not None]
    return bool(landed) and all(undoing(ledger, entry) is not None for entry in landed)


def undoing(ledger: Standing, landed: Entry) -> Entry | None:
    """Return the entry that took a landed batch out of its table after it had landed."""
    if landed.batch is None or landed.table is None:
        return None
    found = ledger.undone(landed.batch, landed.table.uuid)
    return found if found is not None and found.index > landed.index else None


def _alive(ledger: Standing, intent: Entry) -> bool:
    owner = facts.text(intent.facts, "owner")
    return owner is not None and ledger.is_alive(owner)


def _carried(intents: list[Entry], effects: list[Entry]) -> Entry | None:
    numbers = {entry.intent for entry in effects}
    return next((intent for intent in reversed(intents) if intent.index in numbers), None)


def _unique(values: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))


# -- where to look ---------------------------------------------------------------------------


def _candidates(
    ledger: Ledger,
    *,
    table: TableUuid | None,
    job: JobName | None,
    since: str | None,
    until: str | None,
    state: BatchState | None,
) -> Iterator[BatchId]:
    """Yield batches that may fit, about newest first, each question by its own index."""
    intents = EntryFilter(kinds=(Kind.INTENT,), job=job, since=since, until=until)
    # An outcome comes after its start: maybe later than ``until``, never before ``since``.
    outcomes = {
        BatchState.REFUSED: (Kind.REFUSED,),
        BatchState.ABANDONED: (Kind.ABANDONED,),
        BatchState.UNKNOWN: (Kind.UNKNOWN,),
    }
    if state in {BatchState.IN_FLIGHT, BatchState.OPEN, BatchState.PARTLY_LANDED}:
        entries: Iterator[Entry] = iter(ledger.open_intents(job=job)[::-1])
    elif state is BatchState.UNDONE:
        yield from _named_as_undone(ledger, table, since)
        return
    elif state in outcomes:
        entries = newest(ledger, EntryFilter(kinds=outcomes[state], job=job, since=since))
    elif table is not None:
        entries = _of_table(ledger, table, job, since)
    else:
        entries = newest(ledger, intents)
    for entry in entries:
        if entry.batch is not None and _mentions(ledger, entry, table):
            yield entry.batch


def _of_table(
    ledger: Ledger, table: TableUuid, job: JobName | None, since: str | None
) -> Iterator[Entry]:
    """Yield what happened to a table, and what was meant to happen to it and did not."""
    done = newest(ledger, EntryFilter(table=table, job=job, since=since))
    failed = newest(ledger, EntryFilter(kinds=_UNLANDED, job=job, since=since))
    merged = heapq.merge(done, failed, key=newer_first)
    return with_open(ledger, merged, job=job, first=first_since(ledger, since))


def _named_as_undone(
    ledger: Ledger, table: TableUuid | None, since: str | None
) -> Iterator[BatchId]:
    where = EntryFilter(kinds=(Kind.ROLLBACK, Kind.UNDO), table=table, since=since)
    for entry in newest(ledger, where):
        for batch in facts.texts(entry.facts, "undone"):
            yield BatchId(batch)


def _mentions(ledger: Ledger, entry: Entry, table: TableUuid | None) -> bool:
    if table is None or (entry.table is not None and entry.table.uuid == table):
        return True
    intent = entry if entry.kind is Kind.INTENT else _intent_of(ledger.get, entry)
    return intent is not None and facts.touches(intent, table, "")


def _intent_of(get: Callable[[int], Entry], entry: Entry) -> Entry | None:
    return None if entry.intent is None else get(entry.intent)
