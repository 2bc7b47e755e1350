"""Copies: where a row without an id lay before its file was rewritten.

Owns the step from a rewritten file to the snapshot before, while that is kept: a rewrite moves rows
and changes none, so a row of it is equal to one that was there. Must never choose between equal
rows: all of them may be meant.
"""

from __future__ import annotations

import json
from collections import defaultdict

from odi_audit.catalog.state import SnapshotInfo
from odi_audit.ids import SnapshotId
from odi_audit.query.origins import NOWHERE, Earlier, Origins
from odi_audit.query.seen import Question, Seen, seen_rows

ROWS_MAX = 200_000
"""Rows of one older snapshot that are compared; with more the answer stays wider."""


class Copies:
    """The rows that a question is about, in the snapshots before each rewrite."""

    def __init__(self, question: Question, origins: Origins) -> None:
        self._question = question
        self._origins = origins
        self._by_id = {info.id: info for info in question.state.snapshots}
        self._paths: dict[str, str] | None = None
        self._before: dict[SnapshotId, dict[str, frozenset[SnapshotId]] | None] = {}

    def of(self, seen: Seen) -> Earlier:
        """Return where a row lay before; ``seen`` has all its columns."""
        if seen.row_id is not None or not self._origins.may_carry(seen.added_by):
            return NOWHERE
        found = self._adders(seen)
        return Earlier(copied_from=found, partition=None if found else self._partition(seen))

    def _adders(self, seen: Seen) -> frozenset[SnapshotId]:
        """Return the snapshots that had added rows equal to one; none if there is no telling."""
        key = key_of(seen)
        found: set[SnapshotId] = set()
        waiting = [seen.added_by]
        met: set[SnapshotId] = set()
        while waiting:
            added_by = waiting.pop()
            if added_by is None or added_by in met:
                continue
            met.add(added_by)
            earlier = self._equal_before(added_by, key)
            waiting.extend(earlier)
            if not earlier or not self._origins.carries_only(added_by):
                found.add(added_by)
        return frozenset() if found == {seen.added_by} else frozenset(found)

    def _partition(self, seen: Seen) -> str | None:
        if self._paths is None:
            from odi_audit.catalog.partitions import partition_paths

            at = self._question.at
            self._paths = {} if at is None else partition_paths(self._question.state, at)
        return self._paths.get(seen.file)

    def _equal_before(self, added_by: SnapshotId, key: str) -> frozenset[SnapshotId]:
        info = self._by_id.get(added_by)
        if info is None or info.parent is None or not self._origins.may_carry(added_by):
            return frozenset()
        parent = self._by_id.get(info.parent)
        if parent is None:
            return frozenset()
        if parent.id not in self._before:
            self._before[parent.id] = self._read(parent)
        return (self._before[parent.id] or {}).get(key, frozenset())

    def _read(self, at: SnapshotInfo) -> dict[str, frozenset[SnapshotId]] | None:
        found: defaultdict[str, set[SnapshotId]] = defaultdict(set)
        for number, row in enumerate(seen_rows(self._question, at, whole=True)):
            if number >= ROWS_MAX or row.added_by is None:
                return None
            found[key_of(row)].add(row.added_by)
        return {key: frozenset(adders) for key, adders in found.items()}


def key_of(seen: Seen) -> str:
    """Return what is equal for equal rows."""
    return json.dumps(dict(seen.values), sort_keys=True)
