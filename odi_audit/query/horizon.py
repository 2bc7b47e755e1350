"""The horizon: how far back a table's own snapshots reach, and what the ledger says beyond it.

Owns the list of earlier batches that took rows out. Must never say that nothing was deleted where
what would show it has expired.
"""

from __future__ import annotations

from dataclasses import dataclass

from odi_audit.canonical import JsonObject
from odi_audit.catalog.state import SnapshotInfo, TableState
from odi_audit.ids import BatchId, JobName, SnapshotId
from odi_audit.ledger.port import Ledger
from odi_audit.model.entries import Entry
from odi_audit.query import facts
from odi_audit.query.writes import Writes

TAKINGS_MAX = 20
LOOKED_MAX = 10_000
"""Earlier writes looked through, newest first."""
_REPLACES = frozenset({"overwrite", "overwrite_partitions"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Taking:
    """A batch that took rows out, as the ledger has it; ``where`` without the texts in it."""

    batch: BatchId | None
    job: JobName | None
    operation: str
    time: str
    rows: int | None
    where: str | None

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """The oldest snapshot that is kept; ``complete`` where the table began with it.

    ``takings`` are the newest batches that took rows out at or before it, ``takings_count`` how
    many there are among the earlier writes looked through.
    """

    snapshot: SnapshotId | None
    time: str | None
    complete: bool
    takings: tuple[Taking, ...]
    takings_count: int

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {
            "snapshot": self.snapshot,
            "time": self.time,
            "complete": self.complete,
            "takings": [taking.to_json() for taking in self.takings],
            "takings_count": self.takings_count,
        }


def horizon(ledger: Ledger, state: TableState, oldest: SnapshotInfo | None) -> Horizon:
    """Return how far back ``oldest`` and its descendants reach."""
    # Some tools take the parent out when it expires: the number tells the first snapshot.
    if oldest is None or (oldest.parent is None and oldest.sequence_number <= 1):
        return Horizon(
            snapshot=None if oldest is None else oldest.id,
            time=None if oldest is None else oldest.time,
            complete=True,
            takings=(),
            takings_count=0,
        )
    found: list[Entry] = []
    # What the oldest snapshot itself took out was in the one before, which is no longer kept.
    earlier = Writes(ledger, state.ref.uuid).before(oldest.sequence_number + 1)
    for number, entry in enumerate(earlier):
        if number >= LOOKED_MAX:
            break
        if _takes_out(entry):
            found.append(entry)
    return Horizon(
        snapshot=oldest.id,
        time=oldest.time,
        complete=False,
        takings=tuple(_taking(ledger, entry) for entry in found[:TAKINGS_MAX]),
        takings_count=len(found),
    )


def _takes_out(entry: Entry) -> bool:
    operation = facts.operation(entry)
    counts = facts.obj(entry.facts, "counts") or {}
    if operation in _REPLACES:
        return bool(facts.number(counts, "deleted-records"))
    return operation == "delete" or bool(facts.number(counts, "rows-deleted"))


def _taking(ledger: Ledger, entry: Entry) -> Taking:
    counts = facts.obj(entry.facts, "counts") or {}
    operation = facts.operation(entry)
    rows = facts.number(counts, "rows-deleted")
    if operation in _REPLACES:
        rows = facts.number(counts, "deleted-records")
    elif operation == "delete":
        rows = facts.rows(entry)
    return Taking(
        batch=entry.batch,
        job=entry.job,
        operation=operation,
        time=facts.text(entry.facts, "committed_at") or entry.time,
        rows=rows,
        where=_where(ledger, entry),
    )


def _where(ledger: Ledger, entry: Entry) -> str | None:
    if entry.intent is None:
        return None
    uuid = None if entry.table is None else entry.table.uuid
    for operation in facts.objects(ledger.get(entry.intent).facts, "operations"):
        if operation.get("table_uuid") == uuid:
            return facts.text(facts.obj(operation, "arguments") or {}, "where")
    return None
