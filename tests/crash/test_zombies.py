"""Zombies: copies of one job that are all alive at once, and others that only seem dead.

Every copy is a real process. They wait for each other at the last point before publishing, and
are then let go together.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import odi_audit as odi
from odi_audit.committer import records
from tests.support.cases import rows
from tests.support.checker import by_kind, kinds, read_ledger
from tests.support.work import Work, carry_out

if TYPE_CHECKING:
    from tests.support.children import Child
    from tests.support.scene import Scene

COPIES = 8


def created(scene: Scene, name: str) -> str:
    scene.do(Work(job="zombies/setup", op="create_table", table=name))
    return name


def let_go(children: list[Child], gate: Path) -> None:
    """Open the gate once everybody waits at it, and wait for their ends."""
    for child in children:
        child.wait_for("waiting")
    gate.touch()
    for child in children:
        child.wait()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("op", ["append", "upsert"])
def test_of_eight_copies_of_a_batch_one_lands_and_seven_are_told_so(
    scene: Scene, tmp_path: Path, op: str
) -> None:
    name = created(scene, f"z.copies_{op}")
    job, offsets = f"z/copies_{op}", ("src", 0, 20)
    work = Work(job=job, op=op, table=name, rows=rows(0, 20, "a"), offsets=offsets)
    gate = tmp_path / "gate"
    copies = [scene.children.start(work, wait_at="gated", gate=gate) for _ in range(COPIES)]
    let_go(copies, gate)
    assert [copy.process.returncode for copy in copies] == [0] * COPIES, [
        copy.said() for copy in copies if copy.process.returncode
    ]
    receipts = [copy.receipt for copy in copies if copy.receipt is not None]
    assert sorted(receipt["fresh"] for receipt in receipts) == [False] * (COPIES - 1) + [True]
    assert len({tuple(receipt["snapshots"]) for receipt in receipts}) == 1
    scene.counted(work)
    assert scene.problems(name) == []
    found = kinds(read_ledger(scene.place.ledger), receipts[0]["batch"])
    assert found.count("landed") == 1
    assert found.count("intent") == COPIES


@pytest.mark.parametrize("op", ["append", "upsert"])
def test_copies_that_all_died_before_publishing_are_settled_together(
    scene: Scene, tmp_path: Path, op: str
) -> None:
    name = created(scene, f"z.all_dead_{op}")
    job, offsets = f"z/all_dead_{op}", ("src", 0, 20)
    work = Work(job=job, op=op, table=name, rows=rows(0, 20, "a"), offsets=offsets)
    never = tmp_path / "never"
    copies = [scene.children.start(work, wait_at="gated", gate=never) for _ in range(3)]
    for copy in copies:
        copy.wait_for("waiting")
    for copy in copies:
        copy.kill()
    scene.reconcile()
    scene.counted(work)
    assert scene.problems(name) == []
    assert scene.do_again(work).fresh is False


def test_of_two_copies_with_overlapping_offsets_one_lands_and_the_other_is_refused(
    scene: Scene, tmp_path: Path
) -> None:
    name = created(scene, "z.overlap")
    works = [
        Work(
            job="z/overlap", op="append", table=name, rows=rows(0, end, "a"),
            offsets=("src", 0, end),
        )
        for end in (100, 150)
    ]  # fmt: skip
    gate = tmp_path / "gate"
    copies = [scene.children.start(work, wait_at="gated", gate=gate) for work in works]
    let_go(copies, gate)
    ends = sorted((copy.result or {})["kind"] for copy in copies)
    assert ends == ["", "OffsetOverlap"], [copy.said() for copy in copies]
    winner = next(work for work, copy in zip(works, copies, strict=True) if copy.receipt)
    scene.counted(winner)
    assert scene.problems(name) == []


def test_what_a_dead_copy_had_staged_does_not_roll_over_what_its_living_copy_has_landed(
    scene: Scene, tmp_path: Path
) -> None:
    name = created(scene, "z.outrun")
    slow, fast = (
        Work(
            job="z/outrun", op="append", table=name, rows=rows(0, end, "a"),
            offsets=("src", 0, end),
        )
        for end in (100, 150)
    )  # fmt: skip
    stopped = scene.children.start(slow, wait_at="gated", gate=tmp_path / "never")
    stopped.wait_for("waiting")
    scene.do(fast)
    stopped.kill()
    assert stopped.wait() == -signal.SIGKILL
    after = Work(
        job="z/outrun", op="append", table=name, rows=rows(150, 160, "b"),
        offsets=("src", 150, 160),
    )  # fmt: skip
    scene.do(after)
    assert scene.problems(name) == []


def test_a_process_that_was_taken_for_dead_lands_once_and_is_recorded(
    scene: Scene,
) -> None:
    """Its hold on the ledger is lost, as when a connection breaks; it itself goes on."""
    name = created(scene, "z.taken_for_dead")
    work = Work(
        job="z/undead", op="append", table=name, rows=rows(0, 10, "a"), offsets=("src", 0, 10)
    )
    settled: list[str] = []

    def lose_the_hold(point: str) -> None:
        if point == "staged":
            for held in (scene.lake.root / "ledger.db.live").iterdir():
                held.unlink()
            with (
                odi.Workspace.find(scene.lake.root) as other,
                odi.run("z/other", lake=other, spark=scene.spark),
            ):
                settled.append(point)

    with odi.run(work.job, lake=scene.lake, spark=scene.spark, reach=lose_the_hold) as run:
        receipt = carry_out(run, work)
    assert settled == ["staged"]
    scene.counted(work)
    found = kinds(read_ledger(scene.place.ledger), receipt.batch)
    assert "abandoned" in found, "the fault did not fire"
    assert scene.do_again(work).fresh is False
    assert scene.problems(name) == []


def test_a_commit_that_outlives_its_process_is_found_by_the_next_attempt(
    scene: Scene,
) -> None:
    """A JVM may finish a publish after its Python process, and its intent, have been buried."""
    name = created(scene, "z.late")
    work = Work(
        job="z/late", op="append", table=name, rows=rows(0, 10, "a"), offsets=("src", 0, 10)
    )
    dead = scene.children.start(work, kill_at="published:0")
    assert dead.wait() == -signal.SIGKILL
    assert dead.fired == "published:0"
    intent = by_kind(read_ledger(scene.place.ledger))["intent"][-1]
    assert intent["table"]["name"] == name
    # What reconcile would have written, had it looked a moment before the publish was done.
    ledger = scene.lake.ledger()
    ledger.append(records.abandoned(ledger.get(intent["index"]), "looked too early"))
    scene.counted(work)
    assert scene.do_again(work).fresh is False
    assert scene.problems(name) == []
