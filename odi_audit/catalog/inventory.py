"""The files that a table's current snapshot is made of, as plain values.

Owns the listing of data and delete files from manifests. Must never open a data file, and must
never hold more than one manifest's entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from odi_audit.canonical import Json, JsonObject
from odi_audit.catalog.state import TableState
from odi_audit.errors import StorageError
from odi_audit.ids import SnapshotId

_CONTENT = {0: "data", 1: "position-deletes", 2: "equality-deletes"}
"""Iceberg's numbers for what a file holds; a deletion vector counts as position deletes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInfo:
    """One file of a snapshot. ``added_by`` is the snapshot that added it to the table."""

    path: str
    content: str
    format: str
    partition: JsonObject
    spec_id: int
    rows_count: int
    size_bytes: int
    added_by: SnapshotId | None
    sequence_number: int | None


def current_files(state: TableState) -> Iterator[FileInfo]:
    """Yield the data and delete files of the table's current snapshot.

    Raises:
        StorageError: a manifest cannot be read.
    """
    snapshot = state.handle.metadata.current_snapshot()
    if snapshot is None:
        return
    io = state.handle.io
    try:
        for manifest in snapshot.manifests(io):
            names = [part.name for part in state.specs[manifest.partition_spec_id]]
            for entry in manifest.fetch_manifest_entry(io, discard_deleted=True):
                file = entry.data_file
                added = entry.snapshot_id
                yield FileInfo(
                    path=file.file_path,
                    content=_CONTENT[int(file.content)],
                    format=str(file.file_format.value).lower(),
                    partition={
                        name: _plain(file.partition[place]) for place, name in enumerate(names)
                    },
                    spec_id=manifest.partition_spec_id,
                    rows_count=file.record_count,
                    size_bytes=file.file_size_in_bytes,
                    added_by=None if added is None else SnapshotId(str(added)),
                    sequence_number=entry.sequence_number,
                )
    except OSError as problem:
        raise StorageError(
            f"a manifest of {state.ref.name} cannot be read: {problem}",
            hint="restore the warehouse folder, then: odi-audit doctor",
            table=state.ref.name,
        ) from problem


def _plain(value: object) -> Json:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)
