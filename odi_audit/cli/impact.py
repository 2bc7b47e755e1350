"""``odi-audit impact BATCH``: what became of a batch's rows, who read them, what those wrote.

Owns the page for people. Must never show a count without its confidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console

from odi_audit.cli import render
from odi_audit.cli.common import JsonOption, LakeOption
from odi_audit.cli.doubts import tell_doubts, tell_missing
from odi_audit.cli.render import escape
from odi_audit.errors import Exit
from odi_audit.query.downstream import Reader
from odi_audit.query.impact import By, Fate, Impact, TableImpact, impact
from odi_audit.workspace import Workspace

SCHEMA = "odi.impact/1"
PARTITIONS_SHOWN_MAX = 10


def command(
    batch: Annotated[str, typer.Argument(help="The batch; the first characters will do.")],
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what became of a batch's rows, who has read them, and what those wrote from them.

    Exit status 1: a data file is gone and the rest is answered, or the ledger is in doubt.
    """
    with Workspace.find(lake) as workspace:
        doubts = tell_doubts(workspace)
        ledger, catalog = workspace.ledger(read_only=True), workspace.catalog()
        with render.working("following rows") as progress:
            found = impact(ledger, catalog, batch, progress=progress)
    render.answer(
        SCHEMA,
        {**found.to_json(), "doubts": [doubt.to_json() for doubt in doubts]},
        as_json=as_json,
        human=lambda console: _show(console, found),
    )
    tell_missing(found.missing)
    if doubts or found.missing:
        raise typer.Exit(Exit.FINDINGS)


def _show(console: Console, found: Impact) -> None:
    job = f" of {found.job}" if found.job else ""
    console.print(
        f"[bold]{found.batch}[/bold]{escape(job)}, landed {found.time[:19]}Z", soft_wrap=True
    )
    for table in found.tables:
        _table(console, table)
    console.print("Read by" if found.readers else "No consumer has read it.")
    _readers(console, found.readers, 1)
    if found.cut:
        render.stderr().print("There is more downstream than is shown.")


def _table(console: Console, table: TableImpact) -> None:
    fate = table.fate
    undone = f", undone by entry {table.undone_by}" if table.undone_by is not None else ""
    say = _teller(console)
    say(0, f"{table.table.name}: {table.operation}{undone} ({fate.confidence.value})")
    say(1, f"{_count(fate.written)} rows written{_parts(fate)}")
    say(1, f"{_count(fate.live)} still as the batch left them")
    say(1, f"{_count(fate.changed)} changed since")
    _by(console, fate.changed_by)
    say(1, f"{_count(fate.gone)} deleted since")
    _by(console, fate.gone_by)
    if fate.untold or fate.untold_by:
        say(1, f"{_count(fate.untold)} of which nothing tells")
        _by(console, fate.untold_by)
    if fate.note:
        say(1, fate.note)
    marked = f", {table.files_marked:,} given deletes" if table.files_marked else ""
    say(
        1,
        f"files: {_count(table.files_added)} added, {_count(table.files_removed)} removed{marked}",
    )
    if table.partitions_count:
        names = ", ".join(table.partitions[:PARTITIONS_SHOWN_MAX])
        more = ", …" if names and table.partitions_count > PARTITIONS_SHOWN_MAX else ""
        say(1, f"partitions: {table.partitions_count:,}" + (f" ({names}{more})" if names else ""))


def _parts(fate: Fate) -> str:
    told = [
        f"{count:,} {what}"
        for count, what in ((fate.born, "new"), (fate.updated, "updated"))
        if count is not None
    ]
    took = f"; {fate.took:,} rows taken away by it" if fate.took else ""
    return (f" ({', '.join(told)})" if told else "") + took


def _by(console: Console, found: Sequence[By]) -> None:
    say = _teller(console)
    for by in found:
        who = f"by {by.batch}" if by.batch else ""
        note = f"({by.note})" if by.note else ""
        say(2, " ".join(part for part in (f"{by.rows:,}", who, note) if part))


def _readers(console: Console, readers: Sequence[Reader], depth: int) -> None:
    say = _teller(console)
    for reader in readers:
        read = reader.read
        run = f" in run {read.run} of {read.job}" if read.run else ""
        doubt = "" if reader.certain else ", by the ledger's numbers"
        how = "position moved past it" if read.skipped else f"{read.mode.value}"
        who = f"{read.consumer} ({read.principal or 'unknown'})"
        say(depth, f"{who} at {read.time[:19]}Z from {read.table.name}: {how}{run}{doubt}")
        for written in reader.wrote:
            again = " (told above)" if written.again else ""
            say(depth + 1, f"wrote {written.batch} to {', '.join(written.tables)}{again}")
            _readers(console, written.readers, depth + 2)


def _count(value: int | None) -> str:
    return "an unknown number of" if value is None else f"{value:,}"


class _Teller:
    def __init__(self, console: Console) -> None:
        self._console = console

    def __call__(self, depth: int, text: str) -> None:
        self._console.print("  " * depth + escape(text), soft_wrap=True)


def _teller(console: Console) -> _Teller:
    return _Teller(console)
