"""Snapshots as values: the facts of one Iceberg snapshot, read from its JSON.

Owns the reading of Iceberg's own snapshot document (as in metadata.json). Ids become strings,
because JSON numbers lose their last digits elsewhere. Must never talk to a catalog or a JVM.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from odi_audit.canonical import JsonObject
from odi_audit.ids import SnapshotId

_COUNTED = (
    "added-records",
    "deleted-records",
    "total-records",
    "added-data-files",
    "deleted-data-files",
    "added-delete-files",
    "removed-delete-files",
    "added-dvs",
    "removed-dvs",
    "added-position-deletes",
    "removed-position-deletes",
    "added-files-size",
    "removed-files-size",
    "changed-partition-count",
    "spark.merge-into.num-target-rows-inserted",
    "spark.merge-into.num-target-rows-updated",
    "spark.merge-into.num-target-rows-deleted",
)
"""Numbers of the summary that a landed entry keeps; the rest dies with the snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFacts:
    """What one snapshot says of itself; ``text`` is the document that it was read from."""

    id: SnapshotId
    parent: SnapshotId | None
    sequence_number: int
    timestamp_ms: int
    operation: str
    summary: Mapping[str, str]
    first_row_id: int | None
    added_rows: int | None
    schema_id: int | None
    manifest_list: str
    text: str = field(repr=False)

    def count(self, key: str) -> int:
        """Return a number of the summary, 0 where it is not there."""
        return int(self.summary.get(key, "0"))

    def counts(self) -> dict[str, int]:
        """Return the numbers worth keeping after the snapshot has expired."""
        return {
            key.removeprefix("spark.merge-into.num-target-"): int(self.summary[key])
            for key in _COUNTED
            if key in self.summary
        }


def snapshot_from_text(text: str) -> SnapshotFacts:
    """Read one snapshot's JSON document."""
    return snapshot_from_json(cast("JsonObject", json.loads(text)), text)


def snapshot_from_json(body: JsonObject, text: str = "") -> SnapshotFacts:
    """Read one snapshot's JSON object."""
    summary = dict(cast("Mapping[str, str]", body.get("summary") or {}))
    parent = body.get("parent-snapshot-id")
    return SnapshotFacts(
        id=SnapshotId(str(body["snapshot-id"])),
        parent=None if parent is None else SnapshotId(str(parent)),
        sequence_number=cast("int", body.get("sequence-number", 0)),
        timestamp_ms=cast("int", body["timestamp-ms"]),
        operation=summary.pop("operation", "unknown"),
        summary=summary,
        first_row_id=cast("int | None", body.get("first-row-id")),
        added_rows=cast("int | None", body.get("added-rows")),
        schema_id=cast("int | None", body.get("schema-id")),
        manifest_list=cast("str", body.get("manifest-list", "")),
        text=text,
    )
