"""Columns that a pattern adds to a table beyond those of its rows.

Owns their names and types, so that decoders leave them alone and tables are made with them. Must
never clash with a column of a source: each begins with an underscore, or the spec names it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from jobs.spec.model import Target

ORDER = "_source_order"
"""Where the change that wrote the row lies in the source's log (docs/adr/0016-cdc-order.md)."""
END = "_source_end"
"""Where the change lies that ended a version of a row; null while it holds."""
OP = "_source_op"
TIME = "_source_time"
_AROUND = "__odi_"
KEY_PROPERTY = "odi.key"
"""Table property with the columns that identify a row, as the first events told them."""


def added(target: Target, *, changes: bool) -> dict[str, str]:
    """Return the columns that a target's pattern adds, with types in Spark's words."""
    if target.mode == "history":
        columns = target.history
        made = {
            columns.valid_from: "timestamp",
            columns.valid_to: "timestamp",
            columns.current: "boolean",
        }
        return made | ({ORDER: "string", END: "string"} if changes else {})
    if not changes:
        return {}
    if target.mode == "mirror":
        return {ORDER: "string"}
    if target.mode == "append":
        return {OP: "string", ORDER: "string", TIME: "timestamp"}
    return {}


def is_own(name: str) -> bool:
    """Say whether a frame's column is the row's own, and not about the record around it."""
    return not name.startswith(_AROUND)


def trimmed(rows: DataFrame, *kept: str) -> DataFrame:
    """Return rows without what is about the record around them, except for some columns."""
    return rows.drop(*[name for name in rows.columns if not is_own(name) and name not in kept])
