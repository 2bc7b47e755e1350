"""Labels: which batch made each change between two snapshots.

Owns the column ``_batch`` of a reading. An image from before names the batch that changed or took
the row, one from after the batch that made it what it is. Must never name a batch where only a file
tells and the file may hold older rows: then there is no label.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odi_audit.catalog.state import SnapshotInfo, TableState, history
from odi_audit.ids import SnapshotId
from odi_audit.ledger.port import Ledger
from odi_audit.query.places import batch_of, batches_by_sequence, rollback_of
from odi_audit.query.writes import is_compaction

if TYPE_CHECKING:
    import pyarrow as pa

    from odi_audit.catalog.changes import Comparison

APPEND = "append"


class Labels:
    """The batches behind one comparison, looked up a batch of rows at a time."""

    def __init__(
        self, ledger: Ledger, compared: Comparison, start: SnapshotInfo | None, end: SnapshotInfo
    ) -> None:
        import pyarrow as pa

        from odi_audit.catalog.changes import PAIR
        from odi_audit.catalog.rows import LAST_UPDATED

        state = compared.state
        by_sequence = batches_by_sequence(ledger, state)
        self._sequences = pa.array(list(by_sequence), pa.int64())
        self._batches = pa.array(list(by_sequence.values()), pa.string())
        paired = compared.after.paired
        self._pairs = paired[PAIR].combine_chunks()
        self._pair_sequences = paired[LAST_UPDATED].combine_chunks()
        self._gone, self._takers = _takers(ledger, compared, start, end)
        files = _files(ledger, state, start, end)
        self._files = pa.array(list(files), pa.string())
        self._file_batches = pa.array(list(files.values()), pa.string())

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the label of each row of a batch of changes."""
        import pyarrow.compute as pc

        from odi_audit.catalog.changes import CHANGE, PAIR, Change
        from odi_audit.catalog.rows import FILE_SNAPSHOT, LAST_UPDATED, ROW_ID

        change = batch.column(CHANGE)
        made = pc.coalesce(
            self._by_sequence(batch.column(LAST_UPDATED)),
            _lookup(batch.column(FILE_SNAPSHOT), self._files, self._file_batches),
        )
        changed = self._by_sequence(_lookup(batch.column(PAIR), self._pairs, self._pair_sequences))
        taken = _lookup(batch.column(ROW_ID), self._gone, self._takers)
        return pc.if_else(
            pc.equal(change, Change.DELETE.value),
            taken,
            pc.if_else(pc.equal(change, Change.UPDATE_BEFORE.value), changed, made),
        )

    def _by_sequence(self, sequences: pa.Array) -> pa.Array:
        return _lookup(sequences, self._sequences, self._batches)


def _lookup(wanted: pa.Array, keys: pa.Array, values: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    return values.take(pc.index_in(wanted, value_set=keys))


def _takers(
    ledger: Ledger, compared: Comparison, start: SnapshotInfo | None, end: SnapshotInfo
) -> tuple[pa.Array, pa.Array]:
    """Return the ids of removed rows, and beside each the batch that took it."""
    import pyarrow as pa

    from odi_audit.catalog.changes import removals
    from odi_audit.catalog.rows import ROW_ID

    ids: list[pa.Array] = [pa.array([], pa.int64())]
    batches: list[pa.Array] = [pa.array([], pa.string())]
    if start is not None and compared.deleted_count:
        gone = compared.before.alone[ROW_ID].combine_chunks()
        missing: list[str] | None = None if compared.missing is None else []
        takers = removals(compared.state, start.id, end.id, gone, missing=missing)
        for snapshot, taken in takers.items():
            batch = pa.scalar(batch_of(ledger, compared.state, snapshot), pa.string())
            # Rows without ids have one taker or none: a single null stands for them all.
            unique = taken.unique()
            ids.append(unique)
            batches.append(pa.repeat(batch, len(unique)))
        # Looked up last: what no write took, a rollback may have.
        undoer = pa.scalar(rollback_of(ledger, compared.state, start.id), pa.string())
        if missing and compared.missing is not None:
            compared.missing.extend(missing)  # with a file gone, a write may have taken them
        elif undoer.is_valid:
            ids.append(gone)
            batches.append(pa.repeat(undoer, len(gone)))
    return pa.concat_arrays(ids), pa.concat_arrays(batches)


def _files(
    ledger: Ledger, state: TableState, start: SnapshotInfo | None, end: SnapshotInfo
) -> dict[SnapshotId, str | None]:
    """Return, for rows without ids, which batch a file's rows are of, by who added the file."""
    if state.has_row_ids and state.snapshots and state.snapshots[0].first_row_id is not None:
        return {}
    known = [info for info in history(state) if info.sequence_number <= end.sequence_number]
    found = {
        info.id: batch_of(ledger, state, info.id) for info in known if info.operation == APPEND
    }
    since = 0 if start is None else start.sequence_number
    writes = [info for info in known if info.sequence_number > since and not is_compaction(info)]
    if start is not None and start in known and len(writes) == 1:
        only = batch_of(ledger, state, writes[0].id)
        return {info.id: only for info in known if info.sequence_number > since}
    return dict(found)
