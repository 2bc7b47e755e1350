"""What people ask of the relay: send, show how it stands, try again, drop, send history again.

Owns the wiring of settings to a relay, and the library twin of every ``odi-audit relay`` command.
Must never open the ledger for writing.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta

from lineage.relay.ahead import Ahead
from lineage.relay.destinations import Destination, destinations_of
from lineage.relay.relay import Manner, Outcome, Relay, follow, nowhere
from lineage.relay.sources import LEDGER, LedgerSource, Source
from lineage.relay.state import StateStore
from lineage.relay.state_open import open_state
from odi_audit import clock
from odi_audit.clock import Clock
from odi_audit.errors import ConfigError
from odi_audit.ledger import open_ledger
from odi_audit.ledger.port import Ledger
from odi_audit.settings import Settings, ledger_url

SPOOL = "spool"
"""The folder of the lake to which openlineage-spark writes; see ``odi_audit.spark.listener``."""
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What a relay works on: the ledger, opened for reading, and its own state."""

    ledger: Ledger
    store: StateStore


@contextmanager
def bench(settings: Settings, now: Clock) -> Iterator[Bench]:
    """Open the ledger for reading, and the relay's state; both are closed at the end."""
    url = ledger_url(settings)
    wait_s = settings.ledger.busy_timeout_s
    ledger = open_ledger(url, clock=now, read_only=True, busy_timeout_s=wait_s)
    try:
        store = open_state(url, busy_timeout_s=wait_s)
        assert store is not None
        try:
            yield Bench(ledger=ledger, store=store)
        finally:
            store.close()
    finally:
        ledger.close()


def sources_of(settings: Settings, ledger: Ledger, *, alone: bool = False) -> list[Source]:
    """Return everything that is sent: the ledger's events, and those of the listener's spool.

    ``alone``: no other process is started for it, however much there is to send.
    """
    near = LedgerSource(ledger)
    sources: list[Source] = [near if alone else ahead(settings, near)]
    folder = settings.lake.root / SPOOL
    if folder.is_dir():
        # Imported here: most lakes have no listener.
        from lineage.relay.spooled import SpoolSource

        sources.append(SpoolSource(folder, ledger))
    return sources


def ahead(settings: Settings, source: LedgerSource) -> Ahead:
    """Return a ledger's events, made beside the sending of them where they are many."""
    return Ahead(source, ledger_url(settings), busy_timeout_s=settings.ledger.busy_timeout_s)


def tidy(settings: Settings, parts: Bench) -> None:
    """Remove files of the spool of which every destination has had everything."""
    names = [item.name for item in destinations_of(settings.lineage)]
    store = parts.store
    for source in sources_of(settings, parts.ledger):
        if source.name == LEDGER or not hasattr(source, "forget"):
            continue
        # A letter or an end that is to be said once more is made again from its file.
        kept = [letter.source for name in names for letter in store.letters(name)]
        kept += [doubt.source for name in names for doubt in store.doubts(name)]
        if source.name not in kept:
            source.forget(*(store.positions(name).get(source.name) for name in names))


def manner_of(settings: Settings, *, going_on: bool = False) -> Manner:
    """Return how a relay goes about it, by the settings."""
    lineage = settings.lineage
    return Manner(settle_s=lineage.settle_s, retry_s_max=lineage.retry_s_max, follow=going_on)


