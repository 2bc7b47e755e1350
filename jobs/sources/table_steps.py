"""The snapshots of a table between two places: how many rows each brings, and when it was made.

Owns the walk over a table's history for a job that reads it. Pure, but for the column that tells
times. Must never skip a snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from jobs.sources.base import Limits
from odi_audit.catalog.state import SnapshotInfo, TableState, ancestors, history
from odi_audit.ids import SnapshotId
from odi_audit.query.writes import is_compaction

if TYPE_CHECKING:
    from pyspark.sql import Column

    from odi_audit.ledger.port import Position

TIMES_MAX = 1_000
"""Snapshots of one batch whose times are told row by row; beyond, rows have that of the last."""


def lost(state: TableState, last: Position) -> bool:
    """Say whether the snapshot up to which a table was read has expired."""
    return state.snapshot(SnapshotId(str(last.end))) is None


def steps_of(state: TableState, start: SnapshotId | None, end: SnapshotId) -> list[SnapshotInfo]:
    """Return the snapshots behind a place up to another, oldest first."""
    found = takewhile(lambda info: info.id != start, ancestors(state, end))
    return list(found)[::-1]


def rows_of(
    state: TableState, start: SnapshotId | None, end: SnapshotId, steps: Sequence[SnapshotInfo]
) -> int:
    """Return how many rows the snapshots between two places wrote, or how many there are."""
    if start is None:
        info = state.snapshot(end)
        return 0 if info is None else _count(info, "total-records")
    return sum(_changed(info) for info in steps)


def cut(
    state: TableState,
    start: SnapshotId | None,
    end: SnapshotId,
    steps: Sequence[SnapshotInfo],
    limits: Limits,
) -> tuple[SnapshotId, int]:
    """Return the last snapshot of the batch, and how many rows it has at most.

    A snapshot is never split, and every row of a table that was never read is read at once.
    """
    known = start is None or any(info.id == start for info in history(state))
    if start is None or start == end or not known:
        return end, rows_of(state, start, end, steps) if start != end else 0
    rows, taken = 0, start
    for info in steps:
        if rows and rows + _changed(info) > limits.rows:
            break
        rows, taken = rows + _changed(info), info.id
    return taken, rows


def _changed(info: SnapshotInfo) -> int:
    if is_compaction(info):
        return 0
    return _count(info, "added-records") + _count(info, "deleted-records")


def _count(info: SnapshotInfo, key: str) -> int:
    found = info.summary.get(key, "")
    return int(found) if found.isdigit() else 0


def moment_of(state: TableState, start: SnapshotInfo, end: SnapshotInfo, sequence: str) -> Column:
    """Return when a change was committed: by its number where that is known, else at the end."""
    last = F.lit(end.time).cast("timestamp")
    steps = steps_of(state, start.id, end.id)
    if not steps or len(steps) > TIMES_MAX:
        return last
    times = F.create_map(
        *[part for info in steps for part in (F.lit(info.sequence_number), F.lit(info.time))]
    )
    return F.coalesce(times[F.col(sequence)].cast("timestamp"), last)
