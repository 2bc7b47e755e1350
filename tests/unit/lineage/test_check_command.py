"""`odi-audit lineage check` from the command line: answers, exit statuses, and the key."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lineage.context import LedgerContext
from odi_audit.cli.app import run
from odi_audit.workspace import Workspace
from tests.support.marquez import Fault, Receiver, receiver
from tests.unit.lineage.conftest import History, work


@pytest.fixture
def marquez() -> Iterator[Receiver]:
    with receiver() as made:
        yield made


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A lake whose ledger has two batches; its tables are not there, and need not be."""
    root = tmp_path / "lake"
    with Workspace.init(root, env={}) as workspace:
        ledger = workspace.ledger(read_only=False)
        history = History(ledger=ledger, context=LedgerContext(ledger))
        for _ in range(2):
            history.land(history.intend(work("append")))
    return root


@pytest.fixture
def events(lake: Path) -> list[bytes]:
    from lineage.events import events_of

    with Workspace.find(lake, env={}) as workspace:
        ledger = workspace.ledger(read_only=True)
        context = LedgerContext(ledger)
        return [event.body for entry in ledger.scan() for event in events_of(entry, context)]


def ask(
    lake: Path, capsys: pytest.CaptureFixture[str], *args: str
) -> tuple[int, dict[str, Any], str]:
    capsys.readouterr()
    status = run(["lineage", "check", "--lake", str(lake), "--json", *args])
    shown = capsys.readouterr()
    body = json.loads(shown.out) if shown.out else {}
    assert body.get("schema", "odi.lineage-check/1") == "odi.lineage-check/1"
    return status, body.get("data", {}), shown.err


