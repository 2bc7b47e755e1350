"""Runs that do something, or die, at a point of their road; and which table has a name then."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyiceberg.exceptions import NoSuchTableError

import odi_audit as odi
from odi_audit.workspace import Workspace
from tests.support.independent import Eyes
from tests.support.killed import Killed
from tests.support.story import TABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odi_audit.committer.run import Run
    from odi_audit.model.entries import Entry

JOB = "sales/orders"


def stops_at(
    lake: Workspace, spark: SparkSession, point: str, act: Callable[[], object], job: str = JOB
) -> Run:
    """Return a run, with connections of its own, that does something at a point of its road."""

    def reach(name: str) -> None:
        if name == point:
            act()

    mortal = Workspace.find(lake.root)
    mortal.use_spark(spark)
    return odi.run(job, lake=mortal, reach=reach).__enter__()


def die() -> None:
    raise Killed


def last(lake: Workspace) -> Entry:
    """Return the newest entry."""
    return lake.ledger().get(lake.ledger().head().size - 1)


def uuid_of(lake: Workspace, name: str = TABLE) -> str | None:
    """Return which table has a name, as pyiceberg finds it."""
    try:
        return str(Eyes.on(lake.root).table(name).metadata.table_uuid)
    except NoSuchTableError:
        return None
