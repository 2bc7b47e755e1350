"""Reading Iceberg without a JVM: tables, snapshots, manifests, row lineage.

Owns every use of pyiceberg. Must never write: every change to a table goes through Spark. What
needs pyiceberg is imported when it is called, so that commands over the ledger alone start fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odi_audit.catalog.state import (
    MAIN,
    Column,
    LogEntry,
    RefInfo,
    SnapshotInfo,
    SpecField,
    TableState,
    ancestors,
    find_stamp,
    head,
    history,
)

if TYPE_CHECKING:
    from odi_audit.catalog.lake import LakeCatalog as LakeCatalog
    from odi_audit.settings import Settings

__all__ = [
    "MAIN",
    "Column",
    "LogEntry",
    "RefInfo",
    "SnapshotInfo",
    "SpecField",
    "TableState",
    "ancestors",
    "find_stamp",
    "head",
    "history",
    "open_catalog",
]


def open_catalog(settings: Settings) -> LakeCatalog:
    """Open the catalog that the settings name, for reading.

    Raises:
        CatalogUnavailable: it is gone, locked, corrupt, or does not answer.
    """
    from odi_audit.catalog import lake

    return lake.open_lake(settings)
