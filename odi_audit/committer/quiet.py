"""The road of an operation for which Iceberg makes no snapshot: intend, swap, record.

Owns who asks (``Caller``) and the swap that sets ``odi.last-op`` together with the change, so that
after a crash reconcile can tell whether it happened. Must never make a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from odi_audit.canonical import Json, JsonObject
from odi_audit.committer import records, rivals
from odi_audit.committer.parts import Parts, check_catalog
from odi_audit.errors import CommitConflict, LedgerConflict, OdiError, OutcomeUnknown
from odi_audit.ids import JobName, RunId, SnapshotId, batch_id
from odi_audit.model.entries import Draft, Entry
from odi_audit.model.offsets import table_state
from odi_audit.model.receipts import Landing, Receipt
from odi_audit.model.tables import TableName, TableRef
from odi_audit.spark import publish
from odi_audit.spark.jvm import Jvm
from odi_audit.spark.live import LiveTable, load
from odi_audit.spark.publish import Swap, SwapUnknown
from odi_audit.spark.stage import Stage, TableMoved

LAST_OPERATION = "odi.last-op"
"""Table property that names the last operation which left no snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks, as which job and run."""

    parts: Parts
    job: JobName
    parent_run: RunId

    @property
    def catalog(self) -> str:
        """The catalog's name."""
        return self.parts.settings.catalog.name

    def jvm(self) -> Jvm:
        """The JVM, started if need be."""
        return Jvm(self.parts.spark())


def swap(
    caller: Caller, opened: Entry, table: LiveTable, change: Callable[[Stage], None]
) -> LiveTable:
    """Carry out a change and set the marker in one swap; returns the table as it is then.

    Raises:
        CommitConflict: the table kept moving. OutcomeUnknown: reconcile finds out.
    """
    marker = marker_of(opened)
    for _ in range(caller.parts.settings.limits.stage_attempts_max):
        try:
            stage = Stage(table)
            change(stage)
            stage.set_properties({LAST_OPERATION: marker})
        except TableMoved:
            table = table.refreshed()
            continue
        except OdiError as error:
            caller.parts.ledger.append(records.abandoned(opened, error.record))
            raise
        caller.parts.reach("staged")
        try:
            check_catalog(caller.parts.settings)
            done = publish.publish(stage) is Swap.DONE
            table = table.refreshed()
        except SwapUnknown as lost:
            done = False
            try:
                table = load(table.jvm, table.catalog, table.name)
            except OdiError as error:
                caller.parts.ledger.append(records.unknown(opened, table.ref, str(lost)))
                raise OutcomeUnknown(
                    f"{opened.batch} on {table.ref.name} may or may not have happened: {lost}",
                    hint=f"odi-audit reconcile --batch {opened.batch} --apply",
                ) from error
        # Also after a denial: a repeated request is denied by its own, earlier success.
        if done or table.property(LAST_OPERATION) == marker:
            caller.parts.reach("published:0")
            return table
    message = f"{table.ref.name} kept moving; the change was given up"
    caller.parts.ledger.append(records.abandoned(opened, message))
    raise CommitConflict(message, hint="try again when fewer writers are busy on the table")


def planned_for(
    caller: Caller, name: TableName, table: LiveTable | None, work: JsonObject
) -> records.Planned:
    """Return the identity of an operation on this very state of a table."""
    offsets = table_state(str(name), None if table is None else table.head, work)
    return records.Planned(
        job=caller.job,
        batch=batch_id(
            job=caller.job,
            source=offsets.source,
            start=offsets.start(),
            end=[offsets.end(), None if table is None else table.metadata_location],
            generation=0,
        ),
        offsets=offsets,
        generation=0,
        principal=caller.parts.principal,
        code=caller.parts.code,
        owner=caller.parts.owner,
        parent_run=caller.parent_run,
    )


def intend(
    caller: Caller, planned: records.Planned, ref: TableRef, work: JsonObject, **more: Json
) -> Entry:
    """Record the intent.

    Raises:
        CommitConflict: somebody is dropping or renaming the table.
    """
    ledger = caller.parts.ledger
    caller.parts.reach("planned")
    opened = ledger.append(records.intent(planned, [(ref, work)], **more))[0]
    caller.parts.reach("intended")
    with given_up_on_error(caller, opened):
        rivals.refuse_if_leaving(ledger, opened, ledger.open_intents())
    return opened


@contextmanager
def given_up_on_error(caller: Caller, opened: Entry) -> Iterator[None]:
    """Record that an attempt is given up where an error ends it before anything was done."""
    try:
        yield
    except OdiError as error:
        if caller.parts.ledger.settled_by(opened.index) is None:
            caller.parts.ledger.append(records.abandoned(opened, error.record))
        raise


def still_this(caller: Caller, opened: Entry, table: LiveTable, done: str) -> LiveTable:
    """Return the table as it is now, right before it is taken from its name.

    ``done`` is what is about to be done to it, as in "was not dropped".

    Raises:
        CommitConflict: the name means another table by now.
        LedgerConflict: this process was taken for dead, and its intent settled.
    """
    check_catalog(caller.parts.settings)
    now = load(table.jvm, table.catalog, table.name)
    if now.ref.uuid != table.ref.uuid:
        raise CommitConflict(
            f"{table.name} was not {done}: another table ({now.ref.uuid}) has taken its name "
            f"since {table.ref.uuid} was looked at",
            hint="if that one is what you mean, say so by another call",
        )
    if caller.parts.ledger.settled_by(opened.index) is not None:
        raise LedgerConflict(
            f"{table.name} was not {done}: batch {opened.batch} was taken for dead, and settled",
            hint=f"odi-audit batch {opened.batch}",
        )
    return now


def record_done(caller: Caller, opened: Entry, draft: Draft, done: str) -> None:
    """Record what has been done to a table and cannot be taken back.

    Raises:
        OutcomeUnknown: it is done, and the ledger could not take it; reconcile does.
    """
    ledger = caller.parts.ledger
    try:
        try:
            ledger.append(draft)
        except LedgerConflict:
            settled = ledger.settled_by(opened.index)
            if settled is None or settled.kind is not draft.kind:
                # Reconcile took this process for dead; it is done all the same.
                ledger.append(replace(draft, settles=False))
    except OdiError as error:
        name = "a table" if opened.table is None else opened.table.name
        raise OutcomeUnknown(
            f"{name} was {done} by batch {opened.batch}, but the ledger could not record it: "
            f"{error.message}",
            hint=f"odi-audit reconcile --batch {opened.batch} --apply",
        ) from error


def marker_of(opened: Entry) -> str:
    """Return what the table property says once the operation has happened."""
    return f"{opened.batch}/{opened.index}"


def landing(table: TableRef, operation: str, snapshot: SnapshotId | None) -> Landing:
    """Return the landing of an operation that made no snapshot."""
    return Landing(
        table=table,
        operation=operation,
        snapshot=snapshot,
        sequence_number=None,
        first_row_id=None,
        added_rows=None,
        schema_id=None,
    )


def receipt(
    opened: Entry, table: LiveTable, operation: str, *, snapshot: SnapshotId | None = None
) -> Receipt:
    """Return the receipt of an operation that made no snapshot."""
    assert opened.job is not None and opened.run is not None and opened.batch is not None
    return Receipt(
        job=opened.job,
        run=opened.run,
        batch=opened.batch,
        intent=opened.index,
        fresh=True,
        confidence=table.confidence,
        landings=(landing(table.ref, operation, snapshot),),
    )
