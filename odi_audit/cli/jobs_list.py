"""``odi-audit jobs`` without a command: every job, its state, its lag, its figures.

Owns the options and the page for people. Must never ask a source whose spec was not named.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from odi_audit import clock
from odi_audit.canonical import Json
from odi_audit.cli import render
from odi_audit.cli.render import escape
from odi_audit.errors import Exit
from odi_audit.workspace import Workspace

if TYPE_CHECKING:
    from rich.console import Console

    from jobs.status.listing import Listed, Specs

SCHEMA = "odi.jobs/1"
COLUMNS = (
    "job", "state", "last batch", "when", "rows", "rows/s", "lag", "behind", "files/day",
    "snapshots/day",
)  # fmt: skip
_AMISS = frozenset({"stopped", "refused", "failed", "unsettled"})
SpecsOption: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option("--spec", help="A spec or a folder of them: asks the sources. May be repeated."),
]


def list_jobs(lake: Path | None, specs: list[Path] | None, *, as_json: bool) -> None:
    """Show every job; exit status 1 where one is stopped, refused, failed or unsettled."""
    from jobs.status.listing import listed, specs_of

    found = specs_of(specs or [], os.environ)
    with Workspace.find(lake) as workspace:
        with render.working("asking sources"):
            jobs = listed(workspace, found)
        now = workspace.clock.now()
    data: dict[str, Json] = {
        "jobs": [item.to_json() for item in jobs],
        "problems": [{"file": file, "reason": reason} for file, reason in found.problems],
    }
    render.answer(SCHEMA, data, as_json=as_json, human=lambda to: _show(to, jobs, found, now))
    if found.problems or any(item.state in _AMISS for item in jobs):
        raise typer.Exit(Exit.FINDINGS)


def _show(console: Console, jobs: list[Listed], specs: Specs, now: datetime) -> None:
    if not jobs:
        console.print("The ledger has no job yet: odi-audit run SPEC")
    else:
        console.print(render.table(None, COLUMNS, [_row(item, now) for item in jobs]))
    for item in jobs:
        if item.note is not None:
            console.print(escape(f"{item.standing.job}: {item.note}"), soft_wrap=True)
    for file, reason in specs.problems:
        console.print(escape(f"{file} is no spec: {reason}"), soft_wrap=True)


def _row(item: Listed, now: datetime) -> tuple[str, ...]:
    from jobs.runner.progress import shown_rate

    job, lag = item.standing, None if item.behind is None else item.behind.lag
    last, day = job.last, job.day
    cells = (
        job.job,
        item.state,
        "" if last is None else last.batch[:14],
        "" if last is None else _ago(last.time, now),
        "" if last is None else f"{last.rows:,}",
        "" if job.rows_per_s is None else shown_rate(job.rows_per_s),
        "" if lag is None else f"{lag.total:,}",
        "" if lag is None or lag.seconds is None else _span(lag.seconds),
        "" if day is None else f"{'~' if day.scaled else ''}{day.files:,}",
        "" if day is None else f"{'~' if day.scaled else ''}{day.snapshots:,}",
    )
    return tuple(map(escape, cells))


def _ago(time: str, now: datetime) -> str:
    return f"{_span((now - clock.from_text(time)).total_seconds())} ago"


def _span(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f}{unit}"
    return f"{max(0.0, seconds):,.0f}s"
