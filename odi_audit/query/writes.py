"""The writes to one table that the ledger has on record: found by number, by row id, by snapshot.

Owns the search. A table's landed entries stand in the ledger about in the order of their sequence
numbers, so a long record is searched by halves, and read whole only where that finds nothing.
Must never take an entry for another: what is returned says the number that was asked for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from odi_audit.catalog.state import SnapshotInfo
from odi_audit.ids import SnapshotId, TableUuid
from odi_audit.ledger.port import EntryFilter, Ledger
from odi_audit.model.entries import Entry, Kind
from odi_audit.query import facts
from odi_audit.query.lookup import newest, walk

Write: TypeAlias = Entry | SnapshotInfo
"""A write as the ledger recorded it or, where it did not, as the table shows it."""
REPLACE = "replace"
"""Iceberg's operation of a compaction: files change, rows do not."""
COMPACT = "compact"
_NEW_ROWS_ONLY = frozenset({"append", "overwrite", "overwrite_partitions"})
"""Operations of the committer whose files hold no row from before."""
WHOLE_MAX = 128
"""Up to so many writes a table's record is simply read."""
ENTRIES_MAX = 10_000
"""Entries held at a time; more are read again when they are asked for."""
_AROUND = 64
"""Entries looked at on both sides of the place where the search ends: writers that publish at the
same time may record in another order."""


class Writes:
    """The landed and the recorded foreign writes of one table."""

    def __init__(self, ledger: Ledger, table: TableUuid) -> None:
        self._ledger = ledger
        self._table = table
        self._whole = False
        self._foreign_read = False
        # Places in the ledger, not entries: a table may have a million writes.
        self._by_sequence: dict[int, int] = {}
        self._by_snapshot: dict[str, int] = {}
        self._ranges: dict[int, tuple[int, int]] = {}
        self._starts: list[int] = []
        self._entries: dict[int, Entry] = {}
        some = self._find((Kind.LANDED,), limit=WHOLE_MAX + 1)
        if len(some) <= WHOLE_MAX:
            self._read_foreign()
            self._whole = True
        self._keep(reversed(some))

    def by_sequence(self, number: int, *, thorough: bool = True) -> Entry | None:
        """Return the write that made the snapshot of a sequence number."""
        return self._look(
            lambda: self._by_sequence.get(number),
            lambda entry: _compare(facts.number(entry.facts, "sequence_number"), number),
            thorough=thorough,
        )

    def by_row_id(self, row_id: int) -> Entry | None:
        """Return the write that gave a row its id."""
        return self._look(
            lambda: self._holding(row_id), lambda entry: _holds(entry, row_id), thorough=True
        )

    def by_snapshot(self, snapshot: SnapshotId) -> Entry | None:
        """Return the write that made a snapshot of which nothing but its id is known."""
        return self._look(lambda: self._by_snapshot.get(snapshot), None, thorough=True)

    def before(self, number: int) -> Iterator[Entry]:
        """Yield the landed writes with smaller sequence numbers, newest first."""
        for entry in newest(self._ledger, EntryFilter(kinds=(Kind.LANDED,), table=self._table)):
            found = facts.number(entry.facts, "sequence_number")
            if found is not None and found < number:
                yield entry

    def began_without_row_ids(self) -> bool:
        """Say whether the first write on record is from before the table had row ids."""
        first = self._find((Kind.LANDED, Kind.FOREIGN), limit=1, newest_first=False)
        # Without a record there is no telling: then it may have been.
        return not first or facts.number(first[0].facts, "first_row_id") is None

    # -- searching ---------------------------------------------------------------------------

    def _look(
        self,
        known: Callable[[], int | None],
        side: Callable[[Entry], int | None] | None,
        *,
        thorough: bool,
    ) -> Entry | None:
        found = known()
        if found is None and not self._whole:
            found = self._search(known, side, thorough=thorough)
        return None if found is None else self._entry(found)

    def _search(
        self,
        known: Callable[[], int | None],
        side: Callable[[Entry], int | None] | None,
        *,
        thorough: bool,
    ) -> int | None:
        found = None
        if not self._foreign_read:
            self._read_foreign()
            found = known()
        if found is None and side is not None:
            self._keep(self._halve(side))
            found = known()
        if found is None and thorough:
            where = EntryFilter(kinds=(Kind.LANDED,), table=self._table)
            self._keep(walk(self._ledger, where), cached=False)
            self._whole = True
            found = known()
        return found

    def _halve(self, side: Callable[[Entry], int | None]) -> list[Entry]:
        """Return entries about the place where the one that is looked for should stand."""
        low, high = 0, self._ledger.head().size
        while high - low > 1:
            middle = (low + high) // 2
            found = self._find((Kind.LANDED,), first=middle, limit=1, newest_first=False)
            if not found or found[0].index >= high:
                high = middle
                continue
            where = side(found[0])
            if where == 0:
                return found
            if where is None or where < 0:
                low = max(middle, found[0].index)
            else:
                high = middle
        return [
            *reversed(self._find((Kind.LANDED,), before=low, limit=_AROUND)),
            *self._find((Kind.LANDED,), first=low, limit=_AROUND, newest_first=False),
        ]

    def _find(
        self,
        kinds: tuple[Kind, ...],
        *,
        limit: int | None,
        first: int | None = None,
        before: int | None = None,
        newest_first: bool = True,
    ) -> list[Entry]:
        where = EntryFilter(kinds=kinds, table=self._table, first=first, before=before)
        return self._ledger.find(where, limit=limit, newest_first=newest_first)

    # -- what has been read --------------------------------------------------------------------

    def _read_foreign(self) -> None:
        self._foreign_read = True
        self._keep(reversed(self._find((Kind.FOREIGN,), limit=None)))

    def _keep(self, entries: Iterable[Entry], *, cached: bool = True) -> None:
        for entry in entries:
            snapshot = facts.text(entry.facts, "snapshot")
            sequence = facts.number(entry.facts, "sequence_number")
            span = row_ids(entry)
            if snapshot is not None:
                self._by_snapshot[snapshot] = entry.index
            if sequence is not None:
                self._by_sequence[sequence] = entry.index
            if span is not None:
                self._ranges[span[0]] = (span[1], entry.index)
            if cached:
                self._entries[entry.index] = entry
        self._starts = sorted(self._ranges)
        if len(self._entries) > ENTRIES_MAX:
            self._entries.clear()

    def _entry(self, index: int) -> Entry:
        found = self._entries.get(index)
        return self._ledger.get(index) if found is None else found

    def _holding(self, row_id: int) -> int | None:
        place = bisect_right(self._starts, row_id) - 1
        if place < 0:
            return None
        end, index = self._ranges[self._starts[place]]
        return index if row_id < end else None


