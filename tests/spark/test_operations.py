"""Every operation: its stamps, its entries, its rows, judged by pyiceberg and by plain Python."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

import odi_audit as odi
from odi_audit import logs
from odi_audit.model.entries import Kind
from tests.support.independent import Eyes
from tests.support.story import COLUMNS, TABLE, Teller, at, check_landed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odi_audit.workspace import Workspace


@pytest.fixture
def said() -> Iterator[io.StringIO]:
    """Every log line of the test, as JSON."""
    stream = io.StringIO()
    logs.configure("json", "info", stream=stream)
    yield stream
    logs.configure("auto", "info")


def test_every_operation_leaves_its_stamps_its_three_entries_and_the_right_rows(
    lake: Workspace, spark: SparkSession, said: io.StringIO
) -> None:
    eyes, ledger = Eyes.on(lake.root), lake.ledger()
    seen: list[dict[str, object]] = []
    with odi.run("sales/orders", lake=lake, principal="ana", code="v7") as run:
        run.create_table(TABLE, COLUMNS, partitioned_by=["region"])
        for operation, commit, rows in Teller(run=run, spark=spark).steps():
            before = len(eyes.history(TABLE))
            receipt = commit()
            assert receipt.fresh
            assert receipt.confidence == "exact"
            snapshot = check_landed(eyes, ledger, receipt, operation)
            seen.append(snapshot["summary"])
            assert eyes.rows(TABLE) == sorted(rows.values(), key=str), operation
            assert len(eyes.history(TABLE)) == before + 1, "one operation, one snapshot"
            assert list(eyes.metadata(TABLE)["refs"]) == ["main"]
    assert {summary["odi.principal"] for summary in seen} == {"ana"}
    assert {summary["odi.code"] for summary in seen} == {"v7"}
    assert seen[0]["odi.source"] == "orders topic"
    assert json.loads(str(seen[0]["odi.offsets"])) == {
        "kind": "mapping",
        "ranges": {"p0": [0, 20]},
    }
    row_level, whole_files, empty = seen[5], seen[6], seen[8]
    assert row_level["added-dvs"] == "1"
    assert whole_files["operation"] == "delete"
    assert "added-delete-files" not in whole_files
    assert int(str(whole_files["deleted-data-files"])) >= 1
    assert empty.get("added-data-files", "0") == "0"
    assert ledger.open_intents() == []
    # Every line of a commit says which job, run, batch and table it speaks of.
    lines = [json.loads(line) for line in said.getvalue().splitlines()]
    landed = [line for line in lines if line["event"] == "landed"]
    assert len(landed) == len(seen)
    for line in lines:
        assert {line["job"], line["table"]} == {"sales/orders", TABLE}, line
        assert line["run"] and line["batch"].startswith("b-"), line


def test_a_row_keeps_its_id_through_update_upsert_and_compaction(
    lake: Workspace, spark: SparkSession
) -> None:
    def ids() -> dict[int, int]:
        found = spark.sql(f"SELECT id, _row_id FROM lake.{TABLE}").collect()
        return {row[0]: row[1] for row in found}

    with odi.run("sales/orders", lake=lake) as run:
        run.create_table(TABLE, COLUMNS)
        teller = Teller(run=run, spark=spark)
        first = run.append(teller.frame(0, 8), TABLE, offsets=at(0, 8))
        born = ids()
        assert sorted(born.values()) == list(range(8))
        assert (first.landing.first_row_id, first.landing.added_rows) == (0, 8)
        run.update(TABLE, where="id = 3", set={"amount": "0"})
        run.upsert(teller.given((4, "x", 4), (9, "x", 9)), TABLE, key=["id"], offsets=at(8, 10))
        run.compact(TABLE, options={"rewrite-all": "true"})
    now = ids()
    assert {key: now[key] for key in born} == born
    assert now[9] not in born.values()


def test_what_makes_no_snapshot_leaves_an_entry(lake: Workspace, spark: SparkSession) -> None:
    eyes, ledger = Eyes.on(lake.root), lake.ledger()
    with odi.run("sales/orders", lake=lake) as run:
        created = run.create_table(TABLE, COLUMNS)
        teller = Teller(run=run, spark=spark)
        kept = run.append(teller.frame(0, 4), TABLE, offsets=at(0, 4))
        undone = run.append(teller.frame(4, 8), TABLE, offsets=at(4, 8))
        changed = run.evolve_schema(TABLE, add={"note": "string"}, rename={"amount": "price"})
        rolled = run.rollback(TABLE, to_batch=kept.batch)
        expired = run.expire(TABLE, older_than=datetime(2100, 1, 1, tzinfo=UTC))
    told = {
        receipt.batch: ledger.batch_entries(receipt.batch)
        for receipt in (created, changed, rolled, expired)
    }
    kinds = [[entry.kind for entry in entries] for entries in told.values()]
    assert kinds == [
        [Kind.INTENT, Kind.TABLE_CREATED],
        [Kind.INTENT, Kind.SCHEMA_CHANGE],
        [Kind.INTENT, Kind.ROLLBACK],
        [Kind.INTENT, Kind.MAINTENANCE],
    ]
    assert all(entries[1].settles for entries in told.values())
    assert told[created.batch][1].facts["format_version"] == 3
    assert told[rolled.batch][1].facts["undone"] == [undone.batch]
    assert told[rolled.batch][1].facts["to"] == kept.snapshot == rolled.snapshot
    assert told[expired.batch][1].facts["expired"] == [undone.snapshot]
    assert [str(item["snapshot-id"]) for item in eyes.metadata(TABLE)["snapshots"]] == [
        kept.snapshot
    ]
    assert [row[0] for row in eyes.rows(TABLE)] == [0, 1, 2, 3]
    assert ledger.undone(undone.batch, undone.landing.table.uuid) is not None
