"""Reading for consumers: what changed since the last time, or one stable state of a table.

Owns the public calls and their wiring; what a reading is, is in :mod:`odi_audit.readings`. Each
confirmed reading is an entry in the ledger: who read which snapshots of which table, how many rows,
in which run. Must never record one that was not confirmed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from odi_audit.api import find, parts_of
from odi_audit.committer.parts import Parts
from odi_audit.committer.run import Run
from odi_audit.errors import EntryNotFound, UsageError
from odi_audit.model.tables import parse
from odi_audit.query.consumers import check_consumer, pending
from odi_audit.query.dropped import load_table
from odi_audit.query.pending import LIMIT_DEFAULT, LIMIT_MAX, PendingPage, PendingRow
from odi_audit.query.places import resolve_place
from odi_audit.query.seen import plain
from odi_audit.readings import BATCH, HANDED_ON, Access, ChangeReading, Form, StableReading
from odi_audit.workspace import Workspace

if TYPE_CHECKING:
    from odi_audit.catalog.files import Progress


def read_changes(
    table: str,
    *,
    consumer: str,
    since: str | None = None,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    lake: Path | str | Workspace | None = None,
    run: Run | None = None,
    as_: Form = "arrow",
    principal: str | None = None,
) -> ChangeReading:
    """Open what a consumer has not read yet; a new consumer reads every row as an insert.

    Use it as a context manager: leaving the block without an error confirms the reading. Rows come
    with ``_change`` (``delete`` and ``update_before`` first, then ``insert`` and
    ``update_after``), ``_row_id``, ``_last_updated_sequence_number`` and ``_batch``. ``since``
    is ``start``, ``oldest``, or a place in the table's history (a batch, a snapshot, a tag, a
    time). Given the ``run`` that it happens in, what the run writes is known to come from it.

    Raises:
        TableNotFound: there is no such table.
        EntryNotFound: the consumer's position has expired; the choices are in the message.
        StorageError: a data file is gone; nothing is confirmed.
        UsageError: the consumer's name, a column or the filter is not right.
    """
    access = _access(lake, run, principal)
    return open_changes(
        access, table, consumer=consumer, since=since, columns=columns, where=where, as_=as_
    )


def read_stable(
    table: str,
    *,
    tag: str | None = None,
    as_of: str | None = None,
    consumer: str | None = None,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    lake: Path | str | Workspace | None = None,
    run: Run | None = None,
    as_: Form = "arrow",
    principal: str | None = None,
) -> StableReading:
    """Open one state of a table: that of a tag, or of a batch, a snapshot or a time (``as_of``).

    The snapshot is fixed here: whatever happens meanwhile, this is what is read. Moves no position.
    Without ``consumer`` the run's job is the one that reads, or else the principal.

    Raises:
        TableNotFound, EntryNotFound: there is no such table, tag or place.
        UsageError: neither or both of ``tag`` and ``as_of`` are given.
    """
    access = _access(lake, run, principal)
    if (tag is None) == (as_of is None):
        raise UsageError(f"reading {table} needs either tag= or as_of=")
    state = access.state(table)
    name = check_consumer(consumer or (run.job if run else access.principal))
    if tag is not None and (tag not in state.refs or state.refs[tag].kind != "tag"):
        tags = sorted(label for label, ref in state.refs.items() if ref.kind == "tag")
        raise EntryNotFound(
            f"table {state.ref.name} has no tag {tag}; it has {', '.join(tags) or 'none'}",
            hint="name another state with as_of=",
        )
    info = resolve_place(access.ledger, state, str(tag or as_of))
    return StableReading(access, state, info, name, columns=columns, where=where, as_=as_)


def access_of(parts: Parts, run: Run | None = None) -> Access:
    """Return the access that a run's or a workspace's parts give."""
    return Access(
        ledger=parts.ledger,
        load=lambda table: load_table(parts.ledger, parts.catalog(), parse(table)),
        spark=parts.spark,
        catalog_name=parts.settings.catalog.name,
        principal=parts.principal,
        run=run,
    )


def looking(workspace: Workspace) -> Access:
    """Return an access that can look at what is pending, and confirm nothing."""
    ledger = workspace.ledger(read_only=True)
    return Access(
        ledger=ledger,
        load=lambda table: load_table(ledger, workspace.catalog(), parse(table)),
        spark=workspace.spark,
        catalog_name=workspace.settings.catalog.name,
        principal="",
    )


def open_changes(
    access: Access,
    table: str,
    *,
    consumer: str,
    since: str | None = None,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    as_: Form = "arrow",
    missing: list[str] | None = None,
    progress: Progress | None = None,
) -> ChangeReading:
    """Open a reading of changes: :func:`read_changes`, on parts that are open already.

    Given ``missing``, a data file that is gone is named there, and the reading cannot be confirmed.
    """
    state = access.state(table)
    name = check_consumer(consumer)
    found = pending(access.ledger, state, name, since)
    return ChangeReading(
        access,
        state,
        found,
        name,
        columns=columns,
        where=where,
        as_=as_,
        missing=missing,
        progress=progress,
    )


def _access(lake: Path | str | Workspace | None, run: Run | None, principal: str | None) -> Access:
    if run is None:
        return access_of(parts_of(find(lake), principal=principal))
    if lake is not None:
        raise UsageError("a reading inside a run is on the run's lake: leave lake= out")
    return access_of(run.parts, run)


def pending_page(
    access: Access,
    table: str,
    *,
    consumer: str,
    since: str | None = None,
    columns: Sequence[str] | None = None,
    limit: int = LIMIT_DEFAULT,
    apply: bool = False,
    progress: Progress | None = None,
) -> PendingPage:
    """Show what a consumer would read next; with ``apply``, move its position past all of it.

    Data files that are gone are named, and the rest is shown; moving past them is recorded as
    skipping them.

    Raises:
        UsageError: the limit is out of bounds; else as :func:`read_changes`.
    """
    if not 0 <= limit <= LIMIT_MAX:
        raise UsageError(f"limit {limit} is not between 0 and {LIMIT_MAX}")
    missing: list[str] = []
    reading = open_changes(
        access,
        table,
        consumer=consumer,
        since=since,
        columns=columns,
        missing=missing,
        progress=progress,
    )
    rows: list[PendingRow] = []
    if limit:
        for batch in reading:
            rows.extend(_shown(row) for row in batch.slice(0, limit - len(rows)).to_pylist())
            if len(rows) >= limit:
                break
    images = reading.rows_count + reading.updated_count
    return PendingPage(
        table=reading.table.name,
        consumer=consumer,
        start=reading.start,
        end=reading.end,
        batches=reading.batches_count,
        inserted=reading.inserted_count,
        updated=reading.updated_count,
        deleted=reading.deleted_count,
        rows=tuple(rows),
        cut=len(rows) < images,
        applied=apply,
        missing=tuple(sorted(set(missing))),
        untold=reading.untold_count,
        entry=reading.skip() if apply else None,
    )


def _shown(row: dict[str, object]) -> PendingRow:
    row_id, batch = row["_row_id"], row[BATCH]
    hidden = {*HANDED_ON, BATCH}
    return PendingRow(
        change=str(row["_change"]),
        row_id=row_id if isinstance(row_id, int) else None,
        batch=None if batch is None else str(batch),
        values={name: plain(value) for name, value in row.items() if name not in hidden},
    )
