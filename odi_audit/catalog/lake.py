"""The lake's catalog, opened for reading.

Owns the errors that a catalog can give and the turning of pyiceberg's metadata into values. Must
never create, change or drop anything, not even the catalog's own tables or its empty file.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.exceptions import (
    NoSuchIcebergTableError,
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
)
from requests.exceptions import RequestException
from sqlalchemy.exc import ProgrammingError, SQLAlchemyError

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
    from pyiceberg.catalog import Catalog
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

NEAR_MATCHES_MAX = 3
NAMESPACE_DEPTH_MAX = 16
"""Deeper nesting than any catalog of ours makes; ends a walk that a broken server would not."""
DOCTOR = "odi-audit doctor"


def open_lake(settings: Settings) -> LakeCatalog:
    """Open the catalog that the settings name, for reading.

    Raises:
        CatalogUnavailable: it is gone, locked, corrupt, or does not answer.
    """
    path = catalog_file(settings)
    place = str(path) if path is not None else f"the {settings.catalog.type} catalog"
    if path is not None:
        _check_file(path)
    with _answers(place):
        return LakeCatalog(_connect(settings), place)


class LakeCatalog:
    """The tables of a lake. Each call reads the catalog anew: nothing here goes stale."""

    def __init__(self, catalog: Catalog, place: str) -> None:
        self._catalog = catalog
        self._place = place

    @property
    def name(self) -> str:
        """The catalog's name, the same on Spark's side."""
        return str(self._catalog.name)

    def tables(self) -> list[TableName]:
        """Return the names of all tables, sorted.

        Raises:
            CatalogUnavailable: the catalog did not answer.
        """
        with _answers(self._place):
            try:
                return sorted(set(self._walk((), 0)))
            except ProgrammingError as problem:
                if _is_fresh_server(problem):
                    return []
                raise

    def load(self, name: TableName) -> TableState:
        """Return a table as it is now.

        Raises:
            TableNotFound: there is none of that name; near matches are in the message.
            CatalogUnavailable: the catalog did not answer.
            StorageError: the catalog names a metadata file that cannot be read.
        """
        with _answers(self._place):
            try:
                table = self._catalog.load_table(name.parts)
            except (NoSuchTableError, NoSuchNamespaceError, NoSuchIcebergTableError) as missing:
                raise self._not_found(name) from missing
            except ProgrammingError as problem:
                if _is_fresh_server(problem):
                    raise self._not_found(name) from problem
                raise
            except (FileNotFoundError, PermissionError, ValueError) as problem:
                raise StorageError(
                    f"table {name} is in the catalog, but its metadata cannot be read: {problem}",
                    hint="restore the warehouse folder, then: " + DOCTOR,
                    table=str(name),
                ) from problem
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

    def _walk(self, namespace: tuple[str, ...], depth: int) -> Iterator[TableName]:
        if namespace:
            for found in self._catalog.list_tables(namespace):
                yield TableName(tuple(found))
        if depth < NAMESPACE_DEPTH_MAX:
            for inner in self._catalog.list_namespaces(namespace):
                yield from self._walk(tuple(inner), depth + 1)

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


def _connect(settings: Settings) -> Catalog:
    # Never pyiceberg's load_catalog: it would mix in the user's own configuration files.
    properties = catalog_pyiceberg_properties(settings)
    if properties.get("type") == "rest":
        from pyiceberg.catalog.rest import RestCatalog

        return RestCatalog(settings.catalog.name, **properties)
    from pyiceberg.catalog.sql import SqlCatalog

    # Opening must not make the catalog's tables: Spark does, or `init`.
    return SqlCatalog(settings.catalog.name, **{**properties, "init_catalog_tables": "false"})


@contextmanager
def _answers(place: str) -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as problem:
        raise _unavailable(place, problem) from problem
    except (RequestException, RESTError) as problem:
        raise CatalogUnavailable(
            f"{place} did not answer: {type(problem).__name__}", hint=DOCTOR
        ) from problem


def _is_fresh_server(problem: ProgrammingError) -> bool:
    # Spark makes the tables of a server's catalog at its first use: until then there are none.
    return type(problem.orig).__name__ == "UndefinedTable"


def _unavailable(place: str, problem: Exception) -> CatalogUnavailable:
    # The driver's own words: SQLAlchemy's would repeat the statement and its parameters.
    reason = str(getattr(problem, "orig", None) or type(problem).__name__).strip()
    first = reason.splitlines()[0] if reason else type(problem).__name__
    if "locked" in first:
        hint = "another process is writing to it: try again, or find it with: " + DOCTOR
    elif "no such table" in first or "does not exist" in first:
        hint = "it holds no catalog tables: restore it from a copy, or: odi-audit init"
    elif "not a database" in first or "malformed" in first:
        hint = "the file is damaged: restore it from a copy, then: " + DOCTOR
    else:
        hint = DOCTOR
    return CatalogUnavailable(f"the catalog {place} could not be read: {first}", hint=hint)


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
