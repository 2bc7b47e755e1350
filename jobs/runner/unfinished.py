"""A batch that only some of its tables have: it must be finished before anything new is planned.

Owns finding it in the ledger. It happens where an attempt was given up after its first table had
landed: the rest is brought by the same batch, with the same offsets. Must never write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.sources.base import Plan
from odi_audit.ledger.port import EntryFilter
from odi_audit.model.entries import Entry, Kind
from odi_audit.model.offsets import offsets_from_json

if TYPE_CHECKING:
    from odi_audit.ids import JobName
    from odi_audit.ledger.port import Ledger

LOOKED_AT_MAX = 5
"""Of the attempts that were given up last: an unfinished batch stops the job until it is done."""


def unfinished(ledger: Ledger, job: JobName) -> Plan | None:
    """Return the plan of a batch that has landed on some of its tables only."""
    where = EntryFilter(kinds=(Kind.ABANDONED,), job=job)
    for given_up in ledger.find(where, limit=LOOKED_AT_MAX, newest_first=True):
        if given_up.batch is None or given_up.intent is None:
            continue
        entries = ledger.batch_entries(given_up.batch)
        landed = [entry for entry in entries if entry.kind is Kind.LANDED]
        if landed and not any(entry.settles for entry in landed):
            return _plan(ledger.get(given_up.intent))
    return None


def _plan(intent: Entry) -> Plan:
    offsets = offsets_from_json(intent.facts["offsets"])  # type: ignore[arg-type]
    generation = intent.facts.get("generation")
    rows = sum(
        part.end - part.start
        for part in offsets.ranges.values()
        if isinstance(part.start, int) and isinstance(part.end, int)
    )
    return Plan(
        offsets=offsets,
        rows=rows,
        more=True,
        generation=generation if isinstance(generation, int) else 0,
        news=("an earlier batch is finished first",),
    )
