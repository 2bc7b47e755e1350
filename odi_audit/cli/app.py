"""The ``odi-audit`` command: finds the command asked for, and is the outermost edge.

Owns the table of commands, and how an error becomes a message and an exit status. A command's
module is imported when it is called. Must never hold a command's own logic.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from odi_audit.errors import Exit, OdiError

INTERRUPTED = 130
"""What shells expect of a program that was stopped with Ctrl-C."""
DEBUG_VARIABLE = "ODI_DEBUG"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Where a command lives; its module has ``command``, or ``app`` for a group."""

    module: str
    help: str


COMMANDS: dict[str, Entry] = {
    "init": Entry(module="init", help="Make a lake: settings, catalog, ledger, key, warehouse."),
    "doctor": Entry(module="doctor", help="Check everything a lake needs, with a remedy each."),
    "config": Entry(module="config", help="Show every setting and where its value comes from."),
    "demo": Entry(module="demo", help="Run the story of one lake, from files to a traced row."),
    "batches": Entry(module="batches", help="List batches."),
    "batch": Entry(module="batch", help="Show everything known about one batch."),
    "trace": Entry(module="trace", help="Show which batches made and last changed a row."),
    "history": Entry(module="history", help="Show who did what to a table."),
    "offsets": Entry(module="offsets", help="Find gaps, overlaps and replays of sources."),
    "coverage": Entry(module="coverage", help="Show which share of writes came through here."),
    "report": Entry(module="report", help="Write a report for a period, for compliance."),
    "sql": Entry(module="sql", help="Ask the ledger and the tables' metadata in SQL."),
    "diff": Entry(module="diff", help="Show which rows differ between two states of a table."),
    "impact": Entry(module="impact", help="Show what became of a batch, and who has read it."),
    "read": Entry(module="read", help="Show what a consumer has not read yet; list consumers."),
    "relay": Entry(module="relay", help="Send lineage events; show and settle what waits."),
    "run": Entry(module="run", help="Run a job by its spec: once, until, or on and on."),
    "jobs": Entry(module="jobs_app", help="Show jobs, their state and lag; write, check specs."),
    "advise": Entry(module="advise", help="Show what a job's commit interval costs."),
    "dlq": Entry(module="dlq_app", help="List dead letters; bring back those that fit now."),
    "lineage": Entry(module="lineage", help="Show what feeds a table, and what it feeds."),
    "verify": Entry(module="verify", help="Compare the tables with the ledger."),
    "reconcile": Entry(module="reconcile", help="Settle what a crash left open."),
    "ledger": Entry(module="ledger", help="Seal, prove, verify, export, rebuild the ledger."),
    "spark-conf": Entry(module="spark_conf", help="Print the Spark conf of this lake."),
    "version": Entry(module="version", help="Print the versions of the parts."),
}


class LazyGroup(TyperGroup):
    """A group that knows its commands by name, and imports the one that is called."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the base's signature
        """Return the names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - the base's signature
        """Return a stand-in with the help line: enough to list it."""
        entry = COMMANDS.get(cmd_name)
        return None if entry is None else TyperCommand(cmd_name, help=entry.help)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that is called, imported."""
        name, stand_in, rest = super().resolve_command(ctx, args)
        if stand_in is None or name is None:
            return name, stand_in, rest
        return name, load_command(name), rest


def load_command(name: str) -> Any:
    """Import a command's module and return the command, ready to be called."""
    entry = COMMANDS[name]
    module = import_module(f"odi_audit.cli.{entry.module}")
    if hasattr(module, "app"):
        made = typer.main.get_command(module.app)
        made.name = name
        made.help = made.help or entry.help
        return made
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name)(module.command)
    made = typer.main.get_command(single)
    made.name = name
    return made


app = typer.Typer(
    cls=LazyGroup,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def root() -> None:
    """Every write recorded, published once, findable from any row."""


def main(args: Sequence[str] | None = None) -> None:
    """Run a command and leave the process with its exit status."""
    sys.exit(run(list(sys.argv[1:] if args is None else args)))


def run(args: list[str]) -> int:
    """Run a command and return its exit status; every error is told on stderr."""
    as_json = "--json" in args
    try:
        # Not through its `main`: that one would end the process by itself in some cases.
        command: Any = typer.main.get_command(app)
        with command.make_context("odi-audit", args or ["--help"]) as context:
            command.invoke(context)
        sys.stdout.flush()
    except OdiError as error:
        return tell(error, as_json=as_json)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our answer has gone (`… | head`): nothing is wrong, and nothing is left to
        # flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(Exit.OK)
    except Exception as error:  # noqa: BLE001 - the outermost edge: nothing may pass it untold
        return _tell_other(error, as_json=as_json)
    return int(Exit.OK)


def tell(error: OdiError, *, as_json: bool) -> int:
    """Write an error to stderr, for a person or a machine; return its exit status."""
    from odi_audit.redact import redact, redact_text

    if os.environ.get(DEBUG_VARIABLE):
        _print_traceback(error)
    message = redact_text(error.message)
    hint = None if error.hint is None else redact_text(error.hint)
    if as_json:
        data = {
            "code": error.code,
            "message": message,
            "hint": hint,
            "facts": redact(error.facts),
        }
        text = json.dumps({"schema": "odi.error/1", "data": data}, ensure_ascii=False)
    else:
        text = f"{error.code}: {message}" + (f"\n  next: {hint}" if hint else "")
    sys.stderr.write(text + "\n")
    return int(error.exit_status)


def _tell_other(error: Exception, *, as_json: bool) -> int:
    usage = _usage_status(error, as_json=as_json)
    if usage is not None:
        return usage
    bug = OdiError(
        f"a bug: {type(error).__name__}: {error}",
        hint=f"run it again with {DEBUG_VARIABLE}=1 and report what it prints",
    )
    bug.__cause__ = error
    return tell(bug, as_json=as_json)


def _usage_status(error: Exception, *, as_json: bool) -> int | None:
    """Tell a mistake in the call (an unknown option, a missing argument), if it is one."""
    kind = type(error)
    if kind.__name__ in {"Exit", "Abort"} and kind.__module__.startswith(("typer", "click")):
        sys.stdout.flush()
        return int(getattr(error, "exit_code", INTERRUPTED))
    if not hasattr(error, "format_message") or not hasattr(error, "exit_code"):
        return None
    from odi_audit.errors import UsageError

    context = getattr(error, "ctx", None)
    if kind.__name__ == "NoArgsIsHelpError" and context is not None:
        sys.stderr.write(context.get_help() + "\n")
        return int(Exit.USAGE)
    path = context.command_path if context is not None else "odi-audit"
    return tell(UsageError(error.format_message(), hint=f"{path} --help"), as_json=as_json)


def _print_traceback(error: BaseException) -> None:
    import traceback

    from odi_audit.redact import redact_text

    sys.stderr.write(redact_text("".join(traceback.format_exception(error))))
