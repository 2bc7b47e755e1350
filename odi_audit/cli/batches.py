"""``odi-audit batches``: which batches there are, newest first.

Owns the options and the table for people. Must never decide how a batch stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from odi_audit.cli import render
from odi_audit.cli.common import JsonOption, LakeOption
from odi_audit.cli.render import escape
from odi_audit.ids import TableUuid, job_name
from odi_audit.model.tables import parse
from odi_audit.query.batches import LIMIT_DEFAULT, BatchState, BatchSummary, list_batches
from odi_audit.query.lookup import find_named
from odi_audit.query.since import moment
from odi_audit.workspace import Workspace

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA = "odi.batches/1"
COLUMNS = ("batch", "state", "job", "tables", "operation", "rows", "offsets", "started")


def command(
    table: Annotated[str | None, typer.Option(help="Only batches on this table.")] = None,
    job: Annotated[str | None, typer.Option(help="Only batches of this job.")] = None,
    since: Annotated[
        str | None, typer.Option(help="Begun since: an age (2h, 3d) or an ISO 8601 time.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="Begun before: an age or an ISO 8601 time.")
    ] = None,
    state: Annotated[BatchState | None, typer.Option(help="Only batches that stand so.")] = None,
    limit: Annotated[int, typer.Option(help="At most so many, the newest.")] = LIMIT_DEFAULT,
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List batches, newest first."""
    with Workspace.find(lake) as workspace:
        now = workspace.clock.now()
        found = list_batches(
            workspace.ledger(read_only=True),
            table=None if table is None else _uuid(workspace, table),
            job=None if job is None else job_name(job),
            since=None if since is None else moment(since, now),
            until=None if until is None else moment(until, now),
            state=state,
            limit=limit,
        )
    render.answer(
        SCHEMA,
        {"batches": [summary.to_json() for summary in found]},
        as_json=as_json,
        human=lambda console: _show(console, found, limit),
    )


def _uuid(workspace: Workspace, table: str) -> TableUuid:
    ledger = workspace.ledger(read_only=True)
    return find_named(ledger, workspace.catalog(), parse(table)).ref.uuid


def _show(console: Console, found: list[BatchSummary], limit: int) -> None:
    if not found:
        console.print("No batches.")
        return
    console.print(render.table(None, COLUMNS, map(_row, found)))
    if len(found) == limit:
        render.stderr().print(f"The newest {limit} are shown; --limit shows more.")


def _row(summary: BatchSummary) -> tuple[str, ...]:
    attempts = f" ({summary.attempts} attempts)" if summary.attempts > 1 else ""
    cells = (
        summary.batch,
        summary.state.value + attempts,
        summary.job or "",
        ", ".join(summary.tables),
        ", ".join(summary.operations),
        "" if summary.rows is None else f"{summary.rows:,}",
        summary.offsets,
        summary.started[:19] + "Z",
    )
    return tuple(map(escape, cells))
