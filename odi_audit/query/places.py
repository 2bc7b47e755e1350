"""Places in a table's history as people write them: a batch, a snapshot, a tag, a branch, a time.

Owns the batch form; the rest is the catalog's (:mod:`odi_audit.catalog.moments`). Must never
answer with another snapshot than the one that was meant: what has expired is said to have.
"""

from __future__ import annotations

from odi_audit.catalog.state import SnapshotInfo, TableState
from odi_audit.errors import EntryNotFound
from odi_audit.ids import BatchId, SnapshotId
from odi_audit.ledger.port import EntryFilter, Ledger
from odi_audit.model.entries import Kind
from odi_audit.query import facts
from odi_audit.query.writes import is_compaction

BATCH_PREFIX = "b-"


def resolve_place(ledger: Ledger, state: TableState, text: str) -> SnapshotInfo:
    """Return the snapshot that ``text`` means on a table.

    A batch (``b-`` and its first digits) means the snapshot that it landed there. A tag or branch
    of that name comes first.

    Raises:
        EntryNotFound: there is none (any more); what there is, is in the message.
        AmbiguousBatch: the prefix fits more than one batch.
        UsageError: it is none of the forms.
    """
    if text.startswith(BATCH_PREFIX) and text not in state.refs:
        return landed_snapshot(ledger, state, ledger.resolve_batch(text))
    from odi_audit.catalog.moments import resolve

    return resolve(state, text)


def landed_snapshot(ledger: Ledger, state: TableState, batch: BatchId) -> SnapshotInfo:
    """Return the snapshot that a batch landed on a table.

    Raises:
        EntryNotFound: it landed none there, or the snapshot has expired.
    """
    entry = ledger.landed(batch, state.ref.uuid)
    snapshot = None if entry is None else facts.text(entry.facts, "snapshot")
    if snapshot is None:
        raise EntryNotFound(
            f"batch {batch} has landed no snapshot on table {state.ref.name}",
            hint=f"odi-audit batches --table {state.ref.name}",
            batch=batch,
        )
    info = state.snapshot(SnapshotId(snapshot))
    if info is None:
        oldest = state.snapshots[0].time if state.snapshots else None
        kept = (
            "no snapshot is kept" if oldest is None else f"the oldest that is kept is of {oldest}"
        )
        raise EntryNotFound(
            f"snapshot {snapshot} of batch {batch} on table {state.ref.name} has expired; {kept}",
            hint=f"odi-audit batches --table {state.ref.name}",
            batch=batch,
            snapshot=snapshot,
        )
    return info


def batches_by_sequence(ledger: Ledger, state: TableState) -> dict[int, BatchId]:
    """Return which batch made which change of a table, by the change's sequence number.

    A compaction is none of them: it changes no row. The ledger answers, also for what expired.
    """
    found: dict[int, BatchId] = {}
    for entry in ledger.find(EntryFilter(kinds=(Kind.LANDED,), table=state.ref.uuid)):
        sequence = facts.number(entry.facts, "sequence_number")
        if sequence is not None and entry.batch is not None and not is_compaction(entry):
            found[sequence] = entry.batch
    return found


def batch_of(ledger: Ledger, state: TableState, snapshot: SnapshotId) -> BatchId | None:
    """Return the batch that a snapshot landed, by its stamp, where the ledger says so too."""
    info = state.snapshot(snapshot)
    if info is None or info.batch is None:
        return None
    entry = ledger.landed(info.batch, state.ref.uuid)
    confirmed = entry is not None and facts.text(entry.facts, "snapshot") == snapshot
    return info.batch if confirmed else None


def rollback_of(ledger: Ledger, state: TableState, snapshot: SnapshotId) -> BatchId | None:
    """Return the batch that took main back from a snapshot; None where none is on record."""
    where = EntryFilter(kinds=(Kind.ROLLBACK,), table=state.ref.uuid)
    for entry in ledger.find(where, newest_first=True):
        if snapshot in facts.texts(entry.facts, "removed_snapshots"):
            return entry.batch
    return None
