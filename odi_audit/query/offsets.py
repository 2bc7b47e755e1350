"""Continuity of sources: every gap, overlap, rewind and replay of what has landed.

Owns which entries the judgement needs; ``offset_story`` judges. The committer judges one batch
before it lands, this a whole history. Must never hold more than a position for each partition
and the events found.
"""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Mapping

from odi_audit.errors import EntryNotFound
from odi_audit.ids import JobName, TableUuid
from odi_audit.ledger.port import EntryFilter, Ledger
from odi_audit.model.entries import Entry, Kind
from odi_audit.query import facts
from odi_audit.query.lookup import walk
from odi_audit.query.offset_events import Continuity
from odi_audit.query.offset_story import Story

_READ = (Kind.LANDED, Kind.REPLAY, Kind.GAP_ACCEPTED)
_BACK = (Kind.ROLLBACK, Kind.UNDO)
JOBS_LOOKED_AT = 2_000
"""Newest intents that are searched for jobs of a similar name."""
NEAR_MATCHES_MAX = 3


def continuity(
    ledger: Ledger,
    *,
    table: TableUuid | None = None,
    job: JobName | None = None,
    stop: int | None = None,
) -> Continuity:
    """Judge what landed in a table, or by a job, or everything; entries before ``stop`` count.

    Raises:
        EntryNotFound: the job has no entry in the ledger; near matches are in the message.
    """
    if job is not None and not ledger.find(EntryFilter(job=job), limit=1):
        raise _no_job(ledger, job)
    story = Story(later=_undone_later(ledger, table))
    # A rollback may be another job's work: it is looked for by table, not by job.
    read = walk(ledger, EntryFilter(kinds=_READ, table=table, job=job), stop=stop)
    undone = walk(ledger, EntryFilter(kinds=_BACK, table=table), stop=stop)
    for entry in heapq.merge(read, undone, key=lambda entry: entry.index):
        if entry.kind in _BACK:
            story.undo(entry)
        elif entry.kind is Kind.LANDED:
            story.land(entry)
        elif entry.kind is Kind.GAP_ACCEPTED:
            story.accepted[_attempt(entry)] = entry
        elif entry.kind is Kind.REPLAY:
            story.replays.add(entry.intent)
    if table is not None:
        for name in story.jobs_over_many_tables():
            for entry in walk(ledger, EntryFilter(kinds=(Kind.LANDED,), job=name), stop=stop):
                story.brought(entry)
    return story.told()


def _attempt(entry: Entry) -> tuple[int | None, TableUuid | None]:
    return entry.intent, None if entry.table is None else entry.table.uuid


def _undone_later(ledger: Ledger, table: TableUuid | None) -> Mapping[tuple[str, TableUuid], int]:
    """Return, for each batch that was taken out of a table, the last entry that did."""
    where = EntryFilter(kinds=_BACK, table=table)
    return {
        (batch, entry.table.uuid): entry.index
        for entry in walk(ledger, where)
        if entry.table is not None
        for batch in facts.texts(entry.facts, "undone")
    }


def _no_job(ledger: Ledger, job: JobName) -> EntryNotFound:
    newest = ledger.find(EntryFilter(kinds=(Kind.INTENT,)), limit=JOBS_LOOKED_AT, newest_first=True)
    known = sorted({entry.job for entry in newest if entry.job is not None})
    near = difflib.get_close_matches(job, known, n=NEAR_MATCHES_MAX, cutoff=0.5)
    tail = f"; did you mean {' or '.join(near)}?" if near else ""
    return EntryNotFound(
        f"the ledger knows no job {job}{tail}", hint="odi-audit batches", job=job, near=list(near)
    )
