"""Rows and the table that they go to: what the table must learn, and what the rows must fill in.

Owns the comparison by which a permissive table grows to fit a frame. Where the spec is strict the
committer compares, and refuses. Must never cast a value that might not fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, DoubleType, FloatType, IntegerType, LongType

from jobs.patterns.names import is_own
from jobs.runner.tables import Growth
from odi_audit.spark.frames import fits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def growth_for(rows: DataFrame, table: StructType, added: Mapping[str, str]) -> Growth:
    """Return what a table lacks for these rows, and for the columns that its pattern adds."""
    known = {item.name.lower(): item.dataType for item in table.fields}
    add: dict[str, str] = {}
    widen: dict[str, str] = {}
    for item in rows.schema.fields:
        if not is_own(item.name) or item.name in added:
            continue
        held = known.get(item.name.lower())
        if held is None:
            add[item.name] = item.dataType.simpleString()
        elif not fits(item.dataType, held) and _widens(held, item.dataType):
            widen[item.name] = item.dataType.simpleString()
    add |= {name: kind for name, kind in added.items() if name.lower() not in known}
    return Growth(add=add, widen=widen)


def columns_of(rows: DataFrame, added: Mapping[str, str]) -> dict[str, str]:
    """Return the columns of a table that is made for these rows."""
    made = {
        item.name: item.dataType.simpleString()
        for item in rows.schema.fields
        if is_own(item.name) and item.name not in added
    }
    return made | dict(added)


def filled(rows: DataFrame, table: StructType) -> DataFrame:
    """Return rows with a null in each column of the table that they do not have."""
    known = {name.lower() for name in rows.columns}
    lacking = [item for item in table.fields if item.name.lower() not in known]
    return rows.withColumns({item.name: F.lit(None).cast(item.dataType) for item in lacking})


def _widens(narrow: DataType, wide: DataType) -> bool:
    """Say whether Iceberg lets a column of one type become one of the other."""
    match narrow, wide:
        case (IntegerType(), LongType()) | (FloatType(), DoubleType()):
            return True
        case DecimalType(), DecimalType():
            return narrow.scale == wide.scale and narrow.precision < wide.precision
    return False
