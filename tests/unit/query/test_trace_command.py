"""``odi-audit trace`` as it is called: answers, doubts, exit statuses."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from odi_audit.cli.app import run
from odi_audit.ledger import note
from odi_audit.ledger.port import TreeHead
from odi_audit.ledger.seal import seal, write_head
from odi_audit.workspace import Workspace
from tests.unit.query.conftest import Bench, TickingClock

if TYPE_CHECKING:
    from odi_audit.ids import BatchId


@pytest.fixture
def lake(make_lake: Callable[..., Workspace]) -> Workspace:
    return make_lake()


@pytest.fixture
def orders(lake: Workspace) -> Iterator[Bench]:
    """A table in a real lake, with a ledger that the command opens by itself."""
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


@pytest.fixture
def ask(lake: Workspace, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(*args: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = run(["trace", "sales.orders", *args, "--lake", str(lake.root)])
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return call


def data(text: str, schema: str = "odi.trace/1") -> dict[str, Any]:
    answer = json.loads(text)
    assert answer["schema"] == schema
    return dict(answer["data"])


def alter(lake: Workspace, batch: BatchId) -> None:
    """Change who ran a batch, past the ledger, as somebody with the file could."""
    with closing(sqlite3.connect(lake.root / "ledger.db")) as database, database:
        database.execute("DROP TRIGGER entries_no_update")
        database.execute(
            "UPDATE entries SET body = CAST(replace(CAST(body AS TEXT), '\"ana\"', '\"eve\"') AS "
            "BLOB) WHERE idx = (SELECT min(idx) FROM entry_index WHERE batch = ?)",
            (batch,),
        )
        assert database.total_changes


def test_the_answer_says_where_it_was_read_and_that_the_limit_cut_it(
    orders: Bench, ask: Callable[..., tuple[int, str, str]]
) -> None:
    batch = orders.land()
    status, out, err = ask("--json", "--limit", "3")
    answer = data(out)
    assert status == 0
    assert [row["birth"]["batch"] for row in answer["rows"]] == [batch] * 3
    assert answer["cut"]
    assert answer["limit"] == 3
    assert answer["snapshot"] == orders.state().current_snapshot
    assert answer["table_uuid"] == orders.state().ref.uuid
    assert (answer["missing"], answer["doubts"]) == ([], [])
    assert "first 3 rows" in err
    assert not data(ask("--json", "--limit", "10")[1])["cut"]
    status, out, _ = ask("--limit", "2")
    assert (status, out.count("born in batch")) == (0, 2)


def test_no_row_is_an_answer_too(orders: Bench, ask: Callable[..., tuple[int, str, str]]) -> None:
    orders.land()
    assert ask("--where", "id = 99")[:2] == (0, "No row matches.\n")
    assert data(ask("--where", "id = 99", "--json")[1])["rows"] == []
    assert "No row matches." in ask("--where", "id = 99", "--history")[1]
    assert "No row that matches is gone" in ask("--where", "id = 99", "--deleted")[1]


def test_histories_and_deleted_rows_have_their_own_forms(
    orders: Bench, ask: Callable[..., tuple[int, str, str]]
) -> None:
    batch = orders.land()
    where = ("--where", "id = 3", "--json")
    (row,) = data(ask(*where, "--history")[1], "odi.trace.history/1")["rows"]
    assert row["versions"][0]["origin"]["batch"] == batch
    assert row["complete"] is False
    answer = data(ask(*where, "--deleted")[1], "odi.trace.deleted/1")
    assert answer["rows"] == []
    assert answer["horizon"]["complete"] is True


@pytest.mark.parametrize(
    ("args", "status", "said"),
    [
        (("--history", "--deleted"), 2, "one at a time"),
        (("--columns", "regio"), 2, "did you mean region?"),
        (("--columns", " , "), 2, "names no column"),
        (("--where", "regio = 'r'"), 2, "did you mean region?"),
        (("--where", "id ="), 2, "cannot be read"),
        (("--limit", "0"), 2, "limit 0"),
        (("--as-of", "b-ffff"), 4, "b-ffff"),
        (("--as-of", "no-such-tag"), 4, "no-such-tag"),
    ],
)
def test_a_call_that_cannot_be_answered_says_why(
    orders: Bench,
    ask: Callable[..., tuple[int, str, str]],
    args: tuple[str, ...],
    status: int,
    said: str,
) -> None:
    orders.land()
    for more in ((), ("--json",)):
        found, out, err = ask(*args, *more)
        assert (found, out) == (status, "")
        assert said in err


def test_an_altered_entry_is_told_before_the_row_that_rests_on_it(
    orders: Bench, lake: Workspace, ask: Callable[..., tuple[int, str, str]]
) -> None:
    altered, good = orders.land(), orders.land()
    alter(lake, altered)
    status, out, err = ask("--where", "id = 3", "--json")
    assert status == 1
    assert [doubt["code"] for doubt in data(out)["doubts"]] == ["ODI-T01"]
    assert "the ledger is in doubt" in err
    for form in ("--history", "--deleted"):
        assert ask("--where", "id = 3", form)[0] == (1 if form == "--history" else 0)
    # An answer that rests on other entries is not touched by it.
    status, out, err = ask("--where", "id = 13", "--json")
    assert (status, err) == (0, "")
    assert data(out)["rows"][0]["birth"]["batch"] == good


def test_a_signed_head_that_the_ledger_does_not_continue_is_told(
    orders: Bench, lake: Workspace, ask: Callable[..., tuple[int, str, str]]
) -> None:
    orders.land()
    key = lake.signing_key()
    sealed = seal(lake.ledger(), key, lake.heads_dir)
    assert sealed.path is not None
    assert ask()[0] == 0
    forged = TreeHead(size=sealed.head.size, root=bytes(32))
    write_head(sealed.path, note.sign_head(forged, key))
    status, _, err = ask()
    assert status == 1
    assert err.startswith("ODI-T11")
    longer = TreeHead(size=10_000, root=bytes(32))
    write_head(lake.heads_dir / f"{10_000:015d}.head", note.sign_head(longer, key))
    assert ask()[2].startswith("ODI-T10")


def test_a_data_file_that_is_gone_is_named_and_the_rest_answered(
    orders: Bench, ask: Callable[..., tuple[int, str, str]]
) -> None:
    orders.land()
    orders.land()
    file = data(ask("--where", "id = 13", "--json")[1])["rows"][0]["file"]
    Path(file.removeprefix("file://")).unlink()
    status, out, err = ask("--json")
    answer = data(out)
    assert status == 1
    assert answer["missing"] == [file]
    assert [row["values"]["id"] for row in answer["rows"]] == list(range(10))
    assert f"gone: {file}" in err
