"""``odi-audit ledger rebuild`` and ``grant``: the two commands that repair and set up.

Owns their options, and how a ledger is opened that may be damaged or lost. Must never change
anything without ``--apply``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Annotated, TypeAlias

import typer
from rich.console import Console

from odi_audit.canonical import JsonObject
from odi_audit.cli.common import JsonOption, LakeOption
from odi_audit.cli.render import answer
from odi_audit.errors import ConfigError, LedgerMissing
from odi_audit.ledger import SqlLedger, create_ledger, open_ledger
from odi_audit.ledger.port import Ledger
from odi_audit.workspace import Workspace

ApplyOption: TypeAlias = Annotated[
    bool, typer.Option("--apply", help="Do it. Without, only the plan is shown.")
]
_DONE = "done"
_PLAN = "a plan: nothing was changed\n  next: add --apply"


def rebuild_command(
    projections: Annotated[
        bool, typer.Option("--projections", help="Make the look-up tables again from the entries.")
    ] = False,
    apply: ApplyOption = False,
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Recover entries, marked as recovered, from the stamps in the tables."""
    from odi_audit.upkeep.rebuild import rebuild

    with Workspace.find(lake) as workspace:
        if projections:
            count = _rebuild_projections(workspace, apply=apply)
            data: JsonObject = {"projections": True, "applied": apply, "entries_count": count}
            lines = [f"look-up tables of {count} entries"]
        else:
            with _ledger_or_new(workspace, make=apply) as ledger:
                plan = rebuild(ledger, workspace.catalog(), apply=apply)
            data = plan.to_json()
            lines = [
                f"recover {item.stamps.batch} on {item.table.name}, snapshot {item.snapshot.id}"
                for item in plan.recoveries
            ]
            lines += [
                f"skip snapshot {item.snapshot} of {item.table.name}: {item.reason}"
                for item in plan.skipped
            ]
            lines.append(f"{len(plan.recoveries)} landed records are not in the ledger")

    def human(console: Console) -> None:
        for line in lines:
            print_line(console, line)
        print_line(console, _DONE if apply else _PLAN)

    answer("odi.ledger.rebuild/1", data, as_json=as_json, human=human)


def grant_command(
    writer: Annotated[list[str] | None, typer.Option(help="Login role that writes.")] = None,
    reader: Annotated[list[str] | None, typer.Option(help="Login role that reads.")] = None,
    admin: Annotated[list[str] | None, typer.Option(help="Login role that administers.")] = None,
    apply: ApplyOption = False,
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make the PostgreSQL roles for writing, reading and administering, and no more."""
    from odi_audit.ledger.grants import Roles, grant
    from odi_audit.ledger.postgresql import PostgresDatabase

    with (
        Workspace.find(lake) as workspace,
        closing(open_unchecked(workspace, write=True)) as ledger,
    ):
        if not isinstance(ledger.database, PostgresDatabase):
            raise ConfigError(
                "roles exist on PostgreSQL only; the ledger of this lake is a file, which the "
                "file system guards",
                hint=f"ls -l {ledger.database.shown}",
            )
        roles = Roles(writers=writer or (), readers=reader or (), admins=admin or ())
        statements = grant(ledger.database, roles, apply=apply)
    data: JsonObject = {
        "applied": apply,
        "roles": {"writer": roles.writer, "reader": roles.reader, "admin": roles.admin},
        "statements": statements,
    }

    def human(console: Console) -> None:
        for statement in statements:
            print_line(console, f"{statement};")
        print_line(console, _DONE if apply else _PLAN)

    answer("odi.ledger.grant/1", data, as_json=as_json, human=human)


# -- helpers ------------------------------------------------------------------------------------


def open_unchecked(workspace: Workspace, *, write: bool = False) -> SqlLedger:
    """Open the ledger without the check of its tail: also a damaged one is to be looked at."""
    settings = workspace.settings.ledger
    return open_ledger(
        settings.url,
        clock=workspace.clock,
        read_only=not write,
        check_tail=False,
        password=settings.password.get_secret_value() if settings.password else None,
        busy_timeout_s=settings.busy_timeout_s,
    )


@contextmanager
def _ledger_or_new(workspace: Workspace, *, make: bool) -> Iterator[Ledger]:
    """Give the lake's ledger; where it was lost, a new one, or for a plan one that is not kept."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = workspace.ledger(read_only=not make)
        except LedgerMissing:
            settings = workspace.settings.ledger
            found = create_ledger(
                settings.url if make else f"sqlite:///{folder}/plan.db",
                clock=workspace.clock,
                password=settings.password.get_secret_value() if settings.password else None,
            )
        with closing(found):
            yield found


def _rebuild_projections(workspace: Workspace, *, apply: bool) -> int:
    with closing(open_unchecked(workspace, write=apply)) as ledger:
        return ledger.rebuild_projections() if apply else ledger.head().size


def print_line(console: Console, text: str) -> None:
    """Print a line as it is: no markup, and never folded."""
    console.print(text, soft_wrap=True, markup=False)
