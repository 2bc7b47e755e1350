"""Downstream: who has read a batch, and what those readers wrote, and who has read that.

Owns the walk from a batch over confirmed reads to the batches of the reading runs. The ledger alone
answers; a table's snapshots, where they are kept, tell which reads really held the batch. Must
never walk a circle: a batch that was met before is named, and not followed again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from odi_audit.canonical import Json, JsonObject
from odi_audit.catalog.state import TableState, ancestors
from odi_audit.ids import BatchId, JobName, SnapshotId, TableUuid
from odi_audit.ledger.port import EntryFilter, Ledger
from odi_audit.model.entries import Entry, Kind
from odi_audit.model.tables import TableRef
from odi_audit.query import facts
from odi_audit.query.consumers import Read, reads
from odi_audit.query.writes import is_compaction

BATCHES_MAX = 10_000
"""A walk over more batches than this tells nobody anything; it ends and says so."""
TABLE_OFFSETS = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """One read that held the batch, and what its run wrote from it.

    ``certain`` says that the snapshots show it; else the numbers in the ledger do.
    """

    read: Read
    certain: bool
    wrote: tuple[Written, ...]

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {
            **self.read.to_json(),
            "certain": self.certain,
            "wrote": [written.to_json() for written in self.wrote],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A batch that a reader's run landed; ``again`` says that it is told elsewhere in the tree."""

    batch: BatchId
    job: JobName | None
    tables: tuple[str, ...]
    time: str
    again: bool
    readers: tuple[Reader, ...]

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        readers: list[Json] = [reader.to_json() for reader in self.readers]
        return {
            "batch": self.batch,
            "job": self.job,
            "tables": list(self.tables),
            "time": self.time,
            "again": self.again,
            "readers": readers,
        }


class Walk:
    """One walk downstream; remembers what it has met. ``cut`` says that it was ended early."""

    def __init__(self, ledger: Ledger, find: Callable[[TableRef], TableState | None]) -> None:
        self._ledger = ledger
        self._find = find
        self._states: dict[TableUuid, TableState | None] = {}
        self._reads: dict[TableUuid, list[Read]] = {}
        self._met: set[BatchId] = set()
        self.cut = False

    def readers(self, batch: BatchId) -> tuple[Reader, ...]:
        """Return who has read a batch, oldest first, each with what came of it."""
        self._met.add(batch)
        landed = [entry for entry in self._ledger.batch_entries(batch) if entry.kind is Kind.LANDED]
        found = [
            (read, certain)
            for entry in landed
            if entry.table is not None and not is_compaction(entry)
            for read, certain in self._holding(entry, entry.table)
        ]
        found.sort(key=lambda pair: pair[0].entry)
        return tuple(
            Reader(read=read, certain=certain, wrote=self._wrote(read)) for read, certain in found
        )

    def _holding(self, landed: Entry, table: TableRef) -> Sequence[tuple[Read, bool]]:
        if table.uuid not in self._reads:
            self._reads[table.uuid] = reads(self._ledger, table.uuid)
            self._states[table.uuid] = self._find(table)
        state = self._states[table.uuid]
        undone = None
        if landed.batch is not None:
            undone = self._ledger.undone(landed.batch, table.uuid)
        found: list[tuple[Read, bool]] = []
        for read in self._reads[table.uuid]:
            held = _shown_by_snapshots(state, landed, read)
            if held is None:
                held_by_number = _shown_by_numbers(landed, read)
                gone_before = undone is not None and undone.index < read.began
                if held_by_number and not gone_before:
                    found.append((read, False))
            elif held:
                found.append((read, True))
        return found

    def _wrote(self, read: Read) -> tuple[Written, ...]:
        if read.job is None:
            return ()
        where = EntryFilter(kinds=(Kind.INTENT,), job=read.job, since=read.since)
        until = self._next_read(read)
        batches: dict[BatchId, None] = {}
        for intent in self._ledger.find(where):
            if intent.batch is not None and _comes_from(intent, read, until):
                batches[intent.batch] = None
        return tuple(written for batch in batches if (written := self._written(batch)) is not None)

    def _next_read(self, read: Read) -> int | None:
        """Return where the same run read on: what it wrote after that came of the later read."""
        later = [
            other.began
            for other in self._reads[read.table.uuid]
            if other.entry > read.entry and (other.run, other.consumer) == (read.run, read.consumer)
        ]
        return min(later, default=None)

    def _written(self, batch: BatchId) -> Written | None:
        landed = [entry for entry in self._ledger.batch_entries(batch) if entry.kind is Kind.LANDED]
        if not landed:
            return None
        again = batch in self._met
        if len(self._met) >= BATCHES_MAX:
            self.cut = True
        return Written(
            batch=batch,
            job=landed[0].job,
            tables=tuple(entry.table.name for entry in landed if entry.table is not None),
            time=landed[0].time,
            again=again,
            readers=() if again or self.cut else self.readers(batch),
        )


def _comes_from(intent: Entry, read: Read, until: int | None) -> bool:
    """Say whether a batch was made of what was read: in the same run, or by the same range.

    The range tells where a run wrote, crashed before it confirmed, and was done again.
    """
    offsets = facts.obj(intent.facts, "offsets") or {}
    ranges = facts.obj(offsets, "ranges") or {}
    if facts.text(offsets, "kind") == TABLE_OFFSETS and read.table.uuid in ranges:
        return ranges[read.table.uuid] == [read.from_snapshot, read.to_snapshot]
    same_run = read.run is not None and facts.text(intent.facts, "parent_run") == read.run
    return same_run and read.began <= intent.index and (until is None or intent.index < until)


def _shown_by_snapshots(state: TableState | None, landed: Entry, read: Read) -> bool | None:
    """Say whether the snapshots that were read held the batch's; None where they have expired."""
    snapshot = facts.text(landed.facts, "snapshot")
    if state is None or snapshot is None or read.to_snapshot is None:
        return None
    if state.snapshot(SnapshotId(snapshot)) is None or state.snapshot(read.to_snapshot) is None:
        return None
    if not any(info.id == snapshot for info in ancestors(state, read.to_snapshot)):
        return False
    if read.from_snapshot is None:
        return True
    if state.snapshot(read.from_snapshot) is None:
        return None
    return not any(info.id == snapshot for info in ancestors(state, read.from_snapshot))


def _shown_by_numbers(landed: Entry, read: Read) -> bool:
    sequence = facts.number(landed.facts, "sequence_number")
    if sequence is None or read.to_sequence is None:
        return False
    return read.to_sequence >= sequence and (
        read.from_sequence is None or read.from_sequence < sequence
    )
