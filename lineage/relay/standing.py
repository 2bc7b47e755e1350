"""How the relay stands, and what people decide about letters: try again, or drop.

Owns the answers to ``relay status``, ``relay retry`` and ``relay drop``. Must never send, and must
never show an event's body.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from lineage.relay.destinations import Destination, destinations_of
from lineage.relay.operate import bench, sources_of
from lineage.relay.sources import Lag, Source
from lineage.relay.state import Dropped, Facts, Lease, Letter, StateStore
from lineage.relay.state_open import open_state
from odi_audit import clock
from odi_audit.canonical import JsonObject
from odi_audit.errors import EntryNotFound, UsageError
from odi_audit.ledger import open_ledger
from odi_audit.settings import Settings, ledger_url

LETTERS_SHOWN_MAX = 100
REASON_LENGTH_MAX = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How far a destination has got in one source."""

    source: str
    position: str | None
    head: str
    lag: Lag

    def to_json(self, now: datetime) -> JsonObject:
        """Return it for machines."""
        oldest = self.lag.oldest_at
        waits_s = None if oldest is None else (now - clock.from_text(oldest)).total_seconds()
        return {
            "source": self.source,
            "position": self.position,
            "head": self.head,
            "lag_entries": self.lag.entries,
            "lag_s": None if waits_s is None else round(max(waits_s, 0.0), 3),
            "oldest_at": oldest,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How the relay to one destination stands. ``transport`` None: it is no longer configured."""

    name: str
    transport: str | None
    address: str
    moved_from: str | None
    facts: Facts | None
    reaches: Sequence[Reach]
    lease: Lease | None
    letters: Sequence[Letter]
    letters_count: int
    held_runs: int
    dropped: Sequence[Dropped]
    echoes: int

    @property
    def is_well(self) -> bool:
        """Whether nothing needs a person."""
        stopped = self.facts is not None and self.facts.stopped is not None
        return not self.letters_count and not stopped and self.moved_from is None

    def to_json(self, now: datetime) -> JsonObject:
        """Return it for machines."""
        facts = self.facts
        lease = self.lease
        return {
            "name": self.name,
            "transport": self.transport,
            "address": self.address,
            "moved_from": self.moved_from,
            "sources": [reach.to_json(now) for reach in self.reaches],
            "sent": 0 if facts is None else facts.sent,
            "sent_at": None if facts is None else facts.sent_at,
            "error": None if facts is None else facts.error,
            "error_at": None if facts is None else facts.error_at,
            "stopped": None if facts is None else facts.stopped,
            "lease": None
            if lease is None
            else {"holder": lease.holder, "until": lease.until, "token": str(lease.token)},
            "held_runs": self.held_runs,
            "dead_letters": self.letters_count,
            "letters": [letter_json(letter) for letter in self.letters],
            "dropped": [dropped_json(item) for item in self.dropped],
            "to_be_repeated": self.echoes,
        }


def status(settings: Settings, *, now: clock.Clock) -> list[Standing]:
    """Return how each destination stands; makes nothing where no relay ever ran."""
    url = ledger_url(settings)
    wait_s = settings.ledger.busy_timeout_s
    ledger = open_ledger(url, clock=now, read_only=True, busy_timeout_s=wait_s)
    try:
        store = open_state(url, busy_timeout_s=wait_s, create=False)
        try:
            configured = {item.name: item for item in destinations_of(settings.lineage)}
            known = {} if store is None else {item.name: item for item in store.destinations()}
            sources = sources_of(settings, ledger)
            return [
                _standing(name, configured.get(name), known.get(name), store, sources)
                for name in sorted(configured.keys() | known.keys())
            ]
        finally:
            if store is not None:
                store.close()
    finally:
        ledger.close()


def _standing(
    name: str,
    destination: Destination | None,
    facts: Facts | None,
    store: StateStore | None,
    sources: Sequence[Source],
) -> Standing:
    positions = {} if store is None else store.positions(name)
    counts = {} if store is None else store.letter_counts(name)
    before = None if facts is None else facts.address
    address = (before or "") if destination is None else destination.address
    return Standing(
        name=name,
        transport=None if destination is None else destination.transport,
        address=address,
        moved_from=before if before is not None and before != address else None,
        facts=facts,
        reaches=[
            Reach(
                source=source.name,
                position=positions.get(source.name),
                head=source.head(),
                lag=source.lag(positions.get(source.name)),
            )
            for source in sources
        ],
        lease=None if store is None else store.lease(name),
        letters=[] if store is None else store.letters(name, limit=LETTERS_SHOWN_MAX),
        letters_count=sum(counts.values()),
        held_runs=len(counts),
        dropped=[] if store is None else store.dropped(name, LETTERS_SHOWN_MAX),
        echoes=0 if store is None else sum(1 for item in store.doubts(name) if item.echo),
    )


def retry(
    settings: Settings, what: str | None, destinations: Sequence[Destination], *, now: clock.Clock
) -> list[Letter]:
    """Have letters tried again: those of an event's run, of a run, or with None all.

    A run's letters go together, in order: what is behind a parked event could not go before it.

    Raises:
        EntryNotFound: there is no such letter.
    """
    found: list[Letter] = []
    with bench(settings, now) as parts:
        for destination in destinations:
            letters = parts.store.letters(destination.name)
            runs = {letter.run for letter in _matching(letters, what)}
            asked = [letter for letter in letters if letter.run in runs]
            keys = [(letter.source, letter.key) for letter in asked]
            if keys and parts.store.ask_retry(destination.name, keys):
                found += asked
        if not found and what is not None:
            raise _none(what, parts.store, destinations)
    return found


def drop(
    settings: Settings,
    what: str,
    destinations: Sequence[Destination],
    *,
    reason: str,
    who: str,
    now: clock.Clock,
) -> list[Letter]:
    """Never send letters: one event, or every one of a run. Who, when and why is kept.

    Raises:
        EntryNotFound: there is no such letter. UsageError: no reason is given.
    """
    if not reason.strip() or len(reason) > REASON_LENGTH_MAX:
        raise UsageError(f"a reason is needed, of at most {REASON_LENGTH_MAX} characters")
    found: list[Letter] = []
    with bench(settings, now) as parts:
        for destination in destinations:
            letters = _matching(parts.store.letters(destination.name), what)
            keys = [(letter.source, letter.key) for letter in letters]
            if keys and parts.store.drop(
                destination.name,
                keys,
                reason=reason.strip(),
                who=who,
                at=clock.to_text(now.now()),
            ):
                found += letters
        if not found:
            raise _none(what, parts.store, destinations)
    return found


def letter_json(letter: Letter) -> JsonObject:
    """Return a letter for machines."""
    return {
        "event": letter.key,
        "source": letter.source,
        "run": letter.run,
        "state": letter.state,
        "stand": letter.stand.value,
        "reason": letter.reason,
        "status": letter.status,
        "tries": letter.tries,
        "first_at": letter.first_at,
        "last_at": letter.last_at,
    }


def dropped_json(item: Dropped) -> JsonObject:
    """Return what was dropped, for machines."""
    return {
        "event": item.key,
        "source": item.source,
        "run": item.run,
        "state": item.state,
        "refusal": item.refusal,
        "reason": item.reason,
        "who": item.who,
        "at": item.at,
    }


def _matching(letters: Sequence[Letter], what: str | None) -> list[Letter]:
    if what is None:
        return list(letters)
    exact = [letter for letter in letters if what in {letter.key, letter.run}]
    return exact or [letter for letter in letters if len(what) >= 4 and letter.run.startswith(what)]


def _none(what: str, store: StateStore, destinations: Sequence[Destination]) -> EntryNotFound:
    letters = [letter for item in destinations for letter in store.letters(item.name)]
    names = {name for letter in letters for name in (letter.key, letter.run)}
    near = difflib.get_close_matches(what, sorted(names), n=3, cutoff=0.4)
    tail = f"; did you mean {' or '.join(near)}?" if near else ""
    return EntryNotFound(
        f"no event or run {what!r} is parked{tail}", hint="odi-audit relay status", near=near
    )
