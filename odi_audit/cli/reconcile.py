"""``odi-audit reconcile``: show what a crash left open, and settle it with ``--apply``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from odi_audit.canonical import Json
from odi_audit.cli.common import JsonOption, LakeOption
from odi_audit.cli.render import answer, table
from odi_audit.committer import lifetime, reconcile
from odi_audit.errors import Exit
from odi_audit.model.entries import Entry
from odi_audit.workspace import Workspace


def command(
    lake: LakeOption = None,
    batch: Annotated[
        str | None, typer.Option("--batch", help="Only this batch (a prefix will do).")
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Settle them; without it the plan is only shown.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Settle open intents: landed, rolled forward, or abandoned. Shows the plan without --apply.

    Runs whose process died are recorded as ended. The plan starts no JVM. Exit status 1 means that
    something is open and was not settled.
    """
    workspace = Workspace.find(lake)
    ledger = workspace.ledger(read_only=not apply)
    wanted = None if batch is None else ledger.resolve_batch(batch)
    settlements = reconcile.plan(ledger, workspace.catalog(), batch=wanted)
    if apply and settlements:
        from odi_audit.api import parts_of

        settlements = reconcile.apply(parts_of(workspace), settlements)
    runs = [] if wanted else lifetime.end_dead(ledger) if apply else lifetime.dead(ledger)
    data: Json = {
        "applied": apply,
        "runs": [{"run": item.run, "job": item.job, "since": item.time} for item in runs],
        "intents": [
            {
                "batch": item.opened.batch,
                "intent": item.opened.index,
                "job": item.opened.job,
                "since": item.opened.time,
                "action": item.action.value,
                "reason": item.reason,
                "tables": [part.table.name for part in item.parts],
            }
            for item in settlements
        ],
    }
    answer(
        "odi.reconcile/1",
        data,
        as_json=as_json,
        human=lambda to: _show(to, settlements, runs, applied=apply),
    )
    amiss = runs or any(item.action is not reconcile.Action.WAIT for item in settlements)
    if amiss and not apply:
        raise typer.Exit(Exit.FINDINGS)


def _show(
    to: Console, settlements: list[reconcile.Settlement], runs: list[Entry], *, applied: bool
) -> None:
    if not settlements and not runs:
        to.print("Nothing is open.")
    if runs:
        to.print(
            table(
                "Dead runs, now ended" if applied else "Dead runs that --apply would end",
                ("run", "job", "since"),
                [(str(item.run), str(item.job), item.time) for item in runs],
            )
        )
    if not settlements:
        return
    to.print(
        table(
            "Settled" if applied else "Open intents and what --apply would do",
            ("batch", "job", "since", "action", "why"),
            [
                (
                    str(item.opened.batch),
                    str(item.opened.job),
                    item.opened.time,
                    item.action.value,
                    item.reason,
                )
                for item in settlements
            ],
        )
    )
