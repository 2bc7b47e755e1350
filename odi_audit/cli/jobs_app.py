"""``odi-audit jobs …``: specs of jobs, written, checked, described to editors.

Owns the group. Must never hold a command's own logic.
"""

from __future__ import annotations

import typer

from odi_audit.cli.jobs_check import check_command
from odi_audit.cli.jobs_new import new_command
from odi_audit.cli.jobs_schema import schema_command

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Jobs as documents: write a spec, check it, get its schema.",
)
app.command("new")(new_command)
app.command("check")(check_command)
app.command("schema")(schema_command)
