"""The commands over the ledger's history, as a user calls them: output, exit status, bad input."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from xml.etree import ElementTree as ET

import pytest

from odi_audit.cli import sql as sql_command
from odi_audit.cli.app import run
from odi_audit.ledger import note
from odi_audit.model.entries import Kind

if TYPE_CHECKING:
    from conftest import Bench

GOLDEN = Path(__file__).parent / "golden"
SETTINGS = """\
[lake]
name = "t"
[catalog]
uri = "catalog.db"
warehouse = "warehouse"
[ledger]
url = "sqlite:///ledger.db"
origin = "example.org/t"
key_path = "ledger.key"
"""
Call: TypeAlias = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    (tmp_path / "odi.toml").write_text(SETTINGS)
    note.write_key(tmp_path / "ledger.key", note.signing_key("example.org/t", bytes(32)))

    def made(*words: str) -> tuple[int, str, str]:
        status = run([*words, "--lake", str(tmp_path)])
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return made


def data(answer: tuple[int, str, str], schema: str, status: int = 0) -> Any:
    assert answer[0] == status, answer
    body = json.loads(answer[1])
    assert body["schema"] == schema
    return body["data"]


def test_history_has_json_and_a_table(bench: Bench, call: Call) -> None:
    batch = bench.land()
    bench.write({"engine-name": "flink"})
    body = data(call("history", "sales.orders", "--json"), "odi.history/1")
    assert body["table"] == "sales.orders"
    assert body["gone"] is False
    assert sorted(event["outcome"] for event in body["events"]) == ["done", "foreign"]
    status, out, _ = call("history", "sales.orders")
    assert status == 0
    assert batch in out
    assert "foreign" in out
    assert "flink" in out


def test_history_of_a_table_without_any_and_a_limit_that_is_said(bench: Bench, call: Call) -> None:
    assert "Nothing happened" in call("history", "sales.orders")[1]
    bench.land()
    bench.land()
    assert "--limit" in call("history", "sales.orders", "--limit", "1")[2]


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("history", "sales.ordrs"), 4, "sales.orders"),
        (("history", "nonsense"), 2, "namespace"),
        (("history", "sales.orders", "--limit", "0"), 2, "limit"),
        (("history", "sales.orders", "--since", "soon"), 2, "soon"),
        (("offsets", "sales.ordrs"), 4, "sales.orders"),
        (("offsets", "sales/nothing"), 4, "sales/nothing"),
        (("coverage", "sales.ordrs"), 4, "sales.orders"),
        (("coverage", "--from", "1d", "--to", "2d"), 2, "ends"),
        (("coverage", "--period", "hour"), 2, "hour"),
        (("report", "everything"), 2, "everything"),
        (("report", "writes", "--table", "sales.ordrs"), 4, "sales.orders"),
        (("report", "writes", "--json", "--format", "csv"), 2, "--json"),
        (("report", "writes", "--from", "1d", "--to", "2d"), 2, "ends"),
        (("report", "writes", "--out", "/no/such/folder/x.csv"), 3, "written"),
        (("sql", "SELECT * FRO batches"), 2, "^^^^"),
        (("sql", "SELECT 1", "--csv", "--json"), 2, "choose"),
        (("sql", "SELECT 1", "--limit", "0"), 2, "limit"),
        (("sql", "DROP VIEW batches"), 2, "DROP"),
    ],
)
def test_bad_input_is_told_on_stderr(
    call: Call, words: tuple[str, ...], status: int, said: str
) -> None:
    answer = call(*words)
    assert answer[0] == status, answer
    assert said in answer[2]
    assert answer[1] == ""


def test_offsets_leaves_with_one_when_there_is_a_gap(bench: Bench, call: Call) -> None:
    bench.land()
    assert data(call("offsets", "sales.orders", "--json"), "odi.offsets/1")["continuous"] is True
    bench.places["topic"] = 50
    bench.land()
    body = data(call("offsets", "sales/orders", "--json"), "odi.offsets/1", status=1)
    assert body["findings_count"] == 1
    assert body["events"][0]["kind"] == "gap"
    status, out, _ = call("offsets", "sales.orders")
    assert status == 1
    assert "[10, 50)" in out
    assert "Findings: 1" in out


def test_offsets_is_stricter_when_asked_to(bench: Bench, call: Call) -> None:
    gone = bench.land()
    bench.note(Kind.ROLLBACK, operation="rollback", undone=[gone])
    assert call("offsets", "sales.orders")[0] == 0
    assert call("offsets", "sales.orders", "--strict")[0] == 1


def test_coverage_has_json_and_a_table(bench: Bench, call: Call) -> None:
    bench.land()
    bench.land()
    bench.write()
    body = data(call("coverage", "--json", "--period", "month"), "odi.coverage/1")
    assert body["totals"][0]["snapshots_share"] == pytest.approx(2 / 3, abs=1e-5)
    assert body["foreign"][0]["table"] == "sales.orders"
    status, out, _ = call("coverage", "sales.orders")
    assert status == 0
    assert "66.6 %" in out  # never rounded up


@pytest.mark.parametrize("form", ["table", "csv", "json", "html"])
def test_a_report_goes_to_stdout_or_to_a_file(
    bench: Bench, call: Call, tmp_path: Path, form: str
) -> None:
    batch = bench.land()
    status, out, _ = call("report", "writes", "--from", "2020-01-01", "--format", form)
    assert status == 0
    path = tmp_path / f"report.{form}"
    status, nothing, err = call("report", "writes", "--format", form, "--out", str(path))
    assert (status, nothing) == (0, "")
    assert bench.ledger.head().root.hex() in err
    written = path.read_text("utf-8")
    for text in (out, written):
        assert bench.ledger.head().root.hex() in text
    if form == "json":
        assert json.loads(written)["data"]["rows"][0]["batch"] == batch
    elif form == "csv":
        assert next(csv.DictReader(io.StringIO(written)))["batch"] == batch
    elif form == "html":
        assert batch in "".join(ET.fromstring(written).itertext())
    assert [entry.name for entry in tmp_path.glob(".report*")] == []


def test_the_file_name_tells_the_form(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "x.html"
    assert call("report", "access", "--out", str(path))[0] == 0
    assert path.read_text().startswith("<!DOCTYPE html>")


def test_a_report_on_a_broken_ledger_says_so_first_and_leaves_with_one(
    bench: Bench, call: Call, tmp_path: Path
) -> None:
    bench.land()
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as database:
        triggers = "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        for (name,) in database.execute(triggers).fetchall():
            database.execute(f'DROP TRIGGER "{name}"')
        database.execute(
            "UPDATE entries SET body = CAST(replace(CAST(body AS TEXT), 'ana', 'eve') AS BLOB)"
        )
        database.commit()
    status, out, err = call("report", "writes")
    assert status == 1
    assert "fails verification" in out
    assert "ledger verify" in err
    body = data(call("report", "writes", "--json"), "odi.report/1", status=1)
    assert body["ledger"]["verified"] is False
    assert body["ledger"]["note"] is None
    skipped = data(call("report", "writes", "--json", "--skip-verification"), "odi.report/1")
    assert skipped["ledger"]["verified"] is None


def test_sql_has_three_forms_and_says_when_rows_are_left_out(bench: Bench, call: Call) -> None:
    bench.land()
    query = "SELECT index, time, kind, settles FROM entries ORDER BY index"
    body = data(call("sql", query, "--json", "--limit", "1"), "odi.sql/1")
    assert body["columns"][1] == {"name": "time", "type": "TIMESTAMP"}
    assert body["rows"] == [[0, bench.ledger.get(0).time, "intent", False]]
    assert body["cut"] is True
    assert data(call("sql", query, "--json"), "odi.sql/1")["cut"] is False
    status, out, err = call("sql", query, "--csv", "--limit", "1")
    assert status == 0
    assert out.splitlines()[0] == "index,time,kind,settles"
    assert "--limit" in err
    status, out, err = call("sql", query, "--limit", "1")
    assert "intent" in out
    assert "--limit" in err


def test_sql_keeps_the_digits_of_long_numbers_and_odd_values(call: Call) -> None:
    query = (
        "SELECT 9223372036854775807, 'nan'::DOUBLE, [1, NULL], {'a': DATE '2026-01-01'}, "
        "1.50::DECIMAL(4, 2), '\\xAA'::BLOB"
    )
    body = data(call("sql", query, "--json"), "odi.sql/1")
    assert body["rows"] == [
        ["9223372036854775807", "nan", [1, None], {"a": "2026-01-01"}, "1.50", "aa"]
    ]


def test_sql_reads_statements_from_stdin(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 1 AS a; SELECT 'x;y' AS b;"))
    status, out, _ = call("sql", "--csv")
    assert (status, out) == (0, "a\n1\nb\nx;y\n".replace("\n", "\r\n"))
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 1; COPY batches TO 'x';"))
    assert call("sql")[0] == 2


def test_the_shell_answers_goes_on_after_an_error_and_keeps_its_history(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = iter(
        [".views", ".schema findings", ".schema nope", ".help", ".odd", "SELECT 41 +", "1 AS a;",
         "SELECT * FRO x;", "SELECT 'still here';", ".quit"]
    )  # fmt: skip
    monkeypatch.setattr("builtins.input", lambda prompt: next(lines))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    status, out, err = call("sql")
    assert status == 0
    for text in ("findings", "VARCHAR", "42", "still here"):
        assert text in out
    for text in ("no view nope", ".views", "unknown: .odd", "LINE 1"):
        assert text in err
    history = tmp_path / sql_command.HISTORY_FILE
    assert history.exists()
    assert history.stat().st_mode & 0o077 == 0


def test_the_shell_ends_at_the_end_of_input(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def end(prompt: str) -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", end)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    assert call("sql")[0] == 0


# -- what others build on ------------------------------------------------------------------------


def shape(value: Any) -> Any:
    """Return the names and types of a JSON value; of a list, the shape of its first item."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value[:1]]
    return "null" if value is None else type(value).__name__


