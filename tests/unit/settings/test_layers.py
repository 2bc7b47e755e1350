"""Settings: which layer wins, where each value came from, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from odi_audit.errors import ConfigError, LakeNotFound
from odi_audit.settings import Settings, known_keys, load, shown


def lake(tmp_path: Path, text: str = "") -> Path:
    (tmp_path / "odi.toml").write_text(text, "utf-8")
    return tmp_path


def test_a_flag_wins_over_the_environment_which_wins_over_the_file_which_wins_over_defaults(
    tmp_path: Path,
) -> None:
    root = lake(
        tmp_path, '[spark]\nmaster = "local[1]"\n[log]\nlevel = "error"\n[lake]\nname = "n"'
    )
    env = {"ODI_SPARK__MASTER": "local[2]", "ODI_LOG__LEVEL": "debug"}
    loaded = load(root, env, {"spark.master": "local[3]"})
    assert loaded.settings.spark.master == "local[3]"
    assert loaded.settings.log.level == "debug"
    assert loaded.settings.lake.name == "n"
    assert loaded.settings.catalog.type == "sqlite"
    assert loaded.origins["spark.master"] == "flag"
    assert loaded.origins["log.level"] == "environment ODI_LOG__LEVEL"
    assert loaded.origins["lake.name"] == "odi.toml"
    assert loaded.origins["catalog.type"] == "default"


def test_every_key_has_an_origin_and_a_shown_value(tmp_path: Path) -> None:
    loaded = load(lake(tmp_path), {})
    assert set(loaded.origins) == set(known_keys().all) == set(shown(loaded.settings))


@pytest.mark.parametrize(
    ("text", "env", "flags", "near"),
    [
        ('[catalog]\ntyp = "rest"', {}, {}, "catalog.type"),
        ('[catlog]\ntype = "rest"', {}, {}, "catalog"),
        ("", {"ODI_CATALOG__TYP": "rest"}, {}, "ODI_CATALOG__TYPE"),
        ("", {"ODI_LAKES": "x"}, {}, "ODI_LAKE"),
        ("", {}, {"ledger.ulr": "x"}, "ledger.url"),
    ],
)
def test_an_unknown_key_is_an_error_that_names_the_nearest(
    tmp_path: Path, text: str, env: dict[str, str], flags: dict[str, str], near: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(lake(tmp_path, text), env, flags)
    assert caught.value.facts["nearest"] == near
    assert near in caught.value.message


def test_the_root_cannot_be_set_because_it_is_where_the_file_is(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"lake\.root"):
        load(lake(tmp_path, '[lake]\nroot = "/elsewhere"'), {})


def test_variables_of_other_programs_and_of_tests_are_left_alone(tmp_path: Path) -> None:
    env = {"ODI_TEST_KILL": "publish", "ODI_DEBUG": "1", "ODI_LAKE": "x", "HOME": "/"}
    assert load(lake(tmp_path), env).settings == load(lake(tmp_path), {}).settings


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[limits]\nstage_attempts_max = 0", "limits.stage_attempts_max"),
        ('[catalog]\ntype = "hive"', "catalog.type"),
        ('[catalog]\nname = "two words"', "catalog.name"),
        ('[ledger]\norigin = "a+b"', "ledger.origin"),
        ('[ledger]\nurl = "mysql://h/d"', "ledger.url"),
        ('[catalog]\ntype = "postgresql"', "catalog.uri"),
        ('[catalog]\ntype = "rest"\nuri = "ftp://x"', "catalog.uri"),
        ("[spark]\nconf = 3", "spark.conf"),
        ("catalog = 3", "catalog is a section"),
        ("[catalog", "is not TOML"),
    ],
)
def test_a_wrong_value_is_an_error_that_names_its_key(tmp_path: Path, text: str, word: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(lake(tmp_path, text), {})
    assert word in caught.value.message
    assert caught.value.exit_status == 3


def test_a_wrong_secret_is_not_repeated_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(lake(tmp_path, '[catalog]\npassword = ["hunter22"]'), {})
    assert "hunter22" not in str(caught.value)


def test_a_map_from_the_environment_is_json(tmp_path: Path) -> None:
    root = lake(tmp_path)
    env = {"ODI_SPARK__CONF": '{"spark.sql.ansi.enabled": "false"}'}
    assert load(root, env).settings.spark.conf == {"spark.sql.ansi.enabled": "false"}
    with pytest.raises(ConfigError, match="JSON object"):
        load(root, {"ODI_SPARK__CONF": "a=b"})


def test_relative_paths_are_of_the_lake_and_not_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = lake(tmp_path)
    monkeypatch.chdir("/")
    settings = load(root, {"ODI_JARS_DIR": "jars"}).settings
    assert settings.catalog.uri == str(root / "catalog.db")
    assert settings.catalog.warehouse == str(root / "warehouse")
    assert settings.ledger.url == f"sqlite:///{root / 'ledger.db'}"
    assert settings.ledger.key_path == root / "keys/ledger.key"
    assert settings.spark.jars_dir == root / "jars"
    assert settings.lake.root == root


def test_a_folder_without_settings_is_no_lake(tmp_path: Path) -> None:
    with pytest.raises(LakeNotFound, match=r"no odi\.toml"):
        load(tmp_path, {})


def test_secrets_and_logins_are_masked_where_settings_are_shown(tmp_path: Path) -> None:
    text = (
        '[catalog]\ntype = "postgresql"\nuri = "postgresql://ann:in-the-url@db/x"\n'
        '[catalog.properties]\n"s3.secret-access-key" = "in-a-property"\n'
    )
    env = {"ODI_CATALOG__PASSWORD": "in-the-env", "ODI_LEDGER__KEY": "PRIVATE+KEY+x+y+z"}
    settings = load(lake(tmp_path, text), env).settings
    text = repr(shown(settings)) + repr(settings.catalog.password) + repr(settings.ledger.key)
    for secret in ("in-the-url", "in-a-property", "in-the-env", "PRIVATE+KEY+x"):
        assert secret not in text
    assert "ann" in text


def test_who_runs_and_what_runs_are_never_empty(tmp_path: Path) -> None:
    run = load(lake(tmp_path), {}).settings.run
    assert run.principal
    assert run.code_version.startswith("odi-audit/")


def test_settings_cannot_be_changed_once_loaded(tmp_path: Path) -> None:
    settings = load(lake(tmp_path), {}).settings
    with pytest.raises(ValueError, match="frozen"):
        settings.log = Settings().log  # type: ignore[misc]
