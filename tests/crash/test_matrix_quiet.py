"""The crash matrix of what makes no snapshot: DDL, rollback, expiry, drop, rename."""

from __future__ import annotations

import dataclasses
import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.cases import POINTS, case, rows
from tests.support.checker import by_kind, read_ledger
from tests.support.work import Work

if TYPE_CHECKING:
    from tests.support.scene import Scene


@pytest.mark.parametrize("point", POINTS["create_table"])
def test_a_table_whose_creation_was_killed_is_there_once_and_recorded_once(
    scene: Scene, point: str
) -> None:
    made = case("create_table", point)
    dead = scene.children.start(made.killed, kill_at=point)
    assert dead.wait() == -signal.SIGKILL, dead.said()
    assert dead.fired == point
    scene.do(made.killed)
    assert scene.problems(*made.tables) == []


@pytest.mark.parametrize("point", POINTS["evolve_schema"])
def test_a_schema_change_that_was_killed_is_made_once_and_recorded_once(
    scene: Scene, point: str
) -> None:
    made = case("evolve_schema", point)
    for work in made.before:
        scene.do(work)
    dead = scene.children.start(made.killed, kill_at=point)
    assert dead.wait() == -signal.SIGKILL, dead.said()
    assert dead.fired == point
    name = made.tables[0]
    changed = "note" in scene.spark.table(f"lake.{name}").columns
    assert changed == ("published:0" in dead.road)
    scene.reconcile()
    if not changed:
        scene.do(made.killed)
    assert "note" in scene.spark.table(f"lake.{name}").columns
    assert scene.problems(name) == []
    changes = by_kind(read_ledger(scene.place.ledger))["schema-change"]
    assert [entry["table"]["name"] for entry in changes].count(name) == 1


@pytest.mark.parametrize("point", POINTS["rollback"])
def test_a_rollback_that_was_killed_happens_once_and_names_what_it_undid(
    scene: Scene, point: str
) -> None:
    made = case("rollback", point)
    receipts = [scene.do_again(work) for work in made.before]
    name = made.tables[0]
    killed = dataclasses.replace(made.killed, to_snapshot=str(receipts[1].snapshot))
    dead = scene.children.start(killed, kill_at=point)
    assert dead.wait() == -signal.SIGKILL, dead.said()
    assert dead.fired == point
    for work in made.before[:2]:
        scene.counted(work)
    done = scene.rows(name) == sorted(scene.state[name].values())
    assert done == ("published:0" in dead.road)
    scene.reconcile()
    if not done:
        scene.do(killed)
    assert scene.problems(name) == []
    rollbacks = by_kind(read_ledger(scene.place.ledger))["rollback"]
    undone = [entry["facts"]["undone"] for entry in rollbacks if entry["table"]["name"] == name]
    assert undone == [[receipts[2].batch]]


@pytest.mark.parametrize("point", POINTS["expire"])
def test_an_expiry_that_was_killed_leaves_the_facts_of_every_snapshot_in_the_ledger(
    scene: Scene, point: str
) -> None:
    made = case("expire", point)
    receipts = [scene.do(work) for work in made.before]
    name = made.tables[0]
    dead = scene.children.start(made.killed, kill_at=point)
    assert dead.wait() == -signal.SIGKILL, dead.said()
    assert dead.fired == point
    scene.do(made.killed)
    assert scene.problems(name) == []
    entries = by_kind(read_ledger(scene.place.ledger))["maintenance"]
    expired = [
        snapshot
        for entry in entries
        if entry["table"]["name"] == name
        for snapshot in entry["facts"]["expired"]
    ]
    assert expired == [receipts[1].snapshot]


@pytest.mark.parametrize("point", POINTS["drop_table"])
def test_a_drop_that_was_killed_is_settled_by_looking_and_a_new_table_of_the_name_begins_afresh(
    scene: Scene, point: str
) -> None:
    made = case("drop_table", point)
    created, _ = (scene.do(work) for work in made.before)
    name, uuid = made.tables[0], created.landing.table.uuid
    dead = scene.children.start(made.killed, kill_at=point)
    assert dead.wait() == -signal.SIGKILL, dead.said()
    assert dead.fired == point
    left = uuid if "published:0" not in dead.road else None
    assert scene.uuid(name) == left
    scene.reconcile()
    assert scene.uuid(name) == left, "settling drops nothing"
    if left is not None:
        assert scene.problems(name) == []
        scene.do(made.killed)
        assert scene.uuid(name) is None
    else:
        scene.counted(made.killed)
    again = [scene.do(work) for work in made.before]
    assert all(receipt.fresh for receipt in again)
    assert scene.uuid(name) not in {None, uuid}
    assert scene.problems(name) == []
    entries = read_ledger(scene.place.ledger)
    drops = [entry for entry in by_kind(entries)["table-dropped"] if entry["table"]["name"] == name]
    assert [entry["table"]["uuid"] for entry in drops] == [uuid]


@pytest.mark.parametrize("point", POINTS["rename_table"])
def test_a_rename_that_was_killed_is_settled_by_looking_and_its_job_goes_on_under_the_new_name(
    scene: Scene, point: str
) -> None:
    made = case("rename_table", point)
    created, _ = (scene.do(work) for work in made.before)
    (name, to), uuid = made.tables, created.landing.table.uuid
    dead = scene.children.start(made.killed, kill_at=point)
    assert dead.wait() == -signal.SIGKILL, dead.said()
    assert dead.fired == point
    renamed = "published:0" in dead.road
    left = (None, uuid) if renamed else (uuid, None)
    assert (scene.uuid(name), scene.uuid(to)) == left
    scene.reconcile()
    assert (scene.uuid(name), scene.uuid(to)) == left, "settling renames nothing"
    if not renamed:
        assert scene.problems(name) == []
    receipt = scene.do(made.killed)
    assert (receipt.fresh, receipt.landing.table.uuid) == (not renamed, uuid)
    assert (scene.uuid(name), scene.uuid(to)) == (None, uuid)
    more, job = rows(10, 20, "b"), made.killed.job
    following = Work(job=job, op="append", table=to, rows=more, offsets=("src", 10, 20))
    assert scene.do(following).fresh
    assert scene.problems(to) == []
    entries = by_kind(read_ledger(scene.place.ledger))["table-renamed"]
    told = [entry for entry in entries if entry["table"]["uuid"] == uuid]
    names = [(entry["facts"]["from_name"], entry["facts"]["to_name"]) for entry in told]
    assert names == [(name, to)], "once, whoever recorded it"
