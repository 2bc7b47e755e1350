"""Facts of the source that are known only after reading stay with the batch, whatever happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import odi_audit as odi
from odi_audit.api import parts_of
from odi_audit.canonical import JsonObject
from odi_audit.committer import reconcile
from odi_audit.committer.reconcile import Action
from odi_audit.ledger.port import EntryFilter
from odi_audit.model.entries import Kind
from odi_audit.query.detail import batch_detail
from odi_audit.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odi_audit.committer.run import Run

JOB, TABLE = "sales/orders", "sales.orders"
KNOWN: JsonObject = {"registry": "http://registry", "schemas": {"orders": [3, 7]}}


class Cut(BaseException):
    """The end of an attempt that nothing in it can catch."""


def add(run: Run, spark: SparkSession, number: int) -> None:
    """Append a row, and learn of its schema while it is read."""
    seen: dict[str, JsonObject] = {}

    def read(rows: object) -> object:
        seen["told"] = KNOWN
        return rows

    frame = spark.createDataFrame([(number,)], "id bigint")
    with run.batch(offsets=odi.mapping("orders", {"p": (number, number + 1)})) as batch:
        batch.append(read(frame), TABLE)  # type: ignore[arg-type]
        batch.note(TABLE, lambda: seen["told"])
        batch.append(frame, "sales.other")


def landed(lake: Workspace) -> dict[str, object]:
    entries = lake.ledger().find(EntryFilter(kinds=(Kind.LANDED,)))
    return {str(item.table and item.table.name): item.facts.get("source_facts") for item in entries}


@pytest.mark.parametrize(
    ("point", "action"),
    [("gated", Action.ROLL_FORWARD), ("published:1", Action.RECORD), (None, None)],
)
def test_source_facts_are_kept_also_by_whoever_finishes_a_batch(
    lake: Workspace, spark: SparkSession, point: str | None, action: Action | None
) -> None:
    def reach(name: str) -> None:
        if name == point:
            raise Cut

    with odi.run("sales/setup", lake=lake) as run:
        for table in (TABLE, "sales.other"):
            run.create_table(table, "id bigint")
    with Workspace.find(lake.root) as mortal:
        mortal.use_spark(spark)
        started = odi.run(JOB, lake=mortal, reach=reach).__enter__()
        if point is None:
            add(started, spark, 1)
        else:
            with pytest.raises(Cut):
                add(started, spark, 1)
    found = reconcile.plan(lake.ledger(), lake.catalog())
    done = [item.action for item in reconcile.apply(parts_of(lake), found)]
    assert done == ([] if action is None else [action])
    assert landed(lake) == {TABLE: KNOWN, "sales.other": None}
    (batch,) = {item.batch for item in lake.ledger().find(EntryFilter(kinds=(Kind.LANDED,)))}
    detail = batch_detail(lake.ledger(), lake.catalog(), str(batch))
    assert {part.table.name: part.source_facts for part in detail.tables} == landed(lake)
