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
from odi_audit.errors import EntryNotFound
from odi_audit.ids import SnapshotId, TableUuid
from odi_audit.ledger.port import EntryFilter, Ledger
from odi_audit.model.entries import Entry, Kind
from odi_audit.query import facts

Write: TypeAlias = Entry | SnapshotInfo
"""A write as the ledger recorded it or, where it did not, as the table shows it."""
REPLACE = "replace"
"""Iceberg's operation of a compaction: files change, rows do not."""
COMPACT = "compact"
_NEW_ROWS_ONLY = frozenset({"append", "overwrite", "overwrite_partitions"})
"""Operations of the committer whose files hold no row from before."""
WHOLE_MAX = 128
"""Up to so many writes a table's record is simply read."""
_PAGE = 500
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
        self._by_sequence: dict[int, Entry] = {}
        self._by_snapshot: dict[str, Entry] = {}
        self._ranges: dict[int, tuple[int, Entry]] = {}
        self._starts: list[int] = []
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
        limit, seen = _PAGE, 0
        while True:
            page = self._find((Kind.LANDED,), limit=limit)
            for entry in page[seen:]:
                found = facts.number(entry.facts, "sequence_number")
                if found is not None and found < number:
                    yield entry
            if len(page) < limit:
                return
            seen, limit = len(page), limit * 4

    def began_without_row_ids(self) -> bool:
        """Say whether the first write on record is from before the table had row ids."""
        first = self._find((Kind.LANDED, Kind.FOREIGN), limit=1, newest_first=False)
        # Without a record there is no telling: then it may have been.
        return not first or facts.number(first[0].facts, "first_row_id") is None

    # -- searching ---------------------------------------------------------------------------

    def _look(
        self,
        known: Callable[[], Entry | None],
        side: Callable[[Entry], int | None] | None,
        *,
        thorough: bool,
    ) -> Entry | None:
        found = known()
        if found is not None or self._whole:
            return found
        if not self._foreign_read:
            self._read_foreign()
            found = known()
        if found is None and side is not None:
            self._keep(self._halve(side))
            found = known()
        if found is None and thorough:
            self._keep(self._find((Kind.LANDED,), limit=None))
            self._whole = True
            found = known()
        return found

    def _halve(self, side: Callable[[Entry], int | None]) -> list[Entry]:
        """Return entries about the place where the one that is looked for should stand."""
        low, high = 0, self._ledger.head().size
        try:
            while high - low > 1:
                middle = (low + high) // 2
                moment = self._ledger.get(middle).time
                found = self._find((Kind.LANDED,), since=moment, limit=1, newest_first=False)
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
            moment = self._ledger.get(low).time
        except EntryNotFound:
            return []  # a hole in the ledger: all of it is read, and verification names the hole
        return [
            *reversed(self._find((Kind.LANDED,), until=moment, limit=_AROUND)),
            *self._find((Kind.LANDED,), since=moment, limit=_AROUND, newest_first=False),
        ]

    def _find(
        self,
        kinds: tuple[Kind, ...],
        *,
        limit: int | None,
        since: str | None = None,
        until: str | None = None,
        newest_first: bool = True,
    ) -> list[Entry]:
        where = EntryFilter(kinds=kinds, table=self._table, since=since, until=until)
        return self._ledger.find(where, limit=limit, newest_first=newest_first)

    # -- what has been read --------------------------------------------------------------------

    def _read_foreign(self) -> None:
        self._foreign_read = True
        self._keep(reversed(self._find((Kind.FOREIGN,), limit=None)))

    def _keep(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            snapshot = facts.text(entry.facts, "snapshot")
            sequence = facts.number(entry.facts, "sequence_number")
            span = row_ids(entry)
            if snapshot is not None:
                self._by_snapshot[snapshot] = entry
            if sequence is not None:
                self._by_sequence[sequence] = entry
            if span is not None:
                self._ranges[span[0]] = (span[1], entry)
        self._starts = sorted(self._ranges)

    def _holding(self, row_id: int) -> Entry | None:
        place = bisect_right(self._starts, row_id) - 1
        if place < 0:
            return None
        end, entry = self._ranges[self._starts[place]]
        return entry if row_id < end else None


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
