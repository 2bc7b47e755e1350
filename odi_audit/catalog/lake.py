"""The lake's catalog, opened for reading.

Owns the errors that a catalog can give and the turning of pyiceberg's metadata into values. How a
kind of catalog is asked is in ``sql_catalog`` and ``rest_catalog``. Must never create, change or
drop anything, not even the catalog's own tables or its empty file.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from odi_audit import clock
from odi_audit.catalog.state import (
    Column,
    LogEntry,
    RefInfo,
    SnapshotInfo,
    SpecField,
    TableState,
)
from odi_audit.errors import CatalogUnavailable, StorageError, TableNotFound
from odi_audit.ids import SnapshotId, TableUuid
from odi_audit.model.tables import TableName, TableRef
from odi_audit.settings import Settings, catalog_file, catalog_pyiceberg_properties

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

NEAR_MATCHES_MAX = 3
DOCTOR = "odi-audit doctor"


class Tables(Protocol):
    """A catalog of one kind, as it is asked. Where it does not answer: CatalogUnavailable."""

    name: str

    def names(self) -> Iterable[tuple[str, ...]]:
        """Yield the parts of every table's name."""
        ...

    def load(self, parts: tuple[str, ...], properties: Mapping[str, str]) -> Table | None:
        """Return a table, with its metadata read; None where there is none of that name."""
        ...

    def close(self) -> None:
        """Let go of the catalog's connections."""
        ...


def open_lake(settings: Settings) -> LakeCatalog:
    """Open the catalog that the settings name, for reading.

    Raises:
        CatalogUnavailable: it is gone, locked, corrupt, or does not answer.
    """
    path = catalog_file(settings)
    place = str(path) if path is not None else f"the {settings.catalog.type} catalog"
    if path is not None:
        _check_file(path)
    properties = catalog_pyiceberg_properties(settings)
    return LakeCatalog(_connect(settings, properties, place), properties)


class LakeCatalog:
    """The tables of a lake. Each call reads the catalog anew: nothing here goes stale."""

    def __init__(self, catalog: Tables, properties: Mapping[str, str]) -> None:
        self._catalog = catalog
        self._properties = properties

    @property
    def name(self) -> str:
        """The catalog's name, the same on Spark's side."""
        return self._catalog.name

    def tables(self) -> list[TableName]:
        """Return the names of all tables, sorted.

        Raises:
            CatalogUnavailable: the catalog did not answer.
        """
        return sorted({TableName(parts) for parts in self._catalog.names()})

    def load(self, name: TableName) -> TableState:
        """Return a table as it is now.

        Raises:
            TableNotFound: there is none of that name; near matches are in the message.
            CatalogUnavailable: the catalog did not answer.
            StorageError: the catalog names a metadata file that cannot be read.
        """
        try:
            table = self._catalog.load(name.parts, self._properties)
        except (OSError, ValueError) as problem:
            raise StorageError(
                f"table {name} is in the catalog, but its metadata cannot be read: {problem}",
                hint="restore the warehouse folder, then: " + DOCTOR,
                table=str(name),
            ) from problem
        if table is None:
            raise self._not_found(name)
        return _state(name, table)

    def load_by_uuid(self, uuid: TableUuid, *, name: TableName | None = None) -> TableState | None:
        """Return the table of that uuid, tried first under ``name``; None where there is none."""
        names = self.tables()
        if name in names:
            names.remove(name)
            names.insert(0, name)
        for candidate in names:
            state = self.load(candidate)
            if state.ref.uuid == uuid:
                return state
        return None

    def close(self) -> None:
        """Let go of the catalog's connections."""
        self._catalog.close()

    def _not_found(self, name: TableName) -> TableNotFound:
        known = {str(table): table for table in self.tables()}
        folded = {shown.casefold(): shown for shown in known}
        near = difflib.get_close_matches(
            str(name).casefold(), list(folded), n=NEAR_MATCHES_MAX, cutoff=0.5
        )
        matches = [folded[match] for match in near]
        tail = f"; did you mean {' or '.join(matches)}?" if matches else ""
        if not known:
            tail = "; the catalog holds no tables yet"
        return TableNotFound(
            f"no table {name} among the {len(known)} of catalog {self.name}{tail}",
            hint="odi-audit batches, to see which tables were written",
            table=str(name),
            near=matches,
        )


