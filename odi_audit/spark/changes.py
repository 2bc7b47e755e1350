"""Reading for consumers, as Spark sees it: changes as a DataFrame, a table at one snapshot.

Owns the way from Arrow to a DataFrame. Must never write, and never choose a snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from odi_audit.ids import SnapshotId
from odi_audit.model.tables import TableName, TableRef
from odi_audit.spark.plan import origins

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class _Table(Protocol):
    @property
    def ref(self) -> TableRef: ...

    @property
    def location(self) -> str: ...


class _Snapshot(Protocol):
    @property
    def id(self) -> SnapshotId: ...


def frame(
    session: SparkSession,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    table: _Table,
    snapshot: _Snapshot | None,
) -> DataFrame:
    """Return rows that were read here as a DataFrame; they are held in this process until then.

    Spark cannot know which table they are from, as of which snapshot; column lineage must.
    """
    made = session.createDataFrame(pa.Table.from_batches(batches, schema=schema))
    at = None if snapshot is None else snapshot.id
    origins.remember_frame(made, table.ref, table.location, at)
    return made


def at_snapshot(
    session: SparkSession, catalog: str, table: TableName, snapshot: SnapshotId
) -> DataFrame:
    """Return a table as of a snapshot, read by Iceberg itself when an action asks for it."""
    return session.read.option("versionAsOf", snapshot).table(table.sql(catalog))
