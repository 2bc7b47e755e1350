"""``odi-audit history TABLE``: who did what to a table, in order.

Owns the options and the table for people. Must never hide what was refused or came past the
committer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from odi_audit.canonical import JsonObject
from odi_audit.cli import render
from odi_audit.cli.common import JsonOption, LakeOption
from odi_audit.cli.doubts import tell_doubts
from odi_audit.cli.render import escape
from odi_audit.errors import Exit
from odi_audit.model.entries import Entry
from odi_audit.model.tables import parse
from odi_audit.query.dropped import said, told
from odi_audit.query.lookup import Named, find_named
from odi_audit.query.since import moment
from odi_audit.query.timeline import LIMIT_DEFAULT, TableEvent, timeline
from odi_audit.workspace import Workspace

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA = "odi.history/1"
COLUMNS = ("time", "outcome", "operation", "rows", "by", "batch", "offsets", "snapshot", "detail")

WHOLE = ("time", "batch", "snapshot")
"""Columns that are never folded: the last one gives way."""


def command(
    table: Annotated[str, typer.Argument(help="The table, like sales.orders.")],
    since: Annotated[
        str | None, typer.Option(help="Since: an age (2h, 3d) or an ISO 8601 time.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Before: an age or an ISO 8601 time.")] = None,
    limit: Annotated[int, typer.Option(help="At most so many, the newest.")] = LIMIT_DEFAULT,
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show who did what to a table: all operations, refused and foreign ones marked."""
    with Workspace.find(lake) as workspace:
        doubts = tell_doubts(workspace)
        now = workspace.clock.now()
        ledger = workspace.ledger(read_only=True)
        named = find_named(ledger, workspace.catalog(), parse(table))
        events = timeline(
            ledger,
            named,
            since=None if since is None else moment(since, now),
            until=None if until is None else moment(until, now),
            limit=limit,
        )
    render.answer(
        SCHEMA,
        {
            "table": named.ref.name,
            "table_uuid": named.ref.uuid,
            "gone": named.state is None,
            "dropped": None if named.dropped is None else told(named.dropped),
            "earlier": [_earlier(entry) for entry in named.earlier],
            "events": [event.to_json() for event in events],
        },
        as_json=as_json,
        human=lambda console: _show(console, named, events, limit),
    )
    if doubts:
        raise typer.Exit(Exit.FINDINGS)


def _earlier(entry: Entry) -> JsonObject:
    return {"table_uuid": None if entry.table is None else entry.table.uuid, **told(entry)}


def _show(console: Console, named: Named, events: list[TableEvent], limit: int) -> None:
    gone = "; the catalog no longer has it" if named.state is None else ""
    if named.dropped is not None:
        gone = f"; {said(named.dropped)}"
    console.print(escape(f"{named.ref.name} ({named.ref.uuid}){gone}"), soft_wrap=True)
    for entry in named.earlier:
        other = "" if entry.table is None else f" ({entry.table.uuid})"
        line = f"another table had this name before{other}: {said(entry)}"
        console.print(escape(line), soft_wrap=True)
    if not events:
        console.print("Nothing happened to it.")
        return
    made = render.table(None, COLUMNS, map(_row, events))
    for column in made.columns[:-1]:
        column.no_wrap = column.header in WHOLE
    console.print(made)
    if len(events) == limit:
        render.stderr().print(f"The newest {limit} are shown; --limit shows more.")


def _row(event: TableEvent) -> tuple[str, ...]:
    by = " ".join(part for part in (event.principal, event.job) if part)
    cells = (
        ("" if event.time_exact else "by ") + event.time[:19] + "Z",
        event.outcome.value + (" (recovered)" if event.recovered else ""),
        event.operation,
        "" if event.rows is None else f"{event.rows:,}",
        by or str(event.writer or ""),
        event.batch or "",
        event.offsets,
        (event.snapshot or "") + (" (expired)" if event.retained is False else ""),
        event.detail or "",
    )
    return tuple(map(escape, cells))
