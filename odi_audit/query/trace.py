"""Trace: which batch gave birth to a row, and which one changed it last.

Owns the joining of row lineage with the ledger, and the confidence of each answer. The ledger is
asked first, since it outlives expiry; a table's own snapshots answer for foreign writes. Must
never take a compaction for an origin, and must never claim more than the format can show.
"""

from __future__ import annotations

import base64
import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from enum import StrEnum
from typing import TYPE_CHECKING

from odi_audit.canonical import Json, JsonObject
from odi_audit.catalog.state import SnapshotInfo, TableState
from odi_audit.errors import UsageError
from odi_audit.ids import BatchId, JobName, RunId, SnapshotId
from odi_audit.ledger.port import EntryFilter, Ledger
from odi_audit.model.entries import Entry, Kind
from odi_audit.model.tables import TableName
from odi_audit.query import facts

if TYPE_CHECKING:
    from odi_audit.catalog.lake import LakeCatalog

LIMIT_DEFAULT = 20
LIMIT_MAX = 10_000
REPLACE = "replace"
"""Iceberg's operation of a compaction: files change, rows do not."""
COMPACT = "compact"
FOREIGN_NOTE = "a foreign write: it came past the committer"
_SAFE_INTEGER = 2**53
_WRITES = (Kind.FOREIGN, Kind.LANDED)
"""Entries that keep a snapshot's row ids and number, also after it has expired."""


