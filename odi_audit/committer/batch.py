"""A batch in the making: its operations, collected one by one, then committed as one.

Owns how a caller's words become operations, for a batch over one table and over many. Must never
touch a table: that is the road's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TypedDict

from odi_audit.canonical import JsonObject
from odi_audit.committer import road
from odi_audit.committer.operations import (
    NO_CONTRACT,
    Append,
    AppendFiles,
    Compact,
    Delete,
    Operation,
    Overwrite,
    OverwritePartitions,
    Update,
    Upsert,
    is_side,
)
from odi_audit.committer.planning import Batch
from odi_audit.committer.quiet import Caller
from odi_audit.model.contract import Contract
from odi_audit.model.loose import LooseFile, LooseTable
from odi_audit.model.merges import PLAIN, Terms
from odi_audit.model.offsets import Offsets
from odi_audit.model.receipts import Receipt
from odi_audit.model.shares import WHOLE, Share
from odi_audit.model.tables import parse

if TYPE_CHECKING:
    from odi_audit.spark.types import DataFrame


class How(TypedDict, total=False):
    """What every batch may say of itself, whatever it does to which table."""

    offsets: Offsets | None
    """Which part of the source this batch is."""
    generation: int
    """0, or the number of an explicit replay of the same offsets."""
    accept_gap: str | None
    """Why it is right that these offsets do not follow the last ones."""


class BatchBuilder:
    """One batch over many tables: staged in all of them, then published in the order given."""

    def __init__(
        self,
        caller: Caller,
        offsets: Offsets | None,
        generation: int,
        accept_gap: str | None,
        stream: JsonObject | None = None,
    ) -> None:
        self._caller = caller
        self._offsets = offsets
        self._generation = generation
        self._accept_gap = accept_gap
        self._stream = stream
        self._operations: list[Operation] = []
        self._notes: dict[str, Callable[[], JsonObject]] = {}
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
            self.commit()

    def append(
        self,
        frame: DataFrame,
        table: str,
        *,
        contract: Contract = NO_CONTRACT,
        share: Share = WHOLE,
    ) -> BatchBuilder:
        """Add rows to a table; ``share`` says which part of the batch's offsets they are."""
        return self._add(Append(table=parse(table), frame=frame, contract=contract, share=share))

    def append_files(
        self,
        write: Callable[[LooseTable], Sequence[LooseFile]],
        table: str,
        *,
        contract: Contract = NO_CONTRACT,
        share: Share = WHOLE,
    ) -> BatchBuilder:
        """Add rows that tasks write into data files themselves; ``write`` is called later."""
        return self._add(
            AppendFiles(table=parse(table), write=write, contract=contract, share=share)
        )

    def upsert(
        self,
        frame: DataFrame,
        table: str,
        *,
        key: Sequence[str],
        order_by: Sequence[str] = (),
        delete_when: str | None = None,
        terms: Terms = PLAIN,
        contract: Contract = NO_CONTRACT,
        share: Share = WHOLE,
    ) -> BatchBuilder:
        """Insert or update rows by key; as ``Run.upsert``, and on ``terms`` where given."""
        return self._add(
            Upsert(
                table=parse(table),
                frame=frame,
                key=names(key),
                order_by=names(order_by),
                delete_when=delete_when,
                terms=terms,
                contract=contract,
                share=share,
            )
        )

    def overwrite_partitions(
        self,
        frame: DataFrame,
        table: str,
        *,
        contract: Contract = NO_CONTRACT,
        share: Share = WHOLE,
    ) -> BatchBuilder:
        """Replace the partitions that the rows fall into."""
        return self._add(
            OverwritePartitions(table=parse(table), frame=frame, contract=contract, share=share)
        )

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

    def compact(
        self, table: str, *, where: str | None = None, options: Mapping[str, str] | None = None
    ) -> BatchBuilder:
        """Rewrite small files into large ones."""
        return self._add(Compact(table=parse(table), where=where, options=dict(options or {})))

    def note(self, table: str, tell: Callable[[], JsonObject]) -> BatchBuilder:
        """Keep facts of the source with what lands on a table: those known only after reading.

        ``tell`` is called once, when everything is staged; nothing it returns may be a secret.
        """
        self._notes[str(parse(table))] = tell
        return self

    def commit(self) -> Receipt:
        """Take the batch down the road."""
        batch = Batch(
            job=self._caller.job,
            parent_run=self._caller.parent_run,
            # Side tables first: once the others have landed, nothing of the batch is missing.
            operations=tuple(sorted(self._operations, key=lambda item: not is_side(item))),
            offsets=self._offsets,
            generation=self._generation,
            accept_gap=self._accept_gap,
            stream=self._stream,
            notes=dict(self._notes),
        )
        self.receipt = road.commit(self._caller.parts, batch)
        return self.receipt

    def _add(self, operation: Operation) -> BatchBuilder:
        self._operations.append(operation)
        return self


def names(given: Sequence[str]) -> tuple[str, ...]:
    """Return names as a tuple; one bare name is a sequence of one."""
    return (given,) if isinstance(given, str) else tuple(given)
