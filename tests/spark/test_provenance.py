"""Tables that keep each row's source record: the columns, the check, and what a trace can name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import odi_audit as odi
from odi_audit.cli.app import run as command
from odi_audit.committer.run import Run
from odi_audit.errors import OdiError, SchemaMismatch, UsageError
from odi_audit.model.provenance import OFFSET, PARTITION, PROPERTY
from odi_audit.model.tables import parse
from odi_audit.query.trace import trace
from tests.support.independent import Eyes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from odi_audit.model.offsets import Offsets
    from odi_audit.workspace import Workspace

TABLE = "sales.exact"
ODD = "it's a \\topic"


@pytest.fixture
def run(lake: Workspace, spark: SparkSession) -> Iterator[Run]:
    with odi.run("sales/exact", lake=lake, spark=spark) as started:
        started.create_table(TABLE, "id bigint NOT NULL, v string", provenance="row")
        yield started


def messages(spark: SparkSession, topic: str, start: int, end: int) -> DataFrame:
    """Rows as Spark's Kafka source has them, with the columns that matter here."""
    frame = spark.range(start, end, 1, 1)
    quoted = topic.replace("\\", "\\\\").replace("'", "\\'")
    return frame.selectExpr(
        "id", "'a' AS v", f"'{quoted}' AS topic", "0 AS partition", "id AS offset"
    )


def sourced(frame: DataFrame) -> DataFrame:
    return odi.with_source(frame).drop("topic", "partition", "offset")


def part(topic: str, start: int, end: int) -> Offsets:
    return odi.kafka({topic: {0: (start, end)}}, bootstrap="b:9092", cluster_id="c")


def test_every_row_keeps_its_source_record_through_upsert_update_and_compaction(
    lake: Workspace, run: Run, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    first = sourced(messages(spark, ODD, 0, 3))
    appended = run.append(first, TABLE, offsets=part(ODD, 0, 3))
    newer = sourced(messages(spark, ODD, 3, 5)).selectExpr(
        "id - 2 AS id", "'b' AS v", PARTITION, OFFSET
    )
    upserted = run.upsert(newer, TABLE, key=["id"], offsets=part(ODD, 3, 5))
    run.update(TABLE, where="id = 0", set={"v": "'c'"})
    run.compact(TABLE, options={"rewrite-all": "true"})
    eyes = Eyes.on(lake.root)
    assert eyes.rows(TABLE) == [
        (0, "c", f"{ODD}-0", 0),
        (1, "b", f"{ODD}-0", 3),
        (2, "b", f"{ODD}-0", 4),
    ]
    assert eyes.metadata(TABLE)["properties"][PROPERTY] == "row"
    rows = trace(lake.ledger(), lake.catalog(), parse(TABLE), columns=["id"], source_offset=True)
    told = {row.values["id"]: row.source_record for row in rows}
    assert {key: record and record.to_json() for key, record in told.items()} == {
        # The update brought no record: the row's is still that of its birth.
        0: record_of(0, appended.batch),
        1: record_of(3, upserted.batch),
        2: record_of(4, upserted.batch),
    }
    assert all(set(row.values) == {"id"} for row in rows)
    assert command(["trace", TABLE, "--source-offset", "--lake", str(lake.root)]) == 0
    assert f"source record {ODD}-0 at 3, batch {upserted.batch}" in capsys.readouterr().out


def test_a_table_that_did_not_opt_in_says_how(lake: Workspace, run: Run) -> None:
    run.create_table("sales.plain", "id bigint")
    with pytest.raises(UsageError, match="does not keep each row's source record"):
        trace(lake.ledger(), lake.catalog(), parse("sales.plain"), source_offset=True)


def record_of(offset: int, batch: str) -> dict[str, object]:
    return {
        "source": "kafka://c",
        "partition": f"{ODD}-0",
        "offset": str(offset),
        "batch": batch,
    }


@pytest.mark.parametrize(
    "wrong",
    ["id + 100", "CAST(NULL AS bigint)", "-1"],
    ids=["outside-the-batch", "absent", "before-the-batch"],
)
def test_a_row_whose_source_record_is_not_in_the_batch_is_refused(
    lake: Workspace, run: Run, spark: SparkSession, wrong: str
) -> None:
    frame = odi.with_source(messages(spark, "t", 0, 3), offset=wrong)
    with pytest.raises(odi.Refused):
        run.append(frame.drop("topic", "partition", "offset"), TABLE, offsets=part("t", 0, 3))
    assert Eyes.on(lake.root).history(TABLE) == []


def test_rows_without_their_source_and_a_source_that_is_not_there_are_told(
    run: Run, spark: SparkSession
) -> None:
    bare = spark.range(2).selectExpr("id", "'a' AS v")
    with pytest.raises(SchemaMismatch, match=PARTITION):
        run.append(bare, TABLE, offsets=part("t", 0, 2))
    with pytest.raises(UsageError) as told:
        odi.with_source(bare)
    assert "the frame has: id, v" in str(told.value.hint)


def test_a_file_source_names_the_file_and_the_place_in_it(
    lake: Workspace, run: Run, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("in") / "orders.csv"
    path.write_text("10\n11\n", "utf-8")
    frame = spark.createDataFrame([(10, "x"), (11, "y")], "id bigint, v string")
    frame = odi.with_source(frame, partition=f"'{path}'", offset="id - 10")
    assert run.append(frame, TABLE, offsets=odi.files([path])).fresh
    assert Eyes.on(lake.root).rows(TABLE)[1] == (11, "y", str(path), 1)
    again = odi.with_source(frame, partition="'/another.csv'", offset="id")
    with pytest.raises(OdiError):
        run.append(again, TABLE, offsets=odi.files([path], source="file:///elsewhere"))
