"""Reading for consumers, as Spark sees it: changes as a DataFrame, a table at one snapshot.

Owns the way from Arrow to a DataFrame. Must never write, and never choose a snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from odi_audit.ids import SnapshotId
from odi_audit.model.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame(session: SparkSession, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> DataFrame:
    """Return rows that were read here as a DataFrame; they are held in this process until then."""
    return session.createDataFrame(pa.Table.from_batches(batches, schema=schema))


def at_snapshot(
    session: SparkSession, catalog: str, table: TableName, snapshot: SnapshotId
) -> DataFrame:
    """Return a table as of a snapshot, read by Iceberg itself when an action asks for it."""
    return session.read.option("versionAsOf", snapshot).table(table.sql(catalog))
