"""How answers are shown: JSON for machines, tables for people.

Owns stdout (the answer) and stderr (the talk). Must never print an answer to stderr, or colour
where there is no terminal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from odi_audit.canonical import Json

if TYPE_CHECKING:
    # Loaded when something is shown to a person: `--json` must not wait for it.
    from rich.console import Console
    from rich.table import Table

WIDTH_WITHOUT_TERMINAL = 160
"""Columns of a table that is piped: wide enough that an id is never folded."""


def stdout() -> Console:
    """Return the console for answers."""
    from rich.console import Console

    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(highlight=False, width=WIDTH_WITHOUT_TERMINAL, no_color=True)


def stderr() -> Console:
    """Return the console for talk: progress, hints, errors."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def answer(schema: str, data: Json, *, as_json: bool, human: Callable[[Console], None]) -> None:
    """Print an answer once: as ``{"schema": …, "data": …}``, or by ``human``."""
    if as_json:
        sys.stdout.write(json.dumps({"schema": schema, "data": data}, ensure_ascii=False) + "\n")
        sys.stdout.flush()
    else:
        human(stdout())


def escape(text: str) -> str:
    """Return a text in which rich finds no markup of its own."""
    from rich.markup import escape as escaped

    return escaped(text)


def table(title: str | None, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Build a plain table; ids are never folded."""
    from rich.table import Table

    made = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made