class Confidence(StrEnum):
    """How far an answer can be relied on."""

    EXACT = "exact"
    FILE = "file"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The write that a row comes from. ``batch`` is None for a foreign write."""

    confidence: Confidence
    batch: BatchId | None = None
    job: JobName | None = None
    run: RunId | None = None
    operation: str | None = None
    source: str | None = None
    offsets: JsonObject | None = None
    snapshot: SnapshotId | None = None
    sequence_number: int | None = None
    time: str | None = None
    principal: str | None = None
    code: str | None = None
    entry: int | None = None
    foreign: bool = False
    note: str | None = None

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        body: dict[str, Json] = {name: getattr(self, name) for name in self.__slots__}
        body["confidence"] = self.confidence.value
        body["sequence_number"] = _digits(self.sequence_number)
        return body


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTrace:
    """One row as it is now, and where it comes from."""

    values: Mapping[str, Json]
    row_id: int | None
    last_updated_sequence_number: int | None
    file: str
    position: int
    birth: Origin
    last_change: Origin

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {
            "values": dict(self.values),
            "row_id": _digits(self.row_id),
            "last_updated_sequence_number": _digits(self.last_updated_sequence_number),
            "file": self.file,
            "position": _digits(self.position),
            "birth": self.birth.to_json(),
            "last_change": self.last_change.to_json(),
        }


def trace(
    ledger: Ledger,
    catalog: LakeCatalog,
    table: TableName,
    where: str | None = None,
    *,
    limit: int = LIMIT_DEFAULT,
) -> list[RowTrace]:
    """Return the origins of the rows that match ``where`` now, at most ``limit`` of them.

    Raises:
        TableNotFound: there is no such table.
        UsageError: the filter cannot be read, or the limit is out of bounds.
    """
    if not 1 <= limit <= LIMIT_MAX:
        raise UsageError(f"limit {limit} is not between 1 and {LIMIT_MAX}")
    from odi_audit.catalog import rows

    state = catalog.load(table)
    origins = Origins(ledger, state)
    traced: list[RowTrace] = []
    for batch in rows.lineage_rows(state, where):
        for row in batch.slice(0, limit - len(traced)).to_pylist():
            lineage = {name: row.pop(name) for name in rows.LINEAGE_COLUMNS}
            row_id, sequence = lineage[rows.ROW_ID], lineage[rows.LAST_UPDATED]
            added_by = lineage[rows.FILE_SNAPSHOT]
            traced.append(
                RowTrace(
                    values={name: plain(value) for name, value in row.items()},
                    row_id=row_id,
                    last_updated_sequence_number=sequence,
                    file=lineage[rows.FILE],
                    position=lineage[rows.POSITION],
                    birth=origins.birth(row_id, added_by),
                    last_change=origins.last_change(row_id, sequence, added_by),
                )
            )
        if len(traced) == limit:
            break
    return traced


class Origins:
    """Every write to one table, found by row id, by sequence number or by snapshot."""

    def __init__(self, ledger: Ledger, state: TableState) -> None:
        landed = ledger.find(EntryFilter(kinds=_WRITES, table=state.ref.uuid))
        self._ledger = ledger
        self._snapshots = {info.id: info for info in state.snapshots}
        self._entries = {facts.text(entry.facts, "snapshot"): entry for entry in landed}
        self._by_sequence: dict[int, Entry | SnapshotInfo] = {}
        ranges: dict[int, tuple[int, Entry | SnapshotInfo]] = {}
        # Snapshots first: what the ledger knows of the same write then takes their place.
        writes: list[Entry | SnapshotInfo] = [*state.snapshots, *landed]
        for write in writes:
            sequence, first, added = _numbers(write)
            if sequence is not None:
                self._by_sequence[sequence] = write
            if first is not None and added:
                ranges[first] = (first + added, write)
        self._starts = sorted(ranges)
        self._ranges = ranges

    def birth(self, row_id: int | None, added_by: SnapshotId | None) -> Origin:
        """Return the write that made a row."""
        if row_id is None:
            return self._born_in_file(added_by)
        place = bisect_right(self._starts, row_id) - 1
        found = self._ranges[self._starts[place]] if place >= 0 else None
        if found is None or row_id >= found[0]:
            return _unknown(
                f"no write on record, and none in the table, has row id {row_id} in its range"
            )
        if _is_compaction(found[1]):
            return _unknown("the row got its id in a compaction: it is older than row ids are here")
        if self._adopts(found[1]):
            return self._adopted(found[1], added_by)
        return self._origin(found[1], Confidence.EXACT)

    def last_change(
        self, row_id: int | None, sequence: int | None, added_by: SnapshotId | None
    ) -> Origin:
        """Return the write that made a row what it is."""
        if row_id is None or sequence is None:
            return self._in_file(added_by)
        found = self._by_sequence.get(sequence)
        if found is None:
            return _unknown(f"no write on record, and none in the table, has number {sequence}")
        if _is_compaction(found):
            return _unknown("a compaction wrote the row before rows had ids here")
        return self._origin(found, Confidence.EXACT)

    def _adopts(self, write: Entry | SnapshotInfo) -> bool:
        """Say whether a write gave ids to more rows than it brought.

        The first commit after an upgrade to v3 does: it numbers the rows that were there before.
        """
        info = write if isinstance(write, SnapshotInfo) else self._snapshots.get(_snapshot(write))
        counted = None if isinstance(write, SnapshotInfo) else facts.counted_rows(write)
        if info is not None and info.summary.get("added-records", "").isdigit():
            counted = int(info.summary["added-records"])
        added = _numbers(write)[2]
        if info is not None and "added-records" not in info.summary:
            counted = 0
        return added is not None and counted is not None and added > counted

    def _adopted(self, assigner: Entry | SnapshotInfo, added_by: SnapshotId | None) -> Origin:
        own = assigner.id if isinstance(assigner, SnapshotInfo) else _snapshot(assigner)
        origin = self._origin(assigner, Confidence.EXACT)
        if added_by == own:
            if origin.operation == "append":
                return origin
            return _unknown("the write that numbered the older rows may have changed this one")
        adder = self._entries.get(added_by) or self._snapshots.get(SnapshotId(str(added_by)))
        assigned = _numbers(assigner)[0]
        added = None if adder is None else _numbers(adder)[0]
        if assigned is not None and added is not None and added < assigned:
            return self._born_in_file(added_by)
        return _unknown("the row got its id at the upgrade to v3, or in the write just after it")

    def _born_in_file(self, added_by: SnapshotId | None) -> Origin:
        found = self._in_file(added_by)
        if found.confidence is Confidence.FILE and found.operation != "append":
            return _unknown(
                "the row has no id, and its file came from a write that also changes older rows"
            )
        return found

    def _in_file(self, added_by: SnapshotId | None) -> Origin:
        write = self._entries.get(added_by) or (
            None if added_by is None else self._snapshots.get(added_by)
        )
        if write is None:
            return _unknown("the row has no id, and the snapshot that added its file has expired")
        if _is_compaction(write):
            return _unknown("the row has no id, and a compaction has rewritten its file")
        return self._origin(write, Confidence.FILE)

    def _origin(self, write: Entry | SnapshotInfo, confidence: Confidence) -> Origin:
        if isinstance(write, SnapshotInfo):
            return _from_snapshot(write, confidence)
        intent = None if write.intent is None else self._ledger.get(write.intent)
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


def _numbers(write: Entry | SnapshotInfo) -> tuple[int | None, int | None, int | None]:
    if isinstance(write, SnapshotInfo):
        return write.sequence_number, write.first_row_id, write.added_rows
    return (
        facts.number(write.facts, "sequence_number"),
        facts.number(write.facts, "first_row_id"),
        facts.number(write.facts, "added_rows"),
    )


def _snapshot(entry: Entry) -> SnapshotId:
    return SnapshotId(facts.text(entry.facts, "snapshot") or "")


def _is_compaction(write: Entry | SnapshotInfo) -> bool:
    if isinstance(write, SnapshotInfo):
        return write.operation == REPLACE
    return facts.operation(write) in {COMPACT, REPLACE}


def _unknown(note: str) -> Origin:
    return Origin(confidence=Confidence.UNKNOWN, note=note)


def plain(value: object) -> Json:
    """Return a column's value as JSON can hold it: no digit lost, bytes in base64."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, int):
        return value if abs(value) < _SAFE_INTEGER else str(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value)


def _digits(value: int | None) -> str | None:
    return None if value is None else str(value)
