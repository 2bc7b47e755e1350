"""Receipts: what a commit gives back to its caller.

Owns the three outcomes' successful side; refusals and unknown outcomes are errors. Must never
hold a live object (a table, a session): a receipt can be printed, kept and compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from odi_audit.canonical import JsonObject
from odi_audit.ids import BatchId, JobName, RunId, SnapshotId
from odi_audit.model.tables import TableRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """One table's part of a landed batch: the facts that outlive the snapshot."""

    table: TableRef
    operation: str
    snapshot: SnapshotId | None
    sequence_number: int | None
    first_row_id: int | None
    added_rows: int | None
    schema_id: int | None
    counts: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> JsonObject:
        """Return the facts of the landed entry."""
        return {
            "operation": self.operation,
            "snapshot": self.snapshot,
            "sequence_number": self.sequence_number,
            "first_row_id": self.first_row_id,
            "added_rows": self.added_rows,
            "schema_id": self.schema_id,
            "counts": dict(self.counts),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """A batch that is in its tables.

    ``fresh`` is False when the batch had landed before and this call changed nothing.
    ``confidence`` is what a trace of these rows can promise: ``exact`` on v3, ``file`` on v2.
    """

    job: JobName
    run: RunId
    batch: BatchId
    intent: int
    fresh: bool
    confidence: str
    landings: tuple[Landing, ...]

    @property
    def landing(self) -> Landing:
        """The only table's part, for a batch over one table."""
        if len(self.landings) != 1:
            raise ValueError(f"batch {self.batch} has {len(self.landings)} tables, not one")
        return self.landings[0]

    @property
    def snapshot(self) -> SnapshotId | None:
        """The only table's snapshot, for a batch over one table."""
        return self.landing.snapshot
