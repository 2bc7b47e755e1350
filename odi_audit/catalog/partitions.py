"""The partition of each data file of a snapshot, as a path such as ``region=north``.

Owns that one look-up. Must never take it from a file's name: the manifests say it.
"""

from __future__ import annotations

from pyiceberg.expressions import AlwaysTrue

from odi_audit.catalog.manifests import plan
from odi_audit.catalog.rows import unreadable
from odi_audit.catalog.state import SnapshotInfo, TableState


def partition_paths(state: TableState, at: SnapshotInfo) -> dict[str, str]:
    """Return the partition of every data file, by the file's own spec; empty without partitions.

    Raises:
        StorageError: a manifest cannot be read.
    """
    table = state.handle
    found: dict[str, str] = {}
    try:
        for file in plan(table, at.manifest_list, table.schema(), AlwaysTrue()):
            spec = table.specs()[file.data_file.spec_id]
            found[file.path] = spec.partition_to_path(file.data_file.partition, table.schema())
    except OSError as problem:
        raise unreadable(state, at, problem) from problem
    return found
