"""The steps from one snapshot to another: which of them can have taken rows, or only added some.

Owns what the operations that Iceberg records say about rows without a look at any file. Must never
say more than that: where a snapshot between the two has expired, the answer says so.
"""

from __future__ import annotations

from odi_audit.catalog.state import SnapshotInfo, TableState, ancestors
from odi_audit.ids import SnapshotId

_APPEND = "append"
_KEEPING = frozenset({_APPEND, "replace"})
"""Iceberg's operations that take no row away and change none: an append and a compaction."""


def removing_steps(
    state: TableState, before: SnapshotId, after: SnapshotId
) -> tuple[list[SnapshotInfo], bool]:
    """Return the snapshots after ``before`` that may remove, and whether these are all of them."""
    steps: list[SnapshotInfo] = []
    for info in ancestors(state, after):
        if info.id == before:
            return steps, True
        if info.parent is None or state.snapshot(info.parent) is None:
            break
        if info.operation not in _KEEPING:
            steps.append(info)
    # Not an ancestor: main was rolled back, and steps before the fork are none of ours.
    shared = {info.id for info in ancestors(state, before)}
    return [info for info in steps if info.id not in shared], False


def grown_since(state: TableState, before: SnapshotId | None, after: SnapshotId) -> int | None:
    """Return the number of the first snapshot, if between the two rows were added and no more.

    Then the rows of a higher number are new, wherever a compaction has put them, and no other is.
    """
    info = None if before is None else state.snapshot(before)
    if info is None or info.first_row_id is None:
        return None
    steps, whole = removing_steps(state, info.id, after)
    return info.sequence_number if whole and not steps else None


def appended_since(
    state: TableState, before: SnapshotId | None, after: SnapshotId
) -> set[SnapshotId]:
    """Return the appends between a snapshot and its descendant: their files have new rows only."""
    found: set[SnapshotId] = set()
    for info in ancestors(state, after):
        if info.id == before:
            return found
        if info.operation == _APPEND:
            found.add(info.id)
    # Not a descendant: the other may hold the same rows in another file.
    return set()