@pytest.mark.parametrize(
    "words",
    [
        ("history", "sales.orders"),
        ("offsets", "sales.orders"),
        ("coverage",),
        ("report", "writes"),
        ("report", "schema-changes"),
        ("report", "deletions"),
        ("report", "replays-and-gaps"),
        ("report", "foreign-writes"),
        ("report", "retention"),
        ("report", "access"),
        ("sql", "SELECT batch, started FROM batches"),
    ],
    ids=lambda words: "-".join(words[:2] if words[0] == "report" else words[:1]),
)
def test_the_form_of_the_json_is_pinned(bench: Bench, call: Call, words: tuple[str, ...]) -> None:
    bench.land()
    bench.places["topic"] = 50
    bench.land()
    bench.write({"engine-name": "spark"})
    bench.table().delete("id < 4")
    bench.note(Kind.SCHEMA_CHANGE, operation="evolve_schema", steps=[["add", "a", "int"]])
    bench.note(Kind.READ, consumer="board", rows=3, columns=["id"])
    _, out, _ = call(*words, "--json")
    name = "-".join(words[:2] if words[0] == "report" else words[:1])
    golden = GOLDEN / f"{name}.json"
    assert shape(json.loads(out)) == json.loads(golden.read_text("utf-8"))


@pytest.mark.parametrize("words", [("batches",), ("sql", "--help"), ("history", "--help")])
def test_a_command_loads_only_what_it_needs(call: Call, tmp_path: Path, words: list[str]) -> None:
    call("batches")  # makes the lake
    program = (
        "import sys\n"
        "from odi_audit.cli.app import run\n"
        "assert run(sys.argv[1:]) == 0\n"
        "heavy = ('duckdb', 'pyarrow', 'pyiceberg', 'pyspark', 'rich', 'cryptography')\n"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)\n"
    )
    extra = [] if "--help" in words else ["--lake", str(tmp_path), "--json"]
    done = subprocess.run(
        [sys.executable, "-c", program, *words, *extra],
        capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert done.stderr.strip() == "[]"
