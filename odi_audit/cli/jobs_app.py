"""``odi-audit jobs …``: how jobs stand; specs written, checked, described to editors.

Owns the group. Must never hold a command's own logic.
"""

from __future__ import annotations

import typer

from odi_audit.cli.common import JsonOption, LakeOption
from odi_audit.cli.jobs_check import check_command
from odi_audit.cli.jobs_list import SpecsOption, list_jobs
from odi_audit.cli.jobs_new import new_command
from odi_audit.cli.jobs_schema import schema_command

app = typer.Typer(
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Jobs and their documents: how they stand; write a spec, check it, get its schema.",
)


@app.callback()
def command(
    context: typer.Context,
    specs: SpecsOption = None,
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show every job of the ledger: state, last batch, throughput, files per day.

    With --spec also how far each is behind its source, in offsets and seconds. Starts no JVM. Exit
    status 1: a job is stopped by its source, refused, failed, or left open by a crash.
    """
    if context.invoked_subcommand is None:
        list_jobs(lake, specs, as_json=as_json)


app.command("new")(new_command)
app.command("check")(check_command)
app.command("schema")(schema_command)
