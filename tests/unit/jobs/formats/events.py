"""Change events taken from a real Debezium, as records that a task would read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from jobs.tasks.records import Records

SAMPLES = Path(__file__).parent / "samples"
FORMS = ("plain", "schema")


@dataclass(frozen=True, slots=True)
class Event:
    """A record with the methods of the client's own."""

    given_key: bytes | None
    given_value: bytes | None
    place: int = 0
    given_headers: list[tuple[str, bytes]] = field(default_factory=list)

    def key(self) -> bytes | None:
        return self.given_key

    def value(self) -> bytes | None:
        return self.given_value

    def offset(self) -> int:
        return self.place

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_794_787_826_000

    def headers(self) -> list[tuple[str, bytes]]:
        return self.given_headers


def packed(document: Any) -> bytes | None:
    return None if document is None else json.dumps(document, separators=(",", ":")).encode()


def sample(name: str) -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads((SAMPLES / f"{name}.json").read_text("utf-8")))


def event(name: str, place: int = 0) -> Event:
    found = sample(name)
    return Event(packed(found["key"]), packed(found["value"]), place)


def changed(name: str, **values: Any) -> Event:
    """A sample whose row has other values."""
    found = sample(name)
    payload = found["value"].get("payload", found["value"])
    payload["after"].update(values)
    return Event(packed(found["key"]), packed(found["value"]))


def records(events: Sequence[Event]) -> Records:
    return Records(topic="shop.public.orders", partition=0, messages=cast("Any", list(events)))
