"""Rows by their ids, in any snapshot.

Owns the reading in two steps: the lineage of every file, which costs little, then the values of
those few files that hold a row asked for. Must never be asked of a table without row ids: it would
find nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from odi_audit.catalog.manifests import plan
from odi_audit.catalog.rows import ROW_ID, open_reader, snapshot_to_read, unreadable
from odi_audit.catalog.state import TableState
from odi_audit.ids import SnapshotId


def rows_by_id(
    state: TableState,
    row_ids: Collection[int],
    columns: Sequence[str] | None = None,
    snapshot: SnapshotId | None = None,
    *,
    missing: list[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of these ids, as :func:`odi_audit.catalog.rows.lineage_rows` gives rows.

    Raises:
        UsageError: a column is not there. EntryNotFound: there is no such snapshot (any more).
        StorageError: a file of the table is missing or damaged.
    """
    info = snapshot_to_read(state, snapshot)
    if info is None or not row_ids:
        return
    schema = state.handle.schema()
    if snapshot is not None and info.schema_id is not None:
        schema = state.handle.schemas()[info.schema_id]
    wanted = pa.array(sorted(row_ids), pa.int64())
    lineage, whole = (open_reader(state, schema, chosen, None) for chosen in ((), columns))
    left = len(wanted)
    try:
        for file in plan(state.handle, info.manifest_list, schema, lineage.pruning):
            if not any(_chosen(batch, wanted).num_rows for batch in lineage.read(file, missing)):
                continue
            for batch in whole.read(file, missing):
                some = _chosen(batch, wanted)
                left -= some.num_rows
                if some.num_rows:
                    yield some
            if left <= 0:
                return
    except (OSError, pa.ArrowInvalid) as problem:
        raise unreadable(state, info, problem) from problem


def _chosen(batch: pa.RecordBatch, wanted: pa.Array) -> pa.RecordBatch:
    return batch.filter(pc.is_in(batch.column(ROW_ID), value_set=wanted))
