"""init, config, spark-conf, version, doctor: what they print and how they end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odi_audit.cli import app
from odi_audit.workspace import Workspace

Make = Callable[..., Workspace]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run a command with --json and return its data, checking schema and exit status."""

    def run(*args: str, schema: str, status: int = 0) -> Any:
        assert app.run([*args, "--json"]) == status
        answer = json.loads(capsys.readouterr().out)
        assert answer["schema"] == schema
        return answer["data"]

    return run


def test_init_says_where_everything_is(tmp_path: Path, ask: Callable[..., Any]) -> None:
    data = ask("init", str(tmp_path / "lake"), schema="odi.init/1")
    assert data["root"] == str(tmp_path / "lake")
    assert Path(data["key"]).is_file()
    assert Path(data["catalog"]).is_file()


def test_init_in_words_ends_with_the_next_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(["init", str(tmp_path / "lake")]) == 0
    assert capsys.readouterr().out.rstrip().endswith(f"odi-audit doctor --lake {tmp_path / 'lake'}")


def test_init_twice_is_a_conflict(make_lake: Make, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["init", str(make_lake().root)]) == 6
    assert "ODI-S03" in capsys.readouterr().err


def test_config_shows_each_value_with_its_origin_and_masks_secrets(
    make_lake: Make, ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = make_lake()
    monkeypatch.setenv("ODI_CATALOG__PASSWORD", "hunter22")
    monkeypatch.setenv("ODI_LOG__LEVEL", "error")
    data = ask("config", "--lake", str(lake.root), schema="odi.config/1")
    rows = {row["key"]: (row["value"], row["origin"]) for row in data["settings"]}
    assert rows["log.level"] == ("error", "environment ODI_LOG__LEVEL")
    assert rows["catalog.password"] == ("***", "environment ODI_CATALOG__PASSWORD")
    assert rows["catalog.type"] == ("sqlite", "odi.toml")
    assert rows["limits.stage_attempts_max"] == (5, "default")


def test_config_keys_names_the_variable_of_each_key(ask: Callable[..., Any]) -> None:
    assert ask("config", "--keys", schema="odi.config.keys/1")["catalog.type"] == (
        "ODI_CATALOG__TYPE"
    )


def test_config_finds_the_lake_by_the_variable(
    make_lake: Make, ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = make_lake()
    monkeypatch.setenv("ODI_LAKE", str(lake.root))
    assert ask("config", schema="odi.config/1")["root"] == str(lake.root)


def test_spark_conf_masks_the_password_unless_asked_for(
    make_lake: Make, ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = make_lake()
    monkeypatch.setenv("ODI_CATALOG__TYPE", "postgresql")
    monkeypatch.setenv("ODI_CATALOG__URI", "postgresql://u@h/d")
    monkeypatch.setenv("ODI_CATALOG__PASSWORD", "hunter22")
    key = "spark.sql.catalog.lake.jdbc.password"
    args = ("spark-conf", "--lake", str(lake.root))
    assert ask(*args, schema="odi.spark-conf/1")[key] == "***"
    assert ask(*args, "--show-secrets", schema="odi.spark-conf/1")[key] == "hunter22"


def test_spark_conf_in_words_is_a_file_that_spark_submit_reads(
    make_lake: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = make_lake("a lake with spaces")
    assert app.run(["spark-conf", "--lake", str(lake.root)]) == 0
    lines = capsys.readouterr().out.splitlines()
    conf = dict(line.split(" ", 1) for line in lines)
    assert conf["spark.sql.catalog.lake.uri"] == f"jdbc:sqlite:{lake.root / 'catalog.db'}"
    assert lines == sorted(lines)


def test_version_names_the_parts(ask: Callable[..., Any]) -> None:
    assert ask("version", schema="odi.version/1")["pyspark"] == "4.1.3"


def test_doctor_without_spark_finds_a_new_lake_healthy(
    make_lake: Make, ask: Callable[..., Any]
) -> None:
    lake = make_lake()
    data = ask("doctor", "--no-spark", "--lake", str(lake.root), schema="odi.doctor/1")
    assert data["healthy"]
    states = {check["name"]: check["state"] for check in data["checks"]}
    assert states.pop("jars") in {"ok", "warn"}
    assert set(states) == {
        "python", "java", "disk", "warehouse", "catalog", "catalog cache", "ledger", "key", "clock",
    }  # fmt: skip


def broken_key(lake: Workspace) -> None:
    (lake.root / "keys/ledger.key").chmod(0o644)


def foreign_key(lake: Workspace) -> None:
    text = (lake.root / "odi.toml").read_text("utf-8")
    (lake.root / "odi.toml").write_text(text.replace("odi-audit.local", "other.local"), "utf-8")


def lost_catalog(lake: Workspace) -> None:
    (lake.root / "catalog.db").unlink()


def damaged_catalog(lake: Workspace) -> None:
    (lake.root / "catalog.db").write_bytes(b"this is no database, whatever its name says" * 100)


def lost_ledger(lake: Workspace) -> None:
    (lake.root / "ledger.db").unlink()


def lost_warehouse(lake: Workspace) -> None:
    (lake.root / "warehouse").rmdir()


def cached_catalog(lake: Workspace) -> None:
    with (lake.root / "odi.toml").open("a", encoding="utf-8") as file:
        file.write('[catalog.properties]\ncache-enabled = "true"\n')


def old_java(lake: Workspace) -> None:
    text = (lake.root / "odi.toml").read_text("utf-8")
    new = '[spark]\njava_home = "/nowhere"\n'
    (lake.root / "odi.toml").write_text(text.replace("[spark]\n", new), "utf-8")


@pytest.mark.parametrize(
    ("harm", "name"),
    [
        (broken_key, "key"),
        (foreign_key, "key"),
        (lost_catalog, "catalog"),
        (damaged_catalog, "catalog"),
        (lost_ledger, "ledger"),
        (lost_warehouse, "warehouse"),
        (cached_catalog, "catalog cache"),
        (old_java, "java"),
    ],
)
def test_doctor_names_what_is_broken_with_a_remedy_and_ends_with_1(
    make_lake: Make, ask: Callable[..., Any], harm: Callable[[Workspace], None], name: str
) -> None:
    lake = make_lake()
    lake.close()
    harm(lake)
    data = ask("doctor", "--no-spark", "--lake", str(lake.root), schema="odi.doctor/1", status=1)
    failed = {check["name"]: check for check in data["checks"] if check["state"] == "fail"}
    assert name in failed
    assert failed[name]["remedy"]
    assert not data["healthy"]
