"""Rows that tasks write into data files themselves: the same table as by Spark's own path."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import odi_audit as odi
from odi_audit.catalog.data_files import DataFileWriter, arrow_schema_of, why_not
from odi_audit.errors import BadKeys, OffsetOverlap, RuleBroken
from odi_audit.query.verify import verify
from tests.support.independent import Eyes, on_disk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odi_audit.committer.run import Run
    from odi_audit.model.loose import LooseFile, LooseTable
    from odi_audit.workspace import Workspace

COLUMNS = (
    "id bigint NOT NULL, name string, amount decimal(10,2), at timestamp, day date, flag boolean, "
    "ratio double, tags array<string>, place struct<x: int, y: string>"
)
SPECS = [
    [],
    ["days(at)"],
    ["hours(at)", "bucket(4, id)"],
    ["name"],
    ["truncate(2, name)", "day"],
    ["months(at)", "flag"],
]

NAMES = ["a b/c", "d=é", "", "zz"]


def made(first: int, count: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for number in range(first, first + count):
        moment = dt.datetime(2026, 11, 1, tzinfo=dt.UTC) + dt.timedelta(hours=number * 7)
        rows.append(
            {
                "id": number,
                "name": None if number % 7 == 3 else NAMES[number % 4],
                "amount": Decimal(number) / 4 if number % 5 else None,
                "at": moment if number % 11 else None,
                "day": moment.date(),
                "flag": number % 3 == 0,
                "ratio": number / 3,
                "tags": [str(number)] * (number % 3),
                "place": {"x": number, "y": None},
            }
        )
    return rows


def writes(rows: Sequence[dict[str, object]], *, tasks: int = 2):  # type: ignore[no-untyped-def]
    """Return what an operation calls: each task writes its part of the rows, in two pieces."""

    def write(table: LooseTable) -> list[LooseFile]:
        files: list[LooseFile] = []
        for task in range(tasks):
            mine = rows[task::tasks]
            with DataFileWriter(table, f"{task}") as writer:
                for piece in (mine[: len(mine) // 2], mine[len(mine) // 2 :]):
                    writer.write(pa.Table.from_pylist(list(piece), schema=arrow_schema_of(table)))
                files += writer.close()
        return files

    return write


def add(run: Run, table: str, first: int, count: int, **how: object) -> odi.Receipt:
    offsets = odi.mapping("numbers", {"p": (first, first + count)})
    with run.batch(offsets=offsets) as batch:
        batch.append_files(writes(made(first, count)), table, **how)  # type: ignore[arg-type]
    assert batch.receipt is not None
    return batch.receipt


@pytest.mark.parametrize("spec", SPECS, ids=[" ".join(spec) or "none" for spec in SPECS])
def test_a_table_holds_the_same_as_by_sparks_own_writer(
    lake: Workspace, spark: SparkSession, spec: list[str]
) -> None:
    with odi.run("sales/loose", lake=lake) as run:
        for table in ("sales.loose", "sales.plain"):
            run.create_table(table, COLUMNS, partitioned_by=spec)
        add(run, "sales.loose", 0, 40)
        receipt = add(run, "sales.loose", 40, 30)
        frame = spark.createDataFrame(made(0, 70), COLUMNS)  # type: ignore[type-var]
        run.append(frame, "sales.plain", offsets=odi.once("all"))
    loose, plain = (spark.table(f"lake.sales.{name}") for name in ("loose", "plain"))
    assert loose.count() == 70
    assert loose.exceptAll(plain).count() == plain.exceptAll(loose).count() == 0
    partitions = [
        sorted(map(str, spark.sql(f"SELECT {what} FROM lake.sales.{name}.partitions").collect()))
        for name in ("loose", "plain")
        for what in (["partition, record_count"] if spec else ["record_count"])
    ]
    assert partitions[0] == partitions[1]
    # Values outside the column's range are skipped by the files' own statistics.
    assert spark.sql("SELECT count(*) FROM lake.sales.loose WHERE id >= 65").collect()[0][0] == 5
    bounds = [
        row[0]
        for row in spark.sql(
            "SELECT readable_metrics.id.upper_bound FROM lake.sales.loose.files"
        ).collect()
    ]
    assert max(bounds) == 69
    ids = [row[0] for row in spark.sql("SELECT _row_id FROM lake.sales.loose").collect()]
    assert sorted(ids) == list(range(70))
    assert receipt.landings[0].added_rows == 30
    assert not verify(lake.ledger(), lake.catalog())


def test_a_batch_of_files_lands_once_and_is_put_on_a_new_head_without_writing_again(
    lake: Workspace, spark: SparkSession
) -> None:
    with odi.run("sales/loose", lake=lake) as run:
        run.create_table("sales.loose", COLUMNS, partitioned_by=["days(at)"])
        first = add(run, "sales.loose", 0, 10)
        assert not add(run, "sales.loose", 0, 10).fresh
        with pytest.raises(OffsetOverlap):
            add(run, "sales.loose", 5, 10)
    between = odi.run("sales/other", lake=lake).__enter__()

    def come_in_between(point: str) -> None:
        if point == "gated":
            with between.batch(offsets=odi.once("between")) as batch:
                batch.append_files(writes(made(100, 3)), "sales.loose")

    with odi.run("sales/loose", lake=lake, reach=come_in_between) as run:
        add(run, "sales.loose", 10, 10)
    eyes = Eyes.on(lake.root)
    assert len(eyes.rows("sales.loose")) == 23
    assert first.fresh
    warehouse = Path(lake.settings.catalog.warehouse or "")
    live = eyes.data_files("sales.loose")
    assert {path for path in on_disk(warehouse) if "/data/" in path} == live


def test_a_contract_holds_for_files_too_and_what_breaks_it_leaves_nothing_behind(
    lake: Workspace, spark: SparkSession
) -> None:
    with odi.run("sales/loose", lake=lake) as run:
        run.create_table("sales.loose", COLUMNS)
        with pytest.raises(RuleBroken, match="small"):
            add(run, "sales.loose", 0, 10, contract=odi.Contract(rules={"small": "id < 7"}))
        with pytest.raises(RuleBroken, match="name"):
            add(run, "sales.loose", 0, 10, contract=odi.Contract(required=("name",)))
        doubled = [*made(0, 4), *made(2, 4)]
        with pytest.raises(BadKeys), run.batch(offsets=odi.once("twice")) as batch:
            batch.append_files(writes(doubled), "sales.loose", contract=odi.Contract(key=("id",)))
        kept = odi.Contract(key=("id",), required=("day",), rules={"small": "id < 10"})
        add(run, "sales.loose", 0, 10, contract=kept)
    assert len(Eyes.on(lake.root).rows("sales.loose")) == 10


def test_an_error_in_a_task_removes_its_files(lake: Workspace, spark: SparkSession) -> None:
    def breaks(table: LooseTable) -> list[LooseFile]:
        small = replace(table, file_bytes=1, row_group_bytes=1)
        with DataFileWriter(small, "0") as writer:
            for first in (0, 10):
                rows = made(first, 10)
                writer.write(pa.Table.from_pylist(rows, schema=arrow_schema_of(table)))
            assert on_disk(folder)
            writer.write(pa.table({"id": [1]}))
        raise AssertionError("unreached")

    folder = Path(lake.settings.catalog.warehouse or "") / "sales" / "loose" / "data"
    with odi.run("sales/loose", lake=lake) as run:
        run.create_table("sales.loose", COLUMNS, partitioned_by=["days(at)"])
        with (
            pytest.raises(ValueError, match="lack the columns"),
            run.batch(offsets=odi.once("bad")) as batch,
        ):
            batch.append_files(breaks, "sales.loose")
    assert not on_disk(folder)


def test_what_cannot_be_written_in_arrow_is_said_before(
    lake: Workspace, spark: SparkSession
) -> None:
    found: dict[str, str | None] = {}
    with odi.run("sales/loose", lake=lake) as run:
        for number, spec in enumerate(["days(at)", "at", "amount", "place.x"]):
            table = f"sales.t{number}"
            run.create_table(table, COLUMNS, partitioned_by=[spec])

            def write(loose: LooseTable, spec: str = spec) -> list[LooseFile]:
                found[spec] = why_not(loose)
                return []

            with run.batch(offsets=odi.once(table)) as batch:
                batch.append_files(write, table)
    assert found["days(at)"] is None
    assert all(found[spec] for spec in ("at", "amount", "place.x"))
