"""Readings: the rows handed to a consumer, and the entry that confirms them.

Owns the consumer's position, which moves when a reading is confirmed and not before: after a crash
the range is read again, so every change is seen at least once. Must never move a position past
changes that were not handed out, unless asked to by name (:meth:`ChangeReading.skip`), nor record a
value of a row. Rows of a data file that is gone were not handed out: that is never confirmed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

from odi_audit.canonical import Json
from odi_audit.catalog.state import SnapshotInfo, TableState, history
from odi_audit.committer.records import without_values
from odi_audit.errors import LedgerConflict, StorageError, UsageError
from odi_audit.ledger.port import Ledger
from odi_audit.model.entries import Draft, Kind
from odi_audit.model.offsets import OffsetKind, Offsets, Range
from odi_audit.query.consumers import Mode, Pending, confirming, position, writes_between
from odi_audit.query.lookup import source_name

if TYPE_CHECKING:
    import pyarrow as pa

    from odi_audit.catalog.changes import Comparison
    from odi_audit.catalog.files import Progress
    from odi_audit.committer.run import Run
    from odi_audit.spark.types import DataFrame, SparkSession

Form: TypeAlias = Literal["arrow", "spark"]
BATCH = "_batch"
HANDED_ON = ("_change", "_row_id", "_last_updated_sequence_number")
"""Lineage columns that a consumer gets; where a row lies in its file is not its business."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What a reading touches, and who reads."""

    ledger: Ledger
    load: Callable[[str], TableState]
    spark: Callable[[], SparkSession]
    catalog_name: str
    principal: str
    run: Run | None = None

    def state(self, table: str) -> TableState:
        """Return the table as it is now."""
        return self.load(table)


