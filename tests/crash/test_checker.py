"""The checker is checked: each broken promise that is made by hand is found."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from odi_audit.model.tables import parse
from tests.support.cases import rows
from tests.support.checker import judge
from tests.support.work import Where, Work

if TYPE_CHECKING:
    from tests.support.scene import Scene


def ready(scene: Scene, name: str) -> None:
    job, given = f"checked/{name.replace('.', '_')}", rows(0, 4, "a")
    scene.do(Work(job=job, op="create_table", table=name))
    scene.do(Work(job=job, op="append", table=name, rows=given, offsets=("src", 0, 4)))
    assert scene.problems(name) == []


def found(scene: Scene, name: str, *words: str) -> bool:
    """Whether some problem holds every word."""
    told = scene.problems(name)
    return any(all(word in problem for word in words) for problem in told)


def test_rows_that_are_missing_or_too_many_are_found(scene: Scene) -> None:
    ready(scene, "k.rows")
    have = scene.state["k.rows"]
    more = judge(scene.place, {"k.rows": {**have, 9: (9, 1, "x")}})
    less = judge(scene.place, {"k.rows": {key: row for key, row in have.items() if key}})
    assert "rows missing {(9, 1, 'x'): 1}" in more[0]
    assert "rows too many {(0, 0, 'a-0'): 1}" in less[0]


def test_a_write_past_the_committer_is_found(scene: Scene) -> None:
    ready(scene, "k.foreign")
    scene.spark.sql("INSERT INTO lake.k.foreign VALUES (9, 1, 'x')")
    assert found(scene, "k.foreign", "rows too many")
    assert found(scene, "k.foreign", "lacks", "odi.batch-id")
    assert found(scene, "k.foreign", "has no landed entry")


def test_a_batch_that_stands_twice_in_history_is_found(scene: Scene) -> None:
    ready(scene, "k.twice")
    snapshots = scene.lake.catalog().load(parse("k.twice")).snapshots
    stamps = {key: text for key, text in snapshots[-1].summary.items() if key.startswith("odi.")}
    writer = scene.spark.sql("SELECT CAST(8 AS bigint) id, 0 part, 'x' v").writeTo("lake.k.twice")
    for key, value in stamps.items():
        writer = writer.option(f"snapshot-property.{key}", value)
    writer.append()
    assert found(scene, "k.twice", "is 2 times in main's history")


def test_a_landing_that_is_no_longer_on_main_is_found(scene: Scene) -> None:
    ready(scene, "k.gone")
    job, given = "checked/k_gone", rows(4, 8, "b")
    scene.do(Work(job=job, op="append", table="k.gone", rows=given, offsets=("src", 4, 8)))
    first = scene.lake.catalog().load(parse("k.gone")).snapshots[0].id
    scene.spark.sql(f"CALL lake.system.rollback_to_snapshot('k.gone', {first})")
    assert found(scene, "k.gone", "is landed, but", "is not on main")


def test_a_file_that_only_an_old_snapshot_needs_is_missed(scene: Scene) -> None:
    ready(scene, "k.file")
    job, name = "checked/k_file", "k.file"
    data = scene.spark.sql("SELECT file_path FROM lake.k.file.files").collect()
    scene.do(Work(job=job, op="delete", table=name, where=Where(part=0), once="0"))
    scene.do(Work(job=job, op="delete", table=name, where=Where(part=1), once="1"))
    Path(str(data[0][0]).removeprefix("file:")).unlink()
    assert found(scene, name, "needs", str(data[0][0]))


def test_an_intent_that_is_left_open_is_found(scene: Scene) -> None:
    ready(scene, "k.open")
    job, given = "checked/k_open", rows(4, 8, "b")
    work = Work(job=job, op="append", table="k.open", rows=given, offsets=("src", 4, 8))
    dead = scene.children.start(work, kill_at="intended")
    dead.wait()
    assert dead.fired == "intended"
    assert found(scene, "k.open", "was settled 0 times")
    assert found(scene, "k.open", "run", "was ended 0 times")
