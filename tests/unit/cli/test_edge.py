"""The outermost edge: every error has its code, its way out and its exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from odi_audit.cli import app
from odi_audit.errors import LedgerLocked, OdiError, OutcomeUnknown
from odi_audit.workspace import Workspace

Make = Callable[..., Workspace]
HEAVY = ("pyspark", "pyiceberg", "pyarrow", "sqlalchemy", "cryptography", "structlog", "rich")
"""What takes a tenth of a second and more to import, and no help needs."""


def raising(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the command ``version`` fail in the given way."""

    def command() -> None:
        raise error

    monkeypatch.setattr("odi_audit.cli.version.command", command)


def test_an_error_says_its_code_and_what_to_do_next(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(LedgerLocked("held by another", hint="wait", owner="x"), monkeypatch)
    assert app.run(["version"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "ODI-L03: held by another\n  next: wait\n"


def test_with_json_an_error_is_one_object_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(json: bool = False) -> None:
        raise OutcomeUnknown("may have landed", hint="odi-audit reconcile", batch="b-1", rows=3)

    monkeypatch.setattr("odi_audit.cli.version.command", command)
    assert app.run(["version", "--json"]) == 5
    out, err = capsys.readouterr()
    assert out == ""
    assert json.loads(err) == {
        "schema": "odi.error/1",
        "data": {
            "code": "ODI-C03",
            "message": "may have landed",
            "hint": "odi-audit reconcile",
            "facts": {"batch": "b-1", "rows": 3},
        },
    }


def test_no_secret_leaves_with_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = OdiError("at postgresql://u:one-secret@h", hint="password=two-secret", token="three")
    raising(error, monkeypatch)
    monkeypatch.setenv("ODI_DEBUG", "1")
    app.run(["version"])
    app.tell(error, as_json=True)
    text = capsys.readouterr().err
    for secret in ("one-secret", "two-secret", "three"):
        assert secret not in text


def test_an_unexpected_error_is_a_bug_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(ZeroDivisionError("division by zero"), monkeypatch)
    assert app.run(["version"]) == 70
    err = capsys.readouterr().err
    assert err.startswith("ODI-X00: a bug: ZeroDivisionError: division by zero\n  next: ")
    assert "Traceback" not in err


def test_a_bug_shows_its_traceback_on_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ODI_DEBUG", "1")
    raising(ZeroDivisionError("division by zero"), monkeypatch)
    assert app.run(["version"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_ctrl_c_leaves_with_130_and_no_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(KeyboardInterrupt(), monkeypatch)
    assert app.run(["version"]) == 130
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "args", [["nope"], ["version", "--nope"], ["version", "too", "many"], ["config", "--lake"]]
)
def test_a_wrong_call_is_a_usage_error_that_points_to_help(
    args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(args) == 2
    err = capsys.readouterr().err
    assert err.startswith("ODI-U01: ")
    assert "--help" in err


def test_a_reader_that_goes_away_is_no_error(make_lake: Make) -> None:
    lake = make_lake()
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "odi_audit.cli", "config", "--json", "--lake", str(lake.root)],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_help_lists_every_command_without_importing_one(run_python: Callable[[str], str]) -> None:
    text = run_python(
        "import sys\nfrom odi_audit.cli import app\napp.run(['--help'])\n"
        "print([name for name in sys.modules if name.startswith(('pydantic', 'pyspark',"
        " 'pyiceberg', 'pyarrow', 'structlog', 'odi_audit.workspace'))])"
    )
    for name in app.COMMANDS:
        assert f"  {name}" in text
    assert text.strip().endswith("[]")


def test_help_imports_nothing_heavy_so_that_it_is_there_at_once() -> None:
    asked = "import sys; from odi_audit.cli import app; app.run(['--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not loaded & set(HEAVY)


def test_every_command_of_the_table_loads_and_explains_itself(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in app.COMMANDS:
        assert app.run([name, "--help"]) == 0, capsys.readouterr().err
        assert "Usage: odi-audit " + name in capsys.readouterr().out


def test_every_command_has_a_file_of_its_own() -> None:
    folder = Path(app.__file__).parent
    for entry in app.COMMANDS.values():
        assert (folder / f"{entry.module}.py").is_file(), entry.module
