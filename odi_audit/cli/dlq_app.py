"""``odi-audit dlq …``: records that were no rows, listed and brought back.

Owns the group. Must never hold a command's own logic.
"""

from __future__ import annotations

import typer

from odi_audit.cli.dlq_list import list_command
from odi_audit.cli.dlq_replay import replay_command

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Dead letters: records that were no rows, with the reason.",
)
app.command("list")(list_command)
app.command("replay")(replay_command)
