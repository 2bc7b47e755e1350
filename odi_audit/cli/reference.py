"""The reference pages of the guide, made from the commands and the errors themselves.

Owns ``docs/cli.md`` and ``docs/errors.md``: ``python -m odi_audit.cli.reference docs`` writes them,
and a test fails when they differ from the code. Must never describe anything that is not there.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from odi_audit import errors
from odi_audit.cli.app import COMMANDS, load_command
from odi_audit.errors import Exit, OdiError

_NOTICE = "<!-- Made by `make docs`; do not edit. -->"
_INTRODUCTION = (
    "stdout is the answer, stderr the talk. With `--json` the answer is one JSON object, "
    '`{"schema": "odi.<command>/1", "data": …}`, and an error is one on stderr (`odi.error/1`). '
    "What changes state shows its plan, and needs `--apply`, where its page says so."
)
_RETRY = (
    "A code never changes its meaning. *Retry* says whether doing the same again can help: "
    "`never`, `safe`, or `after-reconcile`."
)
_EXITS = {
    Exit.OK: "yes, or done",
    Exit.FINDINGS: "findings: something is not as it should be, or a batch was refused",
    Exit.USAGE: "the call itself is wrong",
    Exit.CONFIG: "settings, or something they name, is missing or wrong",
    Exit.NOT_FOUND: "no such table, batch or entry",
    Exit.UNKNOWN: "the outcome is unknown: run `odi-audit reconcile`",
    Exit.CONFLICT: "somebody else was there first",
    Exit.BUG: "a bug in the product",
}


def commands_page() -> str:
    """Return ``docs/cli.md``."""
    parts = [
        _NOTICE,
        "# The command line",
        _INTRODUCTION,
        "| exit status | meaning |\n|---|---|\n"
        + "\n".join(f"| {status.value} | {meaning} |" for status, meaning in _EXITS.items()),
    ]
    parts += [_command(f"odi-audit {name}", load_command(name)) for name in COMMANDS]
    return "\n\n".join(parts) + "\n"


def errors_page() -> str:
    """Return ``docs/errors.md``."""
    known = sorted(_all(OdiError), key=lambda kind: kind.code)
    rows = [
        f"| {kind.code} | `{kind.__name__}` | {int(kind.exit_status)} | {kind.retry.value} | "
        f"{' '.join((kind.__doc__ or '').split())} |"
        for kind in known
        if kind.__module__.startswith(f"{errors.__name__}.")
    ]
    return "\n".join(
        [
            _NOTICE,
            "",
            "# Errors",
            "",
            _RETRY,
            "",
            "| code | class | exit status | retry | meaning |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def write(folder: Path) -> None:
    """Write both pages into ``folder``."""
    (folder / "cli.md").write_text(commands_page(), "utf-8")
    (folder / "errors.md").write_text(errors_page(), "utf-8")


def _command(name: str, command: Any) -> str:
    lines = [f"## {name}", _help(name, command)]
    for child, inner in sorted(getattr(command, "commands", {}).items()):
        lines += [f"### {name} {child}", _help(f"{name} {child}", inner)]
    return "\n\n".join(lines)


def _help(name: str, command: Any) -> str:
    import typer

    context = typer.Context(command, info_name=name, max_content_width=96)
    context.terminal_width = 96
    text = command.get_help(context)
    return "```\n" + "\n".join(line.rstrip() for line in text.strip().splitlines()) + "\n```"


def _all(kind: type[OdiError]) -> set[type[OdiError]]:
    return {kind} | {inner for child in kind.__subclasses__() for inner in _all(child)}


if __name__ == "__main__":
    write(Path(sys.argv[1]))
