"""Snapshots as the reader sees them, in the committer's own form.

Owns the translation; reconcile judges with it. Must never look at a table itself.
"""

from __future__ import annotations

from odi_audit import clock
from odi_audit.catalog import SnapshotInfo
from odi_audit.ids import SnapshotId
from odi_audit.model.snapshots import SnapshotFacts


def facts_of(info: SnapshotInfo) -> SnapshotFacts:
    """Return the reader's view of a snapshot in the committer's form."""
    return SnapshotFacts(
        id=info.id,
        parent=info.parent,
        sequence_number=info.sequence_number,
        timestamp_ms=int(clock.from_text(info.time).timestamp() * 1000),
        operation=info.operation or "unknown",
        summary=info.summary,
        first_row_id=info.first_row_id,
        added_rows=info.added_rows,
        schema_id=info.schema_id,
        manifest_list=info.manifest_list,
        text="",
    )


def no_snapshot() -> SnapshotFacts:
    """Return what stands for a change that made no snapshot, on a table that has none."""
    return SnapshotFacts(
        id=SnapshotId(""),
        parent=None,
        sequence_number=0,
        timestamp_ms=0,
        operation="",
        summary={},
        first_row_id=None,
        added_rows=None,
        schema_id=None,
        manifest_list="",
        text="",
    )
