"""Renaming a table: intend, rename, record (docs/adr/0026-renaming.md).

Owns that road. Must never rename another table than the one that was looked at (the uuid is
compared right before), nor one that somebody is writing to, nor say of one table that it was
renamed because another one was.
"""

from __future__ import annotations

from dataclasses import replace

from odi_audit import logs
from odi_audit.canonical import JsonObject
from odi_audit.committer import records, rivals
from odi_audit.committer.absent import left
from odi_audit.committer.quiet import (
    Caller,
    given_up_on_error,
    intend,
    landing,
    planned_for,
    receipt,
    record_done,
    still_this,
)
from odi_audit.committer.surroundings import surroundings
from odi_audit.errors import (
    CommitConflict,
    OdiError,
    OutcomeUnknown,
    TableExists,
    TableNotFound,
    UsageError,
)
from odi_audit.ids import TableUuid
from odi_audit.ledger.port import EntryFilter, Ledger
from odi_audit.model.entries import Entry, Kind
from odi_audit.model.receipts import Receipt
from odi_audit.model.tables import TableName, TableRef
from odi_audit.spark import ddl
from odi_audit.spark.live import LiveTable, find

log = logs.get_logger(__name__)


def rename_table(caller: Caller, name: TableName, to: TableName) -> Receipt:
    """Give a table another name and record who did; afterwards the catalog has it under that.

    Raises:
        UsageError: both names are the same.
        TableNotFound: it is not there; if it was renamed or dropped, by which batch.
        TableExists: the new name is taken; nothing was renamed.
        CommitConflict: another batch is open on it, or the old name means another table by now;
            this call has renamed nothing.
        OutcomeUnknown: it may or may not have the new name; reconcile finds out.
    """
    if name == to:
        raise UsageError(f"{name} was to be renamed to the name that it has")
    jvm = caller.jvm()
    table, taken = find(jvm, caller.catalog, name), find(jvm, caller.catalog, to)
    if table is None:
        return _renamed_before(caller, name, taken)
    if taken is not None:
        raise _refusal(name, to)
    work: JsonObject = {"op": rivals.RENAME, "table": str(name), "to": str(to)}
    around = surroundings(caller.parts, jvm, [table])
    # A rename leaves the table's state as it was: there and back and there again are three batches.
    after = _last_rename(caller.parts.ledger, table.ref.uuid)
    known = {**work, "after": None if after is None else after.index}
    opened = intend(caller, planned_for(caller, name, table, known), table.ref, work, **around)
    with given_up_on_error(caller, opened):
        rivals.refuse_if_in_use(opened, caller.parts.ledger.open_intents())
        caller.parts.reach("staged")
        still_this(caller, opened, table, "renamed")
    _rename(caller, opened, table, to)
    caller.parts.reach("published:0")
    renamed = TableRef(uuid=table.ref.uuid, name=str(to))
    record_done(caller, opened, records.renamed(opened, renamed), f"renamed to {to}")
    caller.parts.reach("recorded:0")
    log.info("table renamed", table=str(name), to=str(to), job=caller.job, batch=opened.batch)
    made = receipt(opened, table, rivals.RENAME)
    return replace(made, landings=(landing(renamed, rivals.RENAME, None),))


def _rename(caller: Caller, opened: Entry, table: LiveTable, to: TableName) -> None:
    try:
        ddl.rename(table, to)
        now = find(table.jvm, table.catalog, to)
    except OdiError as error:
        _settle_by_looking(caller, opened, table, to, lost=error)
        return
    if now is None or now.ref.uuid != table.ref.uuid:
        other = "none" if now is None else f"another table ({now.ref.uuid})"
        refused = CommitConflict(
            f"{table.ref.uuid} was not renamed from {table.name} to {to}: it was replaced in that "
            f"very moment, and {to} is {other} now",
            hint=f"find who did that past odi.run(...): odi-audit history {table.name}",
        )
        caller.parts.ledger.append(records.abandoned(opened, refused.record))
        raise refused


def _settle_by_looking(
    caller: Caller, opened: Entry, table: LiveTable, to: TableName, *, lost: OdiError
) -> None:
    # Also after a denial: a repeated request is denied by its own, earlier success.
    try:
        there = caller.parts.catalog().load_by_uuid(table.ref.uuid, name=to)
        taken = find(table.jvm, table.catalog, to)
    except OdiError as error:
        reason = f"{lost.message}; {error.message}"
        caller.parts.ledger.append(records.unknown(opened, table.ref, reason))
        raise OutcomeUnknown(
            f"{opened.batch} may or may not have renamed {table.name} to {to}: {reason}",
            hint=f"odi-audit reconcile --batch {opened.batch} --apply",
        ) from error
    if there is not None and there.name == to:
        return
    caller.parts.ledger.append(records.abandoned(opened, lost.record))
    if taken is not None:
        raise _refusal(table.name, to) from lost
    raise lost


def _refusal(name: TableName, to: TableName) -> TableExists:
    return TableExists(
        f"{name} was not renamed: there is a table {to} already",
        hint=f"see what it is: odi-audit history {to}; then choose another name",
        table=str(to),
    )


def _renamed_before(caller: Caller, name: TableName, there: LiveTable | None) -> Receipt:
    """Return the receipt of the rename by which the last table of a name has the new one.

    The table that is there decides, by its uuid, and the last one that left the old name: what
    was done to an earlier one of that name was not asked for.
    """
    ledger = caller.parts.ledger
    rivals.refuse_if_leaves(str(name), ledger.open_intents())
    gone = left(ledger, str(name))
    if gone is None or not gone.renamed or there is None or there.ref != gone.entry.table:
        told = "" if gone is None else f": {gone.said()}"
        now = name if gone is None else gone.name_now
        raise TableNotFound(
            f"there is no table {name} to rename{told}",
            hint=f"odi-audit history {now}",
            table=str(name),
            batch=None if gone is None else gone.entry.batch,
        )
    last = gone.entry
    assert last.job is not None and last.run is not None and last.batch is not None
    return Receipt(
        job=last.job,
        run=last.run,
        batch=last.batch,
        intent=last.index if last.intent is None else last.intent,
        fresh=False,
        confidence=there.confidence,
        landings=(landing(there.ref, rivals.RENAME, None),),
    )


def _last_rename(ledger: Ledger, table: TableUuid) -> Entry | None:
    where = EntryFilter(kinds=(Kind.TABLE_RENAMED,), table=table)
    return next(iter(ledger.find(where, limit=1, newest_first=True)), None)
