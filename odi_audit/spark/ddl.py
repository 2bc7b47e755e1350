"""Changes to a table for which Iceberg makes no snapshot of its own.

Owns creation, expiry, dropping, renaming, and what can be read of a table's shape before and after.
Schema changes, rollbacks and properties are staged like any batch (``stage``). Must never record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import cast

from pyspark.sql.types import StructType

from odi_audit.canonical import JsonObject
from odi_audit.model.snapshots import SnapshotFacts, snapshot_from_text
from odi_audit.model.tables import TableName, quote
from odi_audit.spark.failures import translated
from odi_audit.spark.jvm import JavaObject, Jvm
from odi_audit.spark.live import LiveTable


def columns_of(schema: StructType | str) -> str:
    """Return the columns of a CREATE TABLE: given as text, or made from a Spark schema."""
    if isinstance(schema, str):
        return schema
    return ", ".join(
        f"{quote(field.name)} {field.dataType.simpleString()}"
        + ("" if field.nullable else " NOT NULL")
        for field in schema.fields
    )


def create(
    jvm: Jvm,
    catalog: str,
    name: TableName,
    *,
    columns: str,
    partitioned_by: Sequence[str],
    properties: Mapping[str, str],
    location: str | None = None,
) -> None:
    """Create a table, and its namespace where that is not there.

    Without a ``location`` the catalog places it.

    Raises:
        UsageError: the columns or transforms are not valid.
        WriteFailed: it could not be created; a table of that name may have come in between.
    """
    settings = ", ".join(f"{_text(key)}={_text(value)}" for key, value in properties.items())
    partitions = f" PARTITIONED BY ({', '.join(partitioned_by)})" if partitioned_by else ""
    place = "" if location is None else f" LOCATION {_text(location)}"
    with translated(f"create table {name}"):
        _make_namespace(jvm, catalog, name)
        jvm.spark.sql(
            f"CREATE TABLE {name.sql(catalog)} ({columns}) USING iceberg"
            f"{partitions}{place} TBLPROPERTIES ({settings})"
        )


def shape(table: LiveTable) -> JsonObject:
    """Return a table's schema, partitioning and format, for the record."""
    schema = json.loads(table.jvm.iceberg.SchemaParser.toJson(table.java.schema()))
    spec = json.loads(table.jvm.iceberg.PartitionSpecParser.toJson(table.java.spec()))
    return cast(
        "JsonObject",
        {
            "format_version": table.format_version,
            "location": str(table.java.location()),
            "schema": schema,
            "partition_spec": spec,
        },
    )


def to_expire(table: LiveTable, older_than: datetime, retain_last: int) -> list[SnapshotFacts]:
    """Return the snapshots that an expiry would remove; changes nothing."""
    parser = table.jvm.iceberg.SnapshotParser
    return [
        snapshot_from_text(parser.toJson(snapshot))
        for snapshot in _expiry(table, older_than, retain_last).apply()
    ]


def expire(table: LiveTable, older_than: datetime, retain_last: int) -> None:
    """Remove old snapshots and the files that only they need.

    Raises:
        WriteFailed: the catalog did not take it; nothing that a retained snapshot needs is gone.
    """
    with translated(f"expire snapshots of {table.name}"):
        _expiry(table, older_than, retain_last).commit()


def drop(table: LiveTable, *, purge: bool) -> bool:
    """Take a table out of the catalog; False where there was none of that name any more.

    The catalog knows a table by its name alone: look at its uuid right before.

    Raises:
        WriteFailed: there was no clear answer; it may be gone all the same.
    """
    with translated(f"drop table {table.name}"):
        return table.jvm.drop(table.catalog, table.name, purge=purge)


def rename(table: LiveTable, to: TableName) -> None:
    """Give a table another name, and make the namespace of that where it is not there.

    The catalog knows a table by its name alone: look at its uuid right before.

    Raises:
        WriteFailed: there was no clear answer; it may have the new name all the same.
    """
    with translated(f"rename table {table.name} to {to}"):
        _make_namespace(table.jvm, table.catalog, to)
        table.jvm.rename(table.catalog, table.name, to)


def _make_namespace(jvm: Jvm, catalog: str, name: TableName) -> None:
    if not jvm.has_namespace(catalog, name):
        namespace = ".".join(quote(part) for part in (catalog, *name.namespace))
        jvm.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")


def _expiry(table: LiveTable, older_than: datetime, retain_last: int) -> JavaObject:
    return (
        table.java.expireSnapshots()
        .expireOlderThan(int(older_than.timestamp() * 1000))
        .retainLast(retain_last)
        .cleanExpiredFiles(True)
    )


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
