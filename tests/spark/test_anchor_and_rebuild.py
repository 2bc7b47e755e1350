"""Heads kept in tables, and a lost ledger made again from the stamps."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import odi_audit as odi
from odi_audit.cli.app import run as command
from odi_audit.ledger.seal import seal
from odi_audit.model import tables
from odi_audit.model.entries import Kind
from odi_audit.upkeep.anchor import HEAD_PROPERTY, write_head
from odi_audit.workspace import Workspace

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from odi_audit.model.offsets import Offsets

TABLE = "sales.orders"


def at(start: int, end: int) -> Offsets:
    return odi.mapping("topic", {"p": (start, end)})


@pytest.fixture
def filled(lake: Workspace, spark: SparkSession) -> Workspace:
    """A lake with one table and three batches."""
    with odi.run("sales/import", lake=lake) as run:
        run.create_table(TABLE, "id bigint, v string")
        for start in (0, 10, 20):
            frame = spark.range(start, start + 10).selectExpr("id", "'x' AS v")
            run.append(frame, TABLE, offsets=at(start, start + 10))
    return lake


def test_a_head_in_a_table_shows_a_ledger_whose_tail_was_cut(
    filled: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    made = seal(filled.ledger(), filled.signing_key(), filled.heads_dir)
    write_head(filled.settings, filled.spark, TABLE, made.text)
    state = filled.catalog().load(tables.parse(TABLE))
    assert state.properties[HEAD_PROPERTY] == made.text
    asked = ["ledger", "verify", "--lake", str(filled.root), "--table", TABLE]
    assert command(asked) == 0

    # Cut the tail, the heads folder with it: only the table still knows better.
    filled.close()
    for head in filled.heads_dir.iterdir():
        head.unlink()
    _lose_ledger(filled.root)
    assert command(["ledger", "rebuild", "--lake", str(filled.root), "--apply"]) == 0
    capsys.readouterr()
    assert command([*asked, "--json"]) == 1
    findings = json.loads(capsys.readouterr().out)["data"]["findings"]
    assert findings


def test_a_lost_ledger_is_made_again_from_the_stamps_and_the_job_goes_on(
    filled: Workspace, spark: SparkSession
) -> None:
    before = {entry.batch: entry for entry in filled.ledger().scan() if entry.kind is Kind.LANDED}
    filled.close()
    _lose_ledger(filled.root)
    assert command(["ledger", "rebuild", "--lake", str(filled.root), "--apply"]) == 0

    again = Workspace.find(filled.root)
    again.use_spark(spark)
    after = {entry.batch: entry for entry in again.ledger().scan() if entry.kind is Kind.LANDED}
    assert after.keys() == before.keys()
    for batch, entry in after.items():
        assert entry.recovered
        for fact in ("snapshot", "sequence_number", "first_row_id", "added_rows", "offsets"):
            assert entry.facts[fact] == before[batch].facts[fact]
    assert command(["verify", "--lake", str(filled.root)]) == 0

    with odi.run("sales/import", lake=again) as run:
        frame = spark.range(20, 30).selectExpr("id", "'x' AS v")
        assert not run.append(frame, TABLE, offsets=at(20, 30)).fresh
        assert run.append(frame, TABLE, offsets=at(30, 40)).fresh
        with pytest.raises(odi.Refused):
            run.append(frame, TABLE, offsets=at(35, 45))
    again.close()


def _lose_ledger(root: Path) -> None:
    for path in root.glob("ledger.db*"):
        if path.is_file():
            path.unlink()
