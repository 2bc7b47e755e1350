"""``odi-audit diff TABLE A B``: which rows were added, removed and changed between two states.

Owns the page for people. Must never compare anything itself.
"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from odi_audit.cli import render
from odi_audit.cli.common import JsonOption, LakeOption
from odi_audit.cli.doubts import tell_doubts, tell_missing
from odi_audit.cli.render import escape
from odi_audit.errors import Exit
from odi_audit.model.tables import parse
from odi_audit.query.diff import LIMIT_DEFAULT, Diff, DiffPlace, DiffRow, MatchedBy, diff
from odi_audit.workspace import Workspace

SCHEMA = "odi.diff/1"
_MARKS = {"added": "+", "removed": "-", "changed": "~"}
_PLACE_HELP = "A batch (b-…), a snapshot id, a tag, a branch or a time."


def command(
    table: Annotated[str, typer.Argument(help="The table, like sales.orders.")],
    before: Annotated[str, typer.Argument(metavar="A", help=_PLACE_HELP)],
    after: Annotated[str, typer.Argument(metavar="B", help="The same, for the other state.")],
    key: Annotated[
        str | None, typer.Option(help="Match rows by these columns (a,b), not by row id.")
    ] = None,
    where: Annotated[
        str | None, typer.Option(help="Only rows that match in A or in B, like: region = 'north'.")
    ] = None,
    limit: Annotated[int, typer.Option(help="At most so many samples of each kind.")] = (
        LIMIT_DEFAULT
    ),
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which rows were added, removed and changed between two states of a table.

    Exit status 1: a data file is gone and the rest is answered, or the ledger is in doubt.
    """
    columns = [name.strip() for name in key.split(",") if name.strip()] if key else []
    with Workspace.find(lake) as workspace:
        doubts = tell_doubts(workspace)
        ledger, catalog = workspace.ledger(read_only=True), workspace.catalog()
        with render.working("comparing") as progress:
            found = diff(
                ledger,
                catalog,
                parse(table),
                before,
                after,
                key=columns,
                where=where,
                limit=limit,
                progress=progress,
            )
    render.answer(
        SCHEMA,
        {**found.to_json(), "doubts": [doubt.to_json() for doubt in doubts]},
        as_json=as_json,
        human=lambda console: _show(console, found, limit),
    )
    tell_missing(found.missing, found.untold)
    if doubts or found.missing:
        raise typer.Exit(Exit.FINDINGS)


def _show(console: Console, found: Diff, limit: int) -> None:
    console.print(f"{escape(found.table)}: {_place(found.before)}", soft_wrap=True)
    console.print(f"{' ' * len(found.table)}  → {_place(found.after)}", soft_wrap=True)
    by = ", ".join(found.key) if found.key else found.matched_by.value
    console.print(
        f"{found.added:,} added, {found.removed:,} removed, {found.changed:,} changed "
        f"(rows matched by {escape(by)})"
    )
    if found.rewritten:
        console.print(f"{found.rewritten:,} written anew with the same values")
    if found.columns:
        counts = ", ".join(f"{name} in {count:,}" for name, count in found.columns.items())
        console.print(f"changed columns: {escape(counts)}", soft_wrap=True)
    if not found.schema.none:
        console.print(f"columns of the table: {escape(_schema(found))}", soft_wrap=True)
    for row in found.samples:
        console.print(_row(row), soft_wrap=True)
    if max(found.added, found.removed, found.changed) > limit:
        render.stderr().print(f"At most {limit} rows of each kind are shown; --limit shows more.")
    if found.matched_by is MatchedBy.VALUES and found.added and found.removed:
        render.stderr().print("The rows have no ids: --key tells changed rows from new ones.")


def _place(place: DiffPlace) -> str:
    batch = f", batch {place.batch}" if place.batch else ""
    return escape(f"snapshot {place.snapshot} of {place.time[:19]}Z{batch}")


def _schema(found: Diff) -> str:
    schema = found.schema
    return "; ".join(
        [
            *(f"{name} added" for name in schema.added),
            *(f"{name} dropped" for name in schema.dropped),
            *(f"{was} renamed to {now}" for was, now in schema.renamed.items()),
            *(f"{name} from {was} to {now}" for name, (was, now) in schema.retyped.items()),
        ]
    )


def _row(row: DiffRow) -> str:
    values = ", ".join(
        f"{name} = {row.differences[name][0]} → {value}"
        if name in row.differences
        else f"{name} = {value}"
        for name, value in row.values.items()
    )
    return escape(f"{_MARKS[row.change]} {values}" + (f"  ({row.batch})" if row.batch else ""))