def is_compaction(write: Write) -> bool:
    """Say whether a write only moved rows into other files."""
    if isinstance(write, SnapshotInfo):
        return write.operation == REPLACE
    return facts.operation(write) in {COMPACT, REPLACE}


def brings_new_rows_only(write: Write) -> bool:
    """Say whether no row in the files of a write was there before, changed or not."""
    if isinstance(write, SnapshotInfo):
        return write.operation == "append"
    operation = facts.operation(write)
    return operation == "append" or (write.kind is Kind.LANDED and operation in _NEW_ROWS_ONLY)


def carries_only(write: Write) -> bool:
    """Say whether the files of a write hold nothing but unchanged rows from before."""
    if is_compaction(write):
        return True
    if isinstance(write, SnapshotInfo):
        return False
    return write.kind is Kind.LANDED and facts.operation(write) == "delete"


def may_carry(write: Write) -> bool:
    """Say whether the files of a write may hold unchanged rows from before (copy-on-write)."""
    if brings_new_rows_only(write):
        return False
    counts = write.summary if isinstance(write, SnapshotInfo) else facts.obj(write.facts, "counts")
    if carries_only(write) or counts is None:
        return True
    return (facts.number(counts, "deleted-data-files") or 0) > 0


def sequence_of(write: Write) -> int | None:
    """Return the sequence number of a write."""
    if isinstance(write, SnapshotInfo):
        return write.sequence_number
    return facts.number(write.facts, "sequence_number")


def snapshot_of(write: Write) -> SnapshotId:
    """Return the snapshot that a write made."""
    if isinstance(write, SnapshotInfo):
        return write.id
    return SnapshotId(facts.text(write.facts, "snapshot") or "")


def added_rows(write: Write) -> int | None:
    """Return how many row ids a write took."""
    if isinstance(write, SnapshotInfo):
        return write.added_rows
    return facts.number(write.facts, "added_rows")


def row_ids(entry: Entry) -> tuple[int, int] | None:
    """Return the row ids that a write took, from the first to before the second."""
    first = facts.number(entry.facts, "first_row_id")
    added = facts.number(entry.facts, "added_rows")
    return None if first is None or not added else (first, first + added)


def _compare(found: int | None, wanted: int) -> int | None:
    return None if found is None else (found > wanted) - (found < wanted)


def _holds(entry: Entry, row_id: int) -> int | None:
    first = facts.number(entry.facts, "first_row_id")
    added = facts.number(entry.facts, "added_rows") or 0
    if first is None:
        return None
    return 1 if row_id < first else (0 if row_id < first + added else -1)
