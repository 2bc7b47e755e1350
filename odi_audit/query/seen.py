"""Rows as a question meets them: their values as JSON can hold them, and their lineage.

Owns the reading for every question about rows. An older snapshot is read under the schema of the
question, so that a column renamed since is the same column. Must never keep more rows than its
caller asks for: rows are given one by one.
"""

from __future__ import annotations

import base64
import difflib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from typing import TYPE_CHECKING

from odi_audit.canonical import Json
from odi_audit.catalog.state import SnapshotInfo, TableState, head
from odi_audit.errors import UsageError
from odi_audit.ids import SnapshotId
from odi_audit.ledger.port import Ledger

if TYPE_CHECKING:
    import pyarrow as pa

LIMIT_DEFAULT = 20
LIMIT_MAX = 1_000_000
"""More rows than anyone reads; a table is exported with a query engine."""
NEAR_MATCHES_MAX = 3
_SAFE_INTEGER = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which rows of which table, at which moment, are asked about."""

    state: TableState
    at: SnapshotInfo | None
    schema_id: int
    where: str | None
    columns: tuple[str, ...] | None
    missing: list[str]
    """Data files that were to be read and are gone, as they are met."""

    @property
    def snapshot(self) -> SnapshotId | None:
        """The snapshot that is read; None for a table without one."""
        return None if self.at is None else self.at.id

    @property
    def gone_files(self) -> list[str]:
        """The data files met so far that are gone, each once."""
        return sorted(set(self.missing))


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One row as it lies in one snapshot. ``added_by`` is the snapshot that added its file."""

    values: Mapping[str, Json]
    row_id: int | None
    sequence: int | None
    file: str
    position: int
    added_by: SnapshotId | None


def ask(
    ledger: Ledger,
    state: TableState,
    where: str | None,
    *,
    as_of: str | None = None,
    columns: Sequence[str] | None = None,
) -> Question:
    """Put a question: without ``as_of`` about main as it is, under the present schema.

    Raises:
        EntryNotFound: there is no such snapshot, tag, branch, time or batch (any more).
        UsageError: there is no such column; near matches are in the message.
    """
    current = head(state)
    at = None if current is None else state.snapshot(current)
    schema_id = state.schema_id
    if as_of is not None:
        from odi_audit.query.places import resolve_place

        at = resolve_place(ledger, state, as_of)
        schema_id = state.schema_id if at.schema_id is None else at.schema_id
    if columns is not None:
        _check_columns(state, schema_id, columns)
    return Question(
        state=state,
        at=at,
        schema_id=schema_id,
        where=where,
        columns=None if columns is None else tuple(dict.fromkeys(columns)),
        missing=[],
    )


def check_limit(limit: int) -> None:
    """Refuse a limit that is out of bounds.

    Raises:
        UsageError: it is.
    """
    if not 1 <= limit <= LIMIT_MAX:
        raise UsageError(f"limit {limit} is not between 1 and {LIMIT_MAX}")


def seen_rows(
    question: Question,
    at: SnapshotInfo | None,
    *,
    among: Collection[int] | None = None,
    but: Collection[int] | None = None,
    whole: bool = False,
) -> Iterator[Seen]:
    """Yield the rows of a snapshot that the question is about.

    ``among`` narrows to rows of these ids, ``but`` leaves rows of these out. ``whole`` gives all
    columns, whatever the question chose.
    """
    columns = None if whole else question.columns
    listed = but if among is None else among
    ids = None if listed is None else _array(listed)
    for batch in _batches(question, at, filtered=True, columns=columns):
        some = batch if ids is None else _with_ids(batch, ids, among=among is not None)
        for row in some.to_pylist():
            yield _seen(row, columns)


def seen_by_id(question: Question, at: SnapshotInfo, row_ids: Collection[int]) -> Iterator[Seen]:
    """Yield rows by their ids, whether or not they match the question's filter."""
    from odi_audit.catalog.by_id import rows_by_id

    columns = question.columns
    state = _shown(question, at)
    for batch in rows_by_id(state, row_ids, columns, at.id, missing=question.missing):
        for row in batch.to_pylist():
            yield _seen(row, columns)


def seen_ids(
    question: Question,
    at: SnapshotInfo,
    *,
    filtered: bool = True,
    row_ids: Collection[int] | None = None,
) -> set[int]:
    """Return the ids of those rows, without reading more of them than their lineage."""
    from odi_audit.catalog import rows

    found: set[int] = set()
    narrowed = None if row_ids is None else _array(row_ids)
    for batch in _batches(question, at, filtered=filtered, columns=()):
        some = batch if narrowed is None else _with_ids(batch, narrowed, among=True)
        found.update(id_ for id_ in some.column(rows.ROW_ID).to_pylist() if id_ is not None)
        if row_ids is not None and len(found) == len(row_ids):
            break
    return found


def plain(value: object) -> Json:
    """Return a column's value as JSON can hold it: no digit lost, bytes in base64."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, int):
        return value if abs(value) < _SAFE_INTEGER else str(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value)


# -- reading -------------------------------------------------------------------------------------


def _batches(
    question: Question,
    at: SnapshotInfo | None,
    *,
    filtered: bool,
    columns: Sequence[str] | None,
) -> Iterator[pa.RecordBatch]:
    if at is None:
        return iter(())
    from odi_audit.catalog import rows

    where = question.where if filtered else None
    state = _shown(question, at)
    return rows.lineage_rows(state, where, columns, at.id, missing=question.missing)


def _shown(question: Question, at: SnapshotInfo) -> TableState:
    # The reader takes the schema that the snapshot names: here, that of the question.
    shown = replace(at, schema_id=question.schema_id)
    return replace(question.state, snapshots=(shown,))


def _array(row_ids: Collection[int]) -> pa.Array:
    import pyarrow as pa

    return pa.array(sorted(row_ids), pa.int64())


def _with_ids(batch: pa.RecordBatch, row_ids: pa.Array, *, among: bool) -> pa.RecordBatch:
    import pyarrow.compute as pc

    from odi_audit.catalog import rows

    there = pc.is_in(batch.column(rows.ROW_ID), value_set=row_ids)
    return batch.filter(there if among else pc.invert(there))


def _seen(row: dict[str, object], columns: tuple[str, ...] | None) -> Seen:
    from odi_audit.catalog import rows

    row_id, sequence, file, position, added_by = (row.pop(name) for name in rows.LINEAGE_COLUMNS)
    order = list(row) if columns is None else sorted(row, key=lambda name: _place(columns, name))
    return Seen(
        values={name: plain(row[name]) for name in order},
        row_id=_number(row_id),
        sequence=_number(sequence),
        file=str(file),
        position=_number(position) or 0,
        added_by=None if added_by is None else SnapshotId(str(added_by)),
    )


def _place(columns: tuple[str, ...], name: str) -> int:
    asked = [column.partition(".")[0] for column in columns]
    return columns.index(name) if name in columns else asked.index(name)


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _check_columns(state: TableState, schema_id: int, columns: Sequence[str]) -> None:
    names = [column.name for column in state.schemas[schema_id]]
    for asked in columns:
        if asked in names or asked.partition(".")[0] in names:
            continue
        folded = {name.casefold(): name for name in names}
        near = difflib.get_close_matches(
            asked.casefold(), list(folded), n=NEAR_MATCHES_MAX, cutoff=0.5
        )
        matches = [folded[match] for match in near]
        tail = f"; did you mean {' or '.join(matches)}?" if matches else ""
        raise UsageError(
            f"table {state.ref.name} has no column {asked!r}{tail}",
            hint=f"the columns are: {', '.join(names)}",
            near=matches,
        )
