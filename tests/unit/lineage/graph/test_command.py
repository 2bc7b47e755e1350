"""``odi-audit lineage`` from the outside: forms, exit statuses, what goes to which stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lineage.context import LedgerContext
from odi_audit.cli.app import run
from odi_audit.model.offsets import kafka, once
from odi_audit.workspace import Workspace
from tests.unit.lineage.conftest import COLUMNS, LINES, ORDERS, History, work

pytestmark = pytest.mark.usefixtures("lake")


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with Workspace.init(tmp_path / "lake") as workspace:
        ledger = workspace.ledger()
        told = History(ledger=ledger, context=LedgerContext(ledger))
        told.land(told.intend(work("append", LINES)), LINES)
        part = kafka({"orders": {0: (0, 9)}}, bootstrap="broker:9092")
        told.land(told.intend(work("append"), offsets=part, columns=COLUMNS))
        told.land(told.intend(work("append"), offsets=once("2")))
    monkeypatch.setenv("ODI_LAKE", str(tmp_path / "lake"))
    return tmp_path / "lake"


def call(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    status = run(["lineage", *args])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_a_tree_for_people_has_both_ways_and_columns(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "sales.orders", "--columns")
    assert status == 0
    lines = out.splitlines()
    assert lines[0] == "sales.orders"
    assert lines.index("fed by") < lines.index("feeds nothing on record")
    for told in ("orders (topic on kafka://broker:9092", "sales.lines (table", "prices ← ?"):
        assert told in out
    assert "amount ← price (aggregation)" in out or "price (aggregation)" in out


def test_down_from_a_source_table(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "--down", "sales.lines")
    assert status == 0 and "sales.orders (table" in out and "fed by" not in out


def test_a_column_has_its_steps(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "sales.orders.amount", "--up")
    assert status == 0
    assert "sales.lines.price (direct aggregation; orders.append.sales.orders)" in out
    assert "sales.lines.order_id (indirect join;" in out


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = call(capsys, "sales.orders", "--json")
    body = json.loads(out)
    assert (status, err, body["schema"]) == (0, "", "odi.lineage/1")
    data = body["data"]
    assert data["table"] == "sales.orders" and data["as_of"] is None and data["doubts"] == []
    assert {node["kind"] for node in data["nodes"]} == {"table", "topic", "job", "source"}


def test_an_old_version_by_batch_and_by_time(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "sales.orders", "--json")
    [node] = [item for item in json.loads(out)["data"]["nodes"] if item["name"] == "sales.orders"]
    newest, oldest = node["recent"]
    _, out, _ = call(capsys, "sales.orders", "--json", "--as-of", oldest["batch"][:12])
    data = json.loads(out)["data"]
    assert data["as_of"]["entry"] == oldest["entry"]
    [node] = [item for item in data["nodes"] if item["name"] == "sales.orders"]
    assert [mark["batch"] for mark in node["recent"]] == [oldest["batch"]]
    assert call(capsys, "sales.orders", "--as-of", newest["time"])[0] == 0
    assert call(capsys, "sales.orders", "--as-of", "nonsense")[0] == 2
    assert call(capsys, "sales.orders", "--as-of", "12345")[0] == 4


def test_mermaid_and_dot_go_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "sales.orders", "--mermaid")[1].startswith("flowchart LR\n")
    assert call(capsys, "sales.orders", "--dot")[1].startswith("digraph lineage {\n")


def test_the_page_is_written_whole_and_nothing_to_stdout(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = tmp_path / "lineage.html"
    status, out, err = call(capsys, "sales.orders", "--html", str(target))
    assert (status, out) == (0, "") and "nodes" in err
    assert target.read_text("utf-8").endswith("</html>\n")
    assert [item.name for item in tmp_path.iterdir() if item.name.startswith(".")] == []
    assert call(capsys, "sales.orders", "--html", str(tmp_path / "no" / "page.html"))[0] != 0


def test_mistakes_have_their_exit_statuses(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = call(capsys, "sales.ordes")
    assert status == 4 and "did you mean sales.orders" in err
    assert call(capsys, "sales.orders.amoun")[0] == 2
    assert call(capsys, "sales.orders", "--json", "--dot")[0] == 2
    assert call(capsys, "sales.orders", "--depth", "0")[0] == 2
    assert ORDERS.name == "sales.orders"


def test_check_is_a_command_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "check", "--help")
    assert status == 0 and "--marquez" in out
    status, out, _ = call(capsys, "--help")
    assert status == 0 and "check" in out and "TABLE[.COLUMN]" in out
