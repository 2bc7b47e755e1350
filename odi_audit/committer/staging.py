"""Staging an operation: from a value to a staged snapshot and the numbers around it.

Owns the match from operation to Spark call and the translation of Spark's errors. Must never
publish or record.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from odi_audit.committer.operations import (
    Append,
    AppendFiles,
    Compact,
    Delete,
    FrameOperation,
    Operation,
    Overwrite,
    OverwritePartitions,
    Update,
    Upsert,
    is_side,
)
from odi_audit.errors import SchemaMismatch, UsageError, WriteFailed
from odi_audit.model.snapshots import SnapshotFacts
from odi_audit.model.stamps import Stamps
from odi_audit.model.tables import quote
from odi_audit.spark import failures, frames, loose
from odi_audit.spark.frames import Prepared
from odi_audit.spark.listener import intent_mark, marked
from odi_audit.spark.live import LiveTable
from odi_audit.spark.stage import Merge, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """One table's part of a batch, carried out and not yet visible."""

    operation: Operation
    stage: Stage
    snapshot: SnapshotFacts
    counts: dict[str, int] = field(default_factory=dict)
    prepared: Prepared | None = None

    @property
    def target(self) -> LiveTable:
        """The table as it was when the change was staged."""
        return self.stage.target


class NothingForIt(Exception):
    """A side table gets no row, so nothing was staged on it."""


def check_shape(operation: Operation, target: LiveTable) -> None:
    """Compare a batch's columns with the table's, before anything is written.

    Raises:
        SchemaMismatch: columns are missing, extra or of the wrong type.
        UsageError: a key or an order column is not there.
    """
    if not isinstance(operation, FrameOperation):
        return  # loose files are written in the table's own schema
    given = operation.frame.schema
    control: list[str] = []
    if isinstance(operation, Upsert):
        names = {field.name.lower() for field in given.fields}
        for column in (*operation.key, *operation.order_by):
            if column.lower() not in names:
                raise UsageError(
                    f"upsert into {operation.table}: column {column!r} is named in key= or "
                    f"order_by=, but the batch has only {', '.join(sorted(names))}"
                )
        steering = [*operation.order_by, operation.delete_when or "", *operation.terms.texts()]
        control = frames.mentioned(given, steering)
    lines = frames.differences(given, target.schema, control)
    if lines:
        raise SchemaMismatch(
            f"batch does not fit table {operation.table}:\n    " + "\n    ".join(lines),
            hint="select and cast the columns to fit, or change the table: run.evolve_schema",
            table=str(operation.table),
            differences=lines,
        )


def keys_in_files(operation: Operation, target: LiveTable) -> bool:
    """Say whether a batch's keys can be checked in its staged files, which is the cheapest way.

    So it is where every row of the batch, and no other row, ends up in a new file: a merge-on-read
    upsert in which no row supersedes another, none deletes, and none is left out.
    """
    return (
        isinstance(operation, Upsert)
        and not operation.order_by
        and operation.delete_when is None
        and operation.terms.empty
        and target.property("write.merge.mode") == "merge-on-read"
    )


def stage(operation: Operation, target: LiveTable, stamps: Stamps) -> Staged:
    """Carry out an operation on a table, visible to nobody.

    A change that touches no row still gets its stamped snapshot, so that the offsets move.

    Raises:
        NothingForIt: no file was written for a side table: the batch leaves it out.
        Refused: Spark itself found the batch wanting (a null in a required column, …).
        UsageError: a condition or an assignment is not valid SQL for this table.
        WriteFailed, StorageError: nothing of it is visible.
    """
    made = Stage(target, stamps)
    with (
        failures.translated(f"{operation.name} on {operation.table}"),
        marked(intent_mark(stamps.intent)),
    ):
        prepared = _carry_out(operation, made, f"odi-{stamps.intent}-{target.ref.uuid}")
        snapshot = made.snapshot()
        if snapshot is None:
            made.nothing()
            snapshot = made.snapshot()
    assert snapshot is not None
    return Staged(
        operation=operation,
        stage=made,
        snapshot=snapshot,
        counts=_counts(prepared, snapshot),
        prepared=prepared,
    )


def _counts(prepared: Prepared | None, snapshot: SnapshotFacts) -> dict[str, int]:
    if prepared is None:
        return {}
    counts = prepared.counts()
    if counts is not None:
        return counts
    if any(snapshot.count(key) for key in ("added-records", "added-delete-files")):
        raise WriteFailed(
            "Spark wrote rows without counting them, so the batch cannot be checked",
            hint="cache() the data frame, then start the job again",
        )
    return dict.fromkeys(prepared.metrics, 0)


def restage_append(staged: Staged, target: LiveTable, stamps: Stamps) -> Staged:
    """Put the files of a staged append on the table as it is now; nothing is written again."""
    made = Stage(target, stamps)
    with failures.translated(f"append on {staged.operation.table}"):
        made.readd(staged.snapshot)
    return _moved(staged, made)


def restage_same(staged: Staged, target: LiveTable, stamps: Stamps) -> Staged:
    """Take what was staged to the same state of the table, loaded once more."""
    made = Stage(target, stamps)
    with failures.translated(f"{staged.operation.name} on {staged.operation.table}"):
        made.adopt(staged.snapshot)
    return _moved(staged, made)


def _moved(staged: Staged, made: Stage) -> Staged:
    snapshot = made.snapshot()
    assert snapshot is not None
    return replace(staged, stage=made, snapshot=snapshot)


def _carry_out(operation: Operation, made: Stage, observation: str) -> Prepared | None:
    prepared: Prepared | None
    match operation:
        case Append():
            prepared = frames.for_append(operation.frame, operation.contract, observation)
            made.append(prepared.frame)
        case AppendFiles():
            target = made.target
            files = operation.write(loose.loose_table(target, observation))
            if not files and is_side(operation):
                raise NothingForIt(str(operation.table))
            made.add_files(files)
            prepared = frames.for_files(
                target.jvm.spark,
                [file.path for file in files],
                target.schema,
                operation.contract,
                observation,
            )
        case Upsert():
            prepared = frames.for_merge(
                operation.frame,
                key=operation.key,
                order_by=operation.order_by,
                delete_when=operation.delete_when,
                contract=operation.contract,
                observation=observation,
                watch_keys=not keys_in_files(operation, made.target),
            )
            gone = frames.DELETE_COLUMN if operation.delete_when is not None else None
            key = tuple(quote(column) for column in operation.key)
            columns = tuple(field.name for field in made.target.schema.fields)
            merge = Merge(key=key, delete_column=gone, terms=operation.terms, columns=columns)
            made.merge(prepared.frame, merge)
        case OverwritePartitions():
            prepared = frames.for_append(operation.frame, operation.contract, observation)
            made.overwrite_partitions(prepared.frame)
        case Overwrite():
            prepared = frames.for_append(operation.frame, operation.contract, observation)
            made.overwrite(prepared.frame, operation.where)
        case Update():
            made.update(operation.where, operation.assignments)
            return None
        case Delete():
            made.delete(operation.where)
            return None
        case Compact():
            made.compact(operation.where, operation.options)
            return None
    return prepared
