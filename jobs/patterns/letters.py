"""Dead letters on Spark's path: rejects and rows that break the contract, as rows of their table.

Owns the shape in which they are written, which is the one of the Arrow path. A row that a transform
made has no record of its own any more: it is kept as JSON. Must never drop a byte of a record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from jobs.patterns.names import is_own
from jobs.patterns.survey import is_reject
from jobs.tasks.rows import AROUND, AT, HEADERS, KEY, OFFSET, PARTITION, REASON, VALUE
from odi_audit.model.tables import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from jobs.tasks.dead_letters import Origin

NO_RECORD = -1
"""The offset of a row that is not one record of the source."""


def of_rejects(frame: DataFrame, origin: Origin, *, table: str | None) -> DataFrame:
    """Return the records of a frame that are no rows, as dead letters."""
    # A record's own null (a tombstone) stays one.
    value = F.col(VALUE) if VALUE in frame.columns else F.lit(None).cast("binary")
    return _letters(frame.filter(is_reject(frame)), origin, table, value)


def letters(rows: DataFrame, origin: Origin, *, table: str | None) -> DataFrame:
    """Return rows that have a reason as dead letters; ``table`` is where they would have gone.

    What has no bytes of its own is kept as JSON.
    """
    own = [F.col(quote(name)) for name in rows.columns if is_own(name)]
    whole = F.to_json(F.struct(*own), {"ignoreNullFields": "false"}).cast("binary")
    value = F.coalesce(F.col(VALUE), whole) if VALUE in rows.columns else whole
    return _letters(rows, origin, table, value)


def _letters(rows: DataFrame, origin: Origin, table: str | None, value: Column) -> DataFrame:
    found = set(rows.columns)

    def around(name: str, instead: Column) -> Column:
        if name not in found:
            return instead.cast(AROUND[name])
        return F.coalesce(F.col(name), instead.cast(AROUND[name]))

    none = F.lit(None)
    return rows.select(
        F.lit(origin.job).alias("job"),
        F.lit(origin.batch).alias("batch"),
        F.lit(origin.source).alias("source"),
        around(PARTITION, F.lit("")).alias("partition"),
        around(OFFSET, F.lit(NO_RECORD)).alias("offset"),
        around(AT, none).alias("at"),
        F.col(REASON).alias("reason"),
        F.lit(table).cast("string").alias("table"),
        around(KEY, none).alias("key"),
        value.alias("value"),
        around(HEADERS, none).alias("headers"),
    )