class Reading:
    """A reading that is not confirmed yet. Leaving its block without an error confirms it."""

    mode: Mode
    _missing: Sequence[str] | None = None

    def __init__(
        self,
        access: Access,
        state: TableState,
        consumer: str,
        *,
        columns: Sequence[str] | None,
        where: str | None,
        as_: Form,
    ) -> None:
        if as_ not in ("arrow", "spark"):
            raise UsageError(f"as_={as_!r} is neither 'arrow' nor 'spark'")
        self._access = access
        self._state = state
        self._columns = None if columns is None else list(columns)
        self._where = where
        self._form = as_
        self._handed_out = False
        self._entry: int | None = None
        self._began = access.ledger.head().size
        self._began_at = access.ledger.get(self._began - 1).time if self._began else None
        self.consumer = consumer
        self.table = state.ref
        self.rows_read = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None and self._entry is None:
            self.commit()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in Arrow's form."""
        self.rows_read = 0
        for batch in self._batches():
            self.rows_read += batch.num_rows
            yield batch
        self._handed_out = True

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch."""
        raise NotImplementedError

    @property
    def data(self) -> pa.RecordBatchReader | DataFrame:
        """The rows in the form that was asked for: a reader of Arrow batches, or a DataFrame."""
        if self._form == "spark":
            return self.to_spark()
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def to_table(self) -> pa.Table:
        """Return all rows at once."""
        import pyarrow as pa

        return pa.Table.from_batches(iter(self), schema=self.schema)

    def to_spark(self) -> DataFrame:
        """Return the rows as a DataFrame."""
        raise NotImplementedError

    def commit(self) -> int | None:
        """Confirm the reading; return the index of its entry, None where there was nothing new.

        Raises:
            UsageError: not all of it was handed out: a confirmation would skip the rest.
            StorageError: a data file is gone, so that not all of it could be handed out.
            LedgerConflict: the same consumer has moved its position meanwhile.
            LedgerLocked: another process confirms a reading of the same consumer right now.
        """
        if self._missing:
            raise StorageError(
                f"table {self.table.name}: the data file {self._missing[0]} is gone: the reading "
                f"by {self.consumer} lacks its rows and is not confirmed",
                hint="odi-audit verify",
                table=self.table.name,
            )
        if not self._handed_out and self._entry is None and self._facts() is not None:
            raise UsageError(
                f"the reading of {self.table.name} by {self.consumer} was not read to its end: "
                "nothing is confirmed, and the next reading starts at the same place",
                hint="read every batch, or end the block with an error",
            )
        return self._confirm()

    def _confirm(self, **more: Json) -> int | None:
        facts = self._facts()
        if self._entry is None and facts is not None:
            run = self._access.run
            draft = Draft(
                kind=Kind.READ,
                job=None if run is None else run.job,
                run=None if run is None else run.run_id,
                table=self.table,
                facts={**self._shared_facts(), **facts, **more},
            )
            with confirming(self._access.ledger, self.table, self.consumer):
                self._check_position()
                self._entry = self._access.ledger.append(draft)[0].index
        return self._entry

    def _shared_facts(self) -> dict[str, Json]:
        masked = None if self._where is None else without_values({"where": self._where})["where"]
        names = [column.name for column in self._state.columns]
        return {
            "consumer": self.consumer,
            "mode": self.mode.value,
            "columns": self._columns if self._columns is not None else names,
            "where": masked,
            "principal": self._access.principal,
            "began": self._began,
            "began_at": self._began_at,
            "form": self._form,
        }

    def _batches(self) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError

    def _facts(self) -> dict[str, Json] | None:
        raise NotImplementedError

    def _check_position(self) -> None:
        """See that nobody else has moved what this reading rests on."""


class ChangeReading(Reading):
    """The changes that a consumer has not read yet, from ``start`` (None: all rows) to ``end``.

    Given ``missing``, data files that are gone are named there, and nothing can be confirmed.
    """

    mode = Mode.CHANGES

    def __init__(
        self,
        access: Access,
        state: TableState,
        found: Pending,
        consumer: str,
        *,
        columns: Sequence[str] | None,
        where: str | None,
        as_: Form,
        missing: list[str] | None = None,
        progress: Progress | None = None,
    ) -> None:
        super().__init__(access, state, consumer, columns=columns, where=where, as_=as_)
        from odi_audit.catalog.changes import compare
        from odi_audit.catalog.files import check_columns

        check_columns(state, self._columns)
        self._pending = found
        self._missing = missing
        self._compared: Comparison | None = None
        self.start: SnapshotInfo | None = found.start
        self.end: SnapshotInfo | None = found.end
        if found.end is not None and not found.none:
            before = None if found.start is None else found.start.id
            self._compared = compare(
                state, before, found.end.id, where=where, missing=missing, progress=progress
            )
        # With nothing to hand out, there is nothing that could be skipped.
        self._handed_out = self.rows_count == 0

    @property
    def inserted_count(self) -> int:
        """Rows that came."""
        return 0 if self._compared is None else self._compared.inserted_count

    @property
    def updated_count(self) -> int:
        """Rows that were written anew; each has two images."""
        return 0 if self._compared is None else self._compared.updated_count

    @property
    def deleted_count(self) -> int:
        """Rows that went."""
        return 0 if self._compared is None else self._compared.deleted_count

    @property
    def rows_count(self) -> int:
        """Rows that changed in any way."""
        return self.inserted_count + self.updated_count + self.deleted_count

    @property
    def untold_count(self) -> int:
        """Rows of which a file that is gone would tell whether they changed."""
        return 0 if self._compared is None else self._compared.untold_count

    @property
    def batches_count(self) -> int:
        """Writes that this reading goes over."""
        if self.end is None:
            return 0
        since = None if self.start is None else self.start.sequence_number
        return writes_between(history(self._state), since, self.end.sequence_number)

    @property
    def offsets(self) -> Offsets:
        """What a batch made from this reading is to name as its source: the same range, once."""
        if self.end is None:
            raise UsageError(f"table {self.table.name} has no snapshot: there is nothing to read")
        return Offsets(
            kind=OffsetKind.TABLE,
            source=f"table:{source_name(self._access.ledger, self.table)}",
            ranges={self.table.uuid: Range(self.start.id if self.start else None, self.end.id)},
        )

    @property
    def schema(self) -> pa.Schema:
        """The table's columns that were asked for, then what is said about each change."""
        import pyarrow as pa

        from odi_audit.catalog.changes import change_schema

        full = change_schema(self._state, self.end, self._columns)
        kept = [column for column in full if self._is_handed_on(column.name, full.names)]
        return pa.schema([*kept, pa.field(BATCH, pa.string())])

    def to_spark(self) -> DataFrame:
        """Return the changes as a DataFrame; they pass through this process."""
        from odi_audit.spark.changes import frame

        return frame(self._access.spark(), self.schema, iter(self), self._state, self.end)

    def skip(self) -> int | None:
        """Move the position to the end of what is pending, read or not; it is recorded as that."""
        whole = self._handed_out and not self._missing
        return self._confirm(skipped=not whole, rows=self.rows_read)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if self._compared is None or self.end is None:
            return
        from odi_audit.query.labels import Labels

        labels = Labels(self._access.ledger, self._compared, self.start, self.end)
        for batch in self._compared.batches(self._columns):
            labelled = batch.append_column(BATCH, labels.of(batch))
            yield labelled.select(self.schema.names)

    def _is_handed_on(self, name: str, names: Sequence[str]) -> bool:
        from odi_audit.catalog.changes import CHANGE_COLUMNS

        return name in HANDED_ON or names.index(name) < len(names) - len(CHANGE_COLUMNS)

    def _facts(self) -> dict[str, Json] | None:
        if self._pending.none or self.end is None:
            return None
        return {
            "from_snapshot": None if self.start is None else self.start.id,
            "from_sequence": None if self.start is None else self.start.sequence_number,
            "to_snapshot": self.end.id,
            "to_sequence": self.end.sequence_number,
            "to_time": self.end.time,
            "batches": self.batches_count,
            "rows": self.rows_count,
            "inserted": self.inserted_count,
            "updated": self.updated_count,
            "deleted": self.deleted_count,
        }

    def _check_position(self) -> None:
        before = self._pending.position
        now = position(self._access.ledger, self.table.uuid, self.consumer)
        if (now and now.entry) != (before and before.entry):
            raise LedgerConflict(
                f"consumer {self.consumer} has read {self.table.name} up to another place "
                "meanwhile: this reading is not confirmed",
                hint="odi-audit read --list",
                consumer=self.consumer,
            )


