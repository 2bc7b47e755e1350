"""``odi-audit dlq replay``: letters that fit their table by now become rows of it.

Owns the options and the page for people. Without ``--apply`` it must never change anything.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odi_audit.cli import render
from odi_audit.cli.common import JsonOption, LakeOption
from odi_audit.cli.dlq_list import BatchOption, ReasonOption, SinceOption, TargetOption
from odi_audit.cli.render import escape
from odi_audit.workspace import Workspace

if TYPE_CHECKING:
    from rich.console import Console

    from jobs.dlq import Which
    from jobs.dlq_replay import Replay, TableReplay
    from jobs.spec.model import JobSpec

SCHEMA = "odi.dlq.replay/1"
COLUMNS = ("table", "fit now", "still do not", "table changes", "batch")
STILL_SHOWN_MAX = 20


def replay_command(
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="The job's YAML file.")],
    batch: BatchOption = None,
    reason: ReasonOption = None,
    target: TargetOption = None,
    since: SinceOption = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Do it; without, only the plan is shown.")
    ] = False,
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Decode open dead letters of a job again, and commit those that fit now, each once."""
    from jobs.dlq import Which
    from jobs.dlq_replay import check_replayable
    from jobs.spec import load_spec
    from odi_audit.clock import SystemClock
    from odi_audit.query.since import moment

    job = load_spec(spec, os.environ)
    check_replayable(job)
    which = Which(
        batch=batch,
        reason=reason,
        table=target,
        since=None if since is None else moment(since, SystemClock().now()),
    )
    with Workspace.find(lake) as workspace, render.working("reading dead letters"):
        done = _replay(workspace, job, which, apply=apply)
    render.answer(
        SCHEMA,
        {**done.to_json(), "applied": apply},
        as_json=as_json,
        human=lambda console: _show(console, done, spec, apply=apply),
    )


def _replay(workspace: Workspace, job: JobSpec, which: Which, *, apply: bool) -> Replay:
    import odi_audit as odi
    from jobs.dlq_replay import carry_out, has_contract, plan_replay

    plan = plan_replay(
        workspace.ledger(read_only=not apply),
        workspace.catalog(),
        job,
        which=which,
        spark=workspace.spark() if has_contract(job) else None,
    )
    if not apply or not any(table.fits for table in plan.tables):
        return plan
    with odi.run(job.job, lake=workspace) as run:
        return carry_out(run, plan, job)


def _show(console: Console, done: Replay, spec: Path, *, apply: bool) -> None:
    if not done.tables:
        console.print(escape(f"no open dead letter of {done.job} in {done.letters}"))
        return
    console.print(render.table(None, COLUMNS, map(_row, done.tables)))
    still = [item for table in done.tables for item in table.still.items()]
    if still:
        console.print()
        rows = [(escape(name), escape(why)) for name, why in still[:STILL_SHOWN_MAX]]
        console.print(render.table("Still do not fit", ("letter", "reason"), rows))
    if len(still) > STILL_SHOWN_MAX:
        console.print(f"and {len(still) - STILL_SHOWN_MAX} more")
    if done.more:
        console.print("there are more: they are for another call")
    if not apply and any(table.fits for table in done.tables):
        console.print(f"nothing was changed; to do it: odi-audit dlq replay {spec} --apply")


def _row(table: TableReplay) -> tuple[str, ...]:
    growth = [f"add {name} {kind}" for name, kind in table.growth.add.items()]
    growth += [f"widen {name} {kind}" for name, kind in table.growth.widen.items()]
    state = "landed" if table.landed is not None else "planned"
    return (
        escape(table.table),
        str(len(table.fits)),
        str(len(table.still)),
        escape(", ".join(growth)),
        "" if table.batch is None else f"{table.batch} ({state})",
    )
