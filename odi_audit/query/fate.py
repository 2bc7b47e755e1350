"""The fate of a batch's rows in one table: as they were left, changed since, deleted since.

Owns the counting, by row id where rows have one. What has expired is asked of the ledger and of the
ranges of row ids that it keeps. Must never guess: a row whose fate nothing shows is counted as
untold, with the batches that may have decided it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from odi_audit.canonical import Json, JsonObject
from odi_audit.catalog.state import SnapshotInfo, TableState, head, history
from odi_audit.ids import BatchId, SnapshotId
from odi_audit.ledger.port import Ledger
from odi_audit.model.entries import Entry
from odi_audit.query import facts
from odi_audit.query.dropped import drop_of, said
from odi_audit.query.origin import Confidence
from odi_audit.query.places import batch_of, batches_by_sequence
from odi_audit.query.writes import is_compaction

if TYPE_CHECKING:
    import pyarrow as pa

    from odi_audit.catalog.attribution import Attribution
    from odi_audit.catalog.files import Progress

APPEND = "append"
_MERGED = ("rows-inserted", "rows-updated")
"""What Spark counts in a MERGE, copy-on-write or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class By:
    """How many rows one batch decided over; None is a write that is no batch, or not known."""

    batch: BatchId | None
    rows: int
    note: str | None = None

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {"batch": self.batch, "rows": self.rows, "note": self.note}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What became of the rows that a batch wrote: ``live + changed + gone + untold == written``.

    ``changed_by`` names the batch that changed each row last. ``took`` counts rows that the batch
    itself took away. None: it cannot be told.
    """

    confidence: Confidence
    written: int | None = None
    born: int | None = None
    updated: int | None = None
    took: int | None = None
    live: int | None = None
    changed: int | None = None
    changed_by: tuple[By, ...] = ()
    gone: int | None = None
    gone_by: tuple[By, ...] = ()
    untold: int | None = None
    untold_by: tuple[By, ...] = ()
    note: str | None = None

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        body: dict[str, Json] = {name: getattr(self, name) for name in self.__slots__}
        body["confidence"] = self.confidence.value
        for name in ("changed_by", "gone_by", "untold_by"):
            body[name] = [by.to_json() for by in getattr(self, name)]
        return body


def fate_of(
    ledger: Ledger,
    state: TableState | None,
    landed: Entry,
    undone: Entry | None,
    *,
    missing: list[str],
    progress: Progress | None = None,
) -> Fate:
    """Return what became of the rows that a landed entry tells of.

    A data file that is gone is named in ``missing``; what it would have shown is not told.
    """
    if is_compaction(landed):
        return Fate(
            confidence=Confidence.EXACT,
            written=0,
            born=0,
            updated=0,
            took=0,
            live=0,
            changed=0,
            gone=0,
            untold=0,
            note="a compaction: it moved rows, and changed none",
        )
    current = None if state is None else head(state)
    if state is None or current is None:
        lost = _gone(ledger, landed) if state is None else "the table has no snapshot"
        rows = facts.rows(landed)
        return Fate(confidence=Confidence.UNKNOWN, written=rows, untold=rows, note=lost)
    now = state.snapshot(current)
    assert now is not None
    info = state.snapshot(SnapshotId(facts.text(landed.facts, "snapshot") or ""))
    story = _Story(
        ledger=ledger,
        state=state,
        now=now,
        landed=landed,
        undone=undone,
        missing=[],
        progress=progress,
    )
    if info is None:
        fate = story.expired()
    else:
        fate = story.by_row_id(info) if info.first_row_id is not None else story.by_file(info)
        fate = replace(fate, took=story.took(info))
    missing.extend(story.missing)
    return _with_gaps(fate) if story.missing else fate


def _with_gaps(fate: Fate) -> Fate:
    told = "data files are gone: rows that lay in them are not counted"
    return replace(fate, note=told if fate.note is None else f"{fate.note}; {told}")


def _gone(ledger: Ledger, landed: Entry) -> str:
    entry = None if landed.table is None else drop_of(ledger, landed.table.uuid)
    return "the table is gone" if entry is None else f"the table was {said(entry)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Story:
    ledger: Ledger
    state: TableState
    now: SnapshotInfo
    landed: Entry
    undone: Entry | None
    missing: list[str]
    progress: Progress | None

    def by_row_id(self, info: SnapshotInfo) -> Fate:
        """Follow each row by its id, from the batch's snapshot to the head: exact."""
        import pyarrow.compute as pc

        from odi_audit.catalog.changes import PAIR, compare
        from odi_audit.catalog.rows import LAST_UPDATED, ROW_ID
        from odi_audit.catalog.touched import row_ids, written_rows

        ids = row_ids(written_rows(self.state, info, missing=self.missing))
        born = pc.sum(pc.greater_equal(ids, info.first_row_id)).as_py() or 0
        since = compare(
            self.state, info.id, self.now.id, missing=self.missing, progress=self.progress
        )
        lost = since.before.alone[ROW_ID].combine_chunks()
        gone = lost.filter(pc.is_in(lost, value_set=ids))
        paired = since.after.rows.filter(pc.is_in(since.after.rows[PAIR], value_set=ids))
        untold = pc.sum(pc.is_in(since.before.untold[ROW_ID], value_set=ids)).as_py() or 0
        changers = Counter(paired[LAST_UPDATED].to_pylist())
        return Fate(
            confidence=Confidence.EXACT,
            written=len(ids),
            born=born,
            updated=len(ids) - born,
            live=len(ids) - len(gone) - len(paired) - untold,
            changed=len(paired),
            changed_by=self._changers(changers, info.sequence_number),
            gone=len(gone),
            gone_by=self._takers(info.id, gone),
            untold=untold,
        )

    def by_file(self, info: SnapshotInfo) -> Fate:
        """Follow the batch's files: all there is where its rows had no ids."""
        import pyarrow as pa

        from odi_audit.catalog.touched import file_fate

        fate = file_fate(self.state, info, self.now.id, missing=self.missing)
        notes = ["the rows had no ids: their files were followed"]
        if info.operation != APPEND:
            notes.append("the files also hold rows that the batch only carried over")
        rolled_back = not any(past.id == info.id for past in history(self.state))
        untold = {} if rolled_back else fate.lost
        gone = fate.marked + (sum(fate.lost.values()) if rolled_back else 0)
        return Fate(
            confidence=Confidence.FILE,
            written=fate.written,
            live=fate.live,
            changed=None,
            gone=gone,
            gone_by=self._takers(info.id, pa.nulls(gone, pa.int64())),
            untold=sum(untold.values()),
            untold_by=tuple(self._rewriter(snapshot, rows) for snapshot, rows in untold.items()),
            note="; ".join(notes),
        )

    def expired(self) -> Fate:
        """Answer from the head and the ledger: the batch's own snapshot has expired."""
        kept = self.landed.facts
        sequence = facts.number(kept, "sequence_number")
        deleting = facts.operation(self.landed) == "delete"
        written = _written(self.landed)
        took = facts.rows(self.landed) if deleting else None
        if facts.number(kept, "first_row_id") is None or sequence is None:
            snapshot = SnapshotId(facts.text(kept, "snapshot") or "")
            live = self._live_now().by_file_snapshot.get(snapshot, 0)
            return Fate(
                confidence=Confidence.FILE,
                written=written,
                took=took,
                live=live,
                untold=None if written is None else max(written - live, 0),
                note="the snapshot has expired and the rows had no ids: those still in the batch's "
                "own files are counted",
            )
        live = self._live_now().by_sequence.get(sequence, 0)
        if facts.operation(self.landed) == APPEND and written == facts.number(kept, "added_rows"):
            return self._expired_append(sequence, live)
        if live == written:
            fate = Fate(confidence=Confidence.EXACT, changed=0, gone=0, untold=0)
            return replace(fate, written=written, took=took, live=live)
        return Fate(
            confidence=Confidence.UNKNOWN,
            written=written,
            took=took,
            live=live,
            untold=None if written is None else written - live,
            note="the snapshot has expired: rows that are still as the batch left them are counted "
            "exactly; what became of the others cannot be told",
        )

    def _expired_append(self, sequence: int, live: int) -> Fate:
        """Use that an append's rows have all the ids of its range, and no others."""
        import pyarrow as pa
        import pyarrow.compute as pc

        from odi_audit.catalog.rows import LAST_UPDATED, ROW_ID, lineage_rows

        first = facts.number(self.landed.facts, "first_row_id") or 0
        written = facts.number(self.landed.facts, "added_rows") or 0
        changers: Counter[int] = Counter()
        found: list[pa.Array] = [pa.array([], pa.int64())]
        for batch in lineage_rows(self.state, columns=[], missing=self.missing):
            ids = batch.column(ROW_ID)
            mine = pc.and_(pc.greater_equal(ids, first), pc.less(ids, first + written))
            found.append(ids.filter(mine))
            changers.update(batch.column(LAST_UPDATED).filter(mine).to_pylist())
        changers.pop(sequence, None)
        every = pa.arange(first, first + written)
        lost = every.filter(pc.invert(pc.is_in(every, value_set=pa.concat_arrays(found))))
        # A row that is not there may as well lie in a file that is gone.
        gone = lost.slice(0, 0) if self.missing else lost
        oldest = history(self.state)[-1]
        return Fate(
            confidence=Confidence.EXACT,
            written=written,
            born=written,
            updated=0,
            took=0,
            live=live,
            changed=sum(changers.values()),
            changed_by=self._changers(changers, sequence),
            gone=len(gone),
            gone_by=self._takers(oldest.id, gone),
            untold=len(lost) - len(gone),
            note="the snapshot has expired: the ledger keeps its range of row ids",
        )

    def took(self, info: SnapshotInfo) -> int | None:
        """Return how many rows the batch itself took away."""
        if info.parent is None or info.operation == APPEND:
            return 0
        if self.state.snapshot(info.parent) is None:
            deleting = facts.operation(self.landed) == "delete"
            return facts.rows(self.landed) if deleting else None
        from odi_audit.catalog.changes import compare

        known = len(self.missing)
        compared = compare(self.state, info.parent, info.id, missing=self.missing)
        return None if len(self.missing) > known else compared.deleted_count

    def _live_now(self) -> Attribution:
        from odi_audit.catalog.attribution import live_rows

        return live_rows(self.state, missing=self.missing)

    def _changers(self, changers: Mapping[int, int], own: int) -> tuple[By, ...]:
        batches = batches_by_sequence(self.ledger, self.state) if changers else {}
        found: list[By] = []
        for sequence, rows in sorted(changers.items()):
            if sequence < own:
                # An older version is back: main was moved back to before the batch.
                found.append(By(batch=self._undoer(), rows=rows, note="rolled back"))
            else:
                batch = batches.get(sequence)
                note = None if batch else "a write that is not on record"
                found.append(By(batch=batch, rows=rows, note=note))
        return tuple(found)

    def _takers(self, since: SnapshotId, gone: pa.Array) -> tuple[By, ...]:
        from odi_audit.catalog.changes import removals

        if not len(gone):
            return ()
        known = len(self.missing)
        taken = removals(self.state, since, self.now.id, gone, missing=self.missing)
        found = []
        for snapshot, ids in reversed(taken.items()):
            batch = batch_of(self.ledger, self.state, snapshot)
            note = None if batch else "a write that is not on record"
            found.append(By(batch=batch, rows=len(ids), note=note))
        left = len(gone) - sum(by.rows for by in found)
        if left:
            undoer = self._undoer() if len(self.missing) == known else None
            note = "rolled back" if undoer else "by a write whose snapshot has expired"
            if len(self.missing) > known:
                note = "a data file that would show it is gone"
            found.append(By(batch=undoer, rows=left, note=note))
        return tuple(found)

    def _rewriter(self, snapshot: SnapshotId | None, rows: int) -> By:
        if snapshot is None:
            return By(batch=None, rows=rows, note="by a write whose snapshot has expired")
        info = self.state.snapshot(snapshot)
        moved = info is not None and is_compaction(info)
        note = "moved by a compaction" if moved else "in files that were written anew"
        return By(batch=batch_of(self.ledger, self.state, snapshot), rows=rows, note=note)

    def _undoer(self) -> BatchId | None:
        return None if self.undone is None else self.undone.batch


def _written(landed: Entry) -> int | None:
    """Return how many rows the ledger shows a batch to have written; None where it cannot."""
    counts = facts.obj(landed.facts, "counts") or {}
    merged = [facts.number(counts, key) for key in _MERGED]
    if any(count is not None for count in merged):
        return sum(count or 0 for count in merged)
    if facts.operation(landed) == "delete":
        return 0
    if facts.operation(landed) != APPEND and facts.number(counts, "deleted-data-files"):
        # The new files also hold what was carried over from the old ones.
        return None
    return facts.counted_rows(landed) or 0
