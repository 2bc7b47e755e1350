"""``odi-audit doctor``: check everything that a lake needs."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from odi_audit.cli.common import JsonOption, LakeOption
from odi_audit.cli.render import answer, stderr, table
from odi_audit.clock import SystemClock
from odi_audit.doctor import State, examine
from odi_audit.errors import Exit
from odi_audit.workspace import Workspace

_MARKS = {State.OK: "ok", State.WARN: "WARN", State.FAIL: "FAIL"}


def command(
    lake: LakeOption = None,
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="Start Spark and compare what it sees.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Check Python, Java, jars, disk, catalog, ledger, key, clock and Spark, with remedies."""
    with Workspace.find(lake) as found, stderr().status("looking …") as status:
        checks = []
        for check in examine(found, clock=SystemClock(), spark=spark):
            checks.append(check)
            status.update(f"looked at {check.name} …")
    failed = any(check.state is State.FAIL for check in checks)

    def human(console: Console) -> None:
        rows = [(_MARKS[check.state], check.name, check.message) for check in checks]
        console.print(table(None, ("", "check", "found"), rows))
        for check in checks:
            if check.remedy and check.state is not State.OK:
                console.print(f"{check.name}\n  next: {check.remedy}", soft_wrap=True, markup=False)

    data = [
        {
            "name": check.name,
            "state": check.state.value,
            "message": check.message,
            "remedy": check.remedy,
        }
        for check in checks
    ]
    answer("odi.doctor/1", {"healthy": not failed, "checks": data}, as_json=as_json, human=human)
    if failed:
        raise typer.Exit(Exit.FINDINGS)
