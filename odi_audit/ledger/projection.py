"""Projections: the rows, beside the entries, by which entries are found.

Owns :func:`project`, the one pure function from an entry to its rows, and the columns of each
table. Rows are only ever inserted; everything here can be dropped and made again from the
entries. Must never hold a fact that is not in an entry.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeAlias, cast

from odi_audit.canonical import Json
from odi_audit.ledger.database import Row
from odi_audit.model.entries import Entry, Kind
from odi_audit.model.offsets import Place

Rows: TypeAlias = dict[str, list[Row]]
"""Rows of each projection, by table."""

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "entry_index": (
        "idx", "time", "kind", "job", "run", "batch", "table_uuid", "intent", "recovered",
    ),
    "landed": ("batch", "table_uuid", "idx"),
    "settled": ("intent", "idx"),
    "positions": (
        "idx", "part", "job", "table_uuid", "source", "batch", "start_place", "end_place",
        "identity",
    ),
    "undone": ("idx", "batch", "table_uuid"),
}  # fmt: skip
"""Every projection and its columns, in the order of the rows."""


def project(entry: Entry) -> Rows:
    """Return the rows that an entry puts into each projection.

    Raises:
        ValueError: a fact that projections are made of has the wrong form.
    """
    table = None if entry.table is None else entry.table.uuid
    rows: Rows = {
        "entry_index": [
            (
                entry.index,
                entry.time,
                entry.kind.value,
                entry.job,
                entry.run,
                entry.batch,
                table,
                entry.intent,
                int(entry.recovered),
            )
        ],
        "landed": [],
        "settled": [],
        "positions": [],
        "undone": [],
    }
    if entry.settles:
        if entry.intent is None:
            raise ValueError("an entry that settles names no intent")
        rows["settled"].append((entry.intent, entry.index))
    if entry.kind is Kind.LANDED:
        if entry.batch is None or table is None:
            raise ValueError("a landed entry names a batch and a table")
        rows["landed"].append((entry.batch, table, entry.index))
        rows["positions"].extend(_positions(entry, table))
    if entry.kind in {Kind.ROLLBACK, Kind.UNDO} and table is not None:
        rows["undone"].extend(
            (entry.index, batch, table) for batch in _texts(entry.facts.get("undone", []))
        )
    return rows


def place_text(place: Place | None) -> str:
    """Write a place so that the number 5 and the text "5" stay apart."""
    return json.dumps(place, ensure_ascii=False)


def place_from_text(text: str) -> Place | None:
    """Read what :func:`place_text` wrote."""
    return cast("Place | None", json.loads(text))


def _positions(entry: Entry, table: str) -> list[Row]:
    offsets = entry.facts.get("offsets")
    # A replay of an old part lands without turning the position back (docs/adr/0007).
    if offsets is None or entry.job is None or entry.facts.get("moves_position") is False:
        return []
    body = _mapping(offsets)
    source, identity = body.get("source"), _mapping(body.get("identity", {}))
    if not isinstance(source, str):
        raise ValueError("facts.offsets names no source")  # noqa: TRY004  a value of a fact
    rows: list[Row] = []
    for part, pair in _mapping(body.get("ranges")).items():
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise ValueError(f"facts.offsets, partition {part}: a pair of places is expected")
        start, end = (_place(place, part) for place in pair)
        if end is None:
            raise ValueError(f"facts.offsets, partition {part}: no end")
        owner = identity.get(part)
        rows.append(
            (
                entry.index, part, entry.job, table, source, entry.batch,
                place_text(start), place_text(end), owner if isinstance(owner, str) else None,
            )
        )  # fmt: skip
    return rows


def _place(value: Json, part: str) -> Place | None:
    if value is None or (isinstance(value, str | int) and not isinstance(value, bool)):
        return value
    raise ValueError(f"facts.offsets, partition {part}: {value!r} is not a place")


def _mapping(value: Json) -> Mapping[str, Json]:
    if not isinstance(value, Mapping):
        kind = type(value).__name__
        raise ValueError(f"facts.offsets: {kind} is not a mapping")  # noqa: TRY004  same
    return value


def _texts(value: Json) -> list[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ValueError("facts.undone: a list of batch ids is expected")
    return sorted(set(cast("list[str]", value)))
