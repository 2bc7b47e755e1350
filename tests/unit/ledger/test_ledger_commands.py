"""``odi-audit ledger …``: what each command prints, writes and ends with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odi_audit.cli import app
from odi_audit.ledger import SqlLedger, note
from odi_audit.ledger.seal import head_files
from odi_audit.workspace import Workspace
from tests.contract.ledger.places import SqlitePlace, batch, land

Ask = Callable[..., Any]


@pytest.fixture
def lake(make_lake: Callable[..., Workspace], monkeypatch: pytest.MonkeyPatch) -> Workspace:
    made = make_lake()
    ledger = made.ledger()
    assert isinstance(ledger, SqlLedger)
    for number in range(4):
        land(ledger, number)
    monkeypatch.setenv("ODI_LAKE", str(made.root))
    return made


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    def run(*args: str, status: int = 0) -> Any:
        capsys.readouterr()
        assert app.run(["ledger", *args, "--json"]) == status
        told = capsys.readouterr()
        answer = json.loads(told.out if status in {0, 1} and told.out else told.err)
        assert answer["schema"] in {f"odi.ledger.{args[0]}/1", "odi.error/1", "odi.proof/1"}
        return answer["data"]

    return run


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run(*args: str, status: int = 0) -> str:
        capsys.readouterr()
        assert app.run(["ledger", *args]) == status
        return capsys.readouterr().out

    return run


def place(lake: Workspace) -> SqlitePlace:
    return SqlitePlace(lake.root)


def test_seal_writes_a_head_that_its_public_key_opens(lake: Workspace, ask: Ask) -> None:
    data = ask("seal")
    assert (data["size"], data["entry"]) == (8, 8)
    text = Path(data["path"]).read_text(encoding="utf-8")
    keys = note.read_verifiers(note.public_path(lake.settings.ledger.key_path))
    assert note.open_head(text, keys).size == 8
    assert ask("seal")["size"] == 8, "nothing new, nothing signed again"
    assert ask("status")["sealed_size"] == 8


def test_verify_is_clean_and_then_is_not(
    lake: Workspace, ask: Ask, say: Callable[..., str]
) -> None:
    ask("seal")
    clean = ask("verify")
    assert (clean["size"], clean["seals"], clean["heads"], clean["findings"]) == (9, 1, 1, [])
    assert say("verify") == "clean; entries 9, seals 1, heads 1\n"
    lake.close()
    place(lake).rewrite(place(lake).bodies()[:6])
    found = ask("verify", status=1)["findings"]
    assert [finding["code"] for finding in found] == ["ODI-T10"]
    assert say("verify", status=1).startswith("ODI-T10: a head of 8 entries was signed")
    assert ask("seal", status=1)["code"] == "ODI-L05", "no second story is signed"


def test_verify_takes_heads_from_elsewhere(lake: Workspace, ask: Ask, tmp_path: Path) -> None:
    kept = tmp_path / "kept.head"
    kept.write_text(ask("seal")["head"], encoding="utf-8")
    for path in head_files(lake.heads_dir):
        path.unlink()
    lake.close()
    place(lake).rewrite(place(lake).bodies()[:6])
    assert ask("verify")["findings"] == [], "without a head nobody can tell"
    found = ask("verify", "--head", str(kept), status=1)["findings"]
    assert [finding["code"] for finding in found] == ["ODI-T10"]
    missing = ask("verify", "--head", str(tmp_path / "none"), status=1)["findings"]
    assert [finding["code"] for finding in missing] == ["ODI-T09"]


def test_verify_looks_at_a_ledger_that_no_longer_opens(lake: Workspace, ask: Ask) -> None:
    lake.close()
    place(lake).attack("UPDATE entries SET body = x'7b7d' WHERE idx = 7")
    codes = {finding["code"] for finding in ask("verify", status=1)["findings"]}
    assert codes == {"ODI-T01", "ODI-T03"}


def test_a_proof_can_be_checked_without_the_lake(
    lake: Workspace, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "proof.json"
    assert ask("prove", batch(2), "--out", str(path))["batch"] == batch(2)
    assert ask("prove", batch(2))["entries"] == json.loads(path.read_text())["data"]["entries"]
    key = str(note.public_path(lake.settings.ledger.key_path))
    monkeypatch.delenv("ODI_LAKE")
    monkeypatch.chdir(tmp_path)
    data = ask("check", str(path), "--public-key", key)
    assert [entry["kind"] for entry in data["entries"]] == ["intent", "landed"]
    assert data["key_was_given"]
    assert not ask("check", str(path))["key_was_given"]
    other = note.signing_key("example.org/x", bytes(32)).verifier.text
    assert ask("check", str(path), "--public-key", other, status=1)["code"] == "ODI-L09"
    path.write_text(path.read_text().replace("sales.orders", "sales.other"))
    assert ask("check", str(path), status=1)["code"] == "ODI-L09"


def test_a_batch_that_is_not_there_is_not_found(lake: Workspace, ask: Ask) -> None:
    assert ask("prove", "ffff", status=4)["code"] == "ODI-L10"


@pytest.mark.parametrize("name", ["out.parquet", "out.jsonl"])
def test_export_writes_every_entry(lake: Workspace, ask: Ask, tmp_path: Path, name: str) -> None:
    data = ask("export", str(tmp_path / name))
    assert data["entries"] == 8
    assert (tmp_path / name).stat().st_size == data["bytes"]


def test_export_asks_for_a_form_that_the_name_does_not_tell(
    lake: Workspace, ask: Ask, tmp_path: Path
) -> None:
    assert ask("export", str(tmp_path / "out"), status=2)["code"] == "ODI-U01"
    assert ask("export", str(tmp_path / "out"), "--format", "jsonl")["format"] == "jsonl"


def test_projections_are_rebuilt_when_told_to(lake: Workspace, ask: Ask) -> None:
    lake.close()
    place(lake).attack("DELETE FROM landed", "DELETE FROM entry_index WHERE idx = 7")
    found = ask("verify", status=1)["findings"]
    assert {finding["code"] for finding in found} == {"ODI-T07"}
    assert found[0]["hint"] == "odi-audit ledger rebuild --projections --apply"
    assert not ask("rebuild", "--projections")["applied"]
    ask("verify", status=1)
    assert ask("rebuild", "--projections", "--apply")["entries_count"] == 8
    assert ask("verify")["findings"] == []


def test_a_lost_ledger_is_made_anew_by_rebuild(lake: Workspace, ask: Ask) -> None:
    lake.close()
    path = lake.root / "ledger.db"
    path.unlink()
    assert ask("verify", status=3)["code"] == "ODI-L01"
    assert not ask("rebuild")["applied"]
    assert not path.exists(), "a plan makes nothing"
    assert ask("rebuild", "--apply")["applied"]
    assert path.exists()


def test_grant_is_for_servers(lake: Workspace, ask: Ask) -> None:
    assert ask("grant", status=3)["code"] == "ODI-S01"


def test_a_key_open_to_others_signs_nothing(lake: Workspace, ask: Ask) -> None:
    lake.settings.ledger.key_path.chmod(0o644)
    assert ask("seal", status=3)["code"] == "ODI-L08"
    assert ask("verify")["findings"] == [], "verifying needs the public key alone"


def test_status_tells_the_place_and_what_is_open(lake: Workspace, say: Callable[..., str]) -> None:
    told = say("status")
    assert "size           8" in told
    assert "sealed_size    –" in told
