"""A data file that is gone, as the commands tell it: named, the rest answered, exit status 1."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from odi_audit.cli.app import run
from odi_audit.errors import Exit
from odi_audit.workspace import Workspace
from tests.unit.query.conftest import Bench, TickingClock


@pytest.fixture
def lake(make_lake: Callable[..., Workspace]) -> Workspace:
    return make_lake()


@pytest.fixture
def orders(lake: Workspace) -> Iterator[Bench]:
    catalog = lake.settings.catalog
    writer = SqlCatalog(
        catalog.name,
        uri=f"sqlite:///{catalog.uri}",
        warehouse=f"file://{catalog.warehouse}",
        init_catalog_tables="false",
    )
    made = Bench(ledger=lake.ledger(), catalog=lake.catalog(), writer=writer, clock=TickingClock())
    made.create()
    yield made
    writer.close()


def ask(
    lake: Workspace, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, Any, str, str]:
    """Call a command twice: what it says as JSON, and what it says to people."""
    statuses, told = [], []
    for form in (["--json"], []):
        capsys.readouterr()
        statuses.append(run([*words, *form, "--lake", str(lake.root)]))
        told.append(capsys.readouterr())
    assert statuses[0] == statuses[1]
    # People are told more; what is missing is told to both.
    assert set(told[0].err.splitlines()) <= set(told[1].err.splitlines())
    return statuses[0], json.loads(told[0].out)["data"], told[1].out, told[0].err


def test_diff_impact_and_read_name_the_file_and_answer_the_rest(
    orders: Bench, lake: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    first = orders.land()
    (file,) = orders.table().inspect.files()["file_path"].to_pylist()
    orders.table().delete("id = 4")
    second = orders.land()
    assert ask(lake, capsys, "diff", "sales.orders", first, "main")[0] == Exit.OK
    Path(file.removeprefix("file://")).unlink()

    status, data, out, err = ask(lake, capsys, "diff", "sales.orders", first, "main")
    assert (status, data["missing"], data["untold"]) == (Exit.FINDINGS, [file], 19)
    assert "0 added, 0 removed, 0 changed" in out
    assert f"gone: {file}; its rows are not in the answer" in err
    assert "19 rows are left out" in err

    status, data, out, err = ask(lake, capsys, "impact", first)
    assert (status, data["missing"]) == (Exit.FINDINGS, [file])
    assert "data files are gone" in out
    assert f"gone: {file}" in err
    status, data, _, err = ask(lake, capsys, "impact", second)
    assert (status, data["missing"], err) == (Exit.OK, [], "")

    # Nobody has to open it for the table as it is now.
    words = ("read", "sales.orders", "--consumer", "billing")
    status, data, _, _ = ask(lake, capsys, *words)
    assert (status, data["missing"], data["inserted"]) == (Exit.OK, [], 19)
    status, data, _, err = ask(lake, capsys, *words, "--since", first)
    assert (status, data["missing"], data["untold"]) == (Exit.FINDINGS, [file], 19)
    assert data["rows"] == []
    assert f"gone: {file}" in err
