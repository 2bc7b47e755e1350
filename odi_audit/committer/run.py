"""A run: one execution of a job, and the calls that a caller makes in it.

Owns the public methods; each builds a batch and takes it down the road. Must never hold state
that a restart would need: that is in the ledger and in the tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING

from odi_audit import logs
from odi_audit.canonical import JsonObject
from odi_audit.committer import reconcile, road, structure
from odi_audit.committer.operations import (
    NO_CONTRACT,
    Append,
    Compact,
    Delete,
    Operation,
    Overwrite,
    OverwritePartitions,
    Update,
    Upsert,
)
from odi_audit.committer.parts import Parts, check_catalog
from odi_audit.committer.quiet import Caller
from odi_audit.errors import UsageError
from odi_audit.ids import JobName, RunId, SnapshotId
from odi_audit.model.contract import Contract
from odi_audit.model.offsets import Offsets
from odi_audit.model.receipts import Receipt
from odi_audit.model.tables import parse

if TYPE_CHECKING:
    from odi_audit.spark.types import DataFrame, SparkSession, StructType

log = logs.get_logger(__name__)

EXPIRE_AFTER_DAYS = 5
"""Iceberg's own default age of an expired snapshot."""


class Run:
    """One execution of a job. Use it as a context manager: ``with odi.run("sales/orders")``."""

    def __init__(self, parts: Parts, job: JobName, run_id: RunId) -> None:
        self.parts = parts
        self.job = job
        self.run_id = run_id

    def __enter__(self) -> Run:
        """Settle what an earlier, dead run left open; then start."""
        check_catalog(self.parts.settings)
        self.parts.ledger.hold(self.parts.owner)
        reconcile.settle_dead(self.parts)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the run; every batch is settled or left to reconcile already."""
        if error is not None:
            log.warning("run ended with an error", job=self.job, error=type(error).__name__)

    @property
    def spark(self) -> SparkSession:
        """The Spark session of this run."""
        return self.parts.spark()

    # -- batches over one table --------------------------------------------------------------

    def append(
        self,
        frame: DataFrame,
        table: str,
        *,
        offsets: Offsets | None = None,
        contract: Contract = NO_CONTRACT,
        generation: int = 0,
        accept_gap: str | None = None,
    ) -> Receipt:
        """Add rows to a table, once."""
        operation = Append(table=parse(table), frame=frame, contract=contract)
        return self._commit([operation], offsets, generation, accept_gap)

    def upsert(
        self,
        frame: DataFrame,
        table: str,
        *,
        key: Sequence[str],
        order_by: Sequence[str] = (),
        delete_when: str | None = None,
        offsets: Offsets | None = None,
        contract: Contract = NO_CONTRACT,
        generation: int = 0,
        accept_gap: str | None = None,
    ) -> Receipt:
        """Insert or update rows by key; of several rows with one key the newest wins.

        ``order_by`` names the columns that tell which is newest; ``delete_when`` is a condition
        on the batch's rows, such as ``op = 'd'``. Columns that only these two use need not be in
        the table.
        """
        operation = Upsert(
            table=parse(table),
            frame=frame,
            key=_names(key),
            order_by=_names(order_by),
            delete_when=delete_when,
            contract=contract,
        )
        return self._commit([operation], offsets, generation, accept_gap)

    def overwrite_partitions(
        self,
        frame: DataFrame,
        table: str,
        *,
        offsets: Offsets | None = None,
        contract: Contract = NO_CONTRACT,
        generation: int = 0,
        accept_gap: str | None = None,
    ) -> Receipt:
        """Replace the partitions that the rows fall into."""
        operation = OverwritePartitions(table=parse(table), frame=frame, contract=contract)
        return self._commit([operation], offsets, generation, accept_gap)

    def overwrite(
        self,
        frame: DataFrame,
        table: str,
        *,
        where: str,
        offsets: Offsets | None = None,
        contract: Contract = NO_CONTRACT,
        generation: int = 0,
        accept_gap: str | None = None,
    ) -> Receipt:
        """Replace the rows that match ``where``."""
        operation = Overwrite(table=parse(table), frame=frame, where=where, contract=contract)
        return self._commit([operation], offsets, generation, accept_gap)

    def update(
        self, table: str, *, where: str, set: Mapping[str, str], offsets: Offsets | None = None
    ) -> Receipt:
        """Set columns to SQL expressions in the rows that match."""
        operation = Update(table=parse(table), where=where, assignments=dict(set))
        return self._commit([operation], offsets, 0, None)

    def delete(self, table: str, *, where: str, offsets: Offsets | None = None) -> Receipt:
        """Delete the rows that match."""
        return self._commit([Delete(table=parse(table), where=where)], offsets, 0, None)

    def compact(
        self,
        table: str,
        *,
        where: str | None = None,
        options: Mapping[str, str] | None = None,
        offsets: Offsets | None = None,
    ) -> Receipt:
        """Rewrite small files into large ones; no row changes, and every row keeps its id."""
        operation = Compact(table=parse(table), where=where, options=dict(options or {}))
        return self._commit([operation], offsets, 0, None)

    def batch(
        self,
        *,
        offsets: Offsets | None = None,
        generation: int = 0,
        accept_gap: str | None = None,
    ) -> BatchBuilder:
        """Collect operations on several tables into one batch; it is committed at the end."""
        return BatchBuilder(self, offsets, generation, accept_gap)

    # -- what makes no snapshot ------------------------------------------------------------------

    def create_table(
        self,
        table: str,
        schema: StructType | str,
        *,
        partitioned_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
    ) -> Receipt:
        """Create a table: ``run.create_table("sales.orders", "id bigint, at timestamp")``."""
        return structure.create_table(
            self._caller(),
            parse(table),
            schema,
            partitioned_by=_names(partitioned_by),
            properties=properties or {},
            if_not_exists=if_not_exists,
        )

    def evolve_schema(
        self,
        table: str,
        *,
        add: Mapping[str, str] | None = None,
        widen: Mapping[str, str] | None = None,
        rename: Mapping[str, str] | None = None,
        drop: Sequence[str] = (),
    ) -> Receipt:
        """Change a table's columns; types are written as in Spark SQL."""
        steps = [("add", column, kind) for column, kind in (add or {}).items()]
        steps += [("widen", column, kind) for column, kind in (widen or {}).items()]
        steps += [("rename", column, name) for column, name in (rename or {}).items()]
        steps += [("drop", column, "") for column in _names(drop)]
        return structure.evolve_schema(self._caller(), parse(table), steps)

    def expire(
        self, table: str, *, older_than: datetime | None = None, retain_last: int = 1
    ) -> Receipt:
        """Expire snapshots; what they said stays in the ledger."""
        moment = older_than or self.parts.clock.now() - timedelta(days=EXPIRE_AFTER_DAYS)
        return structure.expire(
            self._caller(), parse(table), older_than=moment, retain_last=retain_last
        )

    def rollback(
        self, table: str, *, to_snapshot: str | None = None, to_batch: str | None = None
    ) -> Receipt:
        """Move a table back to a snapshot, or to the state that a batch left."""
        name = parse(table)
        if (to_snapshot is None) == (to_batch is None):
            raise UsageError(f"rollback of {name} needs either to_snapshot= or to_batch=")
        if to_snapshot is not None:
            return structure.rollback(self._caller(), name, SnapshotId(str(to_snapshot)))
        assert to_batch is not None
        batch = self.parts.ledger.resolve_batch(to_batch)
        state = self.parts.catalog().load(name)
        entry = self.parts.ledger.landed(batch, state.ref.uuid)
        if entry is None or entry.facts["snapshot"] is None:
            raise UsageError(f"batch {batch} has not landed on {name}")
        return structure.rollback(self._caller(), name, SnapshotId(str(entry.facts["snapshot"])))

    # -- helpers -----------------------------------------------------------------------------------

    def _caller(self) -> Caller:
        return Caller(parts=self.parts, job=self.job, parent_run=self.run_id)

    def _commit(
        self,
        operations: Sequence[Operation],
        offsets: Offsets | None,
        generation: int,
        accept_gap: str | None,
        stream: JsonObject | None = None,
    ) -> Receipt:
        batch = road.Batch(
            job=self.job,
            parent_run=self.run_id,
            operations=tuple(operations),
            offsets=offsets,
            generation=generation,
            accept_gap=accept_gap,
            stream=stream,
        )
        return road.commit(self.parts, batch)


