"""The workspace: found from anywhere inside, made once, and opened part by part."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from odi_audit.errors import ConfigError, LakeExists, LakeNotFound, StorageError
from odi_audit.workspace import Choices, Workspace, find_root

Make = Callable[..., Workspace]


def test_init_makes_everything_and_keeps_the_key_private(make_lake: Make) -> None:
    lake = make_lake()
    for name in ("odi.toml", "catalog.db", "ledger.db", "keys/ledger.key", "warehouse", "heads"):
        assert (lake.root / name).exists(), name
    assert stat.S_IMODE((lake.root / "keys/ledger.key").stat().st_mode) == 0o600
    assert lake.signing_key().verifier.name == lake.settings.ledger.origin
    assert lake.ledger().head().size == 0
    assert lake.catalog().tables() == []


def test_the_catalog_is_empty_v1_and_lets_readers_read_while_it_is_written(make_lake: Make) -> None:
    lake = make_lake()
    with closing(sqlite3.connect(lake.root / "catalog.db")) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        columns = [row[1] for row in connection.execute("PRAGMA table_info(iceberg_tables)")]
    assert "iceberg_type" in columns


def test_a_second_init_in_the_same_folder_is_refused_and_changes_nothing(make_lake: Make) -> None:
    lake = make_lake()
    before = {path: path.read_bytes() for path in lake.root.rglob("*") if path.is_file()}
    with pytest.raises(LakeExists):
        Workspace.init(lake.root)
    assert {path: path.read_bytes() for path in before} == before


def test_an_init_that_was_cut_short_can_be_run_again_and_keeps_its_key(make_lake: Make) -> None:
    lake = make_lake()
    key = lake.signing_key().verifier.text
    lake.close()
    (lake.root / "odi.toml").rename(lake.root / ".odi.toml.draft")
    again = Workspace.init(lake.root)
    assert again.signing_key().verifier.text == key
    assert again.settings.ledger.origin == again.signing_key().verifier.name
    again.close()


def test_a_refused_choice_leaves_no_folder_behind(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="address"):
        Workspace.init(tmp_path / "x", choices=Choices(catalog_type="postgresql"))
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "choices",
    [
        Choices(catalog_type="postgresql", catalog_uri="postgresql://u:hunter22@h/d"),
        Choices(ledger_url="postgresql://u:hunter22@h/d"),
    ],
)
def test_a_password_is_never_written_into_the_file(tmp_path: Path, choices: Choices) -> None:
    with pytest.raises(ConfigError, match="password") as caught:
        Workspace.init(tmp_path / "x", choices=choices)
    assert "hunter22" not in str(caught.value)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("name", ['quo"te', "back\\slash", "Ünïcode 湖", "plus+space here"])
def test_odd_names_are_written_so_that_they_read_back_the_same(tmp_path: Path, name: str) -> None:
    with Workspace.init(tmp_path / "a b ü", name=name) as lake:
        assert lake.settings.lake.name == name
        assert lake.ledger().head().size == 0


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="cannot be made"):
        Workspace.init(tmp_path / "file" / "lake")


def test_a_lake_is_found_upwards_from_any_folder_inside(make_lake: Make) -> None:
    lake = make_lake()
    deep = lake.root / "warehouse" / "x" / "y"
    deep.mkdir(parents=True)
    assert find_root(None, env={}, cwd=deep) == lake.root


def test_an_option_wins_over_the_variable_which_wins_over_the_folder(make_lake: Make) -> None:
    one, two, three = make_lake("one"), make_lake("two"), make_lake("three")
    env = {"ODI_LAKE": str(two.root)}
    assert find_root(one.root, env=env, cwd=three.root) == one.root
    assert find_root(None, env=env, cwd=three.root) == two.root
    assert find_root(None, env={}, cwd=three.root) == three.root


def test_a_named_folder_that_is_no_lake_is_not_searched_upwards(make_lake: Make) -> None:
    lake = make_lake()
    with pytest.raises(LakeNotFound, match="warehouse"):
        find_root(lake.root / "warehouse", env={}, cwd=lake.root)


def test_no_lake_anywhere_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(LakeNotFound) as caught:
        find_root(None, env={}, cwd=tmp_path)
    assert "odi-audit init" in str(caught.value.hint)
    assert caught.value.exit_status == 3


def test_parts_are_opened_once(make_lake: Make) -> None:
    lake = make_lake()
    assert lake.ledger() is lake.ledger()
    assert lake.catalog() is lake.catalog()


def test_the_key_may_come_from_the_environment(make_lake: Make) -> None:
    lake = make_lake()
    text = (lake.root / "keys/ledger.key").read_text("utf-8").strip()
    (lake.root / "keys/ledger.key").unlink()
    found = Workspace.find(lake.root, env={"ODI_LEDGER__KEY": text})
    assert found.signing_key().verifier.name == lake.settings.ledger.origin


def test_finding_a_lake_imports_neither_spark_nor_pyiceberg_nor_pyarrow(
    make_lake: Make, run_python: Callable[[str], str]
) -> None:
    lake = make_lake()
    heavy = "{'pyspark', 'pyiceberg', 'pyarrow', 'structlog', 'psycopg', 'jgo'}"
    found = run_python(
        "import sys\nfrom pathlib import Path\nfrom odi_audit.workspace import Workspace\n"
        f"Workspace.find(Path({str(lake.root)!r})).ledger(read_only=True).head()\n"
        f"print(sorted({heavy} & set(sys.modules)))"
    )
    assert found.strip() == "[]"
