"""Anchors: a signed ledger head, written where the ledger's owner cannot quietly take it back.

Owns the table property that holds a head. Must never change anything else of a table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odi_audit.errors import CommitConflict, OutcomeUnknown
from odi_audit.model import tables

if TYPE_CHECKING:
    from collections.abc import Callable

    from odi_audit.settings import Settings
    from odi_audit.spark.types import SparkSession

HEAD_PROPERTY = "odi.ledger-head"
ATTEMPTS_MAX = 10
"""A property is a small change; a table that moves this often in between is under heavy load."""


def write_head(
    settings: Settings, spark: Callable[[], SparkSession], table: str, checkpoint: str
) -> str:
    """Keep a signed head as a property of a table; returns the property's name.

    Raises:
        TableNotFound, CatalogUnavailable: nothing was written.
        CommitConflict: the table kept moving.
        OutcomeUnknown: look at the table's properties, or seal again: it does no harm.
    """
    from odi_audit.spark import publish
    from odi_audit.spark.jvm import Jvm
    from odi_audit.spark.live import load
    from odi_audit.spark.stage import Stage, TableMoved

    name = tables.parse(table)
    jvm = Jvm(spark())
    for _ in range(ATTEMPTS_MAX):
        try:
            stage = Stage(load(jvm, settings.catalog.name, name))
            stage.set_properties({HEAD_PROPERTY: checkpoint})
            if publish.publish(stage) is publish.Swap.DONE:
                return HEAD_PROPERTY
        except TableMoved:
            continue
        except publish.SwapUnknown as lost:
            raise OutcomeUnknown(
                f"the head may or may not be a property of {name} now: {lost}",
                hint=f"odi-audit ledger seal --table {name}",
            ) from lost
    raise CommitConflict(f"{name} kept moving; the head was not written to it")
