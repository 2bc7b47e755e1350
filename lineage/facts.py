"""Reading the facts of ledger entries, whose shape is JSON and may come from older versions.

Owns the one way in which lineage takes a typed value out of them. Must never raise for a fact that
is absent or of another type: an old entry still gives an event, with a facet less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lineage.sharing import OPEN_MAX, Once
from odi_audit import clock
from odi_audit.canonical import Json, JsonObject
from odi_audit.model.entries import Entry
from odi_audit.model.offsets import Offsets, offsets_from_json

NOTHING: JsonObject = {}


def text(facts: JsonObject, key: str) -> str | None:
    """Return a text that is not empty."""
    value = facts.get(key)
    return value if isinstance(value, str) and value else None


def number(facts: JsonObject, key: str) -> int | None:
    """Return a whole number."""
    value = facts.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def moment(facts: JsonObject, key: str) -> str | None:
    """Return a time, as the ledger writes it."""
    value = text(facts, key)
    try:
        return None if value is None else clock.to_text(clock.from_text(value))
    except ValueError:
        return None


def flag(facts: JsonObject, key: str) -> bool:
    """Say whether a fact is there and true."""
    return facts.get(key) is True


def obj(facts: JsonObject, key: str) -> JsonObject:
    """Return an object, an empty one where there is none."""
    value = facts.get(key)
    return value if isinstance(value, Mapping) else NOTHING


def items(facts: JsonObject, key: str) -> Sequence[Json]:
    """Return a list, an empty one where there is none."""
    value = facts.get(key)
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def objects(facts: JsonObject, key: str) -> list[JsonObject]:
    """Return the objects of a list."""
    return [item for item in items(facts, key) if isinstance(item, Mapping)]


def texts(facts: JsonObject, key: str) -> list[str]:
    """Return the items of a list as texts."""
    return [str(item) for item in items(facts, key)]


def offsets(entry: Entry) -> Offsets | None:
    """Return which part of a source an entry speaks of; None where it cannot be told any more."""
    body = obj(entry.facts, "offsets")
    return _offsets.get((body,), None, lambda: _parsed(body))


_offsets: Once[Offsets | None] = Once(OPEN_MAX)


def _parsed(body: JsonObject) -> Offsets | None:
    if not isinstance(body.get("ranges"), Mapping) or text(body, "source") is None:
        return None
    try:
        return offsets_from_json(body)
    except (KeyError, TypeError, ValueError):
        return None
