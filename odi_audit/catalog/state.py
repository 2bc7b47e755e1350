"""Tables as values: what a catalog says about a table at one moment.

Owns the plain form of a table's metadata and the pure walks over its history. Must never read
anything: ``lake`` fills these values, and importing this module loads no Iceberg library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odi_audit.ids import BatchId, SnapshotId
from odi_audit.model.tables import TableName, TableRef

if TYPE_CHECKING:
    from pyiceberg.table import Table

MAIN = "main"
BATCH_STAMP = "odi.batch-id"
LINEAGE_FORMAT_MIN = 3
"""The first format version whose rows have ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One top-level column of a schema."""

    id: int
    name: str
    type: str
    required: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecField:
    """One field of a partition spec: ``transform`` of the column ``source_id``."""

    name: str
    transform: str
    source_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotInfo:
    """One snapshot, as the table's metadata lists it."""

    id: SnapshotId
    parent: SnapshotId | None
    sequence_number: int
    time: str
    operation: str | None
    summary: Mapping[str, str]
    first_row_id: int | None
    added_rows: int | None
    schema_id: int | None
    manifest_list: str

    @property
    def batch(self) -> BatchId | None:
        """The batch that the stamps name, whether or not they are to be believed."""
        stamp = self.summary.get(BATCH_STAMP)
        return None if stamp is None else BatchId(stamp)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefInfo:
    """A branch or a tag."""

    snapshot: SnapshotId
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One move of main, as the snapshot log keeps it."""

    time: str
    snapshot: SnapshotId


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """A table at one moment. ``snapshots`` are in the order of their sequence numbers."""

    ref: TableRef
    name: TableName
    location: str
    metadata_location: str
    format_version: int
    properties: Mapping[str, str]
    columns: tuple[Column, ...]
    schema_id: int
    schemas: Mapping[int, tuple[Column, ...]]
    spec_id: int
    specs: Mapping[int, tuple[SpecField, ...]]
    current_snapshot: SnapshotId | None
    last_sequence_number: int
    snapshots: tuple[SnapshotInfo, ...]
    refs: Mapping[str, RefInfo]
    snapshot_log: tuple[LogEntry, ...]
    handle: Table = field(repr=False, compare=False)
    """The catalog's own object, for ``rows`` alone."""

    @property
    def has_row_ids(self) -> bool:
        """Whether the table's format gives each row an id."""
        return self.format_version >= LINEAGE_FORMAT_MIN

    def snapshot(self, snapshot: SnapshotId) -> SnapshotInfo | None:
        """Return a snapshot by its id, None where it has expired or never was."""
        return next((info for info in self.snapshots if info.id == snapshot), None)


def ancestors(state: TableState, start: SnapshotId | None) -> Iterator[SnapshotInfo]:
    """Yield a snapshot and its ancestors, newest first, as far as they have not expired."""
    by_id = {info.id: info for info in state.snapshots}
    seen: set[SnapshotId] = set()
    current = start
    while current is not None and current in by_id and current not in seen:
        seen.add(current)
        info = by_id[current]
        yield info
        current = info.parent


def history(state: TableState, ref: str = MAIN) -> tuple[SnapshotInfo, ...]:
    """Return the snapshots that a branch or tag is made of, newest first."""
    return tuple(ancestors(state, head(state, ref)))


def head(state: TableState, ref: str = MAIN) -> SnapshotId | None:
    """Return the snapshot that a branch or tag stands at; None where there is none."""
    if ref in state.refs:
        return state.refs[ref].snapshot
    return state.current_snapshot if ref == MAIN else None


def find_stamp(state: TableState, batch: BatchId, ref: str = MAIN) -> SnapshotInfo | None:
    """Return the newest snapshot of ``ref``'s history that is stamped with ``batch``."""
    return next((info for info in ancestors(state, head(state, ref)) if info.batch == batch), None)
