"""How answers are shown: JSON for machines, tables for people.

Owns stdout (the answer) and stderr (the talk). Must never print an answer to stderr, or colour
where there is no terminal.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from odi_audit.canonical import Json

if TYPE_CHECKING:
    # Loaded when something is shown to a person: `--json` must not wait for it.
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

PROGRESS_AFTER_S = 2.0
"""What takes no longer than this needs no bar."""
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


@contextmanager
def working(what: str, *, prints: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on stderr once the block has taken a while; on a terminal only.

    Gives a function that may be told how much is done, of how much: without it, the bar shows that
    something is under way. ``prints`` says that the block writes to stdout: then there is a bar
    only where stdout is no terminal, or the two would be mixed.
    """
    bar = _Bar(what)
    if not sys.stderr.isatty() or (prints and sys.stdout.isatty()):
        yield bar.update
        return
    timer = threading.Timer(PROGRESS_AFTER_S, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield bar.update
    finally:
        timer.cancel()
        bar.stop()


class _Bar:
    """A bar that another thread starts; once stopped, it stays so."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._state: tuple[int, int | None] = (0, None)
        self._lock = threading.Lock()
        self._shown: Progress | None = None
        self._stopped = False

    def start(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        with self._lock:
            if self._stopped:
                return
            columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
            self._shown = Progress(*columns, console=stderr(), transient=True)
            done, total = self._state
            self._shown.add_task(self._what, completed=done, total=total)
            self._shown.start()

    def update(self, done: int, total: int) -> None:
        with self._lock:
            self._state = (done, total)
            if self._shown is not None:
                self._shown.update(self._shown.task_ids[0], completed=done, total=total)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._shown is not None:
                self._shown.stop()
