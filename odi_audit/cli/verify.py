"""``odi-audit verify [TABLE…]``: do the tables and the ledger tell the same story?

Owns the exit status 1 for findings, and the page for people. Must never settle what it finds.
"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from odi_audit.cli import render
from odi_audit.cli.common import JsonOption, LakeOption
from odi_audit.errors import Exit
from odi_audit.model.findings import Finding
from odi_audit.model.tables import parse
from odi_audit.query.verify import Verification, examine
from odi_audit.workspace import Workspace

SCHEMA = "odi.verify/1"


def command(
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="[TABLE]...", help="Only these tables.")
    ] = None,
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare the tables with the ledger; exit status 1 with findings."""
    with Workspace.find(lake) as workspace:
        result = examine(
            workspace.ledger(read_only=True),
            workspace.catalog(),
            [parse(table) for table in tables] if tables else None,
        )
    render.answer(
        SCHEMA, result.to_json(), as_json=as_json, human=lambda console: _show(console, result)
    )
    if result.findings:
        raise typer.Exit(Exit.FINDINGS)


def _show(console: Console, result: Verification) -> None:
    for note in result.notes:
        _line(console, note, "note")
    for finding in result.findings:
        _line(console, finding, finding.code)
    looked = (
        f"{_count(len(result.tables), 'table')}, {_count(result.snapshots_count, 'snapshot')} and "
        f"{_count(result.entries_count, 'ledger entry', 'ledger entries')} compared"
    )
    if result.findings:
        console.print(f"{_count(len(result.findings), 'finding')}: {looked}.")
    else:
        console.print(f"Clean: {looked}.")


def _line(console: Console, finding: Finding, label: str) -> None:
    console.print(escape(f"{label}: {finding.message}"), soft_wrap=True)
    if finding.hint:
        console.print(escape(f"  next: {finding.hint}"), soft_wrap=True)


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
