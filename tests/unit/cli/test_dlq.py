"""The dead-letter commands where there is nothing to show, or nothing that can be done."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from odi_audit.cli.app import run as cli
from odi_audit.workspace import Workspace

MIRROR = Path(__file__).parents[3] / "jobs/ready/02-cdc-mirror.yaml"


@pytest.fixture
def lake(make_lake: Callable[..., Workspace]) -> str:
    return str(make_lake().root)


def test_a_lake_without_dead_letters_says_so(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(["dlq", "list", "--lake", lake]) == 0
    assert capsys.readouterr().out == "no table holds dead letters\n"
    assert cli(["dlq", "list", "--lake", lake, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "odi.dlq.list/1"
    assert (answer["data"]["open"], answer["data"]["letters"]) == (0, [])


def test_what_is_asked_wrongly_is_told(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(["dlq", "list", "--lake", lake, "--state", "gone"]) == 2
    assert "open, replayed" in capsys.readouterr().err
    assert cli(["dlq", "list", "shop.dead", "--lake", lake]) == 4
    assert cli(["dlq", "list", "--lake", lake, "--limit", "-1"]) == 2


def test_letters_of_changes_cannot_be_brought_back_one_by_one(
    lake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli(["dlq", "replay", str(MIRROR), "--lake", lake]) != 0
    told = capsys.readouterr().err
    assert "in their order" in told
    assert "odi-audit dlq list shop.customers_dead" in told
