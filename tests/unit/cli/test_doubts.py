"""A ledger that does not fit its signed heads: told before the answer, which is still given."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable

import pytest

from odi_audit.cli.app import run
from odi_audit.errors import Exit
from odi_audit.model.entries import Draft, Kind
from odi_audit.workspace import Workspace


def test_a_cut_ledger_is_in_doubt_and_the_answer_is_given(
    make_lake: Callable[..., Workspace], capsys: pytest.CaptureFixture[str]
) -> None:
    lake = make_lake()
    lake.ledger().append(Draft(kind=Kind.GAP_ACCEPTED))
    lake.close()
    files = list(lake.root.glob("ledger.db*"))
    for file in files:
        shutil.copy(file, lake.root / f"kept-{file.name}")
    with Workspace.find(lake.root) as again:
        again.ledger().append(Draft(kind=Kind.GAP_ACCEPTED))
    where = ["--lake", str(lake.root)]
    assert run(["ledger", "seal", *where]) == Exit.OK
    assert run(["read", "--list", *where]) == Exit.OK
    for file in lake.root.glob("ledger.db*"):
        file.unlink()
    for file in files:
        shutil.copy(lake.root / f"kept-{file.name}", file)
    capsys.readouterr()
    assert run(["read", "--list", "--json", *where]) == Exit.FINDINGS
    told = capsys.readouterr()
    assert "ODI-T10: the ledger is in doubt" in told.err
    data = json.loads(told.out)["data"]
    assert data["consumers"] == []
    assert [doubt["code"] for doubt in data["doubts"]] == ["ODI-T10"]
    for command in (["coverage"], ["sql", "SELECT 1 AS one"]):
        assert run([*command, "--json", *where]) == Exit.FINDINGS, command
        told = capsys.readouterr()
        assert "ODI-T10: the ledger is in doubt" in told.err
        assert json.loads(told.out)["data"]
