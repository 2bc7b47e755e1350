"""Dropping a table: what is kept of it, what is refused, and who comes after it under its name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import odi_audit as odi
from lineage.context import LedgerContext
from lineage.events import events_of
from odi_audit.api import parts_of
from odi_audit.cli.app import run as command
from odi_audit.committer import reconcile
from odi_audit.committer.reconcile import Action
from odi_audit.errors import CommitConflict, Exit, TableNotFound, UsageError
from odi_audit.model.entries import Kind
from odi_audit.query.verify import verify
from odi_audit.workspace import Workspace
from tests.support.independent import Eyes, on_disk
from tests.support.killed import Killed
from tests.support.stopping import JOB, die, last, stops_at, uuid_of
from tests.support.story import COLUMNS, TABLE, Teller, at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odi_audit.committer.run import Run
    from odi_audit.ids import BatchId


@pytest.fixture
def run(lake: Workspace) -> Run:
    return odi.run(JOB, lake=lake, principal="ana", code="v7").__enter__()


@pytest.fixture
def teller(run: Run, spark: SparkSession) -> Teller:
    run.create_table(TABLE, COLUMNS)
    return Teller(run=run, spark=spark)


def changes(lake: Workspace, batch: BatchId) -> list[tuple[str, str, str]]:
    """Return, for each output of a batch's events: its name, what became of it, its version."""
    ledger = lake.ledger()
    return [
        (
            output["name"],
            output["facets"]["lifecycleStateChange"]["lifecycleStateChange"],
            output["facets"]["version"]["datasetVersion"],
        )
        for entry in ledger.batch_entries(batch)
        for event in events_of(entry, LedgerContext(ledger))
        for output in json.loads(event.body)["outputs"]
    ]


def test_a_dropped_table_is_gone_and_the_ledger_keeps_what_it_was(
    lake: Workspace, spark: SparkSession, run: Run, teller: Teller, capsys: Any
) -> None:
    ledger, warehouse = lake.ledger(), Path(lake.settings.catalog.warehouse or "")
    landed = run.append(teller.frame(0, 4), TABLE, offsets=at(0, 4))
    spark.sql(f"INSERT INTO lake.{TABLE} VALUES (90, 'f', 1)")
    before, files = Eyes.on(lake.root).table(TABLE), on_disk(warehouse)
    receipt = run.drop_table(TABLE)
    assert receipt.fresh and receipt.landing.operation == "drop_table"
    assert uuid_of(lake) is None
    assert on_disk(warehouse) == files, "without purge its files stay"
    intent, dropped = ledger.batch_entries(receipt.batch)
    assert (dropped.kind, dropped.settles) == (Kind.TABLE_DROPPED, True)
    assert dropped.intent == intent.index
    assert dropped.facts == {
        "operation": "drop_table",
        "purge": False,
        "principal": "ana",
        "code": "v7",
        "location": before.metadata.location,
        "head": str(before.metadata.current_snapshot_id),
        "metadata_location": before.metadata_location,
        "totals": dropped.facts["totals"],
    }
    assert dropped.facts["totals"]["total-records"] == 5  # type: ignore[index,call-overload]
    folder = before.metadata.location.removeprefix("file:")
    assert changes(lake, receipt.batch) == [(folder, "DROP", dropped.facts["head"])]
    # What came past the committer is recorded before the table goes.
    (foreign,) = [entry for entry in ledger.scan() if entry.kind is Kind.FOREIGN]
    assert intent.index < foreign.index < dropped.index
    assert foreign.facts["snapshot"] == dropped.facts["head"]
    assert verify(ledger, lake.catalog()) == []
    there = ["--lake", str(lake.root), "--json"]

    def told(*words: str) -> Any:
        status = command([*words, *there])
        out, err = capsys.readouterr()
        return (status, json.loads(out)) if status == 0 else (status, err)

    status, answer = told("history", TABLE)
    assert answer["data"]["dropped"]["batch"] == receipt.batch
    assert [event["operation"] for event in answer["data"]["events"]] == [
        "create_table", "append", "append", "drop_table",
    ]  # fmt: skip
    status, answer = told("batches", "--table", TABLE)
    batches = [item["batch"] for item in answer["data"]["batches"]]
    assert batches[:2] == [receipt.batch, landed.batch]
    status, answer = told("impact", landed.batch)
    assert receipt.batch in answer["data"]["tables"][0]["rows"]["note"]
    status, answer = told("lineage", TABLE)
    (node,) = [node for node in answer["data"]["nodes"] if node["kind"] == "table"]
    assert node["facets"]["dropped"]["batch"] == receipt.batch
    status, answer = told("lineage", TABLE, "--as-of", landed.batch)
    (node,) = [node for node in answer["data"]["nodes"] if node["kind"] == "table"]
    assert (node["facets"]["dropped"], node["batches"]) == (None, 2), "its creation and its rows"
    for words in (
        ("trace", TABLE, "--where", "id = 1"),
        ("trace", TABLE, "--where", "id = 1", "--history"),
        ("trace", TABLE, "--where", "id = 1", "--deleted"),
        ("diff", TABLE, landed.batch, receipt.batch),
        ("read", TABLE, "--consumer", "board"),
        ("verify", TABLE),
    ):
        status, err = told(*words)
        assert (status, words[0]) == (Exit.NOT_FOUND, words[0])
        assert receipt.batch in err and dropped.time in err, words[0]
        assert f"odi-audit history {TABLE}" in err, words[0]
    for words in (("verify",), ("coverage",), ("coverage", TABLE), ("report", "retention")):
        assert told(*words)[0] == 0, words
    # The last metadata is on record and on disk: it can be put back, and that is seen.
    spark.sql(f"CALL lake.system.register_table('{TABLE}', '{dropped.facts['metadata_location']}')")
    assert uuid_of(lake) == receipt.landing.table.uuid
    assert {finding.code for finding in verify(ledger, lake.catalog())} == {"ODI-V01", "ODI-V11"}


