"""``odi-audit coverage [TABLE…]``: which share of the writes came through the committer.

Owns the options and the tables for people. Must never round a share up to all.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from odi_audit.cli import render
from odi_audit.cli.common import JsonOption, LakeOption
from odi_audit.cli.doubts import tell_doubts
from odi_audit.cli.render import escape
from odi_audit.errors import Exit, UsageError
from odi_audit.model.tables import parse
from odi_audit.query.coverage import Coverage, Period, Share, coverage
from odi_audit.query.lookup import find_named
from odi_audit.query.since import moment
from odi_audit.workspace import Workspace

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA = "odi.coverage/1"
COLUMNS = ("table", "period", "snapshots", "ours", "share", "rows", "ours", "share", "foreign")


def command(
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="[TABLE]...", help="Only these tables.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--from", help="Since: an age (30d) or an ISO 8601 time.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--to", help="Before: an age or an ISO 8601 time.")
    ] = None,
    period: Annotated[Period, typer.Option(help="How long each period is.")] = Period.DAY,
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show, by table and period, the share of snapshots and rows that came through here."""
    with Workspace.find(lake) as workspace:
        now = workspace.clock.now()
        begin = None if since is None else moment(since, now)
        end = None if until is None else moment(until, now)
        if begin is not None and end is not None and end <= begin:
            raise UsageError(f"the period ends at {end}, not after its beginning at {begin}")
        doubts = tell_doubts(workspace)
        ledger, catalog = workspace.ledger(read_only=True), workspace.catalog()
        named = [find_named(ledger, catalog, parse(table)) for table in tables or ()]
        with render.working("reading the ledger and the tables"):
            found = coverage(ledger, catalog, named or None, since=begin, until=end, period=period)
    data = {"from": begin, "to": end, "period": period.value, **found.to_json()}
    render.answer(SCHEMA, data, as_json=as_json, human=lambda console: _show(console, found))
    if doubts:
        raise typer.Exit(Exit.FINDINGS)


def _show(console: Console, found: Coverage) -> None:
    if not found.shares:
        console.print("Nothing was written.")
        return
    console.print(render.table(None, COLUMNS, map(_row, found.shares)))
    if len(found.shares) > len(found.totals):
        console.print()
        console.print(render.table("Totals", COLUMNS, map(_row, found.totals)))


def _row(share: Share) -> tuple[str, ...]:
    cells = (
        share.table,
        share.period,
        f"{share.snapshots_count:,}",
        f"{share.snapshots_ours_count:,}",
        _percent(share.snapshots_share),
        f"{share.rows_count:,}",
        f"{share.rows_ours_count:,}",
        _percent(share.rows_share),
        "; ".join(f"{name} ({count})" for name, count in share.writers),
    )
    return tuple(map(escape, cells))


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{math.floor(share * 1000) / 10:.1f} %"
