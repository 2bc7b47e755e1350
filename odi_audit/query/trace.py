"""Trace: which batch gave birth to a row, and which one changed it last.

Owns the answer for rows that are there. What a row was before is in ``versions``, and rows that
are there no more in ``gone``. Must never hold more rows than its caller takes: they are given one
by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odi_audit.canonical import Json, JsonObject, digits
from odi_audit.ids import SnapshotId
from odi_audit.ledger.port import Ledger
from odi_audit.model import provenance
from odi_audit.model.tables import TableName, TableRef
from odi_audit.query.copies import Copies
from odi_audit.query.dropped import load_table
from odi_audit.query.origin import Confidence, Origin
from odi_audit.query.origins import Origins
from odi_audit.query.seen import LIMIT_DEFAULT, LIMIT_MAX, ask, check_limit, plain, seen_rows
from odi_audit.query.source_record import SourceRecord, check_kept, source_record

if TYPE_CHECKING:
    from odi_audit.catalog.lake import LakeCatalog
    from odi_audit.query.seen import Question, Seen

__all__ = [
    "LIMIT_DEFAULT",
    "LIMIT_MAX",
    "Confidence",
    "Origin",
    "Origins",
    "RowTrace",
    "Tracing",
    "plain",
    "start_trace",
    "trace",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTrace:
    """One row as it is, and where it comes from."""

    values: Mapping[str, Json]
    row_id: int | None
    last_updated_sequence_number: int | None
    file: str
    position: int
    birth: Origin
    last_change: Origin
    source_record: SourceRecord | None = None

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        record = self.source_record
        return {
            "values": dict(self.values),
            "row_id": digits(self.row_id),
            "last_updated_sequence_number": digits(self.last_updated_sequence_number),
            "file": self.file,
            "position": digits(self.position),
            "birth": self.birth.to_json(),
            "last_change": self.last_change.to_json(),
            "source_record": None if record is None else record.to_json(),
        }


class Tracing:
    """A trace under way: iterate over it once, then look at what was missing or left out."""

    def __init__(
        self,
        ledger: Ledger,
        question: Question,
        limit: int | None,
        *,
        columns: Sequence[str] | None,
        source_offset: bool,
    ) -> None:
        self._question = question
        self._columns = columns
        self._source_offset = source_offset
        self._limit = limit
        self._origins = Origins(ledger, question.state)
        self._copies = Copies(question, self._origins)
        self.cut = False
        """Whether more rows match than the limit lets through."""

    @property
    def table(self) -> TableRef:
        """The table that is read."""
        return self._question.state.ref

    @property
    def snapshot(self) -> SnapshotId | None:
        """The snapshot that is read; None for a table without one."""
        return self._question.snapshot

    @property
    def missing(self) -> list[str]:
        """Data files that are gone: their rows are not in the answer."""
        return self._question.gone_files

    @property
    def entries(self) -> AbstractSet[int]:
        """Indexes of the ledger's entries that the answer rests on, so far."""
        return self._origins.entries

    def __iter__(self) -> Iterator[RowTrace]:
        for number, seen in enumerate(
            seen_rows(self._question, self._question.at, whole=not self._question.state.has_row_ids)
        ):
            if self._limit is not None and number >= self._limit:
                self.cut = True
                return
            yield self._row(seen)

    def _row(self, seen: Seen) -> RowTrace:
        earlier = self._copies.of(seen)
        values = seen.values
        if self._columns is not None:
            values = {name: values[name] for name in self._columns if name in values}
        birth = self._origins.birth(seen.row_id, seen.added_by, earlier)
        last_change = self._origins.last_change(seen.row_id, seen.sequence, seen.added_by, earlier)
        record = None
        if self._source_offset:
            record = source_record(seen.values, birth=birth, last_change=last_change)
        return RowTrace(
            values=values,
            row_id=seen.row_id,
            last_updated_sequence_number=seen.sequence,
            file=seen.file,
            position=seen.position,
            birth=birth,
            last_change=last_change,
            source_record=record,
        )


def start_trace(
    ledger: Ledger,
    catalog: LakeCatalog,
    table: TableName,
    where: str | None = None,
    *,
    as_of: str | None = None,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
    source_offset: bool = False,
) -> Tracing:
    """Begin a trace whose rows are read as they are asked for.

    ``as_of`` is a snapshot, a tag, a branch, a time or a batch; without it main is read as it is.
    ``source_offset`` also names each row's source record, where the table keeps it.

    Raises:
        TableNotFound: there is no such table.
        EntryNotFound: there is nothing that ``as_of`` names (any more).
        UsageError: a column is not there, the limit is out of bounds, or the table keeps no
            source records; while iterating: the filter cannot be read.
    """
    if limit is not None:
        check_limit(limit)
    state, read = load_table(ledger, catalog, table), columns
    if source_offset:
        check_kept(state)
        read = None if columns is None else [*columns, provenance.PARTITION, provenance.OFFSET]
    question = ask(ledger, state, where, as_of=as_of, columns=read)
    return Tracing(ledger, question, limit, columns=columns, source_offset=source_offset)


def trace(
    ledger: Ledger,
    catalog: LakeCatalog,
    table: TableName,
    where: str | None = None,
    *,
    as_of: str | None = None,
    columns: Sequence[str] | None = None,
    limit: int = LIMIT_DEFAULT,
    source_offset: bool = False,
) -> list[RowTrace]:
    """Return the origins of the rows that match ``where``, at most ``limit`` of them.

    Raises:
        StorageError: a data file is gone: :func:`start_trace` answers for the rest.
        TableNotFound, EntryNotFound, UsageError: as :func:`start_trace`.
    """
    tracing = start_trace(
        ledger,
        catalog,
        table,
        where,
        as_of=as_of,
        columns=columns,
        limit=limit,
        source_offset=source_offset,
    )
    found = list(tracing)
    refuse_missing(tracing.table, tracing.missing)
    return found


def refuse_missing(table: TableRef, missing: Sequence[str]) -> None:
    """Raise where files were missing: a list alone cannot say that it is not all.

    Raises:
        StorageError: some were.
    """
    if missing:
        from odi_audit.errors import StorageError

        raise StorageError(
            f"table {table.name}: {len(missing)} data files are gone, the first is {missing[0]}",
            hint="odi-audit verify",
            table=table.name,
            files=list(missing[:10]),
        )
