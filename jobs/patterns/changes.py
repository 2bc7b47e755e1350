"""Changes of keyed rows, put in order within a batch.

Owns what mirror and history have in common: which columns may be left out of a change, and filling
them in from an earlier change of the same row. Must never order by arrival: the source's log does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DecimalType, MapType, StringType

from jobs.formats.debezium_envelope import OP, ORDER, UNAVAILABLE
from jobs.patterns.names import END, is_own
from jobs.patterns.names import ORDER as ROW_ORDER
from jobs.tasks.rows import OFFSET, PARTITION
from odi_audit.model.tables import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_MAY_HIDE = (StringType, BinaryType, DecimalType, ArrayType, MapType)
"""What a database may store apart, and leave out of a change in which it stays as it was."""

PLACES = (ROW_ORDER, END)
ROW_NOT_KNOWN = "odi-row-not-known"
"""What Spark says where a change lacks values of a row that the table does not have."""


def hideable(rows: DataFrame, key: Sequence[str]) -> list[str]:
    """Return the columns whose values a change may leave out; never those of the key."""
    names = {name.lower() for name in (*key, *PLACES)}
    return [
        item.name
        for item in rows.schema.fields
        if isinstance(item.dataType, _MAY_HIDE)
        and is_own(item.name)
        and item.name.lower() not in names
    ]


def hidden(name: str, side: str = "") -> str:
    """Return the condition, in SQL, that a change leaves out a column's value."""
    literal = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"coalesce(array_contains({side}{UNAVAILABLE}, '{literal}'), false)"


def known_or_stop(columns: Sequence[str], side: str = "") -> str:
    """Return a condition that holds for a row with all its values; another one ends the query."""
    lacks = " OR ".join(hidden(name, side) for name in columns)
    return f"CASE WHEN {lacks} THEN CAST(raise_error('{ROW_NOT_KNOWN}') AS boolean) ELSE true END"


def tie_breakers(rows: DataFrame) -> tuple[str, ...]:
    """Return what tells two deliveries of one change apart: their places in the topic."""
    return tuple(name for name in (PARTITION, OFFSET) if name in rows.columns)


def filled_in(
    rows: DataFrame, key: Sequence[str], *, before: str | None = None, order: str = ORDER
) -> DataFrame:
    """Fill in values that changes leave out, from the last change of the row that has them.

    ``before`` names a column with the row as the table has it, for what no change of the batch
    has. What is found nowhere stays hidden.
    """
    window = (
        Window.partitionBy(*[F.col(quote(name)) for name in key])
        .orderBy(F.col(order), *[F.col(name) for name in tie_breakers(rows)])
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    columns = hideable(rows, key)
    made: dict[str, Column] = {}
    still: Column = F.col(UNAVAILABLE)
    for name in columns:
        column = F.col(quote(name))
        sent = F.when((F.col(OP) != "d") & ~F.expr(hidden(name)), F.struct(column.alias("v")))
        known = F.last(sent, ignorenulls=True).over(window)
        if before is not None:
            held = F.col(f"{before}.{quote(name)}")
            known = F.coalesce(known, F.when(F.col(before).isNotNull(), F.struct(held.alias("v"))))
        missing = F.expr(hidden(name))
        made[name] = F.when(missing & known.isNotNull(), known["v"]).otherwise(column)
        still = F.when(missing & known.isNotNull(), F.array_remove(still, name)).otherwise(still)
    return rows.withColumns({**made, UNAVAILABLE: still})
