"""Names of tables over time: by which entries a table comes to a name, and leaves it.

Owns the reading of those entries. A name is not a table: of two that had it, the uuid tells which.
Must never say anything of a rename that no entry tells of.
"""

from __future__ import annotations

from collections.abc import Sequence

from odi_audit.model.entries import Entry, Kind

NAMING = (Kind.TABLE_CREATED, Kind.TABLE_RENAMED, Kind.TABLE_DROPPED)
"""Kinds by which a table comes to a name, or leaves one."""


def former_name(entry: Entry) -> str | None:
    """Return the name that a rename took from its table; None of any other entry."""
    if entry.kind is not Kind.TABLE_RENAMED:
        return None
    found = entry.facts.get("from_name")
    return found if isinstance(found, str) else None


def last_about(entry: Entry, named: Sequence[Entry]) -> Entry:
    """Return the newest of these entries that is about the table of one of them."""
    uuid = None if entry.table is None else entry.table.uuid
    same = (item for item in reversed(named) if item.table is not None and item.table.uuid == uuid)
    return next(same, entry)


def comes_to(entry: Entry, name: str) -> bool:
    """Say whether by an entry a table has got a name."""
    named = entry.table is not None and entry.table.name == name
    return named and entry.kind in {Kind.TABLE_CREATED, Kind.TABLE_RENAMED}


def leaves(entry: Entry, name: str) -> bool:
    """Say whether by an entry a table has a name no longer."""
    if entry.kind is Kind.TABLE_DROPPED:
        return entry.table is not None and entry.table.name == name
    return former_name(entry) == name
