"""``odi-audit sql [QUERY]``: read-only SQL over the ledger and the tables' metadata.

Owns the shell and the forms of a result. Must never hold a result that is written as JSON or CSV,
nor run what the library does not let through.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odi_audit import clock
from odi_audit.canonical import Json
from odi_audit.cli import render
from odi_audit.cli.common import JsonOption, LakeOption
from odi_audit.cli.doubts import tell_doubts
from odi_audit.cli.render import escape
from odi_audit.errors import Exit, OdiError, UsageError
from odi_audit.query.reports import csv_line
from odi_audit.query.views import VIEWS, Lake, Row
from odi_audit.workspace import Workspace

if TYPE_CHECKING:
    from odi_audit.query.sql import Result, SqlSession

SCHEMA = "odi.sql/1"
LIMIT_TABLE = 200
"""Rows of the table for people, unless --limit says more."""
HISTORY_FILE = ".sql_history"
HISTORY_LINES_MAX = 1_000
SAFE_INTEGER_MAX = 2**53
"""Beyond it a reader of JSON may lose the last digits: such a number is written as text."""
HELP = """\
A statement ends with ; and may go over several lines.
.views          the views, and what each holds
.schema [VIEW]  their columns
.help           this
.quit           leave (or Ctrl-D)
"""


class Form(StrEnum):
    """How a result is written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def command(
    query: Annotated[
        str | None, typer.Argument(help="One statement. Without it: a shell, or stdin.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help=f"At most so many rows (table: {LIMIT_TABLE}).")
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask the ledger and the tables' metadata in SQL; nothing can be changed."""
    from odi_audit.query.sql import SqlSession

    if as_csv and as_json:
        raise UsageError("--csv and --json are two forms: choose one")
    form = Form.CSV if as_csv else Form.JSON if as_json else Form.TABLE
    with Workspace.find(lake) as workspace:
        doubts = tell_doubts(workspace)
        source = Lake(ledger=workspace.ledger(read_only=True), catalog=workspace.catalog)
        with SqlSession(source) as session:
            if query is not None:
                _run(session, query, form, limit)
            elif sys.stdin.isatty():
                _shell(session, form, limit, workspace.root / HISTORY_FILE)
            else:
                for statement in session.statements(sys.stdin.read()):
                    _run(session, statement, form, limit)
    if doubts:
        raise typer.Exit(Exit.FINDINGS)


# -- the shell -------------------------------------------------------------------------------


def _shell(session: SqlSession, form: Form, limit: int | None, history: Path) -> None:
    render.stderr().print("Read-only SQL. .help for help, .quit to leave.")
    _open_history(history)
    pending = ""
    try:
        while True:
            line = input("...> " if pending else "sql> ")
            if not pending and line.strip().startswith("."):
                if not _dot(line.strip()):
                    break
                continue
            pending += line + "\n"
            if line.rstrip().endswith(";"):
                _run_shown(session, pending, form, limit)
                pending = ""
    except EOFError:
        render.stderr().print()
    finally:
        _keep_history(history)


def _run_shown(session: SqlSession, text: str, form: Form, limit: int | None) -> None:
    """Run statements and tell their errors: in a shell they end nothing."""
    try:
        for statement in session.statements(text):
            _run(session, statement, form, limit)
    except OdiError as error:
        render.stderr().print(escape(f"{error.code}: {error.message}"), soft_wrap=True)
    except KeyboardInterrupt:
        render.stderr().print("interrupted")


def _dot(line: str) -> bool:
    """Run a command of the shell; return False to leave it."""
    name, _, rest = line.partition(" ")
    console = render.stdout()
    if name in {".quit", ".exit"}:
        return False
    if name == ".views":
        rows = [(view.name, escape(view.about)) for view in VIEWS.values()]
        console.print(render.table(None, ("view", "holds"), rows))
    elif name == ".schema" and (not rest.strip() or rest.strip() in VIEWS):
        for view in VIEWS.values():
            if rest.strip() in {"", view.name}:
                rows = [(column.name, escape(column.type)) for column in view.columns]
                console.print(render.table(view.name, ("column", "type"), rows))
    elif name == ".schema":
        render.stderr().print(escape(f"no view {rest.strip()}; there are: {', '.join(VIEWS)}"))
    else:
        if name != ".help":
            render.stderr().print(escape(f"unknown: {name}"))
        render.stderr().print(escape(HELP))
    return True


def _open_history(path: Path) -> None:
    """Have the lines of earlier shells at hand; a file that cannot be read is passed over."""
    import readline

    readline.set_history_length(HISTORY_LINES_MAX)
    readline.parse_and_bind("tab: complete")
    readline.set_completer(_complete)
    with suppress(OSError):
        readline.read_history_file(path)


def _keep_history(path: Path) -> None:
    import readline

    # A lake that may only be read keeps no history: that is no reason to fail.
    with suppress(OSError):
        readline.write_history_file(path)
        path.chmod(0o600)


def _complete(text: str, state: int) -> str | None:
    columns = {column.name for view in VIEWS.values() for column in view.columns}
    fitting = sorted(word for word in {*VIEWS, *columns} if word.startswith(text))
    return fitting[state] if state < len(fitting) else None


# -- results ---------------------------------------------------------------------------------


def _run(session: SqlSession, query: str, form: Form, limit: int | None) -> None:
    with render.working("running", prints=True):
        _write(session.run(query), form, limit)


def _write(result: Result, form: Form, limit: int | None) -> None:
    if form is Form.TABLE:
        _write_table(result, limit or LIMIT_TABLE)
        return
    rows = _Rows(result.rows(), limit)
    for part in _csv_parts(result, rows) if form is Form.CSV else _json_parts(result, rows):
        sys.stdout.write(part)
    sys.stdout.flush()
    if rows.cut and form is Form.CSV:
        render.stderr().print(f"The first {limit} rows are written; --limit writes more.")


class _Rows:
    """Rows up to a limit, and afterwards whether there were more."""

    def __init__(self, rows: Iterator[Row], limit: int | None) -> None:
        self._rows = rows
        self._limit = limit
        self.cut = False

    def __iter__(self) -> Iterator[Row]:
        yield from self._rows if self._limit is None else islice(self._rows, self._limit)
        self.cut = self._limit is not None and next(self._rows, None) is not None


def _write_table(result: Result, limit: int) -> None:
    rows = _Rows(result.rows(), limit)
    shown = [tuple(escape(_text(value)) for value in row) for row in rows]
    console = render.stdout()
    console.print(render.table(None, [escape(column.name) for column in result.columns], shown))
    if rows.cut:
        render.stderr().print(f"The first {limit} rows are shown; --limit shows more.")


def _json_parts(result: Result, rows: _Rows) -> Iterator[str]:
    columns = [{"name": column.name, "type": column.type} for column in result.columns]
    head = json.dumps({"schema": SCHEMA, "data": {"columns": columns}}, ensure_ascii=False)
    yield head[:-2] + ', "rows": ['
    for number, row in enumerate(rows):
        values = [_plain(value) for value in row]
        yield (", " if number else "") + json.dumps(values, ensure_ascii=False)
    yield f'], "cut": {json.dumps(rows.cut)}}}}}\n'


def _csv_parts(result: Result, rows: _Rows) -> Iterator[str]:
    yield csv_line(column.name for column in result.columns)
    for row in rows:
        yield csv_line(_cell(value) for value in row)


def _cell(value: object) -> str | int | float | bool | None:
    return value if value is None or isinstance(value, bool | int | float) else _text(value)


def _text(value: object) -> str:
    if value is None:
        return ""
    plain = _plain(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _plain(value: object) -> Json:
    """Return a value as JSON can hold it; times are UTC, long integers are text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > SAFE_INTEGER_MAX:
        return str(value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, datetime):
        return clock.to_text(value if value.tzinfo else value.replace(tzinfo=UTC))
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.hex() if isinstance(value, bytes) else str(value)
