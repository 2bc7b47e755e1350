"""Reading the facts of ledger entries, whose shape is JSON and may come from older versions.

Owns the one way to take a typed value out of them. Must never raise for a fact that is absent or
of another type: an old entry is still an answer, with a hole in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import cast

from odi_audit.canonical import Json, JsonObject
from odi_audit.model.entries import Entry
from odi_audit.model.offsets import OffsetKind

SHOWN_MAX = 3
"""Partitions or files that a line of text names before it says how many more there are."""
_TAKEN = {
    "deleted-records": 1,
    "added-position-deletes": 1,
    "removed-position-deletes": -1,
    "added-records": -1,
}
"""What a delete took away: rows of removed files and newly marked ones, less those kept."""
_ROW_COUNTS = ("rows", "added-records", "added_records", "added")


def text(facts: JsonObject, key: str) -> str | None:
    """Return a text fact."""
    value = facts.get(key)
    return value if isinstance(value, str) else None


def number(facts: JsonObject, key: str) -> int | None:
    """Return a whole-number fact, also where it was kept as text to keep its digits."""
    value = facts.get(key)
    if isinstance(value, str) and value.lstrip("-").isdigit():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def texts(facts: JsonObject, key: str) -> tuple[str, ...]:
    """Return a list of texts (batch ids, snapshot ids)."""
    return tuple(str(item) for item in _items(facts, key))


def objects(facts: JsonObject, key: str) -> tuple[JsonObject, ...]:
    """Return a list of objects (operations, staged tables)."""
    return tuple(item for item in _items(facts, key) if isinstance(item, Mapping))


def obj(facts: JsonObject, key: str) -> JsonObject | None:
    """Return an object (offsets, counts)."""
    value = facts.get(key)
    return value if isinstance(value, Mapping) else None


def operation(entry: Entry) -> str:
    """Return what an effect did, in one word."""
    return text(entry.facts, "operation") or entry.kind.value


def rows(entry: Entry) -> int | None:
    """Return how many rows an effect wrote, or took away by a delete, as far as it says."""
    counts = obj(entry.facts, "counts")
    if operation(entry) == "delete" and counts is not None:
        return sum((number(counts, key) or 0) * sign for key, sign in _TAKEN.items())
    counted = counted_rows(entry)
    return number(entry.facts, "added_rows") if counted is None else counted


def counted_rows(entry: Entry) -> int | None:
    """Return how many rows were counted in the files of an effect, as far as it says."""
    counts = obj(entry.facts, "counts") or {}
    return next((found for key in _ROW_COUNTS if (found := number(counts, key)) is not None), None)


def touches(intent: Entry, uuid: str, name: str) -> bool:
    """Say whether an intent names a table; one that it was to create has no uuid yet."""
    return any(
        operation.get("table_uuid") == uuid
        or (operation.get("table_uuid") is None and operation.get("table") == name)
        for operation in objects(intent.facts, "operations")
    )


def describe_offsets(offsets: JsonObject | None) -> str:
    """Return a batch's part of its source in one short line, for people."""
    if offsets is None:
        return ""
    ranges = obj(offsets, "ranges")
    if ranges is None:
        return f"{offsets.get('partitions', '?')} partitions (digest only)"
    kind = text(offsets, "kind")
    parts: list[str] = []
    for name, pair in list(ranges.items())[:SHOWN_MAX]:
        start, end = cast("Sequence[Json]", pair)
        if kind == OffsetKind.FILES:
            parts.append(PurePath(name).name)
        elif kind == OffsetKind.ONCE:
            parts.append(name)
        elif kind == OffsetKind.TABLE:
            parts.append(f"at {end}")
        else:
            parts.append(f"{name} [{'' if start is None else start}, {end})")
    more = len(ranges) - len(parts)
    return ", ".join(parts) + (f" and {more} more" if more > 0 else "")


def describe_schemas(source_facts: JsonObject | None) -> str:
    """Return, in one short line, under which schemas a batch's records were written."""
    known = source_facts or {}
    parts = [
        f"{topic}{side} {', '.join(str(number) for number in _items(found, topic))}"
        for key, side in (("schemas", ""), ("keys", " (key)"))
        for found in [obj(known, key) or {}]
        for topic in found
    ]
    shown = parts[:SHOWN_MAX]
    more = f" and {len(parts) - len(shown)} more" if len(parts) > len(shown) else ""
    where = text(known, "registry")
    return ", ".join(shown) + more + (f" of {where}" if shown and where else "")


def _items(facts: JsonObject, key: str) -> Sequence[Json]:
    value = facts.get(key)
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()