def new_holder() -> str:
    """Return a name for this process as a holder of leases."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def begin(store: StateStore, destination: Destination) -> None:
    """See that the state knows a destination, and that it still stands at the same address.

    Raises:
        ConfigError: it was at another address: what was sent there is not here.
    """
    facts = store.facts(destination.name)
    if facts is None:
        store.begin(destination.name, destination.address, {})
    elif facts.address != destination.address:
        position = store.positions(destination.name).get(LEDGER, "0")
        raise ConfigError(
            f"destination {destination.name} was {facts.address}, and is {destination.address} "
            f"now: events of the first {position} entries were sent to the former",
            hint="odi-audit relay rebuild --from start (or --from "
            f"{position}, if the new one has them)",
            destination=destination.name,
        )


def send(
    settings: Settings,
    destinations: Sequence[Destination],
    *,
    now: Clock,
    stop: threading.Event,
    going_on: bool = False,
    progress: Progress | None = None,
    reach: Callable[[str], None] = nowhere,
) -> list[Outcome]:
    """Relay to each destination beside the others; one that is down holds none of them.

    Without ``going_on`` until everything is sent or cannot be; with it, until ``stop`` is set.

    Raises:
        RelayHeld: without ``going_on``, another relay sends to one of them.
        ConfigError, RelayStateUnavailable, LedgerUnavailable, LedgerBroken: as they say.
    """
    outcomes: dict[str, Outcome | BaseException] = {}
    manner = manner_of(settings, going_on=going_on)

    def one(destination: Destination) -> None:
        try:
            with bench(settings, now) as parts:
                begin(parts.store, destination)
                tidy(settings, parts)

                def make() -> Relay:
                    return Relay(
                        destination,
                        sources_of(settings, parts.ledger),
                        parts.store,
                        holder=new_holder(),
                        now=now,
                        manner=manner,
                        reach=reach,
                        progress=progress,
                    )

                made = follow(make, stop) if going_on else make().run(stop)
                if made is not None:
                    outcomes[destination.name] = made
                tidy(settings, parts)
        except BaseException as error:  # noqa: BLE001 - raised again below, in the caller's thread
            outcomes[destination.name] = error

    threads = [
        threading.Thread(target=one, args=(item,), name=f"odi-relay-{item.name}", daemon=True)
        for item in destinations
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        # In short waits: a signal is heard by this thread only.
        while thread.is_alive():
            thread.join(0.2)
    for found in outcomes.values():
        if isinstance(found, BaseException):
            raise found
    return [found for found in outcomes.values() if isinstance(found, Outcome)]


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Which part of the ledger is sent again; ``stop`` None is the end."""

    start: int = 0
    stop: int | None = None


def rebuild(
    settings: Settings,
    destination: Destination,
    history: History,
    *,
    now: Clock,
    stop: threading.Event,
    sure: bool = False,
    progress: Progress | None = None,
) -> Outcome:
    """Send history again, from the ledger alone.

    To a backend that has had none of it (a new address, or one that was never sent to) everything
    is sent, in order, and the relay goes on from there. To the same backend only the ends of runs
    are: a START after an end would set a run back to running.

    Raises:
        ConfigError: the backend has been sent to already, and ``sure`` is not given.
        RelayHeld: another relay sends to it.
    """
    with bench(settings, now) as parts:
        store, name = parts.store, destination.name
        facts = store.facts(name)
        same = facts is not None and facts.address == destination.address
        sent = int(store.positions(name).get(LEDGER, "0"))
        last = history.stop
        if same:
            if not sure:
                raise ConfigError(
                    f"{destination.address} has been sent {sent:,} entries already: of these only "
                    "the ends of runs would be sent again",
                    hint="add --yes to do that. What it has not got, `odi-audit relay` sends",
                )
            last = sent if last is None else min(last, sent)
            name = f"{name}~again"
        if store.facts(name) is None or not same:
            store.begin(name, destination.address, {LEDGER: str(history.start)})
        relay = Relay(
            replace(destination, name=name),
            [
                ahead(
                    settings,
                    LedgerSource(parts.ledger, start=history.start, stop=last, only_ends=same),
                )
            ],
            store,
            holder=new_holder(),
            now=now,
            manner=manner_of(settings),
            progress=progress,
        )
        with _alone(store, destination.name, name, now):
            outcome = relay.run(stop)
        if same and not outcome.left and not outcome.letters:
            store.forget(name)
        return replace(outcome, destination=destination.name)


@contextmanager
def _alone(store: StateStore, real: str, name: str, now: Clock) -> Iterator[None]:
    """Keep other relays off a destination while history is sent to it under another name."""
    if real == name:
        yield
        return
    moment = now.now()
    until = clock.to_text(moment + timedelta(days=1))
    lease = store.acquire(real, new_holder(), clock.to_text(moment), until)
    try:
        yield
    finally:
        store.release(lease)
