"""The gate: what must be true of a staged batch before anybody sees it.

Owns every check between stage and publish. It reads the staged snapshot's own numbers and what
Spark observed while writing; it makes no second pass over the data (of an upsert without
``order_by`` the key columns of the new files are read, and samples are fetched for a batch that
is refused already). Must never publish.
"""

from __future__ import annotations

from odi_audit.catalog import keys
from odi_audit.catalog.keys import KeyProblems
from odi_audit.committer.operations import (
    Append,
    AppendFiles,
    Compact,
    Operation,
    Overwrite,
    OverwritePartitions,
    RowOperation,
    Upsert,
)
from odi_audit.committer.staging import Staged, keys_in_files
from odi_audit.errors import (
    BadKeys,
    CountMismatch,
    NotSupported,
    Refused,
    RuleBroken,
    StagingBroken,
)
from odi_audit.model.contract import Contract
from odi_audit.model.offsets import Offsets
from odi_audit.model.stamps import Stamps
from odi_audit.model.tables import quote
from odi_audit.settings import Settings, catalog_pyiceberg_properties
from odi_audit.spark import failures, frames
from odi_audit.spark.live import ROW_LINEAGE_FORMAT

KEYS_IN_MEMORY_MAX = 20_000_000
"""Keys that the driver looks at in one go: at 50 bytes each a gigabyte."""


def check(staged: Staged, offsets: Offsets, stamps: Stamps, settings: Settings) -> None:
    """Let a staged batch through, or refuse it.

    Raises:
        StagingBroken: not exactly one stamped snapshot above the base, or a compaction that does
            not hold the same number of rows.
        CountMismatch: not as many rows as the source promised.
        BadKeys, RuleBroken: the contract does not hold.
    """
    _one_stamped_snapshot(staged, stamps)
    _promised_rows(staged, offsets)
    _same_rows_after_compaction(staged)
    _keys(staged, settings)
    _rules(staged, settings.limits.refusal_samples_max)


def explain(operation: Operation, refusal: Refused, *, samples_max: int) -> None:
    """Say what is wrong with the keys of an upsert that Spark itself would not write.

    Spark stops at the first null in a required column, and at the first key that stands twice
    in the batch and once in the table. The batch is refused, so its keys may be read again.

    Raises:
        BadKeys: the keys are what is wrong, with samples. Else nothing is raised.
    """
    if not isinstance(operation, Upsert) or not isinstance(refusal, BadKeys | RuleBroken):
        return
    _raise_bad_keys(operation, operation.key, _keys_of_batch(operation, samples_max))


def _one_stamped_snapshot(staged: Staged, stamps: Stamps) -> None:
    snapshot = staged.snapshot
    if snapshot.parent != staged.target.head:
        raise StagingBroken(
            f"{staged.operation.table}: staged snapshot {snapshot.id} rests on {snapshot.parent}, "
            f"not on {staged.target.head}: more than one snapshot was staged"
        )
    wanted = stamps.to_summary()
    wrong = [key for key, value in wanted.items() if snapshot.summary.get(key) != value]
    if wrong:
        raise StagingBroken(
            f"{staged.operation.table}: staged snapshot {snapshot.id} lacks the stamps "
            + ", ".join(wrong)
        )


def _promised_rows(staged: Staged, offsets: Offsets) -> None:
    if offsets.rows is None:
        return
    match staged.operation:
        case Append() | AppendFiles() | Overwrite() | OverwritePartitions():
            found = staged.snapshot.count("added-records")
        case Upsert():
            found = staged.counts.get("rows", _merged_rows(staged))
        case _:
            return
    if found != offsets.rows and isinstance(staged.operation, Upsert):
        # A row of the batch may have met several rows of the table.
        with failures.translated(f"count of {staged.operation.table}"):
            found = staged.operation.frame.count()
    if found != offsets.rows:
        raise CountMismatch(
            f"{offsets.source} promised {offsets.rows} rows for {staged.operation.table}, "
            f"{found} were staged",
            hint="read the same part again; where the source compacts or has transactions, it "
            "cannot promise a count: leave exact_count out",
            promised=offsets.rows,
            staged=found,
        )


def _merged_rows(staged: Staged) -> int:
    counts = staged.snapshot.counts()
    return sum(counts.get(f"rows-{what}", 0) for what in ("inserted", "updated", "deleted"))


