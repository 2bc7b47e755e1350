"""Impact: what became of a batch's rows, and where they have gone.

Owns the counting of rows that are still as the batch left them, changed since, or deleted since,
and by which batches. Rows are followed by their ids; where rows have none, or the batch's snapshot
has expired, less can be told, and the confidence says so. Must never count a row twice, or call a
row deleted that a compaction has only moved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from odi_audit.canonical import Json, JsonObject, digits
from odi_audit.catalog.state import TableState
from odi_audit.errors import EntryNotFound
from odi_audit.ids import BatchId, JobName, SnapshotId
from odi_audit.ledger.port import Ledger
from odi_audit.model.entries import Entry, Kind
from odi_audit.model.tables import TableRef
from odi_audit.query import facts
from odi_audit.query.downstream import Reader, Walk
from odi_audit.query.fate import By, Fate, fate_of
from odi_audit.query.tables import find_table

if TYPE_CHECKING:
    from odi_audit.catalog.files import Progress
    from odi_audit.catalog.lake import LakeCatalog
    from odi_audit.catalog.touched import Touched

__all__ = ["By", "Fate", "Impact", "TableImpact", "impact"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableImpact:
    """What a batch did to one table, and what is left of it."""

    table: TableRef
    operation: str
    snapshot: SnapshotId | None
    sequence_number: int | None
    undone_by: int | None
    fate: Fate
    files_added: int | None
    files_removed: int | None
    files_marked: int | None
    partitions: tuple[str, ...]
    partitions_count: int | None

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {
            "table": self.table.name,
            "table_uuid": self.table.uuid,
            "operation": self.operation,
            "snapshot": self.snapshot,
            "sequence_number": digits(self.sequence_number),
            "undone_by": self.undone_by,
            "rows": self.fate.to_json(),
            "files_added": self.files_added,
            "files_removed": self.files_removed,
            "files_marked": self.files_marked,
            "partitions": list(self.partitions),
            "partitions_count": self.partitions_count,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Impact:
    """What became of a batch. ``cut`` says that there was more downstream than is told."""

    batch: BatchId
    job: JobName | None
    time: str
    tables: tuple[TableImpact, ...]
    readers: tuple[Reader, ...]
    cut: bool
    missing: tuple[str, ...]
    """Data files that are gone: what they would have shown is not told."""

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        tables: list[Json] = [table.to_json() for table in self.tables]
        readers: list[Json] = [reader.to_json() for reader in self.readers]
        return {
            "batch": self.batch,
            "job": self.job,
            "time": self.time,
            "tables": tables,
            "readers": readers,
            "cut": self.cut,
            "missing": list(self.missing),
        }


def impact(
    ledger: Ledger, catalog: LakeCatalog, prefix: str, *, progress: Progress | None = None
) -> Impact:
    """Return what became of the batch whose id begins with ``prefix``.

    Data files that are gone are named, and the rest is answered.

    Raises:
        EntryNotFound: no batch fits, or it has landed nowhere. AmbiguousBatch: more than one does.
    """
    batch = ledger.resolve_batch(prefix)
    landed = [entry for entry in ledger.batch_entries(batch) if entry.kind is Kind.LANDED]
    if not landed:
        raise EntryNotFound(
            f"batch {batch} has landed on no table: it has no rows to follow",
            hint=f"odi-audit batch {batch}",
            batch=batch,
        )
    walk = Walk(ledger, lambda table: find_table(catalog, table))
    missing: list[str] = []
    tables = [
        _table_impact(ledger, catalog, entry, entry.table, missing=missing, progress=progress)
        for entry in landed
        if entry.table is not None
    ]
    return Impact(
        batch=batch,
        job=landed[0].job,
        time=landed[0].time,
        tables=tuple(tables),
        readers=walk.readers(batch),
        cut=walk.cut,
        missing=tuple(sorted(set(missing))),
    )


def _table_impact(
    ledger: Ledger,
    catalog: LakeCatalog,
    entry: Entry,
    table: TableRef,
    *,
    missing: list[str],
    progress: Progress | None,
) -> TableImpact:
    snapshot = facts.text(entry.facts, "snapshot")
    state = find_table(catalog, table)
    look = _touched(state, snapshot)
    counts = facts.obj(entry.facts, "counts") or {}
    undone = None if entry.batch is None else ledger.undone(entry.batch, table.uuid)
    return TableImpact(
        table=table if state is None else state.ref,
        operation=facts.operation(entry),
        snapshot=None if snapshot is None else SnapshotId(snapshot),
        sequence_number=facts.number(entry.facts, "sequence_number"),
        undone_by=None if undone is None else undone.index,
        fate=fate_of(ledger, state, entry, undone, missing=missing, progress=progress),
        files_added=facts.number(counts, "added-data-files") or 0 if look is None else look.added,
        files_removed=facts.number(counts, "deleted-data-files") or 0
        if look is None or look.removed is None
        else look.removed,
        files_marked=None if look is None else look.marked,
        partitions=() if look is None else look.partitions,
        partitions_count=facts.number(counts, "changed-partition-count")
        if look is None
        else look.partitions_count,
    )


def _touched(state: TableState | None, snapshot: str | None) -> Touched | None:
    """Return what the snapshot shows; None where it has expired, and the ledger's counts do."""
    info = None
    if state is not None and snapshot is not None:
        info = state.snapshot(SnapshotId(snapshot))
    if state is None or info is None:
        return None
    from odi_audit.catalog.touched import touched

    return touched(state, info)
