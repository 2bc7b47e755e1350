"""Row provenance: which record of the source a row came from, kept in the row itself.

Owns the two columns that a table opts into, and the rule that they agree with the batch's offsets.
A table without them costs nothing; its rows are traced to their batch. Must never evaluate the
rule: Spark does, while it writes.
"""

from __future__ import annotations

from odi_audit.model.offsets import OffsetKind, Offsets, Range
from odi_audit.model.tables import quote

PROPERTY = "odi.provenance"
ROW = "row"
PARTITION = "_source_partition"
OFFSET = "_source_offset"
COLUMNS = ((PARTITION, "string"), (OFFSET, "bigint"))
RULE = "source record is in the batch's offsets"
PARTITIONS_CHECKED_MAX = 1_000
"""A condition of more branches than this costs more than it protects."""
_WITHOUT_PARTITIONS = {OffsetKind.ONCE, OffsetKind.STREAM, OffsetKind.TABLE}
"""Kinds whose ranges are not named by what a row can carry."""


def rule(offsets: Offsets) -> str | None:
    """Return the SQL condition that every row's source record is one of the batch's."""
    if offsets.kind in _WITHOUT_PARTITIONS or len(offsets.ranges) > PARTITIONS_CHECKED_MAX:
        return None
    branches = " ".join(
        f"WHEN {_literal(name)} THEN {_within(part)}" for name, part in offsets.ranges.items()
    )
    return f"CASE {quote(PARTITION)} {branches} ELSE false END" if branches else "false"


def holds(offsets: Offsets, partition: str, offset: int) -> bool:
    """Say whether a source record belongs to these offsets, as far as they can tell."""
    part = offsets.ranges.get(partition)
    if part is None:
        return False
    after = not isinstance(part.start, int) or offset >= part.start
    return after and (not isinstance(part.end, int) or offset < part.end)


def _within(part: Range) -> str:
    conditions = [f"{quote(OFFSET)} >= {part.start if isinstance(part.start, int) else 0}"]
    if isinstance(part.end, int):
        conditions.append(f"{quote(OFFSET)} < {part.end}")
    return " AND ".join(conditions)


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
