"""``odi-audit batch ID``: everything known about one batch.

Owns the page for people. Must never start a JVM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from odi_audit.cli import render
from odi_audit.cli.common import JsonOption, LakeOption
from odi_audit.cli.render import escape
from odi_audit.query import facts
from odi_audit.query.detail import Attempt, BatchDetail, TablePart, batch_detail
from odi_audit.workspace import Workspace

if TYPE_CHECKING:
    from rich.console import Console

    from odi_audit.query.consumers import Read

SCHEMA = "odi.batch/1"
PART_COLUMNS = ("table", "operation", "rows", "snapshot", "is in", "sequence", "first row id")
ATTEMPT_COLUMNS = ("attempt", "outcome", "principal", "code", "started", "settled", "reason")
READ_COLUMNS = ("table", "read", "from snapshot", "to snapshot", "rows", "consumer")
ENTRY_COLUMNS = ("entry", "kind", "time", "table")


def command(
    batch: Annotated[str, typer.Argument(help="The batch id, or its first characters.")],
    lake: LakeOption = None,
    as_json: JsonOption = False,
    ledger_only: Annotated[
        bool, typer.Option("--ledger-only", help="Do not look for the snapshots in the tables.")
    ] = False,
) -> None:
    """Show everything known about one batch."""
    with Workspace.find(lake) as workspace:
        detail = batch_detail(
            workspace.ledger(read_only=True),
            None if ledger_only else workspace.catalog(),
            batch,
        )
    render.answer(
        SCHEMA, detail.to_json(), as_json=as_json, human=lambda console: _show(console, detail)
    )


def _show(console: Console, detail: BatchDetail) -> None:
    summary = detail.summary
    lines = {
        "batch": summary.batch,
        "state": summary.state.value + (" (recovered)" if summary.recovered else ""),
        "job": summary.job or "",
        "run": summary.run or "",
        "source": summary.source or "",
        "offsets": facts.describe_offsets(detail.offsets),
        "generation": "" if summary.generation is None else str(summary.generation),
        "started": summary.started,
        "settled": summary.settled or "",
    }
    for label, value in lines.items():
        if value:
            console.print(f"{label:<11}{escape(value)}")
    console.print()
    console.print(render.table("Tables", PART_COLUMNS, map(_part, detail.tables)))
    for part in detail.tables:
        schemas = facts.describe_schemas(part.source_facts)
        if schemas:
            console.print(f"schemas of {escape(part.table.name)}: {escape(schemas)}")
    console.print()
    if detail.reads:
        console.print(render.table("Read by its run", READ_COLUMNS, map(_read, detail.reads)))
        console.print()
    console.print(render.table("Attempts", ATTEMPT_COLUMNS, map(_attempt, detail.attempts)))
    console.print()
    rows = [
        (
            str(entry.index),
            entry.kind.value,
            entry.time,
            escape(entry.table.name) if entry.table else "",
        )
        for entry in detail.entries
    ]
    console.print(render.table("Ledger", ENTRY_COLUMNS, rows))


def _part(part: TablePart) -> tuple[str, ...]:
    undone = f", undone by entry {part.undone_by}" if part.undone_by is not None else ""
    cells = (
        part.table.name,
        part.operation,
        "" if part.rows is None else f"{part.rows:,}",
        part.snapshot or "",
        part.place.value + undone,
        "" if part.sequence_number is None else str(part.sequence_number),
        "" if part.first_row_id is None else str(part.first_row_id),
    )
    return tuple(map(escape, cells))


def _read(read: Read) -> tuple[str, ...]:
    cells = (
        read.table.name,
        read.mode.value,
        read.from_snapshot or "",
        read.to_snapshot or "",
        "" if read.rows is None else f"{read.rows:,}",
        read.consumer,
    )
    return tuple(map(escape, cells))


def _attempt(attempt: Attempt) -> tuple[str, ...]:
    reason = " ".join(part for part in (attempt.reason_code, attempt.reason) if part)
    cells = (
        str(attempt.intent),
        attempt.outcome,
        attempt.principal or "",
        attempt.code or "",
        attempt.started,
        attempt.settled or "",
        reason,
    )
    return tuple(map(escape, cells))