def test_a_purge_deletes_the_files_and_is_refused_where_the_table_forbids_it(
    lake: Workspace, spark: SparkSession, run: Run, teller: Teller
) -> None:
    warehouse = Path(lake.settings.catalog.warehouse or "")
    run.append(teller.frame(0, 4), TABLE, offsets=at(0, 4))
    spark.sql(f"ALTER TABLE lake.{TABLE} SET TBLPROPERTIES ('gc.enabled'='false')")
    size = lake.ledger().head().size
    with pytest.raises(UsageError, match=r"gc\.enabled"):
        run.drop_table(TABLE, purge=True)
    assert lake.ledger().head().size == size
    spark.sql(f"ALTER TABLE lake.{TABLE} SET TBLPROPERTIES ('gc.enabled'='true')")
    emptied = run.delete(TABLE, where="true", offsets=odi.once("all"))
    assert [change[1:] for change in changes(lake, emptied.batch)] == [
        ("TRUNCATE", emptied.snapshot)
    ]
    receipt = run.drop_table(TABLE, purge=True)
    assert on_disk(warehouse) == set()
    assert lake.ledger().batch_entries(receipt.batch)[-1].facts["purge"] is True


def test_a_table_that_is_not_there_is_an_error_or_the_receipt_of_its_drop(
    lake: Workspace, run: Run, teller: Teller
) -> None:
    with pytest.raises(TableNotFound):
        run.drop_table("sales.never")
    never = run.drop_table("sales.never", if_exists=True)
    assert (never.fresh, never.landings) == (False, ())
    receipt = run.drop_table(TABLE)
    size = lake.ledger().head().size
    with pytest.raises(TableNotFound, match=receipt.batch):
        run.drop_table(TABLE)
    again = run.drop_table(TABLE, if_exists=True)
    assert (again.fresh, again.batch, again.landing.table) == (
        False, receipt.batch, receipt.landing.table,
    )  # fmt: skip
    assert lake.ledger().head().size == size
    with pytest.raises(TableNotFound):
        run.append(teller.frame(0, 1), TABLE, offsets=at(0, 1))
    assert lake.ledger().open_intents() == []


def test_a_new_table_of_the_name_is_another_table_and_its_offsets_begin_afresh(
    lake: Workspace, run: Run, teller: Teller
) -> None:
    first = run.append(teller.frame(0, 4), TABLE, offsets=at(0, 4))
    run.append(teller.frame(4, 6), TABLE, offsets=at(4, 6))
    run.drop_table(TABLE)
    run.create_table(TABLE, COLUMNS)
    again = run.append(teller.frame(0, 4), TABLE, offsets=at(0, 4))
    assert again.fresh and again.batch == first.batch
    assert again.landing.table.uuid != first.landing.table.uuid
    assert run.append(teller.frame(4, 9), TABLE, offsets=at(4, 9)).fresh
    assert [row[0] for row in Eyes.on(lake.root).rows(TABLE)] == list(range(9))
    assert verify(lake.ledger(), lake.catalog()) == []


