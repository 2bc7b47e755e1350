"""Reconcile: what an attempt that ended in the middle left open is settled by looking."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

import odi_audit as odi
from odi_audit.api import parts_of
from odi_audit.cli.app import run as command
from odi_audit.committer import reconcile
from odi_audit.committer.reconcile import Action
from odi_audit.ids import JobName
from odi_audit.model.entries import Kind
from odi_audit.model.tables import parse
from odi_audit.workspace import Workspace
from tests.support.independent import Eyes
from tests.support.story import COLUMNS, TABLE, Teller, at, check_landed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odi_audit.committer.run import Run

JOB = "sales/orders"


class Cut(BaseException):
    """The end of an attempt that nothing in it can catch, as near to a kill as one process gets."""


@pytest.fixture
def cut(lake: Workspace, spark: SparkSession) -> Callable[[str, Callable[[Run], object]], None]:
    """Run something until a point of the road, and leave it there with its owner gone."""

    def cut_at(point: str, work: Callable[[Run], object]) -> None:
        reached: list[str] = []

        def reach(name: str) -> None:
            reached.append(name)
            if name == point:
                raise Cut

        with Workspace.find(lake.root) as mortal:
            mortal.use_spark(spark)
            run = odi.run(JOB, lake=mortal, reach=reach).__enter__()
            with pytest.raises(Cut):
                work(run)
        assert reached[-1] == point

    return cut_at


@pytest.fixture
def teller(lake: Workspace, spark: SparkSession) -> Teller:
    run = odi.run("sales/setup", lake=lake).__enter__()
    run.create_table(TABLE, COLUMNS)
    return Teller(run=run, spark=spark)


def planned(lake: Workspace) -> list[tuple[Action, str]]:
    found = reconcile.plan(lake.ledger(), lake.catalog())
    return [(item.action, item.reason) for item in found]


def applied(lake: Workspace) -> list[Action]:
    found = reconcile.plan(lake.ledger(), lake.catalog())
    return [item.action for item in reconcile.apply(parts_of(lake), found)]


def position(lake: Workspace) -> object:
    uuid = lake.catalog().load(parse(TABLE)).ref.uuid
    return lake.ledger().positions(JobName(JOB), uuid, "orders topic")["p0"].end


@pytest.mark.parametrize(
    ("point", "action", "rows"),
    [
        ("intended", Action.ABANDON, 0),
        ("staged", Action.ABANDON, 0),
        ("gated", Action.ROLL_FORWARD, 4),
        ("published:0", Action.RECORD, 4),
    ],
)
def test_each_point_of_the_road_has_its_settlement(
    lake: Workspace,
    teller: Teller,
    cut: Callable[..., None],
    point: str,
    action: Action,
    rows: int,
) -> None:
    eyes = Eyes.on(lake.root)
    cut(point, lambda run: run.append(teller.frame(0, 4), TABLE, offsets=at(0, 4)))
    assert [item[0] for item in planned(lake)] == [action]
    assert applied(lake) == [action]
    assert planned(lake) == []
    assert len(eyes.rows(TABLE)) == rows
    with odi.run(JOB, lake=lake) as run:
        receipt = run.append(teller.frame(0, 4), TABLE, offsets=at(0, 4))
    assert receipt.fresh is (rows == 0)
    assert len(eyes.rows(TABLE)) == 4
    kinds = [entry.kind for entry in lake.ledger().batch_entries(receipt.batch)]
    assert kinds.count(Kind.LANDED) == 1


def test_a_living_owner_is_left_alone(lake: Workspace, teller: Teller) -> None:
    seen: list[tuple[Action, str]] = []

    def reach(point: str) -> None:
        if point == "gated":
            seen.extend(planned(lake))
            assert applied(lake) == [Action.WAIT]

    with odi.run(JOB, lake=lake, reach=reach) as run:
        assert run.append(teller.frame(0, 2), TABLE, offsets=at(0, 2)).fresh
    assert [item[0] for item in seen] == [Action.WAIT]
    assert "lives" in seen[0][1]


def test_on_a_table_that_moved_an_append_rolls_forward_and_an_upsert_is_left_to_its_job(
    lake: Workspace, teller: Teller, cut: Callable[..., None]
) -> None:
    eyes = Eyes.on(lake.root)
    cut("gated", lambda run: run.append(teller.frame(0, 4), TABLE, offsets=at(0, 4)))
    teller.run.append(teller.frame(50, 52), TABLE, offsets=odi.once("between"))
    with odi.run(JOB, lake=lake) as run:
        assert len(eyes.rows(TABLE)) == 6, "rolled forward at the start of the run"
        receipt = run.append(teller.frame(0, 4), TABLE, offsets=at(0, 4))
        assert not receipt.fresh
        check_landed(eyes, lake.ledger(), receipt, "append")
    cut(
        "gated",
        lambda run: run.upsert(teller.frame(2, 8), TABLE, key=["id"], offsets=at(4, 8)),
    )
    teller.run.append(teller.frame(60, 61), TABLE, offsets=odi.once("again between"))
    ((action, reason),) = planned(lake)
    assert action is Action.ABANDON
    assert "moved" in reason
    with odi.run(JOB, lake=lake) as run:
        assert run.upsert(teller.frame(2, 8), TABLE, key=["id"], offsets=at(4, 8)).fresh
    assert [row[0] for row in eyes.rows(TABLE)] == sorted([*range(8), 50, 51, 60], key=str)
    assert lake.ledger().open_intents() == []


def test_a_replay_that_is_reconciled_does_not_turn_the_position_back(
    lake: Workspace, teller: Teller, cut: Callable[..., None]
) -> None:
    with odi.run(JOB, lake=lake) as run:
        run.append(teller.frame(0, 8), TABLE, offsets=at(0, 8))
    for number, point in enumerate(["gated", "published:0"], start=1):
        cut(
            point,
            lambda run, number=number: run.upsert(
                teller.frame(0, 2), TABLE, key=["id"], offsets=at(0, 2), generation=number
            ),
        )
        assert applied(lake)[0] in {Action.ROLL_FORWARD, Action.RECORD}
        assert position(lake) == 8
    with odi.run(JOB, lake=lake) as run:
        assert run.append(teller.frame(8, 9), TABLE, offsets=at(8, 9)).fresh


def test_what_makes_no_snapshot_is_settled_too(
    lake: Workspace, teller: Teller, cut: Callable[..., None]
) -> None:
    eyes = Eyes.on(lake.root)
    for point, work, kind in (
        ("intended", lambda run: run.create_table("sales.new", COLUMNS), Kind.ABANDONED),
        ("published:0", lambda run: run.create_table("sales.new", COLUMNS), Kind.TABLE_CREATED),
        ("staged", lambda run: run.evolve_schema(TABLE, add={"x": "int"}), Kind.ABANDONED),
        ("published:0", lambda run: run.evolve_schema(TABLE, add={"x": "int"}), Kind.SCHEMA_CHANGE),
    ):
        cut(point, work)
        applied(lake)
        assert lake.ledger().open_intents() == []
        last = lake.ledger().get(lake.ledger().head().size - 1)
        assert (last.kind, last.settles) == (kind, True)
    assert [field.name for field in eyes.table(TABLE).schema().fields][-1] == "x"
    first = teller.run.append(
        teller.frame(0, 2).selectExpr("*", "1 AS x"), TABLE, offsets=odi.once("1")
    )
    second = teller.run.append(
        teller.frame(2, 4).selectExpr("*", "1 AS x"), TABLE, offsets=odi.once("2")
    )
    cut("published:0", lambda run: run.rollback(TABLE, to_snapshot=first.snapshot))
    assert applied(lake) == [Action.RECORD]
    last = lake.ledger().get(lake.ledger().head().size - 1)
    assert last.kind is Kind.ROLLBACK
    assert last.facts["undone"] == [second.batch]


def test_the_command_plans_and_with_apply_settles(
    lake: Workspace,
    teller: Teller,
    cut: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    cut("published:0", lambda run: run.append(teller.frame(0, 4), TABLE, offsets=at(0, 4)))
    at_lake = ["--lake", str(lake.root), "--json"]
    command(["reconcile", *at_lake])
    assert '"record-landed"' in capsys.readouterr().out
    assert len(lake.ledger().open_intents()) == 1
    assert command(["reconcile", "--apply", *at_lake]) == 0
    assert lake.ledger().open_intents() == []
