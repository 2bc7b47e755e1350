"""Source columns on schemas and frames, for tables that keep each row's source record.

Owns how the two columns of ``model.provenance`` are added. Must never read a row.
"""

from __future__ import annotations

import copy

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from odi_audit.errors import UsageError
from odi_audit.model.provenance import COLUMNS, OFFSET, PARTITION
from odi_audit.model.tables import quote
from odi_audit.spark.jvm import JVM_ERRORS

KAFKA_PARTITION = "concat(topic, '-', partition)"
KAFKA_OFFSET = "offset"


def with_columns(schema: StructType | str) -> StructType | str:
    """Return a table's schema with the source columns after its own."""
    if isinstance(schema, str):
        return ", ".join([schema, *(f"{quote(name)} {kind}" for name, kind in COLUMNS)])
    made = copy.deepcopy(schema)
    for name, kind in COLUMNS:
        made.add(name, kind)
    return made


def with_source(
    frame: DataFrame, *, partition: str = KAFKA_PARTITION, offset: str = KAFKA_OFFSET
) -> DataFrame:
    """Return a frame whose rows say which record of the source they came from.

    ``partition`` and ``offset`` are SQL expressions over the frame; without them those of Spark's
    Kafka source are taken. Partitions must be named as the batch's offsets name them.

    Raises:
        UsageError: the frame lacks a column that the expressions use.
    """
    try:
        return frame.withColumns(
            {
                PARTITION: sf.expr(partition).cast("string"),
                OFFSET: sf.expr(offset).cast("bigint"),
            }
        )
    except JVM_ERRORS as problem:
        raise UsageError(
            f"the source of the rows cannot be told: {str(problem).splitlines()[0]}",
            hint=f"the frame has: {', '.join(frame.columns)}; name expressions over these, like "
            'odi.with_source(frame, partition="part", offset="place")',
        ) from problem
