"""Finding entries and tables for the commands that look over a whole history.

Owns the walk along the ledger's indexes in bounded memory, and the finding of a table that was
renamed or dropped since. Must never hold more than a page of entries.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from odi_audit.catalog.state import TableState
from odi_audit.errors import TableNotFound
from odi_audit.ids import JobName
from odi_audit.ledger.port import EntryFilter, Ledger
from odi_audit.model.entries import Entry, Kind
from odi_audit.model.names import NAMING, comes_to, former_name, last_about, leaves
from odi_audit.model.tables import TableName, TableRef

if TYPE_CHECKING:
    from odi_audit.catalog.lake import LakeCatalog

PAGE = 2_000
"""Entries held at a time."""
FIRST_PAGE = 200
"""Entries of the first page where the newest are likely to be enough."""
PAGE_GROWTH = 4
"""The next page is so much larger, up to :data:`PAGE`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A table that somebody named; ``state`` is None where the catalog no longer has it.

    ``dropped`` is the entry by which it was dropped, where it was; ``earlier`` are those by which
    other tables that had its name before it were dropped or renamed.
    """

    ref: TableRef
    state: TableState | None
    dropped: Entry | None = None
    earlier: tuple[Entry, ...] = ()


def walk(ledger: Ledger, where: EntryFilter, *, stop: int | None = None) -> Iterator[Entry]:
    """Yield the entries that match, in order, a page at a time; those from ``stop`` on not."""
    bounded = where if stop is None else replace(where, before=stop)
    while True:
        page = ledger.find(bounded, limit=PAGE)
        yield from page
        if len(page) < PAGE:
            return
        bounded = replace(bounded, first=page[-1].index + 1)


def find_named(ledger: Ledger, catalog: LakeCatalog, name: TableName) -> Named:
    """Return the table of a name: as the catalog has it now, else as the ledger knew it.

    Raises:
        TableNotFound: neither knows it; near matches are in the message.
    """
    named = ledger.find(EntryFilter(kinds=NAMING))
    try:
        state = catalog.load(name)
        ref = state.ref
    except TableNotFound:
        had = [entry for entry in named if comes_to(entry, str(name)) or leaves(entry, str(name))]
        last = last_about(had[-1], named) if had else None
        if last is None or last.table is None:
            raise
        gone = last if last.kind is Kind.TABLE_DROPPED else None
        found = catalog.load_by_uuid(last.table.uuid) if gone is None else None
        if found is None:
            earlier = _earlier(named, last.table)
            return Named(ref=last.table, state=None, dropped=gone, earlier=earlier)
        state, ref = found, found.ref
    return Named(ref=ref, state=state, earlier=_earlier(named, ref))


def source_name(ledger: Ledger, table: TableRef) -> str:
    """Return the name under which batches made of a table name it as their source.

    That is the first one on record: where a reader stands must not depend on a rename.
    """
    where = EntryFilter(kinds=(Kind.TABLE_RENAMED,), table=table.uuid)
    first = next(iter(ledger.find(where, limit=1)), None)
    return table.name if first is None else former_name(first) or table.name


def _earlier(named: Sequence[Entry], table: TableRef) -> tuple[Entry, ...]:
    left = {
        entry.table.uuid: entry
        for entry in named
        if entry.table is not None and leaves(entry, table.name) and entry.table.uuid != table.uuid
    }
    return tuple(left.values())


def newest(ledger: Ledger, where: EntryFilter) -> Iterator[Entry]:
    """Yield the entries that match, newest first; each page is asked for when it is needed."""
    limit = FIRST_PAGE
    while True:
        page = ledger.find(where, limit=limit, newest_first=True)
        yield from page
        if len(page) < limit:
            return
        where = replace(where, before=page[-1].index)
        limit = min(limit * PAGE_GROWTH, PAGE)


def with_open(
    ledger: Ledger, entries: Iterator[Entry], *, job: JobName | None = None, first: int = 0
) -> Iterator[Entry]:
    """Add the open intents, from ``first`` on, to entries that come newest first.

    Intents are looked at only as far back as the entries have been taken: in a long ledger that
    is what makes a short answer cheap.
    """
    high: int | None = None
    while page := list(islice(entries, FIRST_PAGE)):
        low = max(page[-1].index, first)
        yield from heapq.merge(page, _open(ledger, job, low, high), key=newer_first)
        high = low
    yield from _open(ledger, job, first, high)


def first_since(ledger: Ledger, moment: str | None) -> int:
    """Return the index of the first entry since a moment; past the end where there is none."""
    if moment is None:
        return 0
    found = ledger.find(EntryFilter(since=moment), limit=1)
    return found[0].index if found else ledger.head().size


def _open(ledger: Ledger, job: JobName | None, first: int, before: int | None) -> list[Entry]:
    if before is not None and before <= first:
        return []
    return ledger.open_intents(job=job, first=first, before=before)[::-1]


def newer_first(entry: Entry) -> int:
    """Return the key that puts newer entries first."""
    return -entry.index
