"""Dropping a table: intend, keep what would be lost, drop, record.

Owns that road. Must never drop another table than the one that was looked at (the uuid and the
metadata are compared right before), nor one that somebody is writing to, nor one with a batch that
the ledger does not have: after a drop the table cannot be asked any more.
"""

from __future__ import annotations

from odi_audit import logs
from odi_audit.canonical import Json, JsonObject
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
from odi_audit.committer.structure import foreign_drafts
from odi_audit.committer.surroundings import surroundings
from odi_audit.errors import (
    CommitConflict,
    OdiError,
    OutcomeUnknown,
    TableNotFound,
    UsageError,
    WriteFailed,
)
from odi_audit.ids import BatchId
from odi_audit.ledger.port import EntryFilter
from odi_audit.model.entries import Draft, Entry, Kind
from odi_audit.model.receipts import Receipt
from odi_audit.model.tables import TableName
from odi_audit.spark import ddl
from odi_audit.spark.live import LiveTable, find

log = logs.get_logger(__name__)

COLLECTED = "gc.enabled"
"""Table property of Iceberg: no files of this table may be deleted where it is false."""
_TOTALS = ("total-records", "total-data-files", "total-files-size")


def drop_table(caller: Caller, name: TableName, *, purge: bool, if_exists: bool) -> Receipt:
    """Drop a table and record who did; afterwards the catalog does not have it.

    Raises:
        TableNotFound: it is not there, and ``if_exists`` was not said.
        CommitConflict: another batch is open on it, it has moved since, or the ledger lacks one
            of its batches; nothing was dropped.
        OutcomeUnknown: it may or may not be gone; reconcile finds out.
    """
    jvm = caller.jvm()
    table = find(jvm, caller.catalog, name)
    if table is None:
        return _absent(caller, name, if_exists=if_exists)
    if purge and str(table.property(COLLECTED)).lower() == "false":
        raise UsageError(
            f"the files of {name} may not be deleted: its property {COLLECTED} is false",
            hint="drop it without purge=True: its files then stay",
        )
    work: JsonObject = {"op": rivals.DROP, "table": str(name), "purge": purge}
    around = surroundings(caller.parts, jvm, [table])
    planned = planned_for(caller, name, table, work)
    opened = intend(caller, planned, table.ref, work, **_last_state(table), **around)
    with given_up_on_error(caller, opened):
        rivals.refuse_if_in_use(opened, caller.parts.ledger.open_intents())
        _keep_what_would_be_lost(caller, table)
        caller.parts.reach("staged")
        _check_unmoved(caller, opened, table)
    _drop(caller, opened, table, purge=purge)
    caller.parts.reach("published:0")
    record_done(caller, opened, records.dropped(opened, table.ref), "dropped")
    caller.parts.reach("recorded:0")
    log.info("table dropped", table=str(name), job=caller.job, run=opened.run, batch=opened.batch)
    return receipt(opened, table, rivals.DROP)


def _absent(caller: Caller, name: TableName, *, if_exists: bool) -> Receipt:
    gone = left(caller.parts.ledger, str(name))
    if not if_exists:
        told = "" if gone is None else f": {gone.said()}"
        raise TableNotFound(
            f"there is no table {name} to drop{told}",
            hint="pass if_exists=True where it may be gone already",
            table=str(name),
        )
    last = None if gone is None or gone.renamed else gone.entry
    if last is None or last.batch is None or last.job is None or last.run is None:
        planned = planned_for(caller, name, None, {"op": rivals.DROP, "table": str(name)})
        return Receipt(
            job=caller.job,
            run=caller.parent_run,
            batch=planned.batch,
            intent=-1,
            fresh=False,
            confidence="exact",
            landings=(),
        )
    assert last.table is not None
    return Receipt(
        job=last.job,
        run=last.run,
        batch=last.batch,
        intent=last.index if last.intent is None else last.intent,
        fresh=False,
        confidence="exact",
        landings=(landing(last.table, rivals.DROP, None),),
    )


def _last_state(table: LiveTable) -> dict[str, Json]:
    """Return what an intent keeps of the state that is to go; reconcile has nothing else."""
    head = table.retained().get(table.head) if table.head is not None else None
    return {
        "head": table.head,
        "metadata_location": table.metadata_location,
        "totals": {} if head is None else {key: head.count(key) for key in _TOTALS},
    }


def _keep_what_would_be_lost(caller: Caller, table: LiveTable) -> None:
    """See that the ledger has every batch of the table, and record what is not ours."""
    ledger = caller.parts.ledger
    for facts in table.history():
        batch = facts.summary.get("odi.batch-id")
        if batch is not None and ledger.landed(BatchId(batch), table.ref.uuid) is None:
            raise CommitConflict(
                f"{table.name} was not dropped: the ledger does not have batch {batch} of its "
                f"snapshot {facts.id}, and nobody could tell of it afterwards",
                hint="odi-audit verify; then: odi-audit ledger rebuild --apply",
                batch=batch,
            )
    where = EntryFilter(kinds=(Kind.FOREIGN,), table=table.ref.uuid)
    told = {str(entry.facts.get("snapshot")) for entry in ledger.find(where)}
    lost = [facts for facts in table.retained().values() if facts.id not in told]
    drafts: list[Draft] = foreign_drafts(table.ref, lost)
    if drafts:
        ledger.append(*drafts)


def _check_unmoved(caller: Caller, opened: Entry, table: LiveTable) -> None:
    """See that the name still means this very state, and that the intent still stands."""
    now = still_this(caller, opened, table, "dropped")
    if now.metadata_location != table.metadata_location:
        raise CommitConflict(
            f"{table.name} was not dropped: it was changed since it was looked at",
            hint=f"see what came: odi-audit history {table.name}; then drop it again",
        )


def _drop(caller: Caller, opened: Entry, table: LiveTable, *, purge: bool) -> None:
    try:
        if ddl.drop(table, purge=purge):
            return
        lost: OdiError = WriteFailed(f"the catalog had no {table.name} to drop any more")
    except OdiError as error:
        lost = error
    # Also after a denial: a repeated request is denied by its own, earlier success.
    try:
        there = caller.parts.catalog().load_by_uuid(table.ref.uuid, name=table.name)
    except OdiError as error:
        reason = f"{lost.message}; {error.message}"
        caller.parts.ledger.append(records.unknown(opened, table.ref, reason))
        raise OutcomeUnknown(
            f"{opened.batch} may or may not have dropped {table.name}: {reason}",
            hint=f"odi-audit reconcile --batch {opened.batch} --apply",
        ) from error
    if there is not None:
        caller.parts.ledger.append(records.abandoned(opened, lost.record))
        raise lost
