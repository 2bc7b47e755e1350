"""What still feeds a version: which writes are in a table at the moment that is asked for.

Owns the rule, walking the ledger from its end to its beginning. A table counts from the moment at
which it was read: what a rollback or an undo took out before that, and what lies behind an
overwrite of everything or a drop, is no source of it. A read of an earlier moment brings back what
stood then. Must never look ahead: what has not been met yet is older.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lineage.graph.lean import Lean
from odi_audit.model.entries import Kind

_REPLACES = frozenset({"overwrite", "overwrite_partitions"})
"""Operations whose files hold their own rows only; a MERGE may carry older ones along."""


@dataclass(slots=True)
class _Standing:
    """How one table stands: a view for each moment at which it was read, if they differ.

    A view is the set of writes that were taken out again before that moment. Two views are one
    when the same writes are left in both; one that ends at an overwrite of everything is dropped.
    """

    views: list[set[str]] = field(default_factory=list)
    waiting: set[str] = field(default_factory=set)

    def look(self) -> None:
        """Read the table as it stands here: nothing older has been taken out."""
        if set() not in self.views:
            self.views.append(set())

    def counts(self, write: Lean) -> bool:
        """Say whether a write is in any of the views."""
        snapshot = write.facts.snapshot
        if snapshot is not None and snapshot in self.waiting:
            self.waiting.discard(snapshot)
            self.look()
        names = {name for name in (write.batch, snapshot) if name is not None}
        counts = False
        left: list[set[str]] = []
        for gone in self.views:
            if names & gone:
                gone.difference_update(names)
            else:
                counts = True
                gone.update(write.facts.undone, write.facts.removed_snapshots)
                if replaces_everything(write):
                    continue
            if gone not in left:
                left.append(gone)
        self.views = left
        return counts


class Feeding:
    """Says of each write, newest first, whether its rows are in what is asked for.

    ``tables`` are in it from the start. With ``every`` all tables are: then the answer is what
    stood in each of them at one moment.
    """

    def __init__(self, *tables: str, every: bool = False) -> None:
        self._every = every
        self._tables = {uuid: _Standing(views=[set()]) for uuid in tables}

    def read(self, uuid: str, snapshot: str | None) -> None:
        """Say that a write which counts has read a table: in a snapshot, or as it stood here."""
        if self._every:
            return
        table = self._tables.setdefault(uuid, _Standing())
        if snapshot is not None:
            table.waiting.add(snapshot)
        else:
            table.look()

    def counts(self, write: Lean) -> bool:
        """Say whether a write's rows are in it, and take note of what it hides."""
        assert write.table is not None
        table = self._tables.get(write.table.uuid)
        if table is None:
            if not self._every:
                return False
            table = self._tables.setdefault(write.table.uuid, _Standing(views=[set()]))
        return table.counts(write) and not is_empty(write)


def replaces_everything(write: Lean) -> bool:
    """Say whether nothing that was in the table before is in it after a write."""
    if write.kind == Kind.TABLE_DROPPED:
        return True
    total = write.facts.counts.get("total-records")
    if total is None or write.facts.operation is None:
        return False
    if total == 0:
        return True
    return (
        write.facts.operation in _REPLACES and write.facts.counts.get("added-records", 0) == total
    )


def is_empty(write: Lean) -> bool:
    """Say whether a write brought no row and took none."""
    if write.kind != "landed" or write.facts.operation != "append":
        return False
    added = write.facts.counts.get("added-records")
    return added == 0 or (added is None and write.facts.snapshot is None)
