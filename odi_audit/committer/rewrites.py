"""What a landed record says of the files that its snapshot has rewritten.

Owns the one fact that a table without row ids needs after a compaction: which writes its files
came from (docs/ledger-format.md, ``rewrote``). Must never keep a landing from being recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from odi_audit.canonical import Json
from odi_audit.catalog import TableState
from odi_audit.errors import OdiError
from odi_audit.model.snapshots import SnapshotFacts


def rewrote(state: Callable[[], TableState], snapshot: SnapshotFacts) -> dict[str, Json]:
    """Return the fact ``rewrote`` of a landed snapshot, or nothing where it rewrote nothing.

    Rows with ids need no such fact. Where the manifests cannot be read, the reason stands in its
    place: the batch is in the table, and that must be recorded now.
    """
    if snapshot.first_row_id is not None or not snapshot.count("deleted-data-files"):
        return {}
    from odi_audit.catalog import rewrites

    try:
        found = rewrites.rewritten(state(), snapshot.id)
    except OdiError as error:
        return {"rewrote_unread": error.record}
    return {"rewrote": cast("Json", found)} if found else {}
