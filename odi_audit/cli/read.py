"""``odi-audit read``: what a consumer has not read yet; with ``--list``, all consumers.

Owns the pages for people. Must never move a position without ``--apply``.
"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from odi_audit.canonical import JsonObject
from odi_audit.cli import render
from odi_audit.cli.common import JsonOption, LakeOption
from odi_audit.cli.doubts import tell_doubts, tell_missing
from odi_audit.cli.render import escape
from odi_audit.errors import Exit, UsageError
from odi_audit.model.findings import Finding
from odi_audit.model.tables import parse
from odi_audit.query.consumers import ConsumerState, list_consumers
from odi_audit.query.lookup import find_named
from odi_audit.query.pending import LIMIT_DEFAULT, PendingPage, PendingRow
from odi_audit.workspace import Workspace

SCHEMA = "odi.read/1"
LIST_SCHEMA = "odi.consumers/1"
LIST_COLUMNS = ("consumer", "table", "read up to", "at", "stands", "batches behind", "principal")
_MARKS = {"insert": "+", "delete": "-", "update_before": "<", "update_after": ">"}


def command(
    table: Annotated[str | None, typer.Argument(help="The table, like sales.orders.")] = None,
    consumer: Annotated[str | None, typer.Option(help="Who reads.")] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="From here instead of its position: start, oldest, a batch, snapshot, tag or time."
        ),
    ] = None,
    columns: Annotated[str | None, typer.Option(help="Only these columns (a,b).")] = None,
    limit: Annotated[int, typer.Option(help="Show at most so many rows.")] = LIMIT_DEFAULT,
    listing: Annotated[
        bool, typer.Option("--list", help="List consumers with their positions instead.")
    ] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Move the position past everything pending.")
    ] = False,
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the changes that a consumer has not read yet. Its position moves only with --apply.

    Exit status 1: a data file is gone and the rest is answered, or the ledger is in doubt.
    """
    missing: tuple[str, ...] = ()
    with Workspace.find(lake) as workspace:
        if not listing and (table is None or consumer is None):
            raise UsageError(
                "read needs a table and a consumer", hint="odi-audit read --list shows them all"
            )
        doubts = tell_doubts(workspace)
        if listing or table is None or consumer is None:
            _list(workspace, table, doubts, as_json=as_json)
        else:
            names = None if columns is None else [name.strip() for name in columns.split(",")]
            page = _page(
                workspace, table, consumer, since=since, columns=names, limit=limit, apply=apply
            )
            data = {**page.to_json(), **_told(doubts)}
            render.answer(SCHEMA, data, as_json=as_json, human=lambda to: _show(to, page))
            missing = page.missing
            tell_missing(missing, page.untold)
    if doubts or missing:
        raise typer.Exit(Exit.FINDINGS)


def _page(
    workspace: Workspace,
    table: str,
    consumer: str,
    *,
    since: str | None,
    columns: list[str] | None,
    limit: int,
    apply: bool,
) -> PendingPage:
    from odi_audit import api, reading

    access = reading.access_of(api.parts_of(workspace)) if apply else reading.looking(workspace)
    with render.working("comparing") as progress:
        return reading.pending_page(
            access,
            table,
            consumer=consumer,
            since=since,
            columns=columns,
            limit=limit,
            apply=apply,
            progress=progress,
        )


def _told(doubts: list[Finding]) -> JsonObject:
    return {"doubts": [doubt.to_json() for doubt in doubts]}


def _show(console: Console, page: PendingPage) -> None:
    if page.end is None or (page.start is not None and page.start.id == page.end.id):
        console.print(escape(f"{page.consumer} has read all of {page.table}."))
        return
    start = "the beginning" if page.start is None else f"snapshot {page.start.id}"
    console.print(
        escape(
            f"{page.consumer} on {page.table}, from {start} to snapshot {page.end.id}: "
            f"{page.batches:,} batches, {page.inserted:,} inserted, {page.updated:,} updated, "
            f"{page.deleted:,} deleted"
        ),
        soft_wrap=True,
    )
    for row in page.rows:
        console.print(_row(row), soft_wrap=True)
    if page.cut:
        render.stderr().print(f"The first {len(page.rows)} are shown; --limit shows more.")
    if page.applied:
        console.print(f"Moved past all of it: entry {page.entry}.")
    else:
        render.stderr().print("Nothing was confirmed; --apply moves the position past all of it.")


def _row(row: PendingRow) -> str:
    values = ", ".join(f"{name} = {value}" for name, value in row.values.items())
    return escape(f"{_MARKS[row.change]} {values}" + (f"  ({row.batch})" if row.batch else ""))


def _list(workspace: Workspace, table: str | None, doubts: list[Finding], *, as_json: bool) -> None:
    ledger, catalog = workspace.ledger(read_only=True), workspace.catalog()
    uuid = None if table is None else find_named(ledger, catalog, parse(table)).ref.uuid
    found = list_consumers(ledger, catalog, uuid)
    data: JsonObject = {"consumers": [item.to_json() for item in found], **_told(doubts)}
    render.answer(LIST_SCHEMA, data, as_json=as_json, human=lambda to: _show_list(to, found))


def _show_list(console: Console, found: list[ConsumerState]) -> None:
    if not found:
        console.print("No consumer has read anything yet.")
        return
    console.print(render.table(None, LIST_COLUMNS, map(_list_row, found)))


def _list_row(item: ConsumerState) -> tuple[str, ...]:
    read = item.position
    cells = (
        read.consumer,
        read.table.name,
        str(read.to_snapshot),
        read.time[:19] + "Z",
        item.standing.value,
        "" if item.lag_batches is None else f"{item.lag_batches:,}",
        read.principal or "",
    )
    return tuple(map(escape, cells))
