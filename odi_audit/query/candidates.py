"""Candidates: which writes a row may come from, where no id tells.

Owns the narrowing for rows without ids after a compaction: first by the files that it took out, as
the ledger or its own manifests name them, else by what had landed before it. Must never leave out
a write that may be meant, unless it says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odi_audit.canonical import JsonObject
from odi_audit.catalog.state import SnapshotInfo, TableState
from odi_audit.errors import EntryNotFound, StorageError
from odi_audit.ids import TableUuid
from odi_audit.ledger.port import Ledger
from odi_audit.model.entries import Entry
from odi_audit.query import facts
from odi_audit.query.writes import Write, Writes, carries_only, may_carry, sequence_of, snapshot_of

LANDED_MAX = 10_000
"""Earlier writes looked at, newest first; a longer list narrows nothing."""
_ADDS_NO_ROWS = frozenset({"delete", "compact", "replace"})


def writes_behind(
    state: TableState,
    write: Write,
    find: Callable[[int], Write | None],
    partition: str | None = None,
) -> list[Write] | None:
    """Return the writes that may have made a row what it is in a file that ``write`` added.

    Files that only carry rows are followed to the writes whose files were taken out for them, as
    the ledger or their manifests say; of those, in the row's own partition where it is known. None
    where that cannot be told in full.
    """
    found: dict[int, Write] = {}
    seen: set[int] = set()
    waiting: list[Write] = [write]
    while waiting:
        current = waiting.pop()
        number = sequence_of(current)
        if not carries_only(current):
            found[-1 if number is None else number] = current
        if not may_carry(current):
            continue
        numbers = _taken_out(state, current, partition)
        if numbers is None or len(seen) > LANDED_MAX:
            return None
        for earlier in numbers - seen:
            seen.add(earlier)
            behind = find(earlier)
            if behind is None:
                return None
            waiting.append(behind)
    return [found[number] for number in sorted(found, reverse=True)] or None


def landed_before(
    ledger: Ledger, writes: Writes, table: TableUuid, *, number: int | None, index: int | None
) -> list[Entry]:
    """Return the landed writes that brought rows before a sequence number, newest first.

    Those undone before entry ``index`` are left out. The list is never all that may be meant: a
    foreign write that nobody recorded, or one beyond :data:`LANDED_MAX`, is not in it.
    """
    found: list[Entry] = []
    if number is None:
        return found
    for seen, entry in enumerate(writes.before(number)):
        if seen >= LANDED_MAX:
            break
        if facts.operation(entry) in _ADDS_NO_ROWS or facts.counted_rows(entry) == 0:
            continue
        undone = None if entry.batch is None else ledger.undone(entry.batch, table)
        if undone is None or (index is not None and undone.index > index):
            found.append(entry)
    return found


def _taken_out(state: TableState, write: Write, partition: str | None) -> set[int] | None:
    """Return the sequence numbers of the files that a write took out of the table."""
    recorded = None if isinstance(write, SnapshotInfo) else facts.obj(write.facts, "rewrote")
    if recorded is None:
        if state.snapshot(snapshot_of(write)) is None:
            return None
        from odi_audit.catalog.rewrites import rewritten

        try:
            recorded = rewritten(state, snapshot_of(write))
        except (EntryNotFound, StorageError):
            return None
    # A rewrite keeps a row in its partition, unless the spec changed: then the path is not there.
    if partition is not None and partition in recorded:
        recorded = {partition: recorded[partition]}
    return _numbers(recorded) - {sequence_of(write) or 0}


def _numbers(recorded: JsonObject) -> set[int]:
    found: set[int] = set()
    for listed in recorded.values():
        if isinstance(listed, Sequence) and not isinstance(listed, str):
            found.update(int(str(number)) for number in listed)
    return found
