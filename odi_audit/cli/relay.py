"""``odi-audit relay``: send lineage events; show how that stands; decide about dead letters.

Owns the options and the pages for people. Must never decide what is sent: each command is one call
of :mod:`lineage.relay`.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from rich.console import Console

from odi_audit.canonical import JsonObject
from odi_audit.cli import render
from odi_audit.cli.common import JsonOption, LakeOption
from odi_audit.errors import Exit, RelayHeld, RelayStopped, UsageError
from odi_audit.workspace import Workspace

if TYPE_CHECKING:
    from lineage.relay.relay import Outcome
    from lineage.relay.standing import Standing
    from lineage.relay.state import Letter

app = typer.Typer(
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Send lineage events to their destinations, in order, until each is acknowledged.",
)
DestinationOption: TypeAlias = Annotated[
    str | None, typer.Option("--destination", help="Only this destination, by its name.")
]
_LETTER_COLUMNS = ("destination", "event", "run", "state", "stands", "tries", "since", "reason")


@app.callback()
def command(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="End when all is sent (default).")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until stopped.")] = False,
    destination: DestinationOption = None,
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send what the ledger has and the destinations have not.

    Exit status 0: everything is delivered. 1: something waits or was refused; 3: a destination
    turns us away; 6: another relay is at work.
    """
    if context.invoked_subcommand is not None:
        return
    if once and follow:
        raise UsageError("--once and --follow exclude each other")
    from lineage.relay.destinations import chosen
    from lineage.relay.operate import send

    with Workspace.find(lake) as workspace, _stopping() as stop:
        named = chosen(workspace.settings.lineage, destination)
        with render.working("sending") as progress:
            outcomes = send(
                workspace.settings,
                named,
                now=workspace.clock,
                stop=stop,
                going_on=follow,
                progress=None if follow else progress,
            )
    _tell("odi.relay/1", outcomes, as_json=as_json)


@app.command("status")
def status_command(lake: LakeOption = None, as_json: JsonOption = False) -> None:
    """Show how far each destination is, what waits, and what was refused.

    Exit status 1: something was refused, or a destination turns us away.
    """
    from lineage.relay.standing import status

    with Workspace.find(lake) as workspace:
        lineage = workspace.settings.lineage
        found = status(workspace.settings, now=workspace.clock)
        now = workspace.clock.now()
        data: JsonObject = {
            "transport": lineage.transport,
            "origin": workspace.origins["lineage.transport"],
            "relay": lineage.relay,
            "destinations": [item.to_json(now) for item in found],
        }

    def human(console: Console) -> None:
        if lineage.transport == "none":
            console.print(
                "No transport is set: lineage events are sent nowhere. The ledger keeps everything "
                "that they are made of.",
                soft_wrap=True,
            )
        for item in found:
            _show(console, item)

    render.answer("odi.relay.status/1", data, as_json=as_json, human=human)
    if not all(item.is_well for item in found):
        raise typer.Exit(Exit.FINDINGS)


