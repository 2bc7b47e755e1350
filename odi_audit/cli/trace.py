"""``odi-audit trace TABLE --where …``: which batches made a row, and last changed it.

Owns the page for people. Must never show an answer without its confidence.
"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from odi_audit.cli import render
from odi_audit.cli.common import JsonOption, LakeOption
from odi_audit.model.tables import parse
from odi_audit.query import facts
from odi_audit.query.trace import LIMIT_DEFAULT, Origin, RowTrace, trace
from odi_audit.workspace import Workspace

SCHEMA = "odi.trace/1"


def command(
    table: Annotated[str, typer.Argument(help="The table, like sales.orders.")],
    where: Annotated[
        str | None, typer.Option(help="Which rows, like: order_id = 7 and region = 'north'.")
    ] = None,
    limit: Annotated[int, typer.Option(help="At most so many rows.")] = LIMIT_DEFAULT,
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show, for each matching row, the batch it was born in and the batch that last changed it."""
    with Workspace.find(lake) as workspace:
        found = trace(
            workspace.ledger(read_only=True), workspace.catalog(), parse(table), where, limit=limit
        )
    render.answer(
        SCHEMA,
        {"table": table, "where": where, "rows": [row.to_json() for row in found]},
        as_json=as_json,
        human=lambda console: _show(console, found, limit),
    )


def _show(console: Console, found: list[RowTrace], limit: int) -> None:
    if not found:
        console.print("No row matches.")
    for row in found:
        values = ", ".join(f"{name} = {value}" for name, value in row.values.items())
        console.print(f"[bold]{escape(values)}[/bold]", soft_wrap=True)
        number = "none" if row.row_id is None else str(row.row_id)
        console.print(f"  row id {number}, at {row.position} of {escape(row.file)}", soft_wrap=True)
        _origin(console, "born in", row.birth)
        if row.last_change == row.birth:
            console.print("  not changed since")
        else:
            _origin(console, "last changed by", row.last_change)
        console.print()
    if len(found) == limit:
        render.stderr().print(f"The first {limit} rows are shown; --limit shows more.")


def _origin(console: Console, label: str, origin: Origin) -> None:
    what = f"batch {origin.batch}" if origin.batch else "a write without a batch"
    if origin.snapshot is None and origin.batch is None:
        what = "unknown"
    console.print(f"  {label} {what} ({origin.confidence.value})", soft_wrap=True)
    lines = {
        "job": origin.job,
        "run": origin.run,
        "operation": origin.operation,
        "source": origin.source,
        "offsets": facts.describe_offsets(origin.offsets),
        "snapshot": origin.snapshot,
        "time": origin.time,
        "principal": origin.principal,
        "code": origin.code,
        "note": origin.note,
    }
    for name, value in lines.items():
        if value:
            console.print(f"      {name:<10}{escape(value)}", soft_wrap=True)
