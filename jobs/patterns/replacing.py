"""Replace: the rows of a window give way to others, in one snapshot.

Owns the choice of the operation. Where partitions alone tell which files the window holds, whole
files are replaced; else rows are deleted one by one in the same MERGE that adds the new ones, which
reads the table. Must never leave a row of the window that is not among the new ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from odi_audit.model.merges import Terms
from odi_audit.model.tables import quote
from odi_audit.spark.jvm import JVM_ERRORS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from odi_audit.committer.batch import BatchBuilder
    from odi_audit.model.contract import Contract
    from odi_audit.model.shares import Share
    from odi_audit.spark.live import LiveTable

FILES_MAX = 10_000
"""Files of a window that are looked at one by one; a larger one is replaced row by row."""
_ROW, _NONE = "__odi_row", "__odi_none"


def replace(
    batch: BatchBuilder,
    rows: DataFrame,
    table: LiveTable,
    *,
    where: str,
    contract: Contract,
    share: Share,
) -> None:
    """Add to a batch what puts rows in the place of those that match."""
    name = table.ref.name
    if holds_whole_files(table, where):
        batch.overwrite(rows, name, where=where, contract=contract)
        return
    first = quote(table.schema.fields[0].name)
    steered = rows.withColumns(
        {
            _ROW: F.monotonically_increasing_id(),
            # Null in every row, in a way that Spark cannot know beforehand: rows meet by a hash
            # that never fits, and not by comparing each with each.
            _NONE: F.expr("CASE WHEN rand() < 0 THEN '' END"),
        }
    )
    batch.upsert(
        steered,
        name,
        key=contract.key or (_ROW,),
        terms=Terms(
            match=f"CAST(t.{first} AS STRING) = s.{_NONE}",
            insert_when=f"s.{_ROW} IS NOT NULL",
            gone_when=where,
        ),
        contract=contract,
        share=share,
    )


def holds_whole_files(table: LiveTable, where: str) -> bool:
    """Say whether partitions alone prove that every file of a window matches with all its rows."""
    jvm = table.jvm
    converter = jvm.java.org.apache.spark.sql.execution.datasources.SparkExpressionConverter
    try:
        resolved = converter.collectResolvedSparkExpression(
            jvm.session, table.name.sql(table.catalog), where
        )
        condition = converter.convertToIcebergExpression(resolved)
        tasks = table.java.newScan().filter(condition).planFiles()
    except JVM_ERRORS:
        return False  # more than Iceberg's expressions can say: the rows themselves are asked
    try:
        found = tasks.iterator()
        for _ in range(FILES_MAX):
            if not found.hasNext():
                return True
            if str(found.next().residual()) != "true":
                return False
        return False
    finally:
        tasks.close()
