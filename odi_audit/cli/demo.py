"""``odi-audit demo``: run the story of one lake, from files to a traced row.

Owns the options. Must never tell the story itself: that is ``jobs.demo``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from odi_audit.cli.common import JsonOption
from odi_audit.cli.render import answer, stderr, stdout

SCHEMA = "odi.demo/1"


def command(
    folder: Annotated[
        Path, typer.Option("--dir", help="Where; a demo lake that is there is made anew.")
    ] = Path("demo-lake"),
    as_json: JsonOption = False,
) -> None:
    """Run the story of one lake: files, changes, a killed run, a traced row, a foreign write.

    Takes about a minute. With --json the story goes to stderr, and what it came to is the answer.
    """
    from jobs.demo import tell

    told = tell(folder, console=stderr() if as_json else stdout(), talk=stderr(), env=os.environ)
    if as_json:
        answer(SCHEMA, told.to_json(), as_json=True, human=lambda _console: None)
