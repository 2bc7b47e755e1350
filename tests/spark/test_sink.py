"""The sink: a streaming query whose every row lands once, whatever is restarted or lost."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import odi_audit as odi
from odi_audit.errors import NotSupported, SparkError, UsageError
from odi_audit.ids import JobName
from odi_audit.ledger.port import EntryFilter
from odi_audit.model.entries import Entry, Kind
from tests.support.independent import Eyes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from odi_audit.committer.sink import Sink
    from odi_audit.workspace import Workspace

ROWS = 10
WAIT_S_MAX = 120


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def numbers(spark: SparkSession) -> DataFrame:
    """A source that numbers its rows: batch n holds [10 n, 10 n + 10)."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS)
    return source.option("numPartitions", 1).option("startTimestamp", 1000).load()


def run_until(sink: Sink, frame: DataFrame, folder: Path, done: Callable[[], bool]) -> None:
    """Run a query until something is true, then stop it; fails when it never is."""
    query: StreamingQuery = (
        frame.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(folder))
        .trigger(processingTime="0 seconds")
        .start()
    )
    until = time.monotonic() + WAIT_S_MAX
    try:
        while query.isActive and not done():
            assert time.monotonic() < until, "the query did not get there"
            time.sleep(0.1)
    finally:
        query.stop()
    failure = query.exception()
    if failure is not None:
        raise failure


def landed(lake: Workspace) -> int:
    return sum(entry.kind is Kind.LANDED for entry in lake.ledger().scan())


def the_end(lake: Workspace, job: str) -> Entry:
    """Wait until the last run of a job has ended; Spark tells of the end of a query a bit later."""
    until = time.monotonic() + WAIT_S_MAX
    while lake.ledger().open_runs():
        assert time.monotonic() < until, "the run did not end with its query"
        time.sleep(0.1)
    where = EntryFilter(kinds=(Kind.RUN_ENDED,), job=JobName(job))
    return lake.ledger().find(where, limit=1, newest_first=True)[0]


def values(lake: Workspace, table: str) -> list[int]:
    return sorted(row[0] for row in Eyes.on(lake.root).rows(table, columns=["value"]))  # type: ignore[type-var,misc]


def test_an_appending_query_is_exactly_once_also_when_its_checkpoint_is_lost(
    lake: Workspace, spark: SparkSession, folder: Path
) -> None:
    table = "d.events"
    with odi.run("d/setup", lake=lake) as run:
        run.create_table(table, "timestamp timestamp, value bigint")

    def go_on(batches: int, *, restore: bool = False) -> int | None:
        sink = odi.sink("d/stream", table=table, lake=lake)
        restored = sink.restore_checkpoint(str(folder)) if restore else None
        goal = landed(lake) + batches
        run_until(sink, numbers(spark), folder, lambda: landed(lake) >= goal)
        assert values(lake, table) == list(range(landed(lake) * ROWS))
        return restored

    go_on(2)
    # The query was stopped, in the middle of a micro-batch or not; this process goes on.
    first = the_end(lake, "d/stream")
    assert first.facts["outcome"] in {"completed", "stopped"}
    # Restarted with its checkpoint: Spark may run the last micro-batch again.
    go_on(1, restore=True)
    assert the_end(lake, "d/stream").run != first.run
    # Lost: started anew, the query would read from the beginning, and is stopped.
    shutil.rmtree(folder)
    before = landed(lake)
    with pytest.raises(Exception, match="ODI-G06") as caught:
        go_on(1)
    assert "restore_checkpoint" in str(caught.value)
    assert landed(lake) == before
    # Restored from the ledger, it goes on where the last landed batch ended.
    shutil.rmtree(folder)
    assert go_on(2, restore=True) == before - 1
    assert lake.ledger().open_intents() == []


def test_a_micro_batch_that_spark_runs_again_is_told_so(
    lake: Workspace, spark: SparkSession, folder: Path
) -> None:
    table = "d.again"
    with odi.run("d/setup", lake=lake) as run:
        run.create_table(table, "timestamp timestamp, value bigint")
    sink = odi.sink("d/stream", table=table, lake=lake)
    run_until(sink, numbers(spark), folder, lambda: landed(lake) >= 2)
    # As after a crash between our commit and Spark's own: the mark of the last is not there.
    last = landed(lake) - 1
    for number in range(last, last + 10):
        forgotten = ["commits", "offsets"] if number > last else ["commits"]
        for place in forgotten:
            (folder / place / str(number)).unlink(missing_ok=True)
            (folder / place / f".{number}.crc").unlink(missing_ok=True)
    told: list[bool] = []
    again = odi.sink("d/stream", table=table, lake=lake)

    def watched(frame: DataFrame, epoch: int) -> None:
        again(frame, epoch)
        assert again.last is not None
        told.append(again.last.fresh)

    run_until(watched, numbers(spark), folder, lambda: len(told) >= 2)  # type: ignore[arg-type]
    assert told[:2] == [False, True]
    assert values(lake, table) == list(range(landed(lake) * ROWS))


