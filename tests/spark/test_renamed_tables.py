"""A renamed table to those who read it, write it and ask about it: one table, whatever its name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import odi_audit as odi
from jobs.runner.frame_job import FrameJob
from jobs.runner.loop import Until, run_job
from jobs.sources.base import Limits
from jobs.sources.table import TableFeed
from jobs.spec import parse_spec
from odi_audit.cli.app import run as command
from odi_audit.errors import Exit, OffsetGap, OffsetOverlap, SourceChanged, TableNotFound
from odi_audit.ledger import create_ledger
from odi_audit.model.entries import Kind
from odi_audit.query.verify import verify
from odi_audit.upkeep.rebuild import rebuild
from odi_audit.workspace import Workspace
from tests.support.independent import Eyes
from tests.support.killed import Killed
from tests.support.story import COLUMNS, TABLE, Teller, at

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from odi_audit.committer.run import Run

MOVED = "archive.orders_2026"
COPY = """
version: 1
job: sales/copy
source: {{type: iceberg, table: {source}, read: appends}}
target: {{table: {target}}}
"""


@pytest.fixture
def run(lake: Workspace) -> Run:
    return odi.run("sales/orders", lake=lake, principal="ana", code="v7").__enter__()


@pytest.fixture
def teller(run: Run, spark: SparkSession) -> Teller:
    run.create_table(TABLE, COLUMNS)
    return Teller(run=run, spark=spark)


def test_every_reader_knows_the_table_by_its_new_name_and_says_of_the_old_one_what_became_of_it(
    lake: Workspace, run: Run, teller: Teller, capsys: Any
) -> None:
    first = run.append(teller.frame(0, 4), TABLE, offsets=at(0, 4))
    with odi.read_changes(TABLE, consumer="board", lake=lake) as reading:
        assert reading.to_table().num_rows == 4
    receipt = run.rename_table(TABLE, to=MOVED)
    second = run.append(teller.frame(4, 6), MOVED, offsets=at(4, 6))
    there = ["--lake", str(lake.root), "--json"]

    def answer(*words: str) -> Any:
        status = command([*words, *there])
        out, err = capsys.readouterr()
        assert status == 0, (words, err)
        return json.loads(out)["data"]

    # Everything that finds a table by a name that it had.
    for name in (TABLE, MOVED):
        history = answer("history", name)
        assert (history["table"], history["gone"], history["dropped"]) == (MOVED, False, None)
        assert [(event["operation"], event["detail"]) for event in history["events"]] == [
            ("create_table", "format v3"),
            ("append", None),
            ("rename_table", f"from {TABLE} to {MOVED}"),
            ("append", None),
        ]
        batches = [item["batch"] for item in answer("batches", "--table", name)["batches"]]
        assert batches[:3] == [second.batch, receipt.batch, first.batch]
        tables = [node for node in answer("lineage", name)["nodes"] if node["kind"] == "table"]
        (node,) = tables
        assert (node["name"], node["facets"]["earlier_names"]) == (MOVED, [TABLE])
        (read,) = answer("offsets", name)["sources"]
        assert (read["table"], read["batches_count"]) == (MOVED, 2)
        covered = answer("coverage", name)["totals"][0]
        assert (covered["table"], covered["snapshots_share"]) == (MOVED, 1.0)
        consumers = answer("read", "--list", name)["consumers"]
        assert [(item["table"], item["consumer"]) for item in consumers] == [(MOVED, "board")]
        changes = answer("report", "schema-changes", "--table", name)["rows"]
        assert [row["change"] for row in changes] == [
            "table created", f"table renamed from {TABLE} to {MOVED}",
        ]  # fmt: skip
        (kept,) = answer("report", "retention", "--table", name)["rows"]
        assert (kept["table"], kept["what"]) == (MOVED, "retained")
    # Everything that reads the table itself.
    traced = answer("trace", MOVED, "--where", "id = 1")
    assert traced["rows"][0]["birth"]["batch"] == first.batch
    assert answer("diff", MOVED, first.batch, second.batch)["added"] == 2
    (impact,) = answer("impact", first.batch)["tables"]
    assert impact["rows"]["note"] is None
    assert answer("batch", receipt.batch)["state"] == "landed"
    assert answer("verify", MOVED)["clean"] and answer("verify")["clean"]
    query = "SELECT kind, table_name FROM commits WHERE operation = 'rename_table'"
    assert answer("sql", query)["rows"] == [["table-renamed", MOVED]]
    assert answer("ledger", "rebuild")["recoveries"] == []
    for words in (
        ("trace", TABLE, "--where", "id = 1"),
        ("trace", TABLE, "--where", "id = 1", "--history"),
        ("trace", TABLE, "--where", "id = 1", "--deleted"),
        ("diff", TABLE, first.batch, second.batch),
        ("read", TABLE, "--consumer", "board"),
        ("verify", TABLE),
    ):
        status = command([*words, *there])
        err = capsys.readouterr().err
        assert status == Exit.NOT_FOUND, words
        assert f"{TABLE} is {MOVED} now" in err and receipt.batch in err, words


def test_a_job_and_a_consumer_go_on_under_the_new_name_where_they_were(
    lake: Workspace, run: Run, teller: Teller
) -> None:
    first = run.append(teller.frame(0, 4), TABLE, offsets=at(0, 4))

    def read(name: str) -> list[int]:
        with odi.read_changes(name, consumer="board", lake=lake) as reading:
            return sorted(reading.to_table()["id"].to_pylist())

    assert read(TABLE) == [0, 1, 2, 3]
    run.rename_table(TABLE, to=MOVED)
    assert read(MOVED) == []
    with pytest.raises(OffsetGap):
        run.append(teller.frame(5, 8), MOVED, offsets=at(5, 8))
    with pytest.raises(OffsetOverlap):
        run.append(teller.frame(3, 8), MOVED, offsets=at(3, 8))
    again = run.append(teller.frame(0, 4), MOVED, offsets=at(0, 4))
    assert (again.fresh, again.batch) == (False, first.batch), "it has landed, under whatever name"
    assert run.append(teller.frame(4, 8), MOVED, offsets=at(4, 8)).fresh
    assert read(MOVED) == [4, 5, 6, 7]
    assert [row[0] for row in Eyes.on(lake.root).rows(MOVED)] == list(range(8))
    # Another one of the old name has no part in that.
    run.create_table(TABLE, COLUMNS)
    assert run.append(teller.frame(0, 2), TABLE, offsets=at(0, 2)).fresh
    assert read(TABLE) == [0, 1]
    assert run.append(teller.frame(8, 9), MOVED, offsets=at(8, 9)).fresh
    assert read(MOVED) == [8]
    assert verify(lake.ledger(), lake.catalog()) == []


def copied(lake: Workspace, source: str, target: str) -> int:
    """Run a job that reads one table into another until nothing is left; return its batches."""
    spec = parse_spec(COPY.format(source=source, target=target), {})
    with odi.run(spec.job, lake=lake) as run:
        worker = FrameJob(spec, TableFeed(spec))
        return run_job(run, worker, Limits(rows=10_000), until=Until(drained=True)).batches


def test_a_job_that_reads_a_renamed_table_into_a_renamed_table_goes_on_where_it_was(
    lake: Workspace, run: Run, teller: Teller
) -> None:
    run.append(teller.frame(0, 4), TABLE, offsets=at(0, 4))
    assert copied(lake, TABLE, "sales.copy") == 1
    run.rename_table(TABLE, to=MOVED)
    assert copied(lake, MOVED, "sales.copy") == 0
    run.rename_table("sales.copy", to="archive.copy")
    assert copied(lake, MOVED, "archive.copy") == 0
    run.append(teller.frame(4, 6), MOVED, offsets=at(4, 6))
    assert copied(lake, MOVED, "archive.copy") == 1
    rows = Eyes.on(lake.root).rows("archive.copy")
    assert [row[0] for row in rows] == list(range(6)), "each row once"
    # A document that still has the old name begins no second table under it.
    run.append(teller.frame(6, 7), MOVED, offsets=at(6, 7))
    with pytest.raises(TableNotFound, match=r"renamed it to archive\.copy") as caught:
        copied(lake, MOVED, "sales.copy")
    assert caught.value.facts["name_now"] == "archive.copy"
    assert "sales.copy" not in map(str, lake.catalog().tables())
    # Another table that has taken the old name is not read for it.
    run.create_table(TABLE, COLUMNS)
    run.append(teller.frame(0, 9), TABLE, offsets=at(0, 9))
    with pytest.raises(SourceChanged):
        copied(lake, TABLE, "archive.copy")
    assert verify(lake.ledger(), lake.catalog()) == []


def test_what_was_made_of_a_reading_is_there_once_although_the_table_was_renamed_in_between(
    lake: Workspace, run: Run, teller: Teller
) -> None:
    run.append(teller.frame(0, 4), TABLE, offsets=at(0, 4))
    run.create_table("sales.made", COLUMNS)

    def derive(table: str, *, dies: bool) -> bool:
        """Write what a consumer reads; a death before the end leaves its position as it was."""
        with odi.read_changes(table, consumer="maker", run=run) as reading:
            reading.to_table()
            receipt = run.append(teller.frame(0, 4), "sales.made", offsets=reading.offsets)
            if dies:
                raise Killed
        return receipt.fresh

    with pytest.raises(Killed):
        derive(TABLE, dies=True)
    run.rename_table(TABLE, to=MOVED)
    assert derive(MOVED, dies=False) is False
    assert len(Eyes.on(lake.root).rows("sales.made")) == 4


def test_two_tables_that_had_one_name_do_not_lie_in_one_folder(
    lake: Workspace, run: Run, teller: Teller, capsys: Any
) -> None:
    receipt = run.rename_table(TABLE, to=MOVED)
    run.create_table(TABLE, COLUMNS)
    places = [Eyes.on(lake.root).table(name).metadata.location for name in (TABLE, MOVED)]
    assert places[0] != places[1] and not places[0].startswith(places[1] + "/")
    run.append(teller.frame(0, 2), TABLE, offsets=at(0, 2))
    assert command(["history", TABLE, "--lake", str(lake.root), "--json"]) == 0
    (earlier,) = json.loads(capsys.readouterr().out)["data"]["earlier"]
    assert (earlier["table_uuid"], earlier["renamed_to"], earlier["batch"]) == (
        receipt.landing.table.uuid, MOVED, receipt.batch,
    )  # fmt: skip


def test_a_ledger_that_was_lost_is_rebuilt_under_the_name_that_the_table_has(
    lake: Workspace, run: Run, teller: Teller, tmp_path: Path
) -> None:
    run.append(teller.frame(0, 2), TABLE, offsets=at(0, 2))
    run.rename_table(TABLE, to=MOVED)
    run.append(teller.frame(2, 4), MOVED, offsets=at(2, 4))
    empty = create_ledger(f"sqlite:///{tmp_path / 'empty.db'}", clock=lake.clock)
    rebuild(empty, lake.catalog(), apply=True)
    landed = [entry for entry in empty.scan() if entry.kind is Kind.LANDED]
    assert {entry.table.name for entry in landed if entry.table is not None} == {MOVED}
    assert len(landed) == 2
    empty.close()