class StableReading(Reading):
    """One state of a table, fixed when it was opened."""

    mode = Mode.STABLE

    def __init__(
        self,
        access: Access,
        state: TableState,
        snapshot: SnapshotInfo,
        consumer: str,
        *,
        columns: Sequence[str] | None,
        where: str | None,
        as_: Form,
    ) -> None:
        super().__init__(access, state, consumer, columns=columns, where=where, as_=as_)
        from odi_audit.catalog.files import check_columns

        check_columns(state, self._columns, snapshot.id)
        self.snapshot = snapshot
        self._counted = False

    @property
    def schema(self) -> pa.Schema:
        """The table's columns that were asked for, as the snapshot has them."""
        from odi_audit.catalog.files import arrow_schema, schema_at

        return arrow_schema(schema_at(self._state, self.snapshot.id), self._columns)

    def to_spark(self) -> DataFrame:
        """Return the table as of the snapshot; Iceberg reads it when an action asks for it."""
        from odi_audit.spark.changes import at_snapshot

        name = self._state.name
        made = at_snapshot(self._access.spark(), self._access.catalog_name, name, self.snapshot.id)
        made = made if self._where is None else made.where(self._where)
        self._handed_out = True
        return made if self._columns is None else made.select(*self._columns)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        from odi_audit.catalog.files import rows_at

        self._counted = True
        yield from rows_at(self._state, self.snapshot.id, self._columns, self._where)

    def _facts(self) -> dict[str, Json] | None:
        total = self.snapshot.summary.get("total-records", "")
        known = int(total) if self._where is None and total.isdigit() else None
        return {
            "from_snapshot": None,
            "from_sequence": None,
            "to_snapshot": self.snapshot.id,
            "to_sequence": self.snapshot.sequence_number,
            "to_time": self.snapshot.time,
            "batches": None,
            "rows": self.rows_read if self._counted else known,
        }
