"""``odi-audit offsets TABLE|JOB``: was every part of every source read once?

Owns the exit status 1 for findings, and the page for people. Must never judge: one call of the
library does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from odi_audit.cli import render
from odi_audit.cli.common import JsonOption, LakeOption
from odi_audit.cli.doubts import tell_doubts
from odi_audit.cli.render import escape
from odi_audit.errors import Exit
from odi_audit.ids import job_name
from odi_audit.model.tables import parse
from odi_audit.query.lookup import find_named
from odi_audit.query.offset_events import Continuity, Event, PartitionLine, SourceLine
from odi_audit.query.offsets import continuity
from odi_audit.workspace import Workspace

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA = "odi.offsets/1"
LINES = ("table", "job", "source", "partition", "from", "to", "batches", "last batch")
EVENTS = ("what", "standing", "partition", "part", "batch before", "batch after", "time", "reason")

WHOLE = ("part", "batch before", "batch after", "time")
"""Columns that are never folded."""


def command(
    subject: Annotated[
        str, typer.Argument(metavar="TABLE|JOB", help="Like sales.orders, or sales/orders_import.")
    ],
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Accepted gaps, recorded replays and rewinds are findings too."
        ),
    ] = False,
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show gaps, overlaps, rewinds and replays; exit status 1 if nobody answers for one."""
    with Workspace.find(lake) as workspace:
        doubts = tell_doubts(workspace)
        ledger = workspace.ledger(read_only=True)
        if "/" in subject:  # which no table's name may hold
            job = job_name(subject)
            with render.working("reading the ledger"):
                found = continuity(ledger, job=job)
        else:
            named = find_named(ledger, workspace.catalog(), parse(subject))
            with render.working("reading the ledger"):
                found = continuity(ledger, table=named.ref.uuid)
    render.answer(
        SCHEMA,
        {"subject": subject, "strict": strict, **found.to_json(strict=strict)},
        as_json=as_json,
        human=lambda console: _show(console, found, strict=strict),
    )
    if doubts or found.findings(strict=strict):
        raise typer.Exit(Exit.FINDINGS)


def _show(console: Console, found: Continuity, *, strict: bool) -> None:
    if not found.lines:
        console.print("No batch has read from a source.")
    else:
        rows = [row for line in found.lines for row in _line(line)]
        console.print(render.table(None, LINES, rows))
    if found.events:
        console.print()
        made = render.table(None, EVENTS, map(_event, found.events))
        for column in made.columns:
            column.no_wrap = column.header in WHOLE
        console.print(made)
    if found.unreadable_count:
        render.stderr().print(f"{found.unreadable_count} batches did not record their ranges.")
    count = len(found.findings(strict=strict))
    console.print()
    console.print("Continuous." if not count else f"Findings: {count}.")


def _line(line: SourceLine) -> list[tuple[str, ...]]:
    if not line.partitions:
        kinds = f"{line.partitions_count:,} of kind {line.kind.value}"
        cells = (line.table, line.job, line.source, kinds, "", "", f"{line.batches_count:,}", "")
        return [tuple(map(escape, cells))]
    return [_partition(line, part) for part in line.partitions]


def _partition(line: SourceLine, part: PartitionLine) -> tuple[str, ...]:
    cells = (
        line.table,
        line.job,
        line.source,
        part.partition,
        "" if part.first is None else str(part.first),
        "" if part.last is None else str(part.last),
        f"{part.batches_count:,}",
        part.last_batch or "",
    )
    return tuple(map(escape, cells))


def _event(event: Event) -> tuple[str, ...]:
    filled = f" by {event.filled_by}" if event.filled_by else ""
    cells = (
        event.kind.value,
        event.standing.value + filled,
        event.partition,
        f"[{'' if event.start is None else event.start}, {event.end})",
        event.before or "",
        event.after or "",
        event.time[:19] + "Z",
        event.reason or "",
    )
    return tuple(map(escape, cells))
