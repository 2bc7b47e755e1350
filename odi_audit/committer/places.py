"""Where a new table may not lie: in the folder of one that had its name and lives under another.

Owns that look. A catalog places a table by its name, and a rename moves no file: without it two
tables would share a folder, be one dataset to lineage, and lose files to whoever cleans up after
one of them. Must never move a table that is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from odi_audit.canonical import JsonObject
from odi_audit.ids import BatchId
from odi_audit.ledger.port import EntryFilter, Ledger
from odi_audit.model.entries import Entry, Kind
from odi_audit.model.names import former_name
from odi_audit.model.tables import TableName

_SUFFIX_LENGTH = 8
"""Characters of the batch's id: enough for the few tables that ever have one name."""


def place_for(ledger: Ledger, name: TableName, batch: BatchId) -> str | None:
    """Return the location for a new table; None where the catalog's own choice is free."""
    # Renames are few, and tables that are made may be many: only the former are read.
    for entry in ledger.find(EntryFilter(kinds=(Kind.TABLE_RENAMED,))):
        if former_name(entry) != str(name) or _is_dropped(ledger, entry):
            continue
        location = _location(ledger, entry)
        if location is not None and location.rsplit("/", 1)[-1] == name.parts[-1]:
            return f"{location}-{batch.removeprefix('b-')[:_SUFFIX_LENGTH]}"
    return None


def _is_dropped(ledger: Ledger, entry: Entry) -> bool:
    assert entry.table is not None
    where = EntryFilter(kinds=(Kind.TABLE_DROPPED,), table=entry.table.uuid)
    return bool(ledger.find(where, limit=1))


def _location(ledger: Ledger, renamed: Entry) -> str | None:
    if renamed.intent is None:
        return None
    told = cast("Sequence[JsonObject]", ledger.get(renamed.intent).facts.get("tables") or [])
    return str(told[0]["location"]).rstrip("/") if told else None
