"""A run: one execution of a job, and the calls that a caller makes in it.

Owns the public methods; each builds a batch and takes it down the road. Must never hold state
that a restart would need: that is in the ledger and in the tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Unpack

from odi_audit import logs
from odi_audit.canonical import JsonObject
from odi_audit.committer import dropping, lifetime, pulse, reconcile, renaming, structure
from odi_audit.committer.batch import BatchBuilder, How, names
from odi_audit.committer.operations import NO_CONTRACT
from odi_audit.committer.parts import Parts, check_catalog, nobody
from odi_audit.committer.quiet import Caller
from odi_audit.errors import UsageError
from odi_audit.ids import BatchId, JobName, RunId, SnapshotId
from odi_audit.model import provenance as provenance_model
from odi_audit.model.contract import Contract
from odi_audit.model.entries import Entry
from odi_audit.model.offsets import Offsets
from odi_audit.model.receipts import Receipt
from odi_audit.model.tables import parse
from odi_audit.spark.listener import marked, run_mark
from odi_audit.spark.provenance import with_columns

if TYPE_CHECKING:
    from odi_audit.spark.types import DataFrame, SparkSession, StructType

log = logs.get_logger(__name__)

EXPIRE_AFTER_DAYS = 5
"""Iceberg's own default age of an expired snapshot."""