@app.command("retry")
def retry_command(
    what: Annotated[str | None, typer.Argument(help="An event (12.0) or a run.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every dead letter.")] = False,
    destination: DestinationOption = None,
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send dead letters again, each run's in their order; what was fixed goes through.

    Exit status 1: some were refused again. Where another relay is at work, it sends them.
    """
    if (what is None) != everything:
        raise UsageError("name an event or a run, or say --all", hint="odi-audit relay status")
    from lineage.relay.destinations import chosen
    from lineage.relay.operate import send
    from lineage.relay.standing import letter_json, retry

    outcomes: list[Outcome] = []
    left_to: str | None = None
    with Workspace.find(lake) as workspace, _stopping() as stop:
        settings, now = workspace.settings, workspace.clock
        named = chosen(settings.lineage, destination)
        letters = retry(settings, what, named, now=now)
        if letters:
            try:
                outcomes = send(settings, named, now=now, stop=stop)
            except RelayHeld as held:
                left_to = str(held.facts["holder"])
    data: JsonObject = {
        "asked": [letter_json(letter) for letter in letters],
        "left_to": left_to,
        "outcomes": [_outcome_json(item) for item in outcomes],
    }

    def human(console: Console) -> None:
        console.print(f"{len(letters):,} events are tried again.")
        if left_to is not None:
            console.print(render.escape(f"{left_to} is at work, and sends them."))
        for item in outcomes:
            console.print(render.escape(_line(item)), soft_wrap=True)

    render.answer("odi.relay.retry/1", data, as_json=as_json, human=human)
    _end(outcomes)


@app.command("drop")
def drop_command(
    what: Annotated[str, typer.Argument(help="An event (12.0) or a run.")],
    reason: Annotated[str, typer.Option("--reason", help="Why; it is kept with your name.")],
    destination: DestinationOption = None,
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Never send a dead letter; what waits behind it may go."""
    from lineage.relay.destinations import chosen
    from lineage.relay.standing import drop, letter_json

    with Workspace.find(lake) as workspace:
        settings = workspace.settings
        letters = drop(
            settings,
            what,
            chosen(settings.lineage, destination),
            reason=reason,
            who=settings.run.principal,
            now=workspace.clock,
        )
    data: JsonObject = {"dropped": [letter_json(letter) for letter in letters], "reason": reason}
    render.answer(
        "odi.relay.drop/1",
        data,
        as_json=as_json,
        human=lambda to: to.print(f"{len(letters):,} events are dropped."),
    )


@app.command("rebuild")
def rebuild_command(
    start: Annotated[str, typer.Option("--from", help="An index of the ledger, or start.")],
    end: Annotated[str | None, typer.Option("--to", help="Before this index (else all).")] = None,
    url: Annotated[str | None, typer.Option("--url", help="A backend not in the settings.")] = None,
    destination: DestinationOption = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Also to a backend that has it: ends of runs only.")
    ] = False,
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send history again, from the ledger alone, to a new backend.

    To a backend that has been sent to before only the ends of runs go, and only with --yes.
    """
    from lineage.relay.destinations import chosen, to_url
    from lineage.relay.operate import History, rebuild

    history = History(
        start=0 if start == "start" else _index("--from", start),
        stop=None if end is None else _index("--to", end),
    )
    with Workspace.find(lake) as workspace, _stopping() as stop:
        lineage = workspace.settings.lineage
        if url is not None:
            named = [to_url(url, lineage, destination or f"url-{url.split('://')[-1]}")]
        else:
            named = chosen(lineage, destination)
        with render.working("sending history") as progress:
            outcomes = [
                rebuild(
                    workspace.settings,
                    item,
                    history,
                    now=workspace.clock,
                    stop=stop,
                    sure=yes,
                    progress=progress,
                )
                for item in named
            ]
    _tell("odi.relay.rebuild/1", outcomes, as_json=as_json)


# -- pages -----------------------------------------------------------------------------------------


def _tell(schema: str, outcomes: Sequence[Outcome], *, as_json: bool) -> None:
    data: JsonObject = {"outcomes": [_outcome_json(item) for item in outcomes]}

    def human(_console: Console) -> None:
        # Not to stdout: with the console transport that is where the events are.
        for item in outcomes:
            sys.stderr.write(_line(item) + "\n")

    render.answer(schema, data, as_json=as_json, human=human)
    _end(outcomes)


def _end(outcomes: Sequence[Outcome]) -> None:
    for item in outcomes:
        if item.stopped is not None:
            raise RelayStopped(
                f"{item.destination} turns us away: {item.stopped}",
                hint="odi-audit config shows lineage.*; then: odi-audit relay",
                destination=item.destination,
            )
    if any(item.left or item.letters for item in outcomes):
        raise typer.Exit(Exit.FINDINGS)


def _line(item: Outcome) -> str:
    line = f"{item.destination}: {item.sent:,} events sent"
    if item.left:
        line += f", {item.left:,} entries wait"
        line += f" ({item.error})" if item.error else ""
    if item.letters:
        line += f", {item.letters:,} dead letters (odi-audit relay status)"
    return line


def _outcome_json(item: Outcome) -> JsonObject:
    return {
        "destination": item.destination,
        "sent": item.sent,
        "left": item.left,
        "dead_letters": item.letters,
        "stopped": item.stopped,
        "error": item.error,
    }


def _show(console: Console, item: Standing) -> None:
    facts = item.facts
    where = "no longer in the settings" if item.transport is None else item.transport
    console.print(render.escape(f"{item.name} ({where}): {item.address}"), soft_wrap=True)
    if item.moved_from is not None:
        _say(console, f"was {item.moved_from}: odi-audit relay rebuild --from start")
    for reach in item.reaches:
        waits = "all sent" if not reach.lag.entries else f"{reach.lag.entries:,} wait"
        _say(
            console, f"{reach.source}: at {reach.position or 'the start'} of {reach.head}, {waits}"
        )
    if facts is not None:
        _say(console, f"{facts.sent:,} events sent, the last at {facts.sent_at or '-'}")
        if facts.stopped is not None:
            _say(console, f"STOPPED: {facts.stopped}")
        elif facts.error is not None:
            _say(console, f"last failure at {facts.error_at}: {facts.error}")
    if item.lease is not None:
        _say(console, f"{item.lease.holder} sends, until {item.lease.until} at least")
    if item.letters_count:
        _say(console, f"{item.letters_count:,} dead letters of {item.held_runs:,} runs:")
        console.print(
            render.table(None, _LETTER_COLUMNS, [_row(item.name, one) for one in item.letters])
        )
    for gone in item.dropped:
        _say(
            console, f"dropped {gone.key} ({gone.state}) by {gone.who} at {gone.at}: {gone.reason}"
        )


def _row(name: str, letter: Letter) -> tuple[str, ...]:
    return (
        name, letter.key, letter.run, letter.state, letter.stand.value, str(letter.tries),
        letter.first_at, render.escape(letter.reason),
    )  # fmt: skip


def _say(console: Console, text: str) -> None:
    console.print(render.escape(f"  {text}"), soft_wrap=True)


# -- helpers ---------------------------------------------------------------------------------------


def _index(option: str, text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise UsageError(f"{option} takes an index of the ledger, and got {text!r}")
    return int(text)


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """Give an event that SIGTERM and SIGINT set: the relay ends cleanly, and nothing is lost."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {
        number: signal.signal(number, lambda *_: stop.set())
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
