"""Operations for which Iceberg makes no snapshot: creation, schema change, rollback, expiry.

Owns their road: intend, act, record. A table property (``odi.last-op``) is set in the same swap,
so that after a crash reconcile can tell whether it happened. Must never expire a snapshot whose
facts the ledger does not have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from odi_audit import clock, logs
from odi_audit.canonical import Json, JsonObject
from odi_audit.committer import records
from odi_audit.committer.absent import refuse_if_renamed
from odi_audit.committer.places import place_for
from odi_audit.committer.quiet import (
    Caller,
    intend,
    landing,
    marker_of,
    planned_for,
    receipt,
    swap,
)
from odi_audit.committer.surroundings import surroundings
from odi_audit.errors import (
    OdiError,
    SchemaMismatch,
    TableExists,
    UsageError,
    WriteFailed,
)
from odi_audit.ids import BatchId, SnapshotId, TableUuid
from odi_audit.model.entries import Draft, Kind
from odi_audit.model.receipts import Receipt
from odi_audit.model.snapshots import SnapshotFacts
from odi_audit.model.tables import TableName, TableRef
from odi_audit.spark import ddl, frames
from odi_audit.spark.failures import translated
from odi_audit.spark.live import LiveTable, find, load
from odi_audit.spark.stage import Stage
from odi_audit.spark.types import StructType

log = logs.get_logger(__name__)

CREATED_BY = "odi.created-by"


def create_table(
    caller: Caller,
    name: TableName,
    schema: StructType | str,
    *,
    partitioned_by: Sequence[str],
    properties: Mapping[str, str],
    if_not_exists: bool,
) -> Receipt:
    """Create a table and record who did; afterwards it is there.

    Raises:
        TableExists: it was there before and ``if_not_exists`` was not said.
        SchemaMismatch: it was there before, with other columns.
        TableNotFound: with ``if_not_exists``, where the table of that name was renamed.
    """
    jvm = caller.jvm()
    columns = ddl.columns_of(schema)
    work: JsonObject = {
        "op": "create_table",
        "table": str(name),
        "columns": columns,
        "partitioned_by": list(partitioned_by),
        "properties": dict(properties),
    }
    present = find(jvm, caller.catalog, name)
    if present is not None:
        return _present(caller, present, schema, work, if_not_exists=if_not_exists)
    if if_not_exists:
        refuse_if_renamed(caller.parts.ledger, str(name))
    planned = planned_for(caller, name, None, work)
    nowhere = TableRef(uuid=TableUuid(""), name=str(name))
    opened = intend(caller, planned, nowhere, work, **_around(caller))
    marker = marker_of(opened)
    try:
        ddl.create(
            jvm,
            caller.catalog,
            name,
            columns=columns,
            partitioned_by=partitioned_by,
            properties={**properties, CREATED_BY: marker},
            location=place_for(caller.parts.ledger, name, planned.batch),
        )
    except OdiError as error:
        made = find(jvm, caller.catalog, name)
        if made is None or made.property(CREATED_BY) != marker:
            caller.parts.ledger.append(records.abandoned(opened, error.record))
            raise
    caller.parts.reach("published:0")
    table = load(jvm, caller.catalog, name)
    facts = {"operation": "create_table", **ddl.shape(table)}
    caller.parts.ledger.append(
        records.without_snapshot(opened, Kind.TABLE_CREATED, table.ref, facts)
    )
    caller.parts.reach("recorded:0")
    log.info("table created", table=str(name), job=caller.job, run=opened.run, batch=opened.batch)
    return receipt(opened, table, "create_table")


def evolve_schema(
    caller: Caller,
    name: TableName,
    steps: list[tuple[str, str, str]],
    *,
    for_batch: BatchId | None = None,
) -> Receipt:
    """Change a table's schema and record before and after, and for which batch it was done.

    Raises:
        UsageError: a step is not possible (unknown column, narrowing, a taken name).
    """
    if not steps:
        raise UsageError(f"evolve_schema of {name} was given nothing to change")
    table = load(caller.jvm(), caller.catalog, name)
    work: JsonObject = {
        "op": "evolve_schema",
        "table": str(name),
        "steps": [list(step) for step in steps],
        **({} if for_batch is None else {"for_batch": for_batch}),
    }
    planned = planned_for(caller, name, table, work)
    opened = intend(caller, planned, table.ref, work, **_around(caller, table))

    def change(stage: Stage) -> None:
        try:
            with translated(f"schema change of {name}"):
                stage.schema_change(steps)
        except WriteFailed as error:
            raise UsageError(
                f"schema change of {name} is not possible: {error.message}",
                hint="columns can be added, widened (int→bigint, float→double, a wider decimal), "
                "renamed or dropped",
            ) from error

    before = ddl.shape(table)
    now = swap(caller, opened, table, change)
    facts = {"operation": "evolve_schema", "steps": work["steps"], "before": before["schema"]}
    if for_batch is not None:
        facts["for_batch"] = for_batch
    caller.parts.ledger.append(
        records.without_snapshot(
            opened, Kind.SCHEMA_CHANGE, now.ref, {**facts, "after": ddl.shape(now)["schema"]}
        )
    )
    caller.parts.reach("recorded:0")
    return receipt(opened, now, "evolve_schema")


def rollback(caller: Caller, name: TableName, to: SnapshotId) -> Receipt:
    """Move main back to an ancestor, and record which batches that undoes.

    Raises:
        UsageError: the snapshot is not an ancestor of the current one.
    """
    table = load(caller.jvm(), caller.catalog, name)
    history = table.history()
    if to not in {facts.id for facts in history}:
        raise UsageError(
            f"snapshot {to} is not in the history of {name}: it has expired, or never was on main",
            hint=f"odi-audit batches --table {name}",
        )
    work: JsonObject = {"op": "rollback", "table": str(name), "to": to}
    planned = planned_for(caller, name, table, work)
    opened = intend(caller, planned, table.ref, work, head=table.head, **_around(caller, table))
    undone_from = table

    def change(stage: Stage) -> None:
        nonlocal undone_from
        undone_from = stage.target
        with translated(f"rollback of {name}"):
            stage.rollback(to)

    now = swap(caller, opened, table, change)
    removed = undone_from.since(to)
    facts: dict[str, Json] = {
        "operation": "rollback",
        "from": undone_from.head,
        "to": to,
        "removed_snapshots": [facts.id for facts in removed],
        "undone": [
            facts.summary["odi.batch-id"] for facts in removed if "odi.batch-id" in facts.summary
        ],
    }
    caller.parts.ledger.append(records.without_snapshot(opened, Kind.ROLLBACK, now.ref, facts))
    caller.parts.reach("recorded:0")
    return receipt(opened, now, "rollback", snapshot=to)


def expire(caller: Caller, name: TableName, *, older_than: datetime, retain_last: int) -> Receipt:
    """Expire old snapshots, after the ledger has the facts of each of them."""
    if retain_last < 1:
        raise UsageError(f"retain_last is {retain_last}: at least one snapshot must stay")
    table = load(caller.jvm(), caller.catalog, name)
    doomed = ddl.to_expire(table, older_than, retain_last)
    work: JsonObject = {
        "op": "expire",
        "table": str(name),
        "older_than": older_than.isoformat(),
        "retain_last": retain_last,
    }
    planned = planned_for(caller, name, table, work)
    around = {"doomed": [facts.id for facts in doomed], **_around(caller, table)}
    opened = intend(caller, planned, table.ref, work, **around)
    foreign = foreign_drafts(table.ref, doomed)
    if foreign:
        caller.parts.ledger.append(*foreign)
    try:
        if doomed:
            ddl.expire(table, older_than, retain_last)
    except OdiError as error:
        caller.parts.ledger.append(records.abandoned(opened, error.record))
        raise
    caller.parts.reach("published:0")
    facts: JsonObject = {
        "operation": "expire",
        "expired": [snapshot.id for snapshot in doomed],
        "older_than": older_than.isoformat(),
        "retain_last": retain_last,
    }
    caller.parts.ledger.append(records.without_snapshot(opened, Kind.MAINTENANCE, table.ref, facts))
    caller.parts.reach("recorded:0")
    return receipt(opened, table.refreshed(), "expire")


def foreign_drafts(ref: TableRef, snapshots: Sequence[SnapshotFacts]) -> list[Draft]:
    """Return the records of snapshots that nobody here wrote, and that are about to go."""
    return [
        Draft(
            kind=Kind.FOREIGN,
            table=ref,
            facts={
                "snapshot": facts.id,
                "operation": facts.operation,
                "sequence_number": facts.sequence_number,
                "first_row_id": facts.first_row_id,
                "added_rows": facts.added_rows,
                "schema_id": facts.schema_id,
                "counts": facts.counts(),
                "committed_at": clock.to_text(clock.from_millis(facts.timestamp_ms)),
                "engine": _engine(facts),
            },
        )
        for facts in snapshots
        if "odi.batch-id" not in facts.summary
    ]


def _engine(facts: SnapshotFacts) -> str | None:
    """Return which engine says that it wrote a snapshot."""
    named = facts.summary.get("engine-name")
    return named or ("spark" if "spark.app.id" in facts.summary else None)


def _around(caller: Caller, *tables: LiveTable) -> dict[str, Json]:
    return surroundings(caller.parts, caller.jvm(), tables)


def _present(
    caller: Caller,
    table: LiveTable,
    schema: StructType | str,
    work: JsonObject,
    *,
    if_not_exists: bool,
) -> Receipt:
    if not if_not_exists:
        raise TableExists(
            f"table {table.ref.name} is there already",
            hint="pass if_not_exists=True to use it as it is",
        )
    wanted = (
        table.jvm.spark.createDataFrame([], schema).schema if isinstance(schema, str) else schema
    )
    lines = frames.differences(wanted, table.schema)
    if lines:
        raise SchemaMismatch(
            f"table {table.ref.name} is there already, with other columns:\n    "
            + "\n    ".join(lines),
            hint="change it with run.evolve_schema",
            differences=lines,
        )
    planned = planned_for(caller, table.name, table, work)
    return Receipt(
        job=caller.job,
        run=caller.parent_run,
        batch=planned.batch,
        intent=-1,
        fresh=False,
        confidence=table.confidence,
        landings=(landing(table.ref, "create_table", None),),
    )
