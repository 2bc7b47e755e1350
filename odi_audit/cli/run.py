"""``odi-audit run``: carry out a spec, batch after batch.

Owns the options and the lines for people. Must never decide what a batch is, or when one is due.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odi_audit.cli import render
from odi_audit.cli.common import JsonOption, LakeOption
from odi_audit.cli.render import escape
from odi_audit.errors import UsageError
from odi_audit.workspace import Workspace

if TYPE_CHECKING:
    from rich.console import Console

    from jobs.runner.running import Ended

SCHEMA = "odi.run/1"


def command(
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="The job's YAML file.")],
    once: Annotated[
        bool, typer.Option("--once", help="Read the source to its end, then stop (default).")
    ] = False,
    continuous: Annotated[
        bool, typer.Option("--continuous", help="Go on until stopped by a signal.")
    ] = False,
    until: Annotated[
        str | None,
        typer.Option(help='Go on until then: 10m, "5 batches", 2026-01-31T06:00:00Z.'),
    ] = None,
    accept_gap: Annotated[
        str | None,
        typer.Option(metavar="REASON", help="Go on behind records that are gone; it is recorded."),
    ] = None,
    replay: Annotated[
        int, typer.Option(metavar="N", help="Read a source that is another now; the Nth time.")
    ] = 0,
    rows: Annotated[int | None, typer.Option(help="Batch limit in place of the spec's.")] = None,
    every: Annotated[str | None, typer.Option(help="Batch time in place of the spec's.")] = None,
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a job. SIGTERM ends it after the batch under way; a second signal ends it at once.

    --once is the default; with --until it ends at whichever comes first. Exit status 0: it ended as
    asked; 1: a batch or the source was refused, and the message says what to type; 3: something is
    away; 5: run odi-audit reconcile; 6: another process runs this job.
    """
    if once and continuous:
        raise UsageError("--once and --continuous exclude each other")
    from jobs.runner.ends import until_of
    from jobs.runner.hints import Call
    from jobs.runner.running import Order, run_spec
    from jobs.sources.base import Choices
    from jobs.spec.load import load_spec

    loaded = load_spec(spec, os.environ)
    with Workspace.find(lake) as workspace:
        order = Order(
            spec=loaded,
            folder=spec.resolve().parent,
            until=until_of(
                until,
                drained=once or not (continuous or until),
                now=workspace.clock.now(),
            ),
            call=Call(
                spec=str(spec),
                options=_options(once=once, continuous=continuous, until=until, lake=lake),
            ),
            choices=Choices(accept_gap=accept_gap, generation=replay),
            rows=_rows(rows),
            every_s=_every(every),
        )
        # Progress is for eyes: where stderr is a file, each batch is a line of the log.
        shown = render.stderr() if sys.stderr.isatty() else None
        ended = run_spec(order, workspace, console=shown)
    render.answer(SCHEMA, ended.to_json(), as_json=as_json, human=lambda to: _show(to, ended))


def _show(console: Console, ended: Ended) -> None:
    ran = ended.ran
    from jobs.runner.progress import shown_rate

    rate = "" if ended.rows_per_s is None else f", {shown_rate(ended.rows_per_s)} rows/s"
    done = f"{ran.records:,} rows in {ran.batches:,} batches, {ran.seconds:,.1f} s{rate}"
    lines = [f"{ended.order.spec.job}: {done} ({ended.path}); ended because {ran.reason}"]
    if ran.rejects:
        dead = ended.order.spec.dead_letter
        where = "" if dead is None else f" in {dead.table}"
        lines.append(f"{ran.rejects:,} records could not be read and are dead letters{where}")
    if ended.grown:
        lines.append(f"changed on the way: {', '.join(ended.grown)}")
    if ended.last is not None:
        lines.append(f"last batch {ended.last.receipt.batch}")
    if ended.lag is not None and ended.lag.total:
        lines.append(f"{ended.lag.total:,} rows wait at the source")
    for line in lines:
        console.print(escape(line), soft_wrap=True)


def _options(*, once: bool, continuous: bool, until: str | None, lake: Path | None) -> list[str]:
    """Return the options that a command typed again must have, too."""
    made = ["--once"] if once else []
    made += ["--continuous"] if continuous else []
    made += [] if until is None else ["--until", until]
    # A lake that the environment names is there the next time, too.
    named = lake is not None and os.environ.get("ODI_LAKE") != str(lake)
    return made + (["--lake", str(lake)] if named else [])


def _rows(rows: int | None) -> int | None:
    if rows is not None and rows < 1:
        raise UsageError(f"--rows {rows}: a batch needs room for a row")
    return rows


def _every(text: str | None) -> float | None:
    if text is None:
        return None
    from jobs.spec.words import duration

    try:
        return duration(text).total_seconds()
    except ValueError as problem:
        raise UsageError(f"--every: {problem}") from None
