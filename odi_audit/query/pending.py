"""Pending changes as a page: what a consumer would read next, counted, with the first rows.

Owns the form that people and ``--json`` see. Must never confirm anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from odi_audit.canonical import Json, JsonObject, digits
from odi_audit.catalog.state import SnapshotInfo

LIMIT_DEFAULT = 20
LIMIT_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRow:
    """One image of a changed row."""

    change: str
    row_id: int | None
    batch: str | None
    values: Mapping[str, Json]

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {
            "change": self.change,
            "row_id": digits(self.row_id),
            "batch": self.batch,
            "values": dict(self.values),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingPage:
    """What is pending; ``entry`` is where moving past it was recorded, None where it was not."""

    table: str
    consumer: str
    start: SnapshotInfo | None
    end: SnapshotInfo | None
    batches: int
    inserted: int
    updated: int
    deleted: int
    rows: tuple[PendingRow, ...]
    cut: bool
    applied: bool
    entry: int | None
    missing: tuple[str, ...]
    """Data files that are gone: their rows are in no count."""
    untold: int
    """Rows whose other image may lie in one of those: they are in no count either."""

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {
            "table": self.table,
            "consumer": self.consumer,
            "from": _place(self.start),
            "to": _place(self.end),
            "batches": self.batches,
            "inserted": self.inserted,
            "updated": self.updated,
            "deleted": self.deleted,
            "rows": [row.to_json() for row in self.rows],
            "cut": self.cut,
            "applied": self.applied,
            "entry": self.entry,
            "missing": list(self.missing),
            "untold": self.untold,
        }


def _place(info: SnapshotInfo | None) -> JsonObject | None:
    if info is None:
        return None
    return {
        "snapshot": info.id,
        "sequence_number": str(info.sequence_number),
        "time": info.time,
    }
