"""``odi-audit jobs check``: is a spec right, and what does it mean?

Owns the options and the page for people. Must never decide what is right.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odi_audit.canonical import Json
from odi_audit.cli import render
from odi_audit.cli.common import JsonOption, LakeOption
from odi_audit.cli.jobs_would import show_would
from odi_audit.cli.render import escape
from odi_audit.errors import Exit, UsageError
from odi_audit.workspace import Workspace

if TYPE_CHECKING:
    from rich.console import Console

    from jobs.spec.model import JobSpec
    from jobs.spec.summary import Understood
    from jobs.status.checking import Checked

SCHEMA = "odi.jobs.check/1"


def check_command(
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="The job's YAML file.")],
    offline: Annotated[
        bool, typer.Option("--offline", help="Only the file: connect to nothing.")
    ] = False,
    unset_ok: Annotated[
        bool,
        typer.Option("--unset-ok", help="Variables need not be set: for checks without secrets."),
    ] = False,
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a spec, and say what it would do: a dry run that connects, samples and plans.

    Writes nothing. With --offline it looks at the file alone. Exit status 3: something in the file
    is wrong, or the source is away; 1: the source would stop the job.
    """
    from jobs.spec.load import check_text, read_text
    from jobs.spec.problems import invalid
    from jobs.spec.summary import understand

    if unset_ok and not offline:
        raise UsageError(
            "--unset-ok is for --offline: a source cannot be asked without its variables",
            hint=f"odi-audit jobs check {spec} --offline --unset-ok",
        )
    found = check_text(read_text(spec), os.environ, unset_ok=unset_ok)
    if found.problems:
        raise invalid(str(spec), found.problems)
    understood = None if found.spec is None else understand(found.spec)
    checked = None if offline or found.spec is None else _ask(found.spec, spec, lake)
    data: dict[str, Json] = {
        "file": str(spec),
        "offline": offline,
        "variables": list(found.variables),
        "unknown": list(found.unknown),
        "understood": None if understood is None else understood.to_json(),
        "would": None if checked is None else checked.to_json(),
    }

    def human(console: Console) -> None:
        _show(console, spec, understood, found.variables, found.unknown)
        if checked is not None:
            show_would(console, checked)

    render.answer(SCHEMA, data, as_json=as_json, human=human)
    if checked is not None and checked.stopped is not None:
        raise typer.Exit(Exit.FINDINGS)


def _ask(spec: JobSpec, path: Path, lake: Path | None) -> Checked:
    from jobs.status.checking import check

    with Workspace.find(lake) as workspace, render.working("asking the source"):
        return check(
            spec, path, workspace, tell=lambda why: render.stderr().print(why, markup=False)
        )


def _show(
    console: Console,
    spec: Path,
    understood: Understood | None,
    variables: tuple[str, ...],
    unknown: tuple[str, ...],
) -> None:
    if understood is not None:
        rows = [(name, escape(value)) for name, value in understood.lines]
        rows += [("variables", escape(", ".join(variables)))] if variables else []
        rows.append(("digest", understood.digest))
        page = render.table(None, ("", ""), rows)
        page.show_header = False
        console.print(page)
        for note in understood.notes:
            console.print(f"note: {escape(note)}", soft_wrap=True)
    if unknown:
        console.print(
            f"not checked, for want of their variables: {escape(', '.join(unknown))}",
            soft_wrap=True,
        )
    console.print(f"{escape(str(spec))} is valid", soft_wrap=True)
