"""``odi-audit report NAME``: what happened in a period, for those who have to account for it.

Owns the options, where a report is written to, and the exit status 1 when the ledger fails
verification. Must never leave half a report in a file.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import closing
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odi_audit import clock
from odi_audit.cli import render
from odi_audit.cli.common import JsonOption, LakeOption
from odi_audit.cli.render import escape
from odi_audit.errors import Exit, KeyProblem, StorageError, UsageError
from odi_audit.model.tables import parse
from odi_audit.query.lookup import find_named
from odi_audit.query.report_rows import Cell
from odi_audit.query.reports import (
    Basis,
    Report,
    ReportName,
    csv_parts,
    json_parts,
    make_report,
    rest_on,
)
from odi_audit.query.since import moment
from odi_audit.workspace import Workspace

if TYPE_CHECKING:
    from odi_audit.ledger.note import SigningKey, VerifierKey
    from odi_audit.ledger.store import SqlLedger

ROWS_SHOWN_MAX = 500
"""Rows of the table for people; the other forms have them all."""

_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


class Form(StrEnum):
    """How a report is written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    HTML = "html"


def command(
    name: Annotated[ReportName, typer.Argument(help="Which report.")],
    since: Annotated[
        str | None, typer.Option("--from", help="Since: an age (30d) or an ISO 8601 time.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--to", help="Before: an age or an ISO 8601 time.")
    ] = None,
    table: Annotated[
        list[str] | None, typer.Option("--table", help="Only this table. May be repeated.")
    ] = None,
    form: Annotated[
        Form | None, typer.Option("--format", help="Else told by the file's name, or a table.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="File, in place of stdout.")] = None,
    skip_verification: Annotated[
        bool,
        typer.Option("--skip-verification", help="Do not check the ledger; the report says so."),
    ] = False,
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a report for a period, with the head of the ledger that it rests on."""
    from odi_audit.cli.ledger_upkeep import open_unchecked

    chosen = _form(form, out, as_json=as_json)
    with Workspace.find(lake) as workspace, closing(open_unchecked(workspace)) as ledger:
        now, catalog = workspace.clock.now(), workspace.catalog()
        begin = None if since is None else moment(since, now)
        end = None if until is None else moment(until, now)
        basis = _basis(workspace, ledger, check=not skip_verification)
        report = make_report(
            ledger,
            catalog,
            name,
            basis=basis,
            made_at=clock.to_text(now),
            since=begin,
            until=end,
            tables=[find_named(ledger, catalog, parse(item)) for item in table] if table else None,
        )
        with render.working("writing the report", prints=out is None):
            _write(report, chosen, out)
        if out is not None:
            render.stderr().print(f"{escape(str(out))}: rests on {report.basis}", soft_wrap=True)
    if basis.verified is False:
        render.stderr().print(f"The ledger fails verification: {len(basis.findings)} findings.")
        render.stderr().print("  next: odi-audit ledger verify")
        raise typer.Exit(Exit.FINDINGS)


def _form(form: Form | None, out: Path | None, *, as_json: bool) -> Form:
    if as_json:
        if form not in {None, Form.JSON}:
            raise UsageError(f"--json and --format {form} are not the same form")
        return Form.JSON
    if form is not None:
        return form
    suffix = "" if out is None else out.suffix.lower().removeprefix(".")
    return {"csv": Form.CSV, "json": Form.JSON, "html": Form.HTML, "htm": Form.HTML}.get(
        suffix, Form.TABLE
    )


def _basis(workspace: Workspace, ledger: SqlLedger, *, check: bool) -> Basis:
    from odi_audit.ledger.verify import heads_in

    key, verifiers = _keys(workspace)
    with render.working("verifying") as progress:
        return rest_on(
            ledger,
            key=key,
            verifiers=verifiers,
            heads=heads_in(workspace.heads_dir),
            check=check,
            progress=progress,
        )


def _keys(workspace: Workspace) -> tuple[SigningKey | None, list[VerifierKey]]:
    """Return the lake's keys: an auditor may have the public ones only."""
    from odi_audit.ledger import note

    public = note.public_path(workspace.settings.ledger.key_path)
    verifiers = note.read_verifiers(public) if public.exists() else []
    try:
        key = workspace.signing_key()
    except KeyProblem:
        return None, verifiers
    return key, verifiers or [key.verifier]


# -- writing ---------------------------------------------------------------------------------


def _write(report: Report, form: Form, out: Path | None) -> None:
    if out is None:
        for part in _parts(report, form):
            sys.stdout.write(part)
        return
    draft = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        with draft.open("w", encoding="utf-8", errors="replace", newline="") as stream:
            stream.writelines(_parts(report, form))
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(out)
    except OSError as problem:
        raise StorageError(f"report {out} cannot be written: {problem.strerror}") from problem
    finally:
        draft.unlink(missing_ok=True)


def _parts(report: Report, form: Form) -> Iterator[str]:
    if form is Form.JSON:
        return json_parts(report)
    if form is Form.CSV:
        return csv_parts(report)
    if form is Form.HTML:
        from odi_audit.query.report_page import page_parts

        return page_parts(report)
    return _table_parts(report)


def _table_parts(report: Report) -> Iterator[str]:
    console = render.stdout()
    rows = list(islice(report.rows, ROWS_SHOWN_MAX))
    with console.capture() as captured:
        console.print(f"[bold]{escape(report.title)}[/bold]")
        if report.basis.verified is False:
            console.print("[bold red]The ledger fails verification.[/bold red]")
        until = report.until or report.made_at
        console.print(f"from {report.since or 'the beginning'} to {until}")
        console.print(f"ledger: {report.basis}", soft_wrap=True)
        if rows:
            # Wide reports: a column that says nothing here gives its room to the others.
            kept = [at for at in range(len(report.columns)) if any(row[at] for row in rows)]
            names = [report.columns[at].replace("_", " ") for at in kept]
            shown = [tuple(escape(_shown(row[at])) for at in kept) for row in rows]
            console.print(render.table(None, names, shown))
        else:
            console.print("Nothing to report.")
    yield captured.get()
    if next(report.rows, None) is not None:
        render.stderr().print(f"The first {ROWS_SHOWN_MAX} rows are shown; --format csv has all.")


def _shown(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    text = str(cell)
    return text[:19] + "Z" if _MOMENT.fullmatch(text) else text
