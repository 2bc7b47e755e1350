"""The crash matrix with nothing shared: every child has a JVM of its own, and both are killed.

``tests/crash`` runs the whole matrix on a JVM that outlives its children. Here all cases share one
lake and have tables and jobs of their own. Two children run at a time; each one that starts
reconciles, as any run does, what the ones before it left. At the end one process starts every job
again, and the independent checker judges the lake.
"""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from odi_audit.errors import Exit
from odi_audit.workspace import Workspace
from tests.support.cases import CASES, NOT_YET_GATED, WITHOUT_SNAPSHOT, Case, case, rows
from tests.support.checker import Place, by_kind, kinds, read_ledger
from tests.support.children import nursery
from tests.support.joining import address, on
from tests.support.scene import Scene
from tests.support.work import Work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT_A_TIME = 2
EVERYWHERE = {"append", "two_tables"}
TWICE = {"upsert", "update", "compact", "rollback"}
BEFORE_AND_AFTER = {"staged", "published:0"}
"""One of each kind: what these do to a dying JVM, the others do too; tests/crash has them all."""
COPIES = 8


@pytest.fixture
def scene(jvm: SparkSession, tmp_path: Path) -> Iterator[Scene]:
    with Workspace.init(tmp_path / "lake") as lake:
        place = Place.embedded(lake.root)
        with nursery(lake.root, tmp_path / "children", joins=address(jvm)) as children:
            yield Scene(lake=lake, spark=on(jvm, lake), children=children, place=place)


@pytest.mark.timeout(3600)
def test_operations_killed_with_their_jvm_are_finished_by_starting_again(
    scene: Scene,
) -> None:
    cases = {
        (op, point): prepared(scene, op, case(op, point))
        for op, point in CASES
        if op in EVERYWHERE or (op in TWICE and point in BEFORE_AND_AFTER)
    }

    def kill(item: tuple[tuple[str, str], Case]) -> str:
        (op, point), made = item
        dead = scene.children.start(made.killed, kill_at=point, own_jvm=True)
        status = dead.wait()
        if status == -signal.SIGKILL and dead.fired == point:
            return ""
        return f"{op} was not killed at {point}: {status}, {dead.said()}"

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        not_killed = [told for told in pool.map(kill, cases.items()) if told]
    assert not_killed == []
    scene.reconcile()
    fresh = {key: finished(scene, key[0], made) for key, made in cases.items()}
    assert fresh == {
        (op, point): None if op in WITHOUT_SNAPSHOT else point in NOT_YET_GATED
        for op, point in cases
    }
    assert scene.problems() == []


def prepared(scene: Scene, op: str, made: Case) -> Case:
    """Do what comes before the kill; a rollback is told where to."""
    receipts = [scene.do(work) for work in made.before]
    if op != "rollback":
        return made
    killed = dataclasses.replace(made.killed, to_snapshot=str(receipts[1].snapshot))
    return dataclasses.replace(made, killed=killed)


def finished(scene: Scene, op: str, made: Case) -> bool | None:
    """Start the job again, as its owner would; says whether that made the batch land."""
    name = made.tables[0]
    if op == "evolve_schema":
        if "note" not in scene.spark.table(f"lake.{name}").columns:
            scene.do_again(made.killed)
        assert "note" in scene.spark.table(f"lake.{name}").columns
        return None
    if op == "rollback":
        del scene.state[name]
        for work in made.before[:2]:
            scene.counted(work)
        if scene.rows(name) != sorted(scene.state[name].values()):
            scene.do_again(made.killed)
        return None
    receipt = scene.do(made.killed)
    return None if op in WITHOUT_SNAPSHOT else receipt.fresh


@pytest.mark.timeout(900)
def test_of_eight_copies_with_a_jvm_each_one_lands_and_seven_are_told_so(
    scene: Scene, tmp_path: Path
) -> None:
    scene.do(Work(job="zombies/setup", op="create_table", table="z.copies"))
    offsets = ("src", 0, 20)
    work = Work(job="z/job", op="append", table="z.copies", rows=rows(0, 20, "a"), offsets=offsets)
    gate = tmp_path / "gate"
    copies = [
        scene.children.start(work, wait_at="gated", gate=gate, own_jvm=True) for _ in range(COPIES)
    ]
    for copy in copies:
        copy.wait_for("waiting")
    gate.touch()
    assert [copy.wait() for copy in copies] == [0] * COPIES, [copy.said() for copy in copies]
    receipts = [copy.receipt for copy in copies if copy.receipt is not None]
    assert sorted(receipt["fresh"] for receipt in receipts) == [False] * (COPIES - 1) + [True]
    scene.counted(work)
    assert scene.problems() == []
    assert kinds(read_ledger(scene.place.ledger), receipts[0]["batch"]).count("landed") == 1


@pytest.mark.parametrize("op", ["append", "upsert"])
def test_a_batch_whose_jvm_dies_before_it_publishes_lands_once_when_started_again(
    scene: Scene, op: str
) -> None:
    scene.do(Work(job="jvm/setup", op="create_table", table="j.dies"))
    offsets = ("src", 0, 20)
    work = Work(job="jvm/dies", op=op, table="j.dies", rows=rows(0, 20, "a"), offsets=offsets)
    child = scene.children.start(work, kill_jvm_at="gated", own_jvm=True)
    assert child.wait() == Exit.UNKNOWN, child.said()
    assert child.fired == "gated"
    assert child.receipt is None
    scene.counted(work)
    scene.do_again(work)
    assert scene.problems() == []
    assert len(by_kind(read_ledger(scene.place.ledger))["landed"]) == 1