def test_the_same_is_0_and_a_difference_is_1(
    lake: Path, events: list[bytes], marquez: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    for body in events[:-1]:
        assert marquez.backend.post(body) == 201
    status, data, _ = ask(lake, capsys, "--marquez", marquez.url)
    assert (status, data["counts"]) == (
        1,
        {"edge-missing": 1, "state": 1, "version-missing": 1},
    )
    assert data["repaired"] is None
    status, data, _ = ask(lake, capsys, "--marquez", marquez.url, "--repair")
    assert (status, data["counts"], data["repaired"]["sent_count"]) == (0, {}, 1)
    status, data, _ = ask(lake, capsys, "--marquez", marquez.url)
    assert (status, data["findings_count"], data["runs_count"]) == (0, 0, 2)


def test_people_read_what_is_missing_and_what_to_do(
    lake: Path, marquez: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["lineage", "check", "--lake", str(lake), "--marquez", marquez.url]
    assert run(asked) == 1
    out = capsys.readouterr().out
    assert "run-missing: Marquez has no run" in out
    assert "3 findings: 2 runs of 1 job compared." in out
    assert "--repair" in out
    assert run([*asked, "--repair"]) == 0
    out = capsys.readouterr().out
    assert "Sent again: 4 events of 2 runs." in out
    assert "The same: 2 runs of 1 job compared." in out


def test_a_check_begins_where_it_is_told(
    lake: Path, marquez: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    _, data, _ = ask(lake, capsys, "--marquez", marquez.url, "--from", "2")
    assert (data["first"], data["runs_count"]) == (2, 1)
    _, data, _ = ask(lake, capsys, "--marquez", marquez.url, "--from", "1h")
    assert data["runs_count"] == 2
    status, data, _ = ask(lake, capsys, "--marquez", marquez.url, "--from", "2099-01-01")
    assert (status, data["runs_count"]) == (0, 0)
    assert ask(lake, capsys, "--marquez", marquez.url, "--from", "yesterday?")[0] == 2


def test_an_unknown_table_is_4_with_a_hint(
    lake: Path, marquez: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = ask(lake, capsys, "--marquez", marquez.url, "--table", "sales.nothing")
    assert (status, "sales.nothing" in err) == (4, True)


def test_no_address_is_2_and_no_server_is_3(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = ask(lake, capsys)
    assert (status, "which Marquez?" in err) == (2, True)
    status, _, err = ask(lake, capsys, "--marquez", "http://127.0.0.1:9")
    assert (status, "cannot be reached" in err) == (3, True)


def test_the_key_comes_from_the_environment_and_is_never_shown(
    lake: Path,
    marquez: Receiver,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    marquez.api_key = "sesame-7f3a-open"
    status, _, err = ask(lake, capsys, "--marquez", marquez.url)
    assert (status, "OPENLINEAGE_API_KEY" in err) == (3, True)
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "wrong-7f3a-key")
    status, data, err = ask(lake, capsys, "--marquez", marquez.url)
    assert (status, "wrong-7f3a" in json.dumps(data) + err) == (3, False)
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "sesame-7f3a-open")
    status, data, err = ask(lake, capsys, "--marquez", marquez.url, "--repair")
    assert (status, "sesame" in json.dumps(data) + err) == (0, False)


def test_the_settings_server_is_the_default_and_its_key_goes_to_no_other(
    lake: Path, marquez: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    marquez.api_key = "sesame-7f3a-open"
    settings = lake / "odi.toml"
    lines = (
        f'\n[lineage]\ntransport = "http"\nurl = "{marquez.url}"\napi_key = "sesame-7f3a-open"\n'
    )
    settings.write_text(settings.read_text("utf-8") + lines, "utf-8")
    assert ask(lake, capsys)[0] == 1
    keys: list[str | None] = []
    with receiver() as other:
        other.hook = lambda request: keys.append(request.headers.get("Authorization"))
        assert ask(lake, capsys, "--marquez", other.url)[0] == 1
    assert set(keys) == {None}


def test_what_the_relay_has_yet_to_send_is_on_its_way(
    lake: Path, marquez: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = lake / "odi.toml"
    lines = f'\n[lineage]\ntransport = "http"\nurl = "{marquez.url}"\n'
    settings.write_text(settings.read_text("utf-8") + lines, "utf-8")
    assert run(["relay", "--lake", str(lake), "--once"]) == 0
    assert ask(lake, capsys)[0] == 0
    with Workspace.find(lake, env={}) as workspace:
        ledger = workspace.ledger(read_only=False)
        history = History(ledger=ledger, context=LedgerContext(ledger), next_place=500)
        history.land(history.intend(work("append")))
    status, data, _ = ask(lake, capsys)
    assert (status, data["runs_count"], data["pending_runs_count"]) == (0, 3, 1)
    assert run(["relay", "--lake", str(lake), "--once"]) == 0
    status, data, _ = ask(lake, capsys)
    assert (status, data["runs_count"], data["pending_runs_count"]) == (0, 3, 0)


def test_what_the_server_refused_is_left_to_the_relay_and_what_was_dropped_is_a_note(
    lake: Path, events: list[bytes], marquez: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = lake / "odi.toml"
    lines = f'\n[lineage]\ntransport = "http"\nurl = "{marquez.url}"\n'
    settings.write_text(settings.read_text("utf-8") + lines, "utf-8")
    first = json.loads(events[0])["run"]["runId"]
    marquez.hook = lambda request: Fault(status=422) if request.run == first else None
    assert run(["relay", "--lake", str(lake), "--once"]) == 1
    before = len(marquez.arrivals)
    status, data, _ = ask(lake, capsys, "--repair")
    assert (status, data["counts"]) == (1, {"run-missing": 1})
    assert data["findings"][0]["hint"] == f"odi-audit relay retry {first}"
    assert not [arrival for arrival in marquez.arrivals[before:] if arrival.run == first]
    drop = ["relay", "drop", first, "--reason", "a bad facet", "--lake", str(lake)]
    assert run(drop) == 0
    status, data, _ = ask(lake, capsys)
    assert (status, data["counts"]) == (0, {})
    assert "a bad facet" in data["notes"][0]["message"]


def test_other_commands_do_not_wait_for_an_http_client() -> None:
    code = (
        "import sys, odi_audit.cli.lineage_check;"
        "sys.exit(any(m in sys.modules for m in ('requests', 'marquez_client', 'pyspark')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
