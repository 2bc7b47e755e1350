"""A table as it is now: loaded fresh, with the metadata that a commit will be compared with.

Owns loading and the reading of history through the JVM. ``base`` is the exact state that a staged
change rests on. Must never change a table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import cast

from pyspark.sql.types import StructType

from odi_audit.canonical import JsonObject
from odi_audit.errors import CatalogUnavailable
from odi_audit.ids import BatchId, SnapshotId, TableUuid
from odi_audit.model.snapshots import SnapshotFacts, snapshot_from_json, snapshot_from_text
from odi_audit.model.tables import TableName, TableRef
from odi_audit.spark.jvm import JVM_ERRORS, JavaObject, Jvm, first_line

ROW_LINEAGE_FORMAT = 3
"""The first format version in which every row has an id."""


@dataclass(frozen=True, kw_only=True)
class LiveTable:
    """One table, loaded once; everything here speaks of that moment."""

    jvm: Jvm
    catalog: str
    name: TableName
    java: JavaObject
    operations: JavaObject
    base: JavaObject

    @cached_property
    def ref(self) -> TableRef:
        """The table's lasting identity."""
        return TableRef(uuid=TableUuid(str(self.base.uuid())), name=str(self.name))

    @cached_property
    def head(self) -> SnapshotId | None:
        """The snapshot that main points to."""
        snapshot = self.base.currentSnapshot()
        return None if snapshot is None else SnapshotId(str(snapshot.snapshotId()))

    @cached_property
    def metadata_location(self) -> str:
        """The metadata file of this state: it names the state exactly."""
        return str(self.base.metadataFileLocation())

    @cached_property
    def format_version(self) -> int:
        """Iceberg's format version of the table."""
        return int(self.base.formatVersion())

    @property
    def confidence(self) -> str:
        """What a trace of rows written now can promise."""
        return "exact" if self.format_version >= ROW_LINEAGE_FORMAT else "file"

    @cached_property
    def schema(self) -> StructType:
        """The current schema, as Spark's type."""
        made = self.jvm.iceberg.spark.SparkSchemaUtil.convert(self.java.schema())
        return StructType.fromJson(json.loads(made.json()))

    def field_id(self, column: str) -> int:
        """Return the id of a top-level column, by its name in any spelling."""
        return int(self.java.schema().caseInsensitiveFindField(column).fieldId())

    @cached_property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        return {str(key): str(value) for key, value in dict(self.base.properties()).items()}

    def property(self, key: str) -> str | None:
        """Return one property, at the cost of one call."""
        found = self.base.properties().get(key)
        return None if found is None else str(found)

    def refreshed(self) -> LiveTable:
        """Return the table as it is now; cheap where nothing changed.

        Raises:
            CatalogUnavailable: the catalog is locked, gone, or does not answer.
        """
        with _answering(self.name, self.catalog):
            self.operations.refresh()
            return LiveTable(
                jvm=self.jvm,
                catalog=self.catalog,
                name=self.name,
                java=self.java,
                operations=self.operations,
                base=self.operations.current(),
            )

    def since(self, older: SnapshotId | None) -> list[SnapshotFacts]:
        """Return main's snapshots after ``older``, newest first; all of them where it is gone."""
        facts: list[SnapshotFacts] = []
        snapshot = self.base.currentSnapshot()
        while snapshot is not None:
            if str(snapshot.snapshotId()) == older:
                break
            facts.append(snapshot_from_text(self.jvm.iceberg.SnapshotParser.toJson(snapshot)))
            parent = snapshot.parentId()
            snapshot = None if parent is None else self.base.snapshot(parent)
        return facts

    def retained(self) -> dict[SnapshotId, SnapshotFacts]:
        """Return every snapshot that the table has, on main or not, at the cost of one call."""
        text = self.jvm.iceberg.TableMetadataParser.toJson(self.base)
        body = cast("Mapping[str, list[JsonObject]]", json.loads(text))
        return {facts.id: facts for facts in map(snapshot_from_json, body.get("snapshots") or [])}

    def history(self) -> list[SnapshotFacts]:
        """Return main's whole retained history, newest first, at the cost of one call."""
        by_id = self.retained()
        chain: list[SnapshotFacts] = []
        current = self.head
        while current is not None and current in by_id:
            chain.append(by_id[current])
            current = by_id[current].parent
        return chain

    def has_position_delete_files(self) -> bool:
        """Say whether rows are deleted by files of positions, as before format v3, not by vectors.

        Reads the delete manifests: ask only where the answer decides something.
        """
        snapshot = self.base.currentSnapshot()
        if snapshot is None:
            return False
        io, specs = self.java.io(), self.base.specsById()
        for manifest in snapshot.deleteManifests(io):
            reader = self.jvm.iceberg.ManifestFiles.readDeleteManifest(manifest, io, specs)
            try:
                files = reader.iterator()
                while files.hasNext():
                    if str(files.next().format()) != "PUFFIN":
                        return True
            finally:
                reader.close()
        return False

    def find(self, batch: BatchId) -> SnapshotFacts | None:
        """Return main's snapshot that carries a batch's stamp."""
        return next(
            (facts for facts in self.history() if facts.summary.get("odi.batch-id") == batch), None
        )


def load(jvm: Jvm, catalog: str, name: TableName) -> LiveTable:
    """Load a table as it is now.

    Raises:
        TableNotFound: there is none of that name.
        CatalogUnavailable: the catalog is locked, gone, or does not answer.
    """
    with _answering(name, catalog):
        return _loaded(jvm, catalog, name, jvm.load(catalog, name))


def find(jvm: Jvm, catalog: str, name: TableName) -> LiveTable | None:
    """Load a table as it is now; None where there is none of that name.

    Raises:
        CatalogUnavailable: the catalog is locked, gone, or does not answer.
    """
    with _answering(name, catalog):
        table = jvm.find(catalog, name)
        return None if table is None else _loaded(jvm, catalog, name, table)


def _loaded(jvm: Jvm, catalog: str, name: TableName, table: JavaObject) -> LiveTable:
    operations = table.operations()
    return LiveTable(
        jvm=jvm,
        catalog=catalog,
        name=name,
        java=table,
        operations=operations,
        base=operations.current(),
    )


@contextmanager
def _answering(name: TableName, catalog: str) -> Iterator[None]:
    try:
        yield
    except JVM_ERRORS as error:
        raise CatalogUnavailable(
            f"table {name} could not be loaded from catalog {catalog}: {first_line(error)}",
            hint="odi-audit doctor",
            table=str(name),
        ) from error
