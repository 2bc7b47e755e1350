"""``odi-audit lineage check``: does Marquez hold what the ledger says?

Owns the options and the page for people. Must never take a key from the command line, where others
see it, nor show one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from odi_audit.cli import render
from odi_audit.cli.common import JsonOption, LakeOption
from odi_audit.cli.render import escape
from odi_audit.errors import Exit
from odi_audit.ledger.port import EntryFilter, Ledger
from odi_audit.model.tables import TableRef, parse
from odi_audit.query.lookup import find_named
from odi_audit.query.since import moment
from odi_audit.workspace import Workspace

if TYPE_CHECKING:
    from rich.console import Console

    from lineage.marquez.check import Report
    from odi_audit.model.findings import Finding

SCHEMA = "odi.lineage-check/1"
KEY_VARIABLE = "OPENLINEAGE_API_KEY"


def check_command(
    marquez: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Address of Marquez's API (else: lineage.url in odi.toml)."
        ),
    ] = None,
    first: Annotated[
        str | None,
        typer.Option("--from", help="Begin at this entry: an index, an age (3d) or a time."),
    ] = None,
    table: Annotated[str | None, typer.Option(help="Only runs that touch this table.")] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Send again what is missing or wrong.")
    ] = False,
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare the ledger with what Marquez holds; exit status 1 with findings.

    An API key is taken from odi.toml, if the address is the one there, else from the variable
    OPENLINEAGE_API_KEY.
    """
    from lineage.marquez.check import Question, check
    from lineage.marquez.wiring import relayed, server_of

    with Workspace.find(lake) as workspace:
        server = server_of(workspace.settings, marquez, os.environ.get(KEY_VARIABLE) or None)
        ledger = workspace.ledger(read_only=True)
        question = Question(
            first=_first(workspace, ledger, first),
            table=None if table is None else _table(workspace, table),
            relay=relayed(workspace.settings, server),
        )
        try:
            with render.working("comparing") as progress:
                report = check(ledger, server, question, repair=repair, progress=progress)
        finally:
            server.close()
    render.answer(
        SCHEMA, report.to_json(), as_json=as_json, human=lambda console: _show(console, report)
    )
    if report.findings_count:
        raise typer.Exit(Exit.FINDINGS)


def _first(workspace: Workspace, ledger: Ledger, written: str | None) -> int:
    if written is None:
        return 0
    if written.isdecimal():
        return int(written)
    since = moment(written, workspace.clock.now())
    found = ledger.find(EntryFilter(since=since), limit=1)
    return found[0].index if found else ledger.head().size


def _table(workspace: Workspace, table: str) -> TableRef:
    ledger = workspace.ledger(read_only=True)
    return find_named(ledger, workspace.catalog(), parse(table)).ref


def _show(console: Console, report: Report) -> None:
    for note in report.notes:
        _line(console, note, "note")
    for finding in report.findings:
        _line(console, finding, finding.code)
    more = report.findings_count - len(report.findings)
    if more > 0:
        by_code = ", ".join(f"{code} {count:,}" for code, count in report.counts.items())
        console.print(f"… and {more:,} more. All of them: {by_code}.")
    if report.repaired is not None:
        sent = report.repaired
        console.print(
            f"Sent again: {_count(sent.sent_count, 'event')} of {_count(sent.runs_count, 'run')}."
        )
        for event in sent.refused:
            told = f"refused ({event.status}): {event.state} of run {event.run}"
            console.print(escape(f"{told}, entry {event.index}"), soft_wrap=True)
    looked = f"{_count(report.runs_count, 'run')} of {_count(report.jobs_count, 'job')} compared"
    if report.pending_runs_count:
        looked += f", {_count(report.pending_runs_count, 'run')} on the way"
    if report.findings_count:
        console.print(f"{_count(report.findings_count, 'finding')}: {looked}.")
        if report.repaired is None and any(finding.hint for finding in report.findings):
            console.print("  next: the same with --repair sends it again")
    else:
        console.print(f"The same: {looked}.")


def _line(console: Console, finding: Finding, label: str) -> None:
    console.print(escape(f"{label}: {finding.message}"), soft_wrap=True)


def _count(number: int, one: str) -> str:
    return f"{number:,} {one if number == 1 else one + 's'}"
