"""Tables that were dropped or renamed, as the ledger tells of them when the catalog no longer can.

Owns the finding of a drop and what is said of it, and of a rename. Each is of one table, by its
uuid: another one that has its name now is another one. Must never take a table for dropped or
renamed without an entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odi_audit.canonical import JsonObject
from odi_audit.errors import TableNotFound
from odi_audit.ids import TableUuid
from odi_audit.ledger.port import EntryFilter, Ledger
from odi_audit.model.entries import Entry, Kind
from odi_audit.model.names import NAMING, former_name, last_about, leaves
from odi_audit.model.tables import TableName
from odi_audit.query import facts

if TYPE_CHECKING:
    from odi_audit.catalog.lake import LakeCatalog
    from odi_audit.catalog.state import TableState


def drops(ledger: Ledger, *, before: int | None = None) -> dict[TableUuid, Entry]:
    """Return the last drop of each table that has one: of most ledgers, few."""
    found = ledger.find(EntryFilter(kinds=(Kind.TABLE_DROPPED,), before=before))
    return {entry.table.uuid: entry for entry in found if entry.table is not None}


def drop_of(ledger: Ledger, table: TableUuid) -> Entry | None:
    """Return the entry by which a table was dropped."""
    where = EntryFilter(kinds=(Kind.TABLE_DROPPED,), table=table)
    return next(iter(ledger.find(where, limit=1, newest_first=True)), None)


def load_table(ledger: Ledger, catalog: LakeCatalog, name: TableName) -> TableState:
    """Return a table as it is now.

    Raises:
        TableNotFound: there is none of that name; if one was dropped or renamed, by which batch,
            and what it is called now.
    """
    try:
        return catalog.load(name)
    except TableNotFound as missing:
        named = ledger.find(EntryFilter(kinds=NAMING))
        left = [entry for entry in named if leaves(entry, str(name))]
        if not left:
            raise
        last = last_about(left[-1], named)
        if last.kind is Kind.TABLE_DROPPED:
            raise gone(last) from missing
        raise moved(left[-1], last) from missing


def moved(entry: Entry, last: Entry) -> TableNotFound:
    """Return the error that says who renamed a table; ``last`` has the name that it has now."""
    assert entry.table is not None and last.table is not None
    former, now = former_name(entry), last.table.name
    return TableNotFound(
        f"table {former} is {now} now: {said(entry)}",
        hint=f"odi-audit history {now}",
        table=former,
        table_uuid=entry.table.uuid,
        batch=entry.batch,
        renamed_at=entry.time,
        name_now=now,
        entry=entry.index,
    )


def gone(entry: Entry) -> TableNotFound:
    """Return the error that says of a table who dropped it."""
    assert entry.table is not None
    left = "" if files_deleted(entry) else "; its files were left where they are"
    return TableNotFound(
        f"table {entry.table.name} is gone: {said(entry)}{left}",
        hint=f"odi-audit history {entry.table.name}",
        table=entry.table.name,
        table_uuid=entry.table.uuid,
        batch=entry.batch,
        dropped_at=entry.time,
        entry=entry.index,
    )


def said(entry: Entry) -> str:
    """Return who dropped or renamed a table and when, in a few words."""
    done = "dropped"
    if entry.kind is Kind.TABLE_RENAMED:
        done = f"renamed to {facts.text(entry.facts, 'to_name')}"
    return f"{done} by batch {entry.batch} of {entry.job} at {entry.time}"


def files_deleted(entry: Entry) -> bool:
    """Say whether the table's files were to be deleted with it."""
    return entry.facts.get("purge") is True


def rows_dropped(entry: Entry) -> int | None:
    """Return how many rows the table had when it went."""
    totals = facts.obj(entry.facts, "totals")
    return None if totals is None else facts.number(totals, "total-records")


def told(entry: Entry) -> JsonObject:
    """Return the form of a drop, or of a rename, that ``--json`` prints."""
    return {
        "renamed_to": facts.text(entry.facts, "to_name"),
        "batch": entry.batch,
        "job": entry.job,
        "time": entry.time,
        "entry": entry.index,
        "purge": files_deleted(entry),
        "rows": rows_dropped(entry),
        "metadata_location": facts.text(entry.facts, "metadata_location"),
    }
