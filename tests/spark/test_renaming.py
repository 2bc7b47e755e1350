"""Renaming a table: what is recorded and told, what is refused, and who gives way to whom."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import odi_audit as odi
from lineage.context import LedgerContext
from lineage.events import events_of
from odi_audit.api import parts_of
from odi_audit.committer import reconcile, renaming
from odi_audit.committer.reconcile import Action
from odi_audit.errors import (
    CommitConflict,
    OdiError,
    TableExists,
    TableNotFound,
    UsageError,
)
from odi_audit.model.entries import Kind
from odi_audit.query.verify import verify
from odi_audit.workspace import Workspace
from tests.support.independent import Eyes
from tests.support.killed import Killed
from tests.support.stopping import JOB, die, last, stops_at, uuid_of
from tests.support.story import COLUMNS, TABLE, Teller, at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odi_audit.committer.run import Run
    from odi_audit.ids import BatchId
    from odi_audit.spark.live import LiveTable

MOVED = "archive.orders_2026"
"""In a namespace that is not there: it is made, as by a creation."""


@pytest.fixture
def run(lake: Workspace) -> Run:
    return odi.run(JOB, lake=lake, principal="ana", code="v7").__enter__()


@pytest.fixture
def teller(run: Run, spark: SparkSession) -> Teller:
    run.create_table(TABLE, COLUMNS)
    return Teller(run=run, spark=spark)


def told(lake: Workspace, batch: BatchId) -> list[tuple[str | None, str | None, str, str]]:
    """Return, for each output of a batch: what became of it, from which name, symlink, version."""
    ledger = lake.ledger()
    outputs = [
        output
        for entry in ledger.batch_entries(batch)
        for event in events_of(entry, LedgerContext(ledger))
        for output in json.loads(event.body)["outputs"]
    ]
    changes = [output["facets"].get("lifecycleStateChange", {}) for output in outputs]
    return [
        (
            change.get("lifecycleStateChange"),
            change.get("previousIdentifier", {}).get("name"),
            output["facets"]["symlinks"]["identifiers"][0]["name"],
            output["facets"]["version"]["datasetVersion"],
        )
        for change, output in zip(changes, outputs, strict=True)
    ]


def test_a_renamed_table_is_the_same_table_and_the_ledger_has_both_names(
    lake: Workspace, run: Run, teller: Teller
) -> None:
    ledger = lake.ledger()
    landed = run.append(teller.frame(0, 4), TABLE, offsets=at(0, 4))
    before = Eyes.on(lake.root).table(TABLE)
    receipt = run.rename_table(TABLE, to=MOVED)
    assert receipt.fresh and receipt.landing.operation == "rename_table"
    assert receipt.landing.table.name == MOVED
    assert (uuid_of(lake), uuid_of(lake, MOVED)) == (None, receipt.landing.table.uuid)
    after = Eyes.on(lake.root).table(MOVED)
    assert after.metadata_location == before.metadata_location, "nothing of the table has changed"
    intent, renamed = ledger.batch_entries(receipt.batch)
    assert (renamed.kind, renamed.settles, renamed.intent) == (
        Kind.TABLE_RENAMED, True, intent.index,
    )  # fmt: skip
    assert renamed.table == receipt.landing.table
    assert renamed.facts == {
        "operation": "rename_table",
        "from_name": TABLE,
        "to_name": MOVED,
        "principal": "ana",
        "code": "v7",
    }
    assert told(lake, receipt.batch) == [("RENAME", TABLE, MOVED, landed.snapshot)]
    following = run.append(teller.frame(4, 6), MOVED, offsets=at(4, 6))
    assert told(lake, following.batch) == [(None, None, MOVED, following.snapshot)]
    assert verify(ledger, lake.catalog()) == []
    assert ledger.open_intents() == []


def test_a_rename_past_the_library_is_told_at_the_next_change_also_if_that_is_a_rename(
    lake: Workspace, spark: SparkSession, run: Run, teller: Teller
) -> None:
    landed = run.append(teller.frame(0, 4), TABLE, offsets=at(0, 4))
    spark.sql(f"ALTER TABLE lake.{TABLE} RENAME TO sales.past_us")
    receipt = run.append(teller.frame(4, 6), "sales.past_us", offsets=at(4, 6))
    assert told(lake, receipt.batch) == [("RENAME", TABLE, "sales.past_us", receipt.snapshot)]
    spark.sql("ALTER TABLE lake.sales.past_us RENAME TO sales.again")
    renamed = run.rename_table("sales.again", to=TABLE)
    assert told(lake, renamed.batch) == [("RENAME", "sales.again", TABLE, receipt.snapshot)]
    assert renamed.landing.table.uuid == landed.landing.table.uuid
    assert verify(lake.ledger(), lake.catalog()) == []


def test_a_rename_that_is_on_record_is_answered_with_its_receipt_and_done_once(
    lake: Workspace, run: Run, teller: Teller
) -> None:
    run.append(teller.frame(0, 2), TABLE, offsets=at(0, 2))
    receipt = run.rename_table(TABLE, to=MOVED)
    size = lake.ledger().head().size
    again = run.rename_table(TABLE, to=MOVED)
    assert (again.fresh, again.batch, again.intent, again.landing) == (
        False, receipt.batch, receipt.intent, receipt.landing,
    )  # fmt: skip
    with pytest.raises(TableNotFound, match=f"{receipt.batch} of {JOB} renamed it to {MOVED}"):
        run.rename_table(TABLE, to="sales.elsewhere")
    with pytest.raises(TableNotFound, match=r"no table sales\.never to rename"):
        run.rename_table("sales.never", to="sales.elsewhere")
    with pytest.raises(UsageError):
        run.rename_table(MOVED, to=MOVED)
    for writes in (
        lambda: run.append(teller.frame(2, 4), TABLE, offsets=at(2, 4)),
        lambda: run.drop_table(TABLE),
    ):
        with pytest.raises(TableNotFound, match=f"{receipt.batch} of {JOB} renamed it to {MOVED}"):
            writes()
    assert run.drop_table(TABLE, if_exists=True).landings == (), "it was not dropped"
    assert lake.ledger().head().size == size
    # There and back and there again: the table is as it was, and each is a batch of its own.
    back = run.rename_table(MOVED, to=TABLE)
    with pytest.raises(TableNotFound, match=f"{back.batch} of {JOB} renamed it to {TABLE}"):
        run.rename_table(MOVED, to="sales.elsewhere")
    third = run.rename_table(TABLE, to=MOVED)
    assert third.fresh and len({receipt.batch, back.batch, third.batch}) == 3
    fourth = run.rename_table(MOVED, to="sales.fourth")
    with pytest.raises(TableNotFound, match=r"and it is sales\.fourth by now"):
        run.rename_table(TABLE, to="sales.elsewhere")
    run.drop_table("sales.fourth")
    with pytest.raises(TableNotFound, match="dropped it"):
        run.rename_table("sales.fourth", to=TABLE)
    assert fourth.fresh and verify(lake.ledger(), lake.catalog()) == []


def test_another_table_that_has_taken_the_old_name_is_never_taken_for_the_renamed_one(
    lake: Workspace, run: Run, teller: Teller
) -> None:
    receipt = run.rename_table(TABLE, to=MOVED)
    run.create_table(TABLE, COLUMNS)
    other = uuid_of(lake)
    size = lake.ledger().head().size
    with pytest.raises(TableExists, match=f"{TABLE} was not renamed: there is a table {MOVED}"):
        run.rename_table(TABLE, to=MOVED)
    assert lake.ledger().head().size == size
    assert (uuid_of(lake), uuid_of(lake, MOVED)) == (other, receipt.landing.table.uuid)
    # Once that one has left the name too, what was done to the first one is not the answer.
    second = run.rename_table(TABLE, to="sales.second")
    with pytest.raises(TableNotFound, match=rf"{second.batch} of {JOB} renamed it to sales\.sec"):
        run.rename_table(TABLE, to=MOVED)
    assert run.rename_table(TABLE, to="sales.second").landing.table.uuid == other


def test_a_rename_gives_way_to_whoever_writes_and_to_what_has_changed(
    lake: Workspace, spark: SparkSession, run: Run, teller: Teller
) -> None:
    run.append(teller.frame(0, 2), TABLE, offsets=at(0, 2))
    writer = stops_at(lake, spark, "gated", die, job="sales/other")
    with pytest.raises(Killed):
        writer.append(teller.frame(2, 4), TABLE, offsets=at(2, 4))
    with pytest.raises(CommitConflict, match=r"was not renamed: .* is under way on it") as refused:
        run.rename_table(TABLE, to=MOVED)
    assert "odi-audit reconcile" in str(refused.value.hint)
    assert last(lake).kind is Kind.ABANDONED
    writer.parts.ledger.close()
    reconcile.apply(parts_of(lake), reconcile.plan(lake.ledger(), lake.catalog()))

    maker = stops_at(lake, spark, "published:0", die, job="sales/maker")
    with pytest.raises(Killed):
        maker.create_table("sales.new", COLUMNS)
    with pytest.raises(CommitConflict, match="is under way on it"):
        run.rename_table("sales.new", to=MOVED)
    maker.parts.ledger.close()
    reconcile.apply(parts_of(lake), reconcile.plan(lake.ledger(), lake.catalog()))

    def replaced() -> None:
        spark.sql(f"ALTER TABLE lake.{TABLE} RENAME TO sales.away")
        spark.sql(f"CREATE TABLE lake.{TABLE} (id bigint) USING iceberg")

    with pytest.raises(CommitConflict, match="another table"):
        stops_at(lake, spark, "staged", replaced).rename_table(TABLE, to=MOVED)
    assert uuid_of(lake) is not None, "the new one is never renamed for the old one"

    def taken() -> None:
        spark.sql("CREATE TABLE lake.sales.taken (id bigint) USING iceberg")

    with pytest.raises(TableExists):
        stops_at(lake, spark, "staged", taken).rename_table("sales.away", to="sales.taken")
    assert last(lake).kind is Kind.ABANDONED
    assert uuid_of(lake, "sales.away") is not None
    # What may change under it: a rename leaves the table as it is, whatever that is.
    insert = stops_at(
        lake, spark, "staged", lambda: spark.sql("INSERT INTO lake.sales.away VALUES (9, 'f', 1)")
    )
    assert insert.rename_table("sales.away", to=MOVED).fresh
    assert lake.ledger().open_intents() == []


def test_a_table_that_takes_the_name_in_the_very_moment_is_not_recorded_as_the_renamed_one(
    lake: Workspace,
    spark: SparkSession,
    run: Run,
    teller: Teller,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run.append(teller.frame(0, 2), TABLE, offsets=at(0, 2))
    uuid, look = uuid_of(lake), renaming.still_this

    def and_then(*asked: Any) -> LiveTable:
        now = look(*asked)
        spark.sql(f"ALTER TABLE lake.{TABLE} RENAME TO sales.away")
        spark.sql(f"CREATE TABLE lake.{TABLE} (id bigint) USING iceberg")
        return now

    monkeypatch.setattr(renaming, "still_this", and_then)
    with pytest.raises(CommitConflict, match="in that very moment"):
        run.rename_table(TABLE, to=MOVED)
    assert uuid_of(lake, "sales.away") == uuid != uuid_of(lake, MOVED)
    assert last(lake).kind is Kind.ABANDONED
    assert lake.ledger().open_intents() == []


def test_a_writer_gives_way_to_a_rename_that_was_recorded_before_it(
    lake: Workspace, spark: SparkSession, run: Run, teller: Teller
) -> None:
    def meanwhile() -> None:
        for work in (
            lambda: run.append(teller.frame(0, 2), TABLE, offsets=at(0, 2)),
            lambda: run.evolve_schema(TABLE, add={"note": "string"}),
            lambda: run.drop_table(TABLE),
        ):
            with pytest.raises(CommitConflict, match="is being renamed by batch"):
                work()

    receipt = stops_at(lake, spark, "staged", meanwhile, job="sales/mover").rename_table(
        TABLE, to=MOVED
    )
    assert receipt.fresh and uuid_of(lake) is None
    kinds = [entry.kind for entry in lake.ledger().scan() if entry.index >= receipt.intent]
    assert kinds == [Kind.INTENT, *[Kind.INTENT, Kind.ABANDONED] * 3, Kind.TABLE_RENAMED]


@pytest.mark.parametrize("point", ["planned", "intended", "staged"])
def test_a_writer_that_looked_before_a_rename_writes_nothing_under_the_old_name(
    lake: Workspace, spark: SparkSession, run: Run, teller: Teller, point: str
) -> None:
    run.append(teller.frame(0, 2), TABLE, offsets=at(0, 2))
    outcomes: list[str] = []

    def meanwhile() -> None:
        try:
            run.rename_table(TABLE, to=MOVED)
            outcomes.append("renamed")
        except CommitConflict:
            outcomes.append("gave way")

    writer = stops_at(lake, spark, point, meanwhile, job="sales/other")
    if point == "planned":
        with pytest.raises(OdiError):
            writer.append(teller.frame(2, 4), TABLE, offsets=at(2, 4))
        assert (outcomes, uuid_of(lake)) == (["renamed"], None)
    else:
        assert writer.append(teller.frame(2, 4), TABLE, offsets=at(2, 4)).fresh
        assert outcomes == ["gave way"]
    writer.parts.ledger.close()
    reconcile.apply(parts_of(lake), reconcile.plan(lake.ledger(), lake.catalog()))
    name, rows = (MOVED, [0, 1]) if point == "planned" else (TABLE, [0, 1, 2, 3])
    assert [row[0] for row in Eyes.on(lake.root).rows(name)] == rows
    assert lake.ledger().open_intents() == []
    assert verify(lake.ledger(), lake.catalog()) == []


def test_a_dead_rename_is_settled_by_the_name_that_the_table_has(
    lake: Workspace, spark: SparkSession, run: Run, teller: Teller
) -> None:
    run.append(teller.frame(0, 2), TABLE, offsets=at(0, 2))
    uuid = uuid_of(lake)
    for meanwhile, action, kind in (
        ([], Action.ABANDON, Kind.ABANDONED),
        (["sales.third"], Action.ABANDON, Kind.ABANDONED),
        ([MOVED], Action.RECORD, Kind.TABLE_RENAMED),
    ):
        name = TABLE if uuid_of(lake) else "sales.third"
        dying = stops_at(lake, spark, "staged", die)
        with pytest.raises(Killed):
            dying.rename_table(name, to=MOVED)
        with pytest.raises(CommitConflict):
            run.rename_table(name, to="sales.elsewhere")
        for to in meanwhile:
            # The namespace is made by the road itself, and that had not come so far.
            spark.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{to.split('.', maxsplit=1)[0]}")
            spark.sql(f"ALTER TABLE lake.{name} RENAME TO {to}")
        dying.parts.ledger.close()
        plan = reconcile.plan(lake.ledger(), lake.catalog())
        assert [item.action for item in plan] == [action]
        reconcile.apply(parts_of(lake), plan)
        assert (last(lake).kind, last(lake).settles) == (kind, True)
    assert last(lake).table is not None and last(lake).table.uuid == uuid == uuid_of(lake, MOVED)
    assert last(lake).facts["from_name"] == "sales.third"
    assert verify(lake.ledger(), lake.catalog()) == []


def test_what_became_of_a_table_is_not_said_while_its_rename_is_open(
    lake: Workspace, spark: SparkSession, run: Run, teller: Teller
) -> None:
    dying = stops_at(lake, spark, "published:0", die)
    with pytest.raises(Killed):
        dying.rename_table(TABLE, to=MOVED)
    with pytest.raises(CommitConflict, match="is being renamed by batch"):
        run.rename_table(TABLE, to=MOVED)
    # While its process lives, it is in flight, and neither name is a finding.
    assert verify(lake.ledger(), lake.catalog()) == []
    dying.parts.ledger.close()
    assert [item.code for item in verify(lake.ledger(), lake.catalog())] == ["ODI-V07"]
    with odi.run(JOB, lake=lake) as after:
        assert after.rename_table(TABLE, to=MOVED).fresh is False
