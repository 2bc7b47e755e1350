"""What an operation without a snapshot leaves behind: how it is known, after a crash, to be done.

Owns the traces (a table property, missing snapshots, a name that is gone or new) and the record
that reconcile makes from them and from the intent. Must never guess: what the table does not show,
the record leaves out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from odi_audit.canonical import JsonObject
from odi_audit.catalog import SnapshotInfo, TableState, history
from odi_audit.committer import records
from odi_audit.committer.rivals import DROP, RENAME
from odi_audit.ids import SnapshotId
from odi_audit.ledger.port import Ledger
from odi_audit.model.entries import Draft, Entry, Kind
from odi_audit.model.tables import TableRef

WITHOUT_SNAPSHOT = {
    "create_table": Kind.TABLE_CREATED,
    "evolve_schema": Kind.SCHEMA_CHANGE,
    "rollback": Kind.ROLLBACK,
    "expire": Kind.MAINTENANCE,
    DROP: Kind.TABLE_DROPPED,
    RENAME: Kind.TABLE_RENAMED,
}
"""Operations whose traces are a property, missing snapshots or a name, not a stamp."""
SHOWS = {
    DROP: "the table is gone from the catalog",
    RENAME: "the table has its new name",
}
"""What shows that one of these was carried out."""
LACKS = {
    DROP: "its process died before the table was dropped; it is there as it was",
    RENAME: "its process died, and the table does not have the new name",
}
"""What shows that one of these was not."""


def happened(opened: Entry, operation: str, state: TableState) -> bool:
    """Say whether a table that is there shows that an operation was carried out on it."""
    marker = f"{opened.batch}/{opened.index}"
    if operation == DROP:
        return False
    if operation == RENAME:
        return state.ref.name == _arguments(opened)["to"]
    if operation == "expire":
        planned = {str(item) for item in cast("Sequence[str]", opened.facts.get("doomed", []))}
        return not planned & {info.id for info in state.snapshots}
    if operation == "create_table":
        return state.properties.get("odi.created-by") == marker
    return state.properties.get("odi.last-op") == marker


def quiet_record(
    ledger: Ledger, opened: Entry, operation: str, table: TableRef, state: TableState | None
) -> Draft:
    """Return the record of an operation that was carried out, and that its process did not record.

    ``state`` is None where the table is gone.
    """
    if operation == DROP:
        return records.dropped(opened, table, reconciled=True)
    if operation == RENAME:
        return records.renamed(opened, table, reconciled=True)
    facts: dict[str, object] = {"operation": operation, "reconciled": True}
    arguments = _arguments(opened)
    if operation == "expire":
        facts["expired"] = opened.facts.get("doomed", [])
    elif operation == "evolve_schema":
        facts["steps"] = arguments["steps"]
        facts |= {key: arguments[key] for key in ("for_batch",) if key in arguments}
    elif operation == "rollback":
        assert state is not None
        facts |= {"from": opened.facts.get("head"), "to": arguments["to"]}
        facts |= _undone(ledger, state, SnapshotId(str(arguments["to"])))
    kind = WITHOUT_SNAPSHOT[operation]
    return records.without_snapshot(opened, kind, table, cast("JsonObject", facts))


def _arguments(opened: Entry) -> JsonObject:
    work = cast("Sequence[JsonObject]", opened.facts["operations"])[0]
    return cast("JsonObject", work["arguments"])


def _undone(ledger: Ledger, state: TableState, to: SnapshotId) -> dict[str, object]:
    # After a rollback the snapshots that it took out are still there, but no longer on main; of
    # those that are not on main only the ones that had landed were ever there.
    kept = {info.id for info in history(state)}
    target = state.snapshot(to)
    after = 0 if target is None else target.sequence_number
    removed = [
        info
        for info in state.snapshots
        if info.id not in kept and info.sequence_number > after and _had_landed(ledger, state, info)
    ]
    return {
        "removed_snapshots": [info.id for info in removed],
        "undone": [str(info.batch) for info in removed],
    }


def _had_landed(ledger: Ledger, state: TableState, info: SnapshotInfo) -> bool:
    entry = None if info.batch is None else ledger.landed(info.batch, state.ref.uuid)
    return entry is not None and entry.facts.get("snapshot") == info.id
