"""What an intent keeps of its operations' column lineage.

Owns which question goes with which operation, and that the same answer is kept once: a job that
writes the same plan again names the entry that has it (docs/adr/0013-column-lineage.md). Must
never make a commit fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from odi_audit.canonical import Json, JsonObject
from odi_audit.committer.operations import (
    Append,
    Compact,
    Delete,
    Operation,
    Overwrite,
    OverwritePartitions,
    Update,
    Upsert,
)
from odi_audit.errors import EntryNotFound
from odi_audit.ids import JobName, TableUuid
from odi_audit.ledger.port import EntryFilter, Ledger
from odi_audit.model.entries import Entry, Kind
from odi_audit.spark import frames, plan
from odi_audit.spark.live import LiveTable

LOOKED_AT_MAX = 4
"""Intents of a job that are searched for the same plan: as many as a job has plans for a table."""


def kept(
    ledger: Ledger, job: JobName, todo: Sequence[tuple[Operation, LiveTable]]
) -> list[JsonObject]:
    """Return, for each operation, what its intent keeps of the columns' origin."""
    made = [_of(operation, target) for operation, target in todo]
    before = None
    kept: list[JsonObject] = []
    for (_, target), fact in zip(todo, made, strict=True):
        if fact is None:
            kept.append({})
            continue
        if before is None:
            where = EntryFilter(kinds=(Kind.INTENT,), job=job)
            before = list(ledger.find(where, limit=LOOKED_AT_MAX, newest_first=True))
        kept.append(_once(ledger, before, target.ref.uuid, fact))
    return kept


def _of(operation: Operation, target: LiveTable) -> JsonObject | None:
    match operation:
        case Append() | OverwritePartitions():
            return plan.of_rows(operation.frame, target)
        case Overwrite():
            return plan.of_rows(operation.frame, target, where=operation.where)
        case Upsert():
            return plan.of_rows(
                operation.frame,
                target,
                key=_deciding(operation, target),
                order_by=operation.order_by,
                delete_when=operation.delete_when,
            )
        case Update():
            return plan.of_change(target, where=operation.where, assignments=operation.assignments)
        case Delete():
            return plan.of_change(target, where=operation.where)
        case Compact():
            # Every row stays what it is.
            return None
        case _:
            return plan.of_unseen(target, "rows that tasks write themselves")


def _deciding(operation: Upsert, target: LiveTable) -> list[str]:
    """Return the columns of batch and table by which their rows meet: the key, and terms' own."""
    shared = {field.name.lower() for field in target.schema.fields}
    named = frames.mentioned(operation.frame.schema, operation.terms.conditions())
    if operation.terms.empty:
        return list(operation.key)
    return list(dict.fromkeys(name for name in (*operation.key, *named) if name.lower() in shared))


def _once(
    ledger: Ledger, before: Sequence[Entry], table: TableUuid, fact: JsonObject
) -> JsonObject:
    """Return the fact itself, or the index of the entry that has it.

    Which snapshots were read differs from batch to batch, and is said beside the index.
    """
    bare, snapshots = _apart(fact)
    seen: set[int] = set()
    for entry in before:
        for described in _described(entry, table):
            at = described.get("column_lineage_at")
            place = at if isinstance(at, int) else entry.index
            held: Json = described.get("column_lineage")
            if isinstance(at, int) and at not in seen:
                held = _first(ledger, at, table)
            seen.add(place)
            if isinstance(held, dict) and _apart(held)[0] == bare:
                return {"column_lineage_at": place} | (
                    {"column_lineage_read": snapshots} if any(snapshots) else {}
                )
    return {"column_lineage": fact}


def _first(ledger: Ledger, at: int, table: TableUuid) -> Json:
    try:
        entry = ledger.get(at)
    except EntryNotFound:
        # A ledger that was made again from the tables has other indexes.
        return None
    return next(_described(entry, table), {}).get("column_lineage")


def _apart(fact: JsonObject) -> tuple[JsonObject, list[Json]]:
    inputs = cast("Sequence[JsonObject]", fact.get("inputs") or [])
    bare = [{key: value for key, value in item.items() if key != "snapshot"} for item in inputs]
    return {**fact, "inputs": bare}, [item.get("snapshot") for item in inputs]


def _described(entry: Entry, table: TableUuid) -> Iterator[JsonObject]:
    for item in cast("Sequence[JsonObject]", entry.facts.get("operations") or []):
        if item.get("table_uuid") == table:
            yield item
