"""The settings' Marquez: its address, its key, and how the relay to it stands.

Owns which key goes to which server. Must never send a key to a server that it was not set for.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from lineage.marquez.comparing import Relayed
from lineage.marquez.server import Marquez, base_url
from lineage.relay.destinations import Destination, destinations_of
from lineage.relay.sources import LEDGER
from lineage.relay.state_open import open_state
from odi_audit.errors import UsageError
from odi_audit.settings import Settings, ledger_url

DROPPED_MAX = 10_000
"""Dropped events that are looked at: each was a person's decision."""
_PORTS = {"http": 80, "https": 443}


def server_of(settings: Settings, url: str | None, other_key: str | None) -> Marquez:
    """Return the server to compare with: at ``url``, else the one that the settings name.

    A server that the settings name gets the key and the certificates that stand there; any other
    gets ``other_key``.

    Raises:
        UsageError: there is no address, or it is none.
    """
    found = [item for item in destinations_of(settings.lineage) if item.transport == "http"]
    if url is None:
        if not found:
            raise UsageError(
                "which Marquez? No address is given, and lineage.url is not set",
                hint="--marquez http://localhost:5000",
            )
        url = found[0].settings.url or ""
    named = _named(found, url)
    if named is None:
        return Marquez(url, api_key=other_key)
    place = named.settings
    key = place.api_key
    return Marquez(
        url,
        api_key=None if key is None else key.get_secret_value(),
        verify=str(place.ca_file) if place.verify and place.ca_file is not None else place.verify,
    )


def relayed(settings: Settings, server: Marquez) -> Relayed:
    """Return how the relay to a server stands; as if there were none where none sends to it.

    Raises:
        RelayStateUnavailable: there is one, and its state cannot be read.
    """
    found = [item for item in destinations_of(settings.lineage) if item.transport == "http"]
    named = _named(found, server.url)
    if named is None:
        return Relayed()
    wait_s = settings.ledger.busy_timeout_s
    store = open_state(ledger_url(settings), busy_timeout_s=wait_s, create=False)
    if store is None:
        return Relayed()
    try:
        facts = store.facts(named.name)
        if facts is None or facts.address != named.address:
            return Relayed()
        return Relayed(
            delivered_to=int(store.positions(named.name).get(LEDGER, "0")),
            parked=frozenset(map(str, store.letter_counts(named.name))),
            dropped={
                str(item.run): f"{item.reason} ({item.who})"
                for item in store.dropped(named.name, DROPPED_MAX)
            },
        )
    finally:
        store.close()


def _named(found: list[Destination], url: str) -> Destination | None:
    return next((item for item in found if _origin(item.settings.url or "") == _origin(url)), None)


def _origin(url: str) -> tuple[str, str | None, int | None, str]:
    parts = urlsplit(base_url(url)) if url else urlsplit("")
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme), parts.path