def _same_rows_after_compaction(staged: Staged) -> None:
    if not isinstance(staged.operation, Compact):
        return
    snapshot = staged.snapshot
    added, removed = snapshot.count("added-records"), snapshot.count("deleted-records")
    deleted = snapshot.count("removed-position-deletes")
    if added == removed - deleted:
        return
    # A file of positions may outlive the data files that it speaks of, and after an upgrade to v3
    # a vector repeats what it says: only vectors can be counted.
    exact = staged.target.format_version >= ROW_LINEAGE_FORMAT
    if added > removed or (exact and not staged.target.has_position_delete_files()):
        raise StagingBroken(
            f"compaction of {staged.operation.table} turned {removed - deleted} rows into {added}",
            removed=removed - deleted,
            added=added,
        )


def _keys(staged: Staged, settings: Settings) -> None:
    operation = staged.operation
    samples_max = settings.limits.refusal_samples_max
    if keys_in_files(operation, staged.target):
        assert isinstance(operation, Upsert)
        if not _keys_of_files(staged, operation, settings).none:
            # The table itself may hold several rows of a key; only the batch can tell.
            _raise_bad_keys(operation, operation.key, _keys_of_batch(operation, samples_max))
        return
    nulls, twice = staged.counts.get("null_keys", 0), staged.counts.get("duplicate_keys", 0)
    if not (nulls or twice) or staged.prepared is None:
        return
    key = operation.key if isinstance(operation, Upsert) else _contract(staged).key
    with failures.translated(f"samples of {operation.table}"):
        samples = frames.key_samples(staged.prepared, key, samples_max)
    _raise_bad_keys(
        operation, key, KeyProblems(null_keys=nulls, duplicate_keys=twice, samples=samples)
    )


def _keys_of_batch(operation: Upsert, samples_max: int) -> KeyProblems:
    with failures.translated(f"samples of {operation.table}"):
        nulls, twice, samples = frames.bad_keys(operation.frame, operation.key, samples_max)
    return KeyProblems(null_keys=nulls, duplicate_keys=twice, samples=samples)


def _keys_of_files(staged: Staged, operation: Upsert, settings: Settings) -> KeyProblems:
    rows = staged.snapshot.count("added-records")
    if rows > KEYS_IN_MEMORY_MAX:
        raise NotSupported(
            f"upsert of {rows} rows into {operation.table} without order_by=: keys of at most "
            f"{KEYS_IN_MEMORY_MAX} rows can be checked in memory",
            hint="pass order_by=, and Spark checks the keys",
        )
    return keys.check(
        staged.stage.added_files(),
        {name: staged.target.field_id(name) for name in operation.key},
        properties=catalog_pyiceberg_properties(settings),
        samples_max=settings.limits.refusal_samples_max,
    )


def _raise_bad_keys(operation: Operation, key: tuple[str, ...], problems: KeyProblems) -> None:
    if problems.none:
        return
    unordered = isinstance(operation, Upsert) and not operation.order_by
    raise BadKeys(
        f"{operation.name} on {operation.table} by {', '.join(key)}: {problems.null_keys} rows "
        f"with a null key, {problems.duplicate_keys} rows too many for their key",
        hint="pass order_by= so that the newest row of a key wins"
        if problems.duplicate_keys and unordered
        else "make the key not null and unique, or name more columns in key=",
        null_keys=problems.null_keys,
        duplicate_keys=problems.duplicate_keys,
        samples=problems.samples,
    )


def _rules(staged: Staged, samples_max: int) -> None:
    broken = {
        name.split(":", 1)[1]: count
        for name, count in staged.counts.items()
        if name.startswith(("rule:", "required:")) and count
    }
    if not broken or staged.prepared is None:
        return
    contract = _contract(staged)
    first = next(iter(broken))
    condition = contract.rules.get(first) or f"{quote(first)} IS NOT NULL"
    with failures.translated(f"samples of {staged.operation.table}"):
        samples = frames.row_samples(staged.prepared, condition, samples_max)
    told = ", ".join(f"{name} ({count} rows)" for name, count in broken.items())
    raise RuleBroken(
        f"{staged.operation.name} on {staged.operation.table} breaks {told}",
        hint=f"odi-audit batch {staged.snapshot.summary['odi.batch-id']}",
        rules=list(broken),
        samples=samples,
    )


def _contract(staged: Staged) -> Contract:
    operation = staged.operation
    assert isinstance(operation, RowOperation)
    return operation.contract
