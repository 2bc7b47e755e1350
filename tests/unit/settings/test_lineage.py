"""Settings of ``[lineage]``, and OpenLineage's own configuration where there are none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from odi_audit import redact
from odi_audit.errors import ConfigError
from odi_audit.settings import Loaded, load, shown


def loaded(root: Path, text: str = "", env: Mapping[str, str] | None = None) -> Loaded:
    (root / "odi.toml").write_text(text, "utf-8")
    return load(root, env or {})


def test_nothing_set_means_no_destination(tmp_path: Path) -> None:
    lineage = loaded(tmp_path).settings.lineage
    assert (lineage.transport, lineage.relay) == ("none", "off")


def test_the_openlineage_variables_are_taken_where_the_lake_says_nothing(tmp_path: Path) -> None:
    env = {
        "OPENLINEAGE_URL": "http://marquez:5000", "OPENLINEAGE_API_KEY": "k-secret-1",
        "OPENLINEAGE_ENDPOINT": "api/v2/lineage",
    }  # fmt: skip
    found = loaded(tmp_path, '[lineage]\nrelay = "thread"\n', env)
    lineage = found.settings.lineage
    assert (lineage.transport, lineage.url, lineage.relay) == (
        "http", "http://marquez:5000", "thread",
    )  # fmt: skip
    assert lineage.endpoint == "api/v2/lineage"
    assert found.origins["lineage.url"] == "environment OPENLINEAGE_URL"
    assert "k-secret-1" not in str(shown(found.settings))
    assert redact.redact_text("key k-secret-1") == "key ***"
    mine = loaded(tmp_path, '[lineage]\ntransport = "file"\nfile = "e.jsonl"\n', env)
    assert mine.settings.lineage.transport == "file"
    assert mine.settings.lineage.url is None
    assert mine.settings.lineage.file == tmp_path / "e.jsonl"
    assert (
        loaded(tmp_path, "", {**env, "OPENLINEAGE_DISABLED": "true"}).settings.lineage.url is None
    )


def test_openlineage_yml_is_read(tmp_path: Path) -> None:
    (tmp_path / "openlineage.yml").write_text(
        "transport:\n  type: composite\n  continue_on_failure: true\n  transports:\n"
        "    marquez:\n      type: http\n      url: http://marquez:5000\n      timeout: 7\n"
        "      compression: gzip\n      auth: {type: api_key, apiKey: k-secret-2}\n"
        "    events:\n      type: kafka\n      topic: lineage\n"
        "      config: {bootstrap.servers: 'kafka:9092'}\n"
    )
    found = loaded(tmp_path)
    lineage = found.settings.lineage
    assert lineage.transport == "composite"
    marquez = lineage.destinations["marquez"]
    assert (marquez.url, marquez.timeout_s, marquez.gzip) == ("http://marquez:5000", 7.0, True)
    assert lineage.destinations["events"].topic == "lineage"
    assert found.origins["lineage.transport"].endswith("openlineage.yml")
    assert "k-secret-2" not in str(shown(found.settings))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("transport:\n  type: telepathy\n", "telepathy"),
        ("transport:\n  type: http\n  url: http://a\n  magic: 1\n", "magic"),
        ("nothing: here\n", "names no transport"),
        ("transport: [\n", "cannot be read"),
    ],
)
def test_what_openlineage_yml_says_must_be_known(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "openlineage.yml").write_text(text)
    with pytest.raises(ConfigError, match=said):
        loaded(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        'transport = "http"',
        'transport = "http"\nurl = "marquez:5000"',
        'transport = "http"\nurl = "http://user:pw@marquez:5000"',
        'url = "http://marquez:5000"',
        'transport = "kafka"\ntopic = "t"',
        'transport = "file"',
        'transport = "composite"',
        'transport = "telepathy"',
        'transport = "http"\nurl = "http://a"\nclient_key = "k.pem"',
        'transport = "console"\n[lineage.destinations.x]\ntransport = "console"',
        'transport = "composite"\napi_keys = { y = "k" }\n[lineage.destinations.x]\n',
    ],
)
def test_half_a_destination_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        loaded(tmp_path, f"[lineage]\n{text}\n")


def test_keys_of_destinations_can_come_from_the_environment(tmp_path: Path) -> None:
    text = '[lineage]\ntransport = "composite"\n[lineage.destinations.m]\ntransport = "http"\n'
    found = loaded(
        tmp_path, text + 'url = "http://m"\n', {"ODI_LINEAGE__API_KEYS": '{"m": "k-secret-3"}'}
    )
    assert found.settings.lineage.api_keys["m"].get_secret_value() == "k-secret-3"
    assert "k-secret-3" not in str(shown(found.settings))