class BatchBuilder:
    """One batch over many tables: staged in all of them, then published in the order given."""

    def __init__(
        self, run: Run, offsets: Offsets | None, generation: int, accept_gap: str | None
    ) -> None:
        self._run = run
        self._offsets = offsets
        self._generation = generation
        self._accept_gap = accept_gap
        self._operations: list[Operation] = []
        self.receipt: Receipt | None = None

    def __enter__(self) -> BatchBuilder:
        """Start collecting."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commit what was collected, unless the block raised."""
        if error is None:
            self.receipt = self._run._commit(
                self._operations, self._offsets, self._generation, self._accept_gap
            )

    def append(
        self, frame: DataFrame, table: str, *, contract: Contract = NO_CONTRACT
    ) -> BatchBuilder:
        """Add rows to a table."""
        return self._add(Append(table=parse(table), frame=frame, contract=contract))

    def upsert(
        self,
        frame: DataFrame,
        table: str,
        *,
        key: Sequence[str],
        order_by: Sequence[str] = (),
        delete_when: str | None = None,
        contract: Contract = NO_CONTRACT,
    ) -> BatchBuilder:
        """Insert or update rows by key."""
        return self._add(
            Upsert(
                table=parse(table),
                frame=frame,
                key=_names(key),
                order_by=_names(order_by),
                delete_when=delete_when,
                contract=contract,
            )
        )

    def overwrite_partitions(
        self, frame: DataFrame, table: str, *, contract: Contract = NO_CONTRACT
    ) -> BatchBuilder:
        """Replace the partitions that the rows fall into."""
        return self._add(OverwritePartitions(table=parse(table), frame=frame, contract=contract))

    def overwrite(
        self, frame: DataFrame, table: str, *, where: str, contract: Contract = NO_CONTRACT
    ) -> BatchBuilder:
        """Replace the rows that match."""
        return self._add(Overwrite(table=parse(table), frame=frame, where=where, contract=contract))

    def update(self, table: str, *, where: str, set: Mapping[str, str]) -> BatchBuilder:
        """Set columns in the rows that match."""
        return self._add(Update(table=parse(table), where=where, assignments=dict(set)))

    def delete(self, table: str, *, where: str) -> BatchBuilder:
        """Delete the rows that match."""
        return self._add(Delete(table=parse(table), where=where))

    def _add(self, operation: Operation) -> BatchBuilder:
        self._operations.append(operation)
        return self


def _names(names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        return (names,)
    return tuple(names)
