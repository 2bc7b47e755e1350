"""Sending again what Marquez lacks or has wrong.

Owns which events of a run are sent, and the order. A run that Marquez does not have gets all its
events; of one that it has, the newest event is enough, because state follows arrival. Must never
send a START after the end of its run, and must never end one that the ledger has open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from lineage import facts
from lineage.context import LedgerContext
from lineage.events import events_of
from lineage.leaving import Event
from lineage.marquez.comparing import Relayed
from lineage.marquez.expected import ENDS, Expected, RunFacts
from lineage.marquez.server import Marquez
from odi_audit.canonical import JsonObject
from odi_audit.ledger.port import Ledger

REFUSED_MAX = 100
"""Events that the server refused which are named; all are counted."""
_TAKEN = 201


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedEvent:
    """An event that the server did not take, with its answer."""

    run: str
    index: int
    state: str
    status: int

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {"run": self.run, "index": self.index, "state": self.state, "status": self.status}


@dataclass(slots=True, kw_only=True)
class Repaired:
    """What was sent again."""

    runs_count: int = 0
    sent_count: int = 0
    refused_count: int = 0
    refused: list[RefusedEvent] = field(default_factory=list)

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {
            "runs_count": self.runs_count,
            "sent_count": self.sent_count,
            "refused_count": self.refused_count,
            "refused": [event.to_json() for event in self.refused],
        }


def send_again(
    ledger: Ledger,
    server: Marquez,
    expected: Expected,
    relay: Relayed,
    tell: Callable[[int, int], None],
) -> Repaired:
    """Send what the verdicts ask for, run by run, the oldest first.

    A job's edges and a dataset's newest version are those of who came last: the runs that are the
    last by the ledger are sent at the end once more.
    """
    done, context = Repaired(), LedgerContext(ledger)
    total = expected.judged_count()
    last_sent: str | None = None
    newest: set[str] = set()
    for at, (run, verdict) in enumerate(expected.judged()):
        tell(at, total)
        if run.later or relay.leaves(run.run):
            # The relay has more of it to send; two senders could overtake each other.
            continue
        if _send(_events(ledger, context, expected, run), run, verdict, server, done):
            done.runs_count += 1
            last_sent = run.run
            newest |= expected.newest_of(run.run)
    if newest == {last_sent}:
        return done
    ours = [run for run in newest if not relay.leaves(run)]
    for run in sorted(_known(expected, ours), key=lambda each: each.last or 0):
        _send(_events(ledger, context, expected, run), run, "last", server, done)
    return done


def _known(expected: Expected, runs: Iterable[str]) -> list[RunFacts]:
    found = [expected.run(run) for run in runs]
    return [run for run in found if run is not None and not run.is_open and not run.later]


def _send(
    events: list[Event], run: RunFacts, verdict: str, server: Marquez, done: Repaired
) -> bool:
    """Send all events of a run, or the last; say whether anything was taken."""
    if not events:
        return False
    chosen = events if verdict == "all" else events[-1:]
    if any(event.state not in ENDS for event in chosen):
        # Somebody may have sent its end since we looked.
        held = server.run(run.run)
        if held is not None and held.index is not None and held.state in ENDS.values():
            chosen = [event for event in chosen if event.state in ENDS]
            if run.is_open:
                # Marquez has an end that the ledger has not: what is no START may say so.
                chosen = [event for event in events[-1:] if event.state == "RUNNING"]
    taken = False
    for event in chosen:
        status = server.post(event.body)
        if status == _TAKEN:
            done.sent_count += 1
            taken = True
            continue
        done.refused_count += 1
        if len(done.refused) < REFUSED_MAX:
            done.refused.append(
                RefusedEvent(run=run.run, index=event.index, state=event.state, status=status)
            )
        break
    return taken


def _events(
    ledger: Ledger, context: LedgerContext, expected: Expected, run: RunFacts
) -> list[Event]:
    """Make the events of a run from the ledger, also those before where the check began."""
    places = set(expected.places(run.run))
    first = ledger.get(min(places))
    # The pulse of a run names its start beside its facts.
    opener = facts.number(first.facts, "started") if first.intent is None else first.intent
    if opener is not None:
        opened = context.entry(opener)
        if opened is not None:
            places |= {entry.index for entry in context.attempt(opened, max(places))}
    return [
        event
        for place in sorted(places)
        for event in events_of(ledger.get(place), context)
        if str(event.run) == run.run and (run.last is None or event.index <= run.last)
    ]
