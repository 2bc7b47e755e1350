"""``odi-audit dlq list``: which records were put aside, why, and which have come back since.

Owns the options and the page for people. Must never start a JVM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from odi_audit.cli import render
from odi_audit.cli.common import JsonOption, LakeOption
from odi_audit.cli.render import escape
from odi_audit.workspace import Workspace

if TYPE_CHECKING:
    from rich.console import Console

    from jobs.dlq import Letter, Listing, State

SCHEMA = "odi.dlq.list/1"
REASON_COLUMNS = ("reason", "open", "replayed")
LETTER_COLUMNS = ("put aside", "record", "for table", "batch", "state", "reason")
SHOWN_BYTES_MAX = 200
"""Of a value, for a person; ``--json`` has all of it."""

JobOption = Annotated[str | None, typer.Option("--job", help="Only of this job.")]
BatchOption = Annotated[
    str | None, typer.Option("--batch", help="Only of the batch whose id begins so.")
]
ReasonOption = Annotated[str | None, typer.Option("--reason", help="Only with this in the reason.")]
TargetOption = Annotated[str | None, typer.Option("--target", help="Only for this table.")]
SinceOption = Annotated[
    str | None, typer.Option("--since", help="Only put aside since then (7d, 12h, a time).")
]


def list_command(
    table: Annotated[
        str | None, typer.Argument(help="The table of dead letters; left out: all of them.")
    ] = None,
    job: JobOption = None,
    batch: BatchOption = None,
    reason: ReasonOption = None,
    target: TargetOption = None,
    since: SinceOption = None,
    state: Annotated[
        str | None, typer.Option("--state", help="Only those that are open, or replayed.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", help="Show at most so many, the newest.")] = 50,
    values: Annotated[
        bool, typer.Option("--values", help="Show the bytes too (in JSON: base64).")
    ] = False,
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Count dead letters by reason, and show the newest."""
    from jobs.dlq import Which, list_letters
    from odi_audit.clock import SystemClock
    from odi_audit.query.since import moment

    which = Which(
        job=job,
        batch=batch,
        reason=reason,
        table=target,
        since=None if since is None else moment(since, SystemClock().now()),
        state=None if state is None else state_of(state),
    )
    with Workspace.find(lake) as workspace, render.working("reading dead letters"):
        found = list_letters(
            workspace.ledger(read_only=True),
            workspace.catalog(),
            table,
            which=which,
            limit=limit,
            values=values,
        )
    render.answer(
        SCHEMA,
        found.to_json(values=values),
        as_json=as_json,
        human=lambda console: _show(console, found, values=values),
    )


def state_of(word: str) -> State:
    """Read the word for a state.

    Raises:
        UsageError: there is no such state.
    """
    from jobs.dlq import State
    from odi_audit.errors import UsageError

    try:
        return State(word)
    except ValueError:
        raise UsageError(f"state {word!r} is none of open, replayed") from None


def _show(console: Console, found: Listing, *, values: bool) -> None:
    if not found.tables:
        console.print("no table holds dead letters")
        return
    told = f"{found.open} open, {found.replayed} replayed, in {', '.join(found.tables)}"
    console.print(escape(told), soft_wrap=True)
    if not found.reasons:
        return
    console.print()
    rows = [(escape(one.reason), str(one.open), str(one.replayed)) for one in found.reasons]
    console.print(render.table("Why", REASON_COLUMNS, rows))
    console.print()
    if found.letters:
        title = f"The newest {len(found.letters)}" if found.cut else "Letters"
        console.print(render.table(title, LETTER_COLUMNS, map(_row, found.letters)))
    for letter in found.letters if values else ():
        shown = (letter.value or b"")[:SHOWN_BYTES_MAX].decode("utf-8", "backslashreplace")
        told = "null" if letter.value is None else shown
        console.print(f"{letter.partition}@{letter.offset}  {escape(told)}", soft_wrap=True)


def _row(letter: Letter) -> tuple[str, ...]:
    state = letter.state.value
    return (
        letter.put_aside or "",
        escape(f"{letter.partition}@{letter.offset}"),
        escape(letter.table or ""),
        letter.batch,
        state if letter.replayed_by is None else f"{state} by {letter.replayed_by}",
        escape(letter.reason),
    )
