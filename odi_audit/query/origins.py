"""Origins: from a row id, a sequence number or a file's snapshot to the write behind it.

Owns the confidence of each answer. A table's own snapshots say which write it was, and the ledger
who made it; where a snapshot has expired the ledger answers alone. Must never take a compaction
for an origin, and must never claim more than the format can show.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from odi_audit.catalog.state import SnapshotInfo, TableState
from odi_audit.ids import SnapshotId
from odi_audit.ledger.port import Ledger
from odi_audit.model.entries import Entry, Kind
from odi_audit.query import facts
from odi_audit.query.candidates import landed_before, writes_behind
from odi_audit.query.origin import Confidence, Origin, copied, merged, unknown
from odi_audit.query.writes import (
    Write,
    Writes,
    added_rows,
    brings_new_rows_only,
    carries_only,
    is_compaction,
    may_carry,
    sequence_of,
    snapshot_of,
)

FOREIGN_NOTE = "a foreign write: it came past the committer"
EXPIRED_FILE = "the row has no id, and the snapshot that added its file is not on record"


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """Where a row without an id lay before its file was rewritten, as far as that was found.

    ``copied_from``: snapshots that had added rows equal to it. ``partition``: its partition's path.
    """

    copied_from: frozenset[SnapshotId] = frozenset()
    partition: str | None = None


NOWHERE = Earlier()
"""Nothing was looked for."""


class Origins:
    """Every write to one table, found by row id, by sequence number or by snapshot."""

    def __init__(self, ledger: Ledger, state: TableState) -> None:
        self._ledger = ledger
        self._state = state
        self._writes = Writes(ledger, state.ref.uuid)
        self._snapshots = {info.id: info for info in state.snapshots}
        self._by_sequence = {info.sequence_number: info for info in state.snapshots}
        ranges = {
            info.first_row_id: info
            for info in state.snapshots
            if info.first_row_id is not None and info.added_rows
        }
        self._starts = sorted(ranges)
        self._ranges = ranges
        self._known: dict[SnapshotId, Write] = {}
        self._told: dict[tuple[object, ...], Origin] = {}
        self.entries: set[int] = set()
        """Indexes of the ledger's entries that the answers so far rest on."""

    # -- questions -----------------------------------------------------------------------------

    def birth(
        self,
        row_id: int | None,
        added_by: SnapshotId | None,
        earlier: Earlier = NOWHERE,
    ) -> Origin:
        """Return the write that made a row; ``earlier`` narrows it for one without an id."""
        if row_id is None:
            return self._once("born", self._born_in_file, added_by, earlier)
        found = self._with_row_id(row_id)
        if found is None:
            return unknown(
                f"no write on record, and none in the table, has row id {row_id} in its range"
            )
        if is_compaction(found):
            return unknown("the row got its id in a compaction: it is older than row ids are here")
        if self._adopts(found):
            return self._adopted(found, added_by)
        return self._origin(found, Confidence.EXACT)

    def last_change(
        self,
        row_id: int | None,
        sequence: int | None,
        added_by: SnapshotId | None,
        earlier: Earlier = NOWHERE,
    ) -> Origin:
        """Return the write that made a row what it is."""
        if row_id is None or sequence is None:
            return self._once("changed", self._in_file, added_by, earlier)
        numbered_by = self._with_row_id(row_id)
        if numbered_by is not None and self._is_older_than_ids(numbered_by, sequence):
            return self._changed_before_ids(numbered_by, added_by, earlier)
        found = self.write(sequence)
        if found is None:
            return unknown(f"no write on record, and none in the table, has number {sequence}")
        if is_compaction(found):
            return unknown("a compaction wrote the row before rows had ids here")
        return self._origin(found, Confidence.EXACT)

    def of_snapshot(self, info: SnapshotInfo) -> Origin:
        """Return the write that made a snapshot that is still there."""
        return self._origin(self._record(info), Confidence.EXACT)

    def carries_only(self, snapshot: SnapshotId | None) -> bool:
        """Say whether the files that a snapshot added hold only rows copied from older files."""
        write = self._added(snapshot)
        return write is not None and carries_only(write)

    def may_carry(self, snapshot: SnapshotId | None) -> bool:
        """Say whether they may hold such rows."""
        write = self._added(snapshot)
        return write is not None and may_carry(write)

    def brings_new_rows_only(self, snapshot: SnapshotId | None) -> bool:
        """Say whether they hold no row that was there before, changed or not."""
        write = self._added(snapshot)
        return write is not None and brings_new_rows_only(write)

    def write(self, sequence: int) -> Write | None:
        """Return what is known of the write with a sequence number."""
        info = self._by_sequence.get(sequence)
        return self._writes.by_sequence(sequence) if info is None else self._record(info)

    # -- from numbers to writes ------------------------------------------------------------------

    def _with_row_id(self, row_id: int) -> Write | None:
        place = bisect_right(self._starts, row_id) - 1
        if place >= 0:
            info = self._ranges[self._starts[place]]
            if row_id < self._starts[place] + (info.added_rows or 0):
                return self._record(info)
        return self._writes.by_row_id(row_id)

    def _record(self, info: SnapshotInfo) -> Write:
        """Return what the ledger recorded of a snapshot, or the snapshot itself."""
        if info.id not in self._known:
            entry = None
            if info.batch is not None:
                entry = self._ledger.landed(info.batch, self._state.ref.uuid)
            if entry is None or snapshot_of(entry) != info.id:
                entry = self._writes.by_sequence(info.sequence_number, thorough=False)
            known = entry is not None and snapshot_of(entry) == info.id
            self._known[info.id] = entry if known and entry is not None else info
        return self._known[info.id]

    def _added(self, snapshot: SnapshotId | None) -> Write | None:
        if snapshot is None:
            return None
        info = self._snapshots.get(snapshot)
        return self._writes.by_snapshot(snapshot) if info is None else self._record(info)

    # -- rows from before the upgrade to v3 ------------------------------------------------------

    def _adopts(self, write: Write) -> bool:
        """Say whether a write gave ids to rows that it did not bring.

        The first commit after an upgrade to v3 does: it numbers the rows that were there before.
        Other commits may take more ids than they bring rows, where they rewrite manifests; those
        ids are given to nobody.
        """
        info = write if isinstance(write, SnapshotInfo) else self._snapshots.get(snapshot_of(write))
        counted = None if isinstance(write, SnapshotInfo) else facts.counted_rows(write)
        if info is not None:
            records = info.summary.get("added-records", "0")
            counted = int(records) if records.isdigit() else counted
        added = added_rows(write)
        if added is None or counted is None or added <= counted:
            return False
        if info is not None and info.parent is None:
            return False
        parent = None if info is None else self._snapshots.get(info.parent or SnapshotId(""))
        if parent is not None:
            return parent.first_row_id is None
        return self._writes.began_without_row_ids()

    def _adopted(self, assigner: Write, added_by: SnapshotId | None) -> Origin:
        own = snapshot_of(assigner)
        origin = self._origin(assigner, Confidence.EXACT)
        if added_by == own:
            if origin.operation == "append":
                return origin
            return unknown("the write that numbered the older rows may have changed this one")
        adder = self._added(added_by)
        assigned = sequence_of(assigner)
        added = None if adder is None else sequence_of(adder)
        if assigned is not None and added is not None and added < assigned:
            return self._born_in_file(added_by)
        return unknown("the row got its id at the upgrade to v3, or in the write just after it")

    def _is_older_than_ids(self, numbered_by: Write, sequence: int) -> bool:
        """Say whether a row was last changed before it got its id.

        Its number is then that of its file's data, and a compaction gives its files the number of
        the state that it began with: it names no write.
        """
        number = sequence_of(numbered_by) or 0
        if is_compaction(numbered_by):
            return sequence <= number
        return sequence < number and self._adopts(numbered_by)

    def _changed_before_ids(
        self, numbered_by: Write, added_by: SnapshotId | None, earlier: Earlier
    ) -> Origin:
        adder = self._added(added_by)
        if adder is not None and (sequence_of(adder) or 0) < (sequence_of(numbered_by) or 0):
            return self._once("changed", self._in_file, added_by, earlier)
        note = "the row is older than row ids are here, and its file has been rewritten since"
        return self._one_of_earlier(numbered_by, note)

    # -- rows without ids ------------------------------------------------------------------------

    def _once(
        self,
        question: str,
        ask: Callable[[SnapshotId | None, Earlier], Origin],
        added_by: SnapshotId | None,
        earlier: Earlier,
    ) -> Origin:
        # Many rows share a file: what is said of it is worked out once.
        key = (question, added_by, earlier)
        if key not in self._told:
            files: list[SnapshotId | None] = [*sorted(earlier.copied_from)] or [added_by]
            told = [ask(item, earlier) for item in files]
            origin = told[0] if len(told) == 1 else merged(told)
            self._told[key] = copied(origin) if earlier.copied_from else origin
        return self._told[key]

    def _behind(self, write: Write, earlier: Earlier) -> list[Write] | None:
        """Return the writes that may have made a row what it is in a file of ``write``."""
        if earlier.copied_from and not carries_only(write):
            # The row was looked for in older files: one that also carries rows stands for itself.
            return [write]
        return writes_behind(self._state, write, self.write, earlier.partition)

    def _born_in_file(self, added_by: SnapshotId | None, earlier: Earlier = NOWHERE) -> Origin:
        write = self._added(added_by)
        if write is None:
            return unknown(EXPIRED_FILE)
        behind = self._behind(write, earlier)
        changers = [item for item in behind or [] if not brings_new_rows_only(item)]
        if behind is None or not changers:
            return self._in_file(added_by, earlier)
        # A write that changes older rows may have changed this one: its birth is then earlier.
        also = [item for item in behind if not _only_changes(item)]
        note = "the row has no id, and its file came from a write that also changes older rows"
        return self._one_of_earlier(changers[0], note, also)

    def _in_file(self, added_by: SnapshotId | None, earlier: Earlier = NOWHERE) -> Origin:
        write = self._added(added_by)
        if write is None:
            return unknown(EXPIRED_FILE)
        note = "the row has no id, and its file holds rows that were copied from older files"
        behind = self._behind(write, earlier)
        if behind is None:
            return self._one_of_earlier(write, note, [] if carries_only(write) else [write])
        if behind == [write]:
            return self._origin(write, Confidence.FILE)
        if len(behind) == 1:
            # Every file that was copied came from this one write.
            return copied(self._origin(behind[0], Confidence.FILE))
        return self._one_of(behind, note, complete=True)

    def _one_of_earlier(self, write: Write, note: str, also: Sequence[Write] = ()) -> Origin:
        earlier = landed_before(
            self._ledger,
            self._writes,
            self._state.ref.uuid,
            number=sequence_of(write),
            index=write.index if isinstance(write, Entry) else None,
        )
        listed = {sequence_of(item): item for item in [*also, *earlier]}
        return self._one_of(list(listed.values()), note, complete=False)

    def _one_of(self, writes: Sequence[Write], note: str, *, complete: bool) -> Origin:
        return merged(
            [self._origin(write, Confidence.FILE) for write in writes], note, complete=complete
        )

    # -- telling ---------------------------------------------------------------------------------

    def _origin(self, write: Write, confidence: Confidence) -> Origin:
        if isinstance(write, SnapshotInfo):
            return _from_snapshot(write, confidence)
        key = ("origin", write.index, confidence)
        if key not in self._told:
            self._told[key] = self._from_entry(write, confidence)
        return self._told[key]

    def _from_entry(self, write: Entry, confidence: Confidence) -> Origin:
        intent = None if write.intent is None else self._ledger.get(write.intent)
        self.entries.update(item.index for item in (write, intent) if item is not None)
        kept = {**(intent.facts if intent else {}), **write.facts}
        snapshot = facts.text(write.facts, "snapshot")
        offsets = facts.obj(kept, "offsets")
        return Origin(
            confidence=confidence,
            batch=write.batch,
            job=write.job or (intent.job if intent else None),
            run=write.run or (intent.run if intent else None),
            operation=facts.operation(write),
            source=facts.text(kept, "source") or facts.text(offsets or {}, "source"),
            offsets=offsets,
            source_facts=facts.obj(write.facts, "source_facts"),
            snapshot=None if snapshot is None else SnapshotId(snapshot),
            sequence_number=facts.number(write.facts, "sequence_number"),
            time=self._time(write, snapshot),
            principal=facts.text(kept, "principal"),
            code=facts.text(kept, "code"),
            entry=write.index,
            foreign=write.kind is Kind.FOREIGN,
            note=self._note(write, snapshot),
        )

    def _time(self, write: Entry, snapshot: str | None) -> str | None:
        info = None if snapshot is None else self._snapshots.get(SnapshotId(snapshot))
        if info is not None:
            return info.time
        # A foreign write was recorded long after it was made.
        recorded = None if write.kind is Kind.FOREIGN else write.time
        return facts.text(write.facts, "committed_at") or recorded

    def _note(self, write: Entry, snapshot: str | None) -> str | None:
        notes = [FOREIGN_NOTE] if write.kind is Kind.FOREIGN else []
        if snapshot not in self._snapshots:
            notes.append("the snapshot has expired")
        return "; ".join(notes) or None


def _from_snapshot(info: SnapshotInfo, confidence: Confidence) -> Origin:
    # A stamp alone is a claim: the batch is named by the ledger, or not at all.
    note = FOREIGN_NOTE
    if info.batch is not None:
        note = f"stamped as batch {info.batch}, which the ledger has not recorded as landed"
    return Origin(
        confidence=confidence,
        operation=info.operation,
        snapshot=info.id,
        sequence_number=info.sequence_number,
        time=info.time,
        foreign=info.batch is None,
        note=note,
    )


def _only_changes(write: Write) -> bool:
    return isinstance(write, Entry) and facts.operation(write) == "update"
