"""Where rows came from that this process read itself and then gave to Spark.

Owns a small memory: the id of such a frame's first column, and the dataset behind the rows. Spark
sees only rows that it was given; without this, changes read for a consumer would have no origin.
Must never hold a frame or its rows.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING

from odi_audit.ids import SnapshotId
from odi_audit.model.naming import of_location
from odi_audit.model.tables import TableRef
from odi_audit.spark.plan.values import Dataset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REMEMBERED_MAX = 1000
"""Frames that are remembered; the oldest is forgotten first, and then said to be unknown."""

_frames: OrderedDict[int, tuple[Dataset, ...]] = OrderedDict()
_lock = Lock()


def remember(first_column: int, datasets: tuple[Dataset, ...]) -> None:
    """Remember which datasets the rows of a frame were read from."""
    with _lock:
        _frames[first_column] = datasets
        _frames.move_to_end(first_column)
        while len(_frames) > REMEMBERED_MAX:
            _frames.popitem(last=False)


def remember_frame(
    frame: DataFrame, table: TableRef, location: str, snapshot: SnapshotId | None
) -> None:
    """Remember that the rows of a frame were read from a table, as of a snapshot."""
    named = of_location(location)
    output = frame._jdf.queryExecution().analyzed().output()
    if output.size():
        dataset = Dataset(
            namespace=named.namespace,
            name=named.name,
            table=table.name,
            table_uuid=table.uuid,
            snapshot=snapshot,
        )
        remember(int(output.apply(0).exprId().id()), (dataset,))


def recall(first_column: int) -> tuple[Dataset, ...] | None:
    """Return the datasets behind a frame that was remembered."""
    with _lock:
        return _frames.get(first_column)
