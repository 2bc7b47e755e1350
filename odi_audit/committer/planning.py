"""Planning a batch: is it one, which is it, and has it landed before?

Owns the value that a caller asks for, its identity, and what the ledger says of it. Must never
write anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from odi_audit.canonical import JsonObject, digest
from odi_audit.committer import records
from odi_audit.committer.operations import Operation, is_side, takes_rows, work
from odi_audit.committer.parts import Parts
from odi_audit.errors import BatchReused, OffsetsMissing, UsageError
from odi_audit.ids import BatchId, JobName, RunId, batch_id
from odi_audit.model.entries import Entry
from odi_audit.model.offsets import Offsets, table_state
from odi_audit.spark.live import LiveTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What a caller asks for: operations on tables, for one part of a source."""

    job: JobName
    parent_run: RunId
    operations: tuple[Operation, ...]
    offsets: Offsets | None
    generation: int = 0
    accept_gap: str | None = None
    stream: JsonObject | None = None
    notes: Mapping[str, Callable[[], JsonObject]] = field(default_factory=dict)
    """By table: what tells facts of the source that are known once everything is read."""


def check_request(parts: Parts, batch: Batch) -> None:
    """Refuse a batch that cannot be one, before anything is looked at.

    Raises:
        UsageError: no table, too many, or one of them twice.
        OffsetsMissing: rows from outside without offsets.
    """
    limit = parts.settings.limits.batch_tables_max
    names = [str(operation.table) for operation in batch.operations]
    if not names:
        raise UsageError("the batch has no operation: nothing to commit")
    if len(names) > limit:
        raise UsageError(f"the batch has {len(names)} tables, at most {limit} are allowed")
    if len(set(names)) != len(names):
        raise UsageError(
            "a batch may touch each table once; "
            + ", ".join(sorted({name for name in names if names.count(name) > 1}))
            + " stands in it more than once"
        )
    if all(is_side(operation) for operation in batch.operations):
        raise UsageError(f"the batch has side tables only ({', '.join(names)}): it may be empty")
    if batch.generation < 0:
        raise UsageError(f"generation is {batch.generation}, it starts at 0")
    if batch.offsets is None and any(takes_rows(item) for item in batch.operations):
        raise OffsetsMissing(
            f"rows for {', '.join(names)} came without offsets, so a retry could not be told from "
            "new work",
            hint="pass offsets=odi.files(paths), odi.kafka(…), odi.mapping(…), or "
            'odi.once("a name for this work")',
        )


def plan(parts: Parts, batch: Batch, targets: list[LiveTable]) -> records.Planned:
    """Give a batch its identity: the same work has the same id on every try."""
    offsets = batch.offsets or table_state(
        ",".join(target.ref.name for target in targets),
        ",".join(str(target.head) for target in targets),
        {"works": [work(operation) for operation in batch.operations]},
    )
    return records.Planned(
        job=batch.job,
        batch=batch_id(
            job=batch.job,
            source=offsets.source,
            start=offsets.start(),
            end=offsets.end(),
            generation=batch.generation,
        ),
        offsets=offsets,
        generation=batch.generation,
        principal=parts.principal,
        code=parts.code,
        owner=parts.owner,
        parent_run=batch.parent_run,
    )


def landed_before(
    parts: Parts, planned: BatchId, batch: Batch, targets: list[LiveTable]
) -> list[Entry | None]:
    """Return, for each operation, the entry by which the batch has landed on its table already.

    Raises:
        BatchReused: other work has landed for the same offsets, or it was taken out again.
    """
    found: list[Entry | None] = []
    for operation, target in zip(batch.operations, targets, strict=True):
        entry = parts.ledger.landed(planned, target.ref.uuid)
        if entry is not None and not _same_work(parts, entry, operation):
            raise BatchReused(
                f"batch {planned} has landed on {target.ref.name} with another operation "
                f"({entry.facts.get('operation')}) than this one ({operation.name})",
                hint="give the second operation offsets of its own, or put both into run.batch()",
            )
        if entry is not None and parts.ledger.undone(planned, target.ref.uuid) is not None:
            raise BatchReused(
                f"batch {planned} had landed on {target.ref.name} and was taken out again",
                hint=f"to land the same offsets again, pass generation={batch.generation + 1}",
            )
        found.append(entry)
    return found


def _same_work(parts: Parts, entry: Entry, operation: Operation) -> bool:
    # A record that was recovered from stamps knows the operation, not its arguments.
    recorded = entry.facts.get("work")
    if recorded is None:
        return entry.facts.get("operation") == operation.name
    asked = work(operation)
    if recorded == digest(asked):
        return True
    # The table is the same, by its uuid; it may have had another name.
    return recorded == digest({**asked, "table": _name_then(parts, entry)})


def _name_then(parts: Parts, entry: Entry) -> str:
    assert entry.table is not None
    intent = {} if entry.intent is None else parts.ledger.get(entry.intent).facts
    for item in cast("Sequence[JsonObject]", intent.get("operations") or []):
        if item.get("table_uuid") == entry.table.uuid:
            return str(item["table"])
    return entry.table.name
