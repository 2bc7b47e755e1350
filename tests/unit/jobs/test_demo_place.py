"""The demo's folder: made anew when it is the demo's, never touched when it is not."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from jobs import demo_place
from jobs.demo import clean
from jobs.demo_place import MARKER, Place
from odi_audit.errors import LakeExists
from odi_audit.workspace import Workspace


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_a_demo_lake_is_made_anew(tmp_path: Path) -> None:
    root = tmp_path / "demo-lake"
    for _ in range(2):
        demo_place.clear(root)
        assert names(root) == [MARKER]
        Workspace.init(root).close()
        demo_place.write_orders(Place(root=root), 0)
    assert "ledger.db" in names(root)


def test_an_empty_folder_may_be_used(tmp_path: Path) -> None:
    demo_place.clear(tmp_path)
    assert names(tmp_path) == [MARKER]


def test_a_lake_that_no_demo_made_is_not_touched(tmp_path: Path) -> None:
    Workspace.init(tmp_path / "real").close()
    before = names(tmp_path / "real")
    with pytest.raises(LakeExists, match="no demo lake"):
        demo_place.clear(tmp_path / "real")
    assert names(tmp_path / "real") == before


def test_a_marker_with_other_content_is_no_marker(tmp_path: Path) -> None:
    (tmp_path / MARKER).write_text("something else", "utf-8")
    with pytest.raises(LakeExists):
        demo_place.clear(tmp_path)
    assert names(tmp_path) == [MARKER]


def test_a_demo_lake_with_a_file_of_somebody_else_is_not_touched(tmp_path: Path) -> None:
    demo_place.clear(tmp_path)
    (tmp_path / "notes.txt").write_text("precious", "utf-8")
    with pytest.raises(LakeExists, match=r"notes\.txt"):
        demo_place.clear(tmp_path)
    assert (tmp_path / "notes.txt").read_text("utf-8") == "precious"


def test_a_link_or_a_file_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    demo_place.clear(target)
    (tmp_path / "link").symlink_to(target)
    (tmp_path / "file").write_text("precious", "utf-8")
    for name in ("link", "file"):
        with pytest.raises(LakeExists):
            demo_place.clear(tmp_path / name)
    assert names(target) == [MARKER]


def test_the_orders_are_the_same_on_every_machine_and_no_id_comes_twice(tmp_path: Path) -> None:
    first, second = Place(root=tmp_path / "1"), Place(root=tmp_path / "2")
    files = [demo_place.write_orders(first, day) for day in range(4)]
    again = [demo_place.write_orders(second, day) for day in range(4)]
    assert [path.read_bytes() for path in files] == [path.read_bytes() for path in again]
    ids = [row["order_id"] for path in files for row in rows(path)]
    assert len(ids) == len(set(ids)) == 4 * demo_place.ORDERS_PER_FILE


def test_the_changes_name_each_order_once_and_the_traced_one_among_them(tmp_path: Path) -> None:
    changed = rows(demo_place.write_changes(Place(root=tmp_path)))
    ids = [int(row["order_id"]) for row in changed]
    assert len(ids) == len(set(ids))
    traced = next(row for row in changed if row["order_id"] == str(demo_place.TRACED_ORDER))
    assert traced["status"] == "shipped"
    assert [row["status"] for row in changed].count("withdrawn") == demo_place.WITHDRAWN_COUNT


def test_no_setting_of_another_lake_reaches_the_demo() -> None:
    given = {"PATH": "/bin", "ODI_LAKE": "/prod", "ODI_CATALOG__URI": "postgresql://prod/db"}
    kept = {"ODI_JARS_DIR": "/jars", "ODI_SPARK__JAVA_HOME": "/java"}
    assert clean({**given, **kept}) == {"PATH": "/bin", **kept}