class Run:
    """One execution of a job. Use it as a context manager: ``with odi.run("sales/orders")``."""

    def __init__(
        self, parts: Parts, job: JobName, run_id: RunId, *, streaming: bool = False
    ) -> None:
        self.parts = parts
        self.job = job
        self.run_id = run_id
        self._streaming = streaming
        self._entered = False
        self._started: Entry | None = None
        self._marks = ExitStack()
        self._leave = nobody
        self._still = nobody

    def __enter__(self) -> Run:
        """Start, and settle what an earlier, dead run left open."""
        ledger, owner = self.parts.ledger, self.parts.owner
        ledger.hold(owner)
        try:
            started = lifetime.begin(self.parts, self.job, self.run_id, streaming=self._streaming)
        except BaseException:
            ledger.release(owner)
            raise
        try:
            check_catalog(self.parts.settings)
            reconcile.settle_dead(self.parts)
        except BaseException as error:
            lifetime.end_in_error(ledger, started, error)
            ledger.release(owner)
            raise
        self._started = started
        self._entered = True
        self._leave = self.parts.beside()
        self._still = pulse.start(self.parts, started)
        self._mark()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the run: what it could not settle, the next run of anybody may."""
        self._entered = False
        self._still()
        try:
            self._record_end(error)
        finally:
            self.parts.ledger.release(self.parts.owner)
            self._marks.close()
            self._leave()
        if error is not None:
            log.warning("run ended with an error", job=self.job, error=type(error).__name__)

    def _record_end(self, error: BaseException | None) -> None:
        started, self._started = self._started, None
        if started is None:
            return
        if error is None:
            lifetime.end(self.parts.ledger, started, None)
        else:
            lifetime.end_in_error(self.parts.ledger, started, error)

    @property
    def spark(self) -> SparkSession:
        """The Spark session of this run."""
        session = self.parts.spark()
        if self._entered:
            self._mark()
        return session

    # -- batches over one table: a batch of one operation -----------------------------------------

    def append(
        self,
        frame: DataFrame,
        table: str,
        *,
        contract: Contract = NO_CONTRACT,
        **how: Unpack[How],
    ) -> Receipt:
        """Add rows to a table, once."""
        return self.batch(**how).append(frame, table, contract=contract).commit()

    def upsert(
        self,
        frame: DataFrame,
        table: str,
        *,
        key: Sequence[str],
        order_by: Sequence[str] = (),
        delete_when: str | None = None,
        contract: Contract = NO_CONTRACT,
        **how: Unpack[How],
    ) -> Receipt:
        """Insert or update rows by key; of several rows with one key the newest wins.

        ``order_by`` names the columns that tell which is newest; ``delete_when`` is a condition
        on the batch's rows, such as ``op = 'd'``. Columns that only these two use need not be in
        the table.
        """
        batch = self.batch(**how)
        batch.upsert(
            frame, table, key=key, order_by=order_by, delete_when=delete_when, contract=contract
        )
        return batch.commit()

    def overwrite_partitions(
        self,
        frame: DataFrame,
        table: str,
        *,
        contract: Contract = NO_CONTRACT,
        **how: Unpack[How],
    ) -> Receipt:
        """Replace the partitions that the rows fall into."""
        return self.batch(**how).overwrite_partitions(frame, table, contract=contract).commit()

    def overwrite(
        self,
        frame: DataFrame,
        table: str,
        *,
        where: str,
        contract: Contract = NO_CONTRACT,
        **how: Unpack[How],
    ) -> Receipt:
        """Replace the rows that match ``where``."""
        return self.batch(**how).overwrite(frame, table, where=where, contract=contract).commit()

    def update(
        self, table: str, *, where: str, set: Mapping[str, str], **how: Unpack[How]
    ) -> Receipt:
        """Set columns to SQL expressions in the rows that match."""
        return self.batch(**how).update(table, where=where, set=set).commit()

    def delete(self, table: str, *, where: str, **how: Unpack[How]) -> Receipt:
        """Delete the rows that match."""
        return self.batch(**how).delete(table, where=where).commit()

    def compact(
        self,
        table: str,
        *,
        where: str | None = None,
        options: Mapping[str, str] | None = None,
        **how: Unpack[How],
    ) -> Receipt:
        """Rewrite small files into large ones; no row changes, and every row keeps its id."""
        return self.batch(**how).compact(table, where=where, options=options).commit()

    def batch(
        self,
        *,
        offsets: Offsets | None = None,
        generation: int = 0,
        accept_gap: str | None = None,
        stream: JsonObject | None = None,
    ) -> BatchBuilder:
        """Collect operations on several tables into one batch; it is committed at the end.

        ``stream`` is what a streaming sink needs to make its checkpoint again.
        """
        return BatchBuilder(self._caller(), offsets, generation, accept_gap, stream)

    # -- what makes no snapshot ------------------------------------------------------------------

    def create_table(
        self,
        table: str,
        schema: StructType | str,
        *,
        partitioned_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        provenance: Literal["batch", "row"] = "batch",
        if_not_exists: bool = False,
    ) -> Receipt:
        """Create a table: ``run.create_table("sales.orders", "id bigint, at timestamp")``.

        With ``provenance="row"`` every row also keeps which record of the source it came from, in
        two columns more; the batches then need them: ``odi.with_source(frame)``.
        """
        given = dict(properties or {})
        if provenance == provenance_model.ROW:
            schema = with_columns(schema)
            given[provenance_model.PROPERTY] = provenance_model.ROW
        return structure.create_table(
            self._caller(),
            parse(table),
            schema,
            partitioned_by=names(partitioned_by),
            properties=given,
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
        for_batch: BatchId | None = None,
    ) -> Receipt:
        """Change a table's columns; types are written as in Spark SQL.

        ``for_batch`` names the batch that needs it: the history of the table then says so.
        """
        steps = [("add", column, kind) for column, kind in (add or {}).items()]
        steps += [("widen", column, kind) for column, kind in (widen or {}).items()]
        steps += [("rename", column, name) for column, name in (rename or {}).items()]
        steps += [("drop", column, "") for column in names(drop)]
        return structure.evolve_schema(self._caller(), parse(table), steps, for_batch=for_batch)

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

    def drop_table(self, table: str, *, purge: bool = False, if_exists: bool = False) -> Receipt:
        """Drop a table; what it was and who dropped it stays in the ledger.

        Its files stay where they are, unless ``purge`` is said. With ``if_exists`` a table that
        is not there is no error: the receipt is then not ``fresh``.
        """
        return dropping.drop_table(self._caller(), parse(table), purge=purge, if_exists=if_exists)

    def rename_table(self, table: str, *, to: str) -> Receipt:
        """Give a table another name: ``run.rename_table("sales.orders", to="sales.all_orders")``.

        It stays the same table: jobs and consumers go on under the new name where they were. If
        it has that name already, by a rename on record, the receipt is not ``fresh``.
        """
        return renaming.rename_table(self._caller(), parse(table), parse(to))

    # -- helpers -----------------------------------------------------------------------------------

    def _mark(self) -> None:
        # Spark may have been started by the run itself, after it began.
        self._marks.close()
        self._marks.enter_context(marked(run_mark(self.job, self.run_id)))

    def _caller(self) -> Caller:
        if not self._entered:
            # Nobody would know that this run lives: another could settle what it is doing.
            raise UsageError(
                f"run {self.run_id} of {self.job} has not started, or has ended",
                hint=f'write inside its block: with odi.run("{self.job}") as run: …',
            )
        return Caller(parts=self.parts, job=self.job, parent_run=self.run_id)
