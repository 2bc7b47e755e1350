"""Destinations as the settings name them: where events go, and by which transport.

Owns the reading of ``[lineage]``, and how an address is shown. Must never fall back to another
destination than the one that is named: none is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from odi_audit.errors import ConfigError
from odi_audit.redact import redact_text
from odi_audit.settings_models import DestinationSettings, LineageSettings

DEFAULT = "default"
"""The name of a destination that stands alone."""
LANES_HTTP = 4
"""Requests at a time: a Marquez on a small machine answers no faster with more."""

Transport = Literal["http", "kafka", "file", "console"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where events go. ``repr`` shows no secret: those are not part of it."""

    name: str
    transport: Transport
    address: str
    lanes: int
    settings: DestinationSettings


def destinations_of(lineage: LineageSettings) -> list[Destination]:
    """Return the destinations that the settings name; none if there is no transport."""
    if lineage.transport == "none":
        return []
    if lineage.transport == "composite":
        return [
            _destination(name, _with_key(item, lineage, name))
            for name, item in sorted(lineage.destinations.items())
        ]
    own = {
        name: getattr(lineage, name)
        for name in DestinationSettings.model_fields
        if name in LineageSettings.model_fields
    }
    return [_destination(DEFAULT, DestinationSettings(**own))]


def chosen(lineage: LineageSettings, name: str | None) -> list[Destination]:
    """Return the destinations, or the one of a name.

    Raises:
        ConfigError: there is none, or none of that name.
    """
    found = destinations_of(lineage)
    if not found:
        raise ConfigError(
            "no transport is set, so lineage events are sent nowhere; the ledger keeps everything "
            "that they are made of",
            hint='set lineage.transport in odi.toml ("http", "kafka", "file", "console"), or '
            "OPENLINEAGE_URL",
            setting="lineage.transport",
        )
    if name is None:
        return found
    named = [item for item in found if item.name == name]
    if not named:
        names = ", ".join(item.name for item in found)
        raise ConfigError(f"no destination is called {name!r}; there is {names}")
    return named


def to_url(url: str, lineage: LineageSettings, name: str) -> Destination:
    """Return a destination at an address that is not in the settings, other things as there."""
    kept = ("endpoint", "api_key", "gzip", "verify", "ca_file", "client_cert", "client_key")
    own = {key: getattr(lineage, key) for key in (*kept, "timeout_s", "headers")}
    return _destination(name, DestinationSettings(transport="http", url=url, **own))


def _destination(name: str, settings: DestinationSettings) -> Destination:
    lanes = settings.lanes or (LANES_HTTP if settings.transport == "http" else 1)
    if settings.transport != "http":
        lanes = 1  # One stream, one order.
    return Destination(
        name=name,
        transport=settings.transport,
        address=_address(settings),
        lanes=lanes,
        settings=settings,
    )


def _with_key(
    item: DestinationSettings, lineage: LineageSettings, name: str
) -> DestinationSettings:
    key = lineage.api_keys.get(name)
    return item if key is None else item.model_copy(update={"api_key": key})


def _address(settings: DestinationSettings) -> str:
    match settings.transport:
        case "http":
            text = f"{(settings.url or '').rstrip('/')}/{settings.endpoint.lstrip('/')}"
        case "kafka":
            text = f"kafka://{settings.kafka.get('bootstrap.servers', '')}/{settings.topic}"
        case "file":
            text = Path(settings.file or "").absolute().as_uri()
        case _:
            text = "console"
    return redact_text(text)
