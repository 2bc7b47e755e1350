"""Publishing: what was staged becomes visible, in one atomic swap, or not at all.

Owns the swap and what follows a staged change that was not published: the branch on which a
refused batch can be looked at, and the removal of files that nothing will ever refer to. Must
never publish on a state other than the one that was staged on, and must never delete a file
while an outcome is unknown.
"""

from __future__ import annotations

from enum import Enum

from odi_audit import logs
from odi_audit.errors import CatalogUnavailable
from odi_audit.model.snapshots import SnapshotFacts
from odi_audit.spark.jvm import JVM_ERRORS, causes, first_line, raised
from odi_audit.spark.live import LiveTable
from odi_audit.spark.stage import Stage

log = logs.get_logger(__name__)

_DAY_MS = 86_400_000
_LOCKED = "[SQLITE_BUSY]"


class Swap(Enum):
    """How an attempt to publish ended, where that is known."""

    DONE = "done"
    MOVED = "moved"


class SwapUnknown(Exception):
    """The catalog did not say whether the swap happened. Look before doing anything else."""


def publish(stage: Stage) -> Swap:
    """Swap the table's metadata for the staged one if it is still what was staged on.

    The catalog compares and swaps: of two publishers with the same base one is told MOVED. That
    is also why trying again after an unknown answer, on the same base, cannot publish twice.

    Raises:
        CatalogUnavailable: it was locked; nothing was published.
        SwapUnknown: the answer was lost, or was no answer.
    """
    target = stage.target
    try:
        target.operations.commit(target.base, stage.metadata)
    except JVM_ERRORS as error:
        if raised(error, "CommitStateUnknownException"):
            raise SwapUnknown(first_line(error)) from error
        if raised(error, "CommitFailedException"):
            return Swap.MOVED
        if any(_LOCKED in cause.message for cause in causes(error)):
            # SQLite gives this answer, after its own long wait, before it has done anything.
            raise CatalogUnavailable(
                f"the catalog of {target.name} was locked by somebody else for too long",
                hint="odi-audit doctor, then start the job again",
            ) from error
        raise SwapUnknown(first_line(error)) from error
    return Swap.DONE


def keep_for_inspection(stage: Stage, branch: str, days: int) -> bool:
    """Put a refused snapshot on a branch of its own; main stays as it was.

    The branch has a maximum age, so that expiry removes it. Returns False when the table moved
    in the meantime: then there is no branch, and the caller discards the files.
    """
    target = stage.target
    snapshot = stage.metadata.currentSnapshot()
    if snapshot is None or str(snapshot.snapshotId()) == target.head:
        return False
    iceberg = target.jvm.iceberg
    age = iceberg.SnapshotRef.branchBuilder(snapshot.snapshotId())
    builder = iceberg.TableMetadata.buildFrom(target.base)
    builder = builder.addSnapshot(snapshot)
    made = builder.setRef(branch, age.maxRefAgeMs(days * _DAY_MS).build()).build()
    try:
        target.operations.commit(target.base, made)
    except JVM_ERRORS as error:
        if raised(error, "CommitFailedException"):
            return False
        raise SwapUnknown(first_line(error)) from error
    return True


def discard(table: LiveTable, snapshot: SnapshotFacts, *, data_too: bool = True) -> int:
    """Delete the files of a staged snapshot that will never be published; return how many.

    ``data_too=False`` keeps the data files: they were added again under another snapshot. What
    has been discarded before is left alone. Files that cannot be deleted stay where they are, and
    are said: nothing refers to them, and whatever led here matters more to the caller.
    """
    try:
        return _delete(table, snapshot, data_too=data_too)
    except JVM_ERRORS as error:
        log.warning(
            "staged files could not be removed; nothing refers to them",
            table=str(table.name),
            snapshot=snapshot.id,
            cause=first_line(error),
        )
        return 0


def _delete(table: LiveTable, snapshot: SnapshotFacts, *, data_too: bool) -> int:
    java_snapshot = table.jvm.iceberg.SnapshotParser.fromJson(snapshot.text)
    io = table.java.io()
    if not io.newInputFile(snapshot.manifest_list).exists():
        return 0
    paths: list[str] = []
    if data_too:
        paths += [str(file.location()) for file in java_snapshot.addedDataFiles(io)]
        paths += [str(file.location()) for file in java_snapshot.addedDeleteFiles(io)]
    paths += [
        str(manifest.path())
        for manifest in java_snapshot.allManifests(io)
        if str(manifest.snapshotId()) == snapshot.id
    ]
    paths.append(snapshot.manifest_list)
    for path in paths:
        io.deleteFile(path)
    return len(paths)
