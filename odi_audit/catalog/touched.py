"""What one snapshot did to its table: files, partitions, and the rows that it wrote.

Owns the reading of one step of history, and what is left of its files later on. Must never be
asked of a snapshot that has expired: its manifests may be gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from odi_audit.catalog.files import VERSION, Files, schema_at
from odi_audit.catalog.rows import LAST_UPDATED, ROW_ID
from odi_audit.catalog.state import SnapshotInfo, TableState, ancestors
from odi_audit.ids import SnapshotId

if TYPE_CHECKING:
    from odi_audit.catalog.manifests import PlannedFile

PARTITIONS_MAX = 1_000
"""More partitions than anyone reads; beyond it they are counted only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """Files and partitions that a snapshot touched.

    ``removed`` and ``marked`` (files that got deletes) are None where the snapshot before it has
    expired: nothing shows them then.
    """

    added: int
    removed: int | None
    marked: int | None
    partitions: tuple[str, ...]
    partitions_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFate:
    """What became of the rows in the files of one snapshot, as far as files can show it.

    ``lost`` counts the rows of files that were taken out, by the snapshot that did it; ``marked``
    those that deletes were written for. ``live`` are still where they were written.
    """

    written: int
    live: int
    marked: int
    lost: Mapping[SnapshotId | None, int]


def touched(state: TableState, snapshot: SnapshotInfo) -> Touched:
    """Return which files and partitions a snapshot touched."""
    files = Files(state=state, schema=schema_at(state, snapshot.id))
    now = {file.path: file for file in files.plan(snapshot.id)}
    added = [file for file in now.values() if file.snapshot == snapshot.id]
    known = snapshot.parent is None or state.snapshot(snapshot.parent) is not None
    before = {file.path: file for file in files.plan(snapshot.parent)} if known else {}
    removed = [file for path, file in before.items() if path not in now]
    marked = [
        file for path, file in before.items() if path in now and now[path].deletes != file.deletes
    ]
    partitions = sorted({partition(state, file) for file in [*added, *removed, *marked]} - {""})
    return Touched(
        added=len(added),
        removed=len(removed) if known else None,
        marked=len(marked) if known else None,
        partitions=tuple(partitions[:PARTITIONS_MAX]),
        partitions_count=len(partitions),
    )


def partition(state: TableState, file: PlannedFile) -> str:
    """Return a file's partition as people write it, ``region=north``; empty where there is none."""
    spec = state.handle.specs()[file.data_file.spec_id]
    return spec.partition_to_path(file.data_file.partition, state.handle.schema())


def written_rows(
    state: TableState, snapshot: SnapshotInfo, *, missing: list[str] | None = None
) -> pa.Table:
    """Return id and last change of the rows that a snapshot wrote; those it only moved are not.

    Where ``missing`` is given, a data file that is gone is named there, and its rows left out.
    """
    files = Files(state=state, schema=schema_at(state, snapshot.id), missing=missing)
    found = files.lineage(_own(files.plan(snapshot.id), snapshot.id)).select(VERSION)
    return found.filter(pc.equal(found[LAST_UPDATED], snapshot.sequence_number))


def file_fate(
    state: TableState,
    snapshot: SnapshotInfo,
    now: SnapshotId,
    *,
    missing: list[str] | None = None,
) -> FileFate:
    """Return what became of a snapshot's files, for rows that have no ids.

    Where ``missing`` is given, a data file that is gone is named there, and its rows left out.
    """
    files = Files(state=state, schema=schema_at(state, snapshot.id), missing=missing)
    written = {
        file.path: len(files.lineage({0: file}))
        for file in _own(files.plan(snapshot.id), snapshot.id).values()
    }
    for path in missing or ():
        written.pop(path, None)
    still = {file.path: file for file in files.plan(now) if file.path in written}
    live = {path: len(files.lineage({0: file})) for path, file in still.items()}
    lost: dict[SnapshotId | None, int] = {}
    out = {path: count for path, count in written.items() if path not in live}
    for path, taker in _takers(state, files, snapshot, now, out).items():
        lost[taker] = lost.get(taker, 0) + out[path]
    return FileFate(
        written=sum(written.values()),
        live=sum(live.values()),
        marked=sum(written[path] - count for path, count in live.items()),
        lost=lost,
    )


def _own(planned: Iterable[PlannedFile], snapshot: SnapshotId) -> dict[int, PlannedFile]:
    mine = (file for file in planned if file.snapshot == snapshot)
    return dict(enumerate(mine))


def _takers(
    state: TableState,
    files: Files,
    snapshot: SnapshotInfo,
    now: SnapshotId,
    out: Mapping[str, int],
) -> dict[str, SnapshotId | None]:
    """Return which snapshot took each file out; None where main does not lead there."""
    takers: dict[str, SnapshotId | None] = dict.fromkeys(out)
    if not out:
        return takers
    path: list[SnapshotInfo] = []
    for info in ancestors(state, now):
        if info.id == snapshot.id:
            break
        path.append(info)
    else:
        return takers
    left = set(out)
    for info in reversed(path):
        if left and info.operation != "append":
            gone = left - {file.path for file in files.plan(info.id)}
            takers.update(dict.fromkeys(gone, info.id))
            left -= gone
    return takers


def row_ids(found: pa.Table) -> pa.Array:
    """Return the row ids of a table of versions, as one array."""
    return found[ROW_ID].combine_chunks()