def _check_file(path: Path) -> None:
    # SQLite would make an empty file in its place, and the lake would look empty, not lost.
    if not path.is_file():
        raise CatalogUnavailable(
            f"the catalog file {path} is not there",
            hint=f"put it back from a copy, or make a new lake: odi-audit init; then: {DOCTOR}",
            path=str(path),
        )


def _connect(settings: Settings, properties: Mapping[str, str], place: str) -> Tables:
    name = settings.catalog.name
    if properties.get("type") == "rest":
        from odi_audit.catalog.rest_catalog import RestTables

        return RestTables(name, properties, place)
    # Not through pyiceberg: its SQL catalog costs a third of a second before the first answer.
    from odi_audit.catalog.sql_catalog import PostgresTables, SqliteTables, SqlTables

    kind = SqliteTables if settings.catalog.type == "sqlite" else PostgresTables
    return SqlTables(name, kind(properties["uri"], place))


# -- from pyiceberg's metadata to values ------------------------------------------------------


def _state(name: TableName, table: Table) -> TableState:
    metadata = table.metadata
    snapshots = sorted(metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)
    schemas = {schema.schema_id: _columns(schema) for schema in metadata.schemas}
    current = metadata.current_snapshot_id
    return TableState(
        ref=TableRef(uuid=TableUuid(str(metadata.table_uuid)), name=str(name)),
        name=name,
        location=metadata.location,
        metadata_location=table.metadata_location,
        format_version=metadata.format_version,
        properties=dict(metadata.properties),
        columns=schemas[metadata.current_schema_id],
        schema_id=metadata.current_schema_id,
        schemas=schemas,
        spec_id=metadata.default_spec_id,
        specs={spec.spec_id: _spec(spec) for spec in metadata.partition_specs},
        current_snapshot=None if current is None else SnapshotId(str(current)),
        last_sequence_number=int(getattr(metadata, "last_sequence_number", 0)),
        snapshots=tuple(_snapshot(snapshot) for snapshot in snapshots),
        refs={
            label: RefInfo(
                snapshot=SnapshotId(str(ref.snapshot_id)), kind=ref.snapshot_ref_type.value
            )
            for label, ref in metadata.refs.items()
        },
        snapshot_log=tuple(
            LogEntry(
                time=clock.to_text(clock.from_millis(entry.timestamp_ms)),
                snapshot=SnapshotId(str(entry.snapshot_id)),
            )
            for entry in metadata.snapshot_log
        ),
        handle=table,
    )


def _columns(schema: Schema) -> tuple[Column, ...]:
    return tuple(
        Column(
            id=column.field_id,
            name=column.name,
            type=str(column.field_type),
            required=column.required,
        )
        for column in schema.fields
    )


def _spec(spec: PartitionSpec) -> tuple[SpecField, ...]:
    return tuple(
        SpecField(name=part.name, transform=str(part.transform), source_id=part.source_id)
        for part in spec.fields
    )


def _snapshot(snapshot: Snapshot) -> SnapshotInfo:
    parent = snapshot.parent_snapshot_id
    summary = snapshot.summary
    return SnapshotInfo(
        id=SnapshotId(str(snapshot.snapshot_id)),
        parent=None if parent is None else SnapshotId(str(parent)),
        sequence_number=snapshot.sequence_number or 0,
        time=clock.to_text(clock.from_millis(snapshot.timestamp_ms)),
        operation=None if summary is None else summary.operation.value,
        summary={} if summary is None else dict(summary.additional_properties),
        first_row_id=snapshot.first_row_id,
        added_rows=snapshot.added_rows,
        schema_id=snapshot.schema_id,
        manifest_list=snapshot.manifest_list,
    )