def test_a_drop_gives_way_to_whoever_writes_and_to_what_has_changed(
    lake: Workspace, spark: SparkSession, run: Run, teller: Teller
) -> None:
    run.append(teller.frame(0, 2), TABLE, offsets=at(0, 2))

    writer = stops_at(lake, spark, "gated", die, job="sales/other")
    with pytest.raises(Killed):
        writer.append(teller.frame(2, 4), TABLE, offsets=at(2, 4))
    with pytest.raises(CommitConflict, match="is under way on it") as refused:
        run.drop_table(TABLE)
    assert "odi-audit reconcile" in str(refused.value.hint)
    assert last(lake).kind is Kind.ABANDONED
    writer.parts.ledger.close()
    reconcile.apply(parts_of(lake), reconcile.plan(lake.ledger(), lake.catalog()))

    insert = stops_at(
        lake, spark, "staged", lambda: spark.sql(f"INSERT INTO lake.{TABLE} VALUES (90, 'f', 1)")
    )
    with pytest.raises(CommitConflict, match="was changed since"):
        insert.drop_table(TABLE)
    columns = f"CREATE TABLE lake.{TABLE} (id bigint) USING iceberg"

    def replaced() -> None:
        spark.sql(f"DROP TABLE lake.{TABLE}")
        spark.sql(columns)

    with pytest.raises(CommitConflict, match="another table"):
        stops_at(lake, spark, "staged", replaced).drop_table(TABLE)
    assert uuid_of(lake) is not None, "the new one is never dropped for the old one"
    assert lake.ledger().open_intents() == []
    assert [entry for entry in lake.ledger().scan() if entry.kind is Kind.TABLE_DROPPED] == []
    # The first one went past the ledger, and that stays a finding.
    assert "ODI-V10" in {finding.code for finding in verify(lake.ledger(), lake.catalog())}


def test_a_writer_gives_way_to_a_drop_that_was_recorded_before_it(
    lake: Workspace, spark: SparkSession, run: Run, teller: Teller
) -> None:
    def meanwhile() -> None:
        for work in (
            lambda: run.append(teller.frame(0, 2), TABLE, offsets=at(0, 2)),
            lambda: run.evolve_schema(TABLE, add={"note": "string"}),
        ):
            with pytest.raises(CommitConflict, match="is being dropped by batch"):
                work()

    receipt = stops_at(lake, spark, "staged", meanwhile, job="sales/cleaner").drop_table(TABLE)
    assert receipt.fresh and uuid_of(lake) is None
    kinds = [entry.kind for entry in lake.ledger().scan() if entry.batch is not None][2:]
    assert kinds == [
        Kind.INTENT, Kind.INTENT, Kind.ABANDONED, Kind.INTENT, Kind.ABANDONED, Kind.TABLE_DROPPED,
    ]  # fmt: skip


def test_a_dead_drop_whose_table_was_replaced_is_settled_and_leaves_the_new_one_alone(
    lake: Workspace, spark: SparkSession, run: Run, teller: Teller
) -> None:
    run.append(teller.frame(0, 2), TABLE, offsets=at(0, 2))
    old = uuid_of(lake)

    for replace, action, kind in (
        (False, Action.ABANDON, Kind.ABANDONED),
        (True, Action.RECORD, Kind.TABLE_DROPPED),
    ):
        dying = stops_at(lake, spark, "staged", die)
        with pytest.raises(Killed):
            dying.drop_table(TABLE)
        dying.parts.ledger.close()
        if replace:
            spark.sql(f"DROP TABLE lake.{TABLE}")
            spark.sql(f"CREATE TABLE lake.{TABLE} (id bigint) USING iceberg")
        plan = reconcile.plan(lake.ledger(), lake.catalog())
        assert [item.action for item in plan] == [action]
        reconcile.apply(parts_of(lake), plan)
        assert (last(lake).kind, last(lake).settles) == (kind, True)
        assert last(lake).table is not None and last(lake).table.uuid == old
    assert uuid_of(lake) not in {None, old}
    assert verify(lake.ledger(), lake.catalog()) == []


def test_a_batch_that_the_ledger_lost_keeps_its_table(
    lake: Workspace, spark: SparkSession, run: Run, teller: Teller
) -> None:
    receipt = run.append(teller.frame(0, 2), TABLE, offsets=at(0, 2))
    snapshot = Eyes.on(lake.root).head(TABLE)
    stamps = {key: text for key, text in snapshot["summary"].items() if key.startswith("odi.")}
    frame = teller.frame(2, 3).writeTo(f"lake.{TABLE}")
    for key, text in stamps.items():
        other = text.replace(receipt.batch, "b-" + "0" * 32)
        frame = frame.option(f"snapshot-property.{key}", other)
    frame.append()
    with pytest.raises(CommitConflict, match="does not have batch b-0000"):
        run.drop_table(TABLE)
    assert uuid_of(lake) is not None
