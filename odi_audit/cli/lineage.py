"""``odi-audit lineage TABLE[.COLUMN]``: what feeds a table, and what it feeds.

Owns the options and the choice of the form. Must never look at anything but the ledger; what
compares it with a backend is ``lineage check``.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from odi_audit.cli import render
from odi_audit.cli.common import JsonOption, LakeOption
from odi_audit.cli.doubts import tell_doubts
from odi_audit.cli.lineage_check import check_command
from odi_audit.cli.render import escape
from odi_audit.errors import Exit, UsageError
from odi_audit.query.since import moment
from odi_audit.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lineage.graph.answer import Lineage, Question
    from odi_audit.model.findings import Finding

SHOW = "show"


class _TableFirst(TyperGroup):
    """A group whose first word may be a table in place of a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the name of the usual command before what is not one of the others."""
        if args and args[0] not in self.commands and args[0] not in {"--help", "-h"}:
            args = [SHOW, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_TableFirst,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    subcommand_metavar="TABLE[.COLUMN] [OPTIONS] | check [OPTIONS]",
    help="Show what feeds a table and what it feeds; compare it with Marquez.",
)


@app.command(SHOW)
def show_command(
    target: Annotated[
        str, typer.Argument(metavar="TABLE[.COLUMN]", help="Like sales.orders.amount.")
    ],
    up: Annotated[bool, typer.Option("--up", help="Only what feeds it.")] = False,
    down: Annotated[bool, typer.Option("--down", help="Only what it feeds.")] = False,
    depth: Annotated[int | None, typer.Option(help="At most so many tables away.")] = None,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of", help="An old version: a batch, a snapshot id, an age (3d) or a time."
        ),
    ] = None,
    columns: Annotated[bool, typer.Option("--columns", help="Show columns too.")] = False,
    everything: Annotated[
        bool,
        typer.Option(
            "--all", help="Also compaction, schema changes, rollbacks, expiry, and every folder."
        ),
    ] = False,
    as_mermaid: Annotated[bool, typer.Option("--mermaid", help="Print Mermaid.")] = False,
    as_dot: Annotated[bool, typer.Option("--dot", help="Print Graphviz dot.")] = False,
    html: Annotated[
        Path | None, typer.Option(help="Write one page to open in a browser.", dir_okay=False)
    ] = None,
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what feeds a table and what it feeds, from the ledger alone.

    With --as-of, only batches whose rows were in that version count, and those that fed the
    versions which they had read. Exit status 1: the ledger is in doubt.
    """
    if sum((as_json, as_mermaid, as_dot, html is not None)) > 1:
        raise UsageError("--json, --mermaid, --dot and --html are different forms: choose one")
    from lineage.graph.answer import Question
    from lineage.graph.select import Direction

    ways = {(True, False): Direction.UP, (False, True): Direction.DOWN}
    way = ways.get((up, down), Direction.BOTH)
    question = Question(text=target, direction=way, depth=depth, as_of=as_of, upkeep=everything)
    found, doubts = _asked(lake, question)
    if html is not None:
        _page(found, html)
    elif as_mermaid or as_dot:
        from lineage.graph import texts

        _lines((texts.mermaid if as_mermaid else texts.dot)(found, columns=columns))
    else:
        _tell(found, doubts, columns=columns, as_json=as_json)
    if found.selection.cut:
        render.stderr().print("There is more than is shown: --depth narrows the answer.")
    if doubts:
        raise typer.Exit(Exit.FINDINGS)


app.command("check")(check_command)


def _asked(lake: Path | None, question: Question) -> tuple[Lineage, list[Finding]]:
    from lineage.graph.answer import ask

    with Workspace.find(lake) as workspace:
        doubts = tell_doubts(workspace)
        with render.working("reading the ledger") as progress:
            found = ask(
                workspace.ledger(read_only=True),
                question,
                moment=partial(moment, now=workspace.clock.now()),
                progress=progress,
            )
    return found, doubts


def _tell(found: Lineage, doubts: list[Finding], *, columns: bool, as_json: bool) -> None:
    from lineage.graph.answer import SCHEMA
    from odi_audit.cli.lineage_tree import show

    data = {**found.to_json(), "doubts": [doubt.to_json() for doubt in doubts]} if as_json else {}
    render.answer(
        SCHEMA,
        data,
        as_json=as_json,
        human=lambda console: show(console, found, columns=columns),
    )


def _lines(lines: Iterable[str]) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


def _page(found: Lineage, path: Path) -> None:
    from lineage.graph.page import write_page

    write_page(found, path)
    render.stderr().print(f"{escape(str(path))}: {len(found.nodes)} nodes", soft_wrap=True)