def test_an_upserting_query_keeps_the_newest_row_of_each_key(
    lake: Workspace, spark: SparkSession, folder: Path
) -> None:
    table = "d.latest"
    with odi.run("d/setup", lake=lake) as run:
        run.create_table(table, "slot bigint NOT NULL, value bigint")
    sink = odi.sink(
        "d/stream",
        table=table,
        key="slot",
        order_by="value",
        contract=odi.Contract(rules={"in range": "slot < 4"}),
        lake=lake,
    )
    frame = numbers(spark).selectExpr("value % 4 AS slot", "value")
    run_until(sink, frame, folder, lambda: landed(lake) >= 2)
    last = landed(lake) * ROWS
    newest = {number % 4: number for number in range(last)}
    assert dict(Eyes.on(lake.root).rows(table)) == newest
    assert sink.last is not None
    assert sink.last.landing.operation == "upsert"


def test_a_refused_micro_batch_ends_the_query_and_lands_once_it_is_in_order(
    lake: Workspace, spark: SparkSession, folder: Path
) -> None:
    table = "d.ruled"
    with odi.run("d/setup", lake=lake) as run:
        run.create_table(table, "value bigint")
    frame = numbers(spark).select("value")

    def go(rule: str, done: Callable[[], bool]) -> None:
        contract = odi.Contract(rules={"small": rule})
        sink = odi.sink("d/stream", table=table, contract=contract, lake=lake)
        run_until(sink, frame, folder, done)

    with pytest.raises(Exception, match="ODI-G03"):
        go("value < 15", lambda: False)
    ended = the_end(lake, "d/stream").facts
    assert (ended["outcome"], ended["error_code"]) == ("failed", "ODI-G03")
    assert values(lake, table) == list(range(ROWS))
    go("value < 1000", lambda: landed(lake) >= 3)
    assert values(lake, table) == list(range(landed(lake) * ROWS))


def test_a_query_that_fails_between_its_micro_batches_fails_the_run(
    lake: Workspace, spark: SparkSession, folder: Path
) -> None:
    table = "d.elsewhere"
    with odi.run("d/setup", lake=lake) as run:
        run.create_table(table, "timestamp timestamp, value bigint")
    sink = odi.sink("d/stream", table=table, lake=lake)

    def write_into_its_log() -> bool:
        # As another query on the same checkpoint would: Spark finds it after a micro-batch.
        for number in range(landed(lake), landed(lake) + 50) if landed(lake) else ():
            (folder / "commits" / str(number)).touch()
        return False

    with pytest.raises(Exception, match="CONCURRENT_STREAM_LOG_UPDATE"):
        run_until(sink, numbers(spark), folder, write_into_its_log)
    ended = the_end(lake, "d/stream").facts
    assert (ended["outcome"], ended["error_code"]) == ("failed", SparkError.code)
    assert str(ended["reason"]).endswith("Exception"), "its type, and nobody else's words"


def test_what_the_sink_cannot_do_it_says(
    lake: Workspace, spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    table = "d.files"
    with odi.run("d/setup", lake=lake) as run:
        run.create_table(table, "value string")
    sink = odi.sink("d/stream", table=table, lake=lake)
    assert sink.restore_checkpoint(str(folder)) is None, "nothing has landed yet"
    with pytest.raises(SparkError, match="outside of a streaming query"):
        sink(spark.sql("SELECT 'x' AS value"), 0)
    with pytest.raises(UsageError):
        odi.sink("no-namespace", table=table, lake=lake)
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.txt").write_text("one\ntwo\n", "utf-8")
    frame = spark.readStream.text(str(source))
    run_until(sink, frame, folder, lambda: landed(lake) >= 1)
    shutil.rmtree(folder)
    with pytest.raises(NotSupported, match="file source"):
        odi.sink("d/stream", table=table, lake=lake).restore_checkpoint(str(folder))
    # Anew, the source's first offsets are the old ones, but name other rows: not to be skipped.
    (source / "b.txt").write_text("three\n", "utf-8")
    anew = odi.sink("d/stream", table=table, lake=lake)
    with pytest.raises(Exception, match="ODI-G06"):
        run_until(anew, frame, folder, lambda: False)
    assert sorted(Eyes.on(lake.root).rows(table)) == [("one",), ("two",)]
