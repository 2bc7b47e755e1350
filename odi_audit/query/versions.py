"""Versions: everything that a row has been, with the batch behind each step.

Owns the walk from a version to the one before it: the table as of the parent of the snapshot that
wrote it. A compaction writes no version, and what was rolled back is on no such path. Must never
pass over a step that has expired: the walk ends there, and says so.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odi_audit.canonical import Json, JsonObject, digits
from odi_audit.catalog.state import SnapshotInfo
from odi_audit.ids import SnapshotId
from odi_audit.ledger.port import Ledger
from odi_audit.model.tables import TableName, TableRef
from odi_audit.query.copies import Copies
from odi_audit.query.dropped import load_table
from odi_audit.query.origin import Origin
from odi_audit.query.origins import Origins
from odi_audit.query.seen import (
    LIMIT_DEFAULT,
    Question,
    Seen,
    ask,
    check_limit,
    seen_by_id,
    seen_rows,
)

if TYPE_CHECKING:
    from odi_audit.catalog.lake import LakeCatalog

VERSIONS_MAX = 1_000
"""Versions of one row: the walk of a counter that changes with every batch must end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One column of a row, before and after a version was written."""

    column: str
    before: Json
    after: Json

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {"column": self.column, "before": self.before, "after": self.after}


@dataclass(frozen=True, slots=True, kw_only=True)
class RowVersion:
    """What a row was after one write. ``changes`` is None where the version before is not known."""

    values: Mapping[str, Json]
    last_updated_sequence_number: int | None
    file: str
    position: int
    origin: Origin
    changes: tuple[Change, ...] | None

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        changes = None if self.changes is None else [change.to_json() for change in self.changes]
        return {
            "values": dict(self.values),
            "last_updated_sequence_number": digits(self.last_updated_sequence_number),
            "file": self.file,
            "position": digits(self.position),
            "origin": self.origin.to_json(),
            "changes": changes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RowHistory:
    """A row and its versions, newest first; ``complete`` where the last of them is its birth."""

    row_id: int | None
    birth: Origin
    versions: tuple[RowVersion, ...]
    complete: bool
    note: str | None

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {
            "row_id": digits(self.row_id),
            "birth": self.birth.to_json(),
            "versions": [version.to_json() for version in self.versions],
            "complete": self.complete,
            "note": self.note,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Histories:
    """The histories that were asked for; ``cut`` where more rows match than the limit."""

    table: TableRef
    snapshot: SnapshotId | None
    rows: tuple[RowHistory, ...]
    cut: bool
    missing: tuple[str, ...]
    entries: tuple[int, ...]


def row_history(
    ledger: Ledger,
    catalog: LakeCatalog,
    table: TableName,
    where: str | None = None,
    *,
    as_of: str | None = None,
    columns: Sequence[str] | None = None,
    limit: int = LIMIT_DEFAULT,
) -> list[RowHistory]:
    """Return every version of the rows that match ``where``, newest first.

    Raises:
        StorageError: a data file is gone: :func:`histories` answers for the rest.
        TableNotFound, EntryNotFound, UsageError: as for a trace.
    """
    from odi_audit.query.trace import refuse_missing

    found = histories(ledger, catalog, table, where, as_of=as_of, columns=columns, limit=limit)
    refuse_missing(found.table, found.missing)
    return list(found.rows)


def histories(
    ledger: Ledger,
    catalog: LakeCatalog,
    table: TableName,
    where: str | None = None,
    *,
    as_of: str | None = None,
    columns: Sequence[str] | None = None,
    limit: int = LIMIT_DEFAULT,
) -> Histories:
    """Return the same, with the data files that are gone and whether the limit cut it.

    Raises:
        TableNotFound, EntryNotFound, UsageError: as for a trace.
    """
    check_limit(limit)
    state = load_table(ledger, catalog, table)
    question = ask(ledger, state, where, as_of=as_of, columns=columns)
    walk = _Walk(ledger, question)
    cut = False
    for number, seen in enumerate(seen_rows(question, question.at)):
        if number == limit:
            cut = True
            break
        walk.begin(seen)
    walk.finish()
    return Histories(
        table=question.state.ref,
        snapshot=question.snapshot,
        rows=tuple(walk.told(path) for path in walk.paths),
        cut=cut,
        missing=tuple(question.gone_files),
        entries=tuple(sorted(walk.origins.entries)),
    )


@dataclass(slots=True, kw_only=True)
class _Path:
    """One row on its way back."""

    row_id: int | None
    birth: Origin
    steps: list[tuple[Seen, Origin]] = field(default_factory=list)
    complete: bool = False
    note: str | None = None


class _Walk:
    """All rows on their way back: each older snapshot is read once for all that need it."""

    def __init__(self, ledger: Ledger, question: Question) -> None:
        self._question = question
        self.origins = Origins(ledger, question.state)
        self._copies = Copies(question, self.origins)
        self._by_id = {info.id: info for info in question.state.snapshots}
        self._by_sequence = {info.sequence_number: info for info in question.state.snapshots}
        self._waiting: defaultdict[SnapshotId, dict[int, _Path]] = defaultdict(dict)
        self._order: list[tuple[int, SnapshotId]] = []
        self.paths: list[_Path] = []

    def begin(self, seen: Seen) -> None:
        """Take up a row as it is."""
        earlier = self._copies.of(seen)
        path = _Path(
            row_id=seen.row_id, birth=self.origins.birth(seen.row_id, seen.added_by, earlier)
        )
        self.paths.append(path)
        self._step(
            path,
            seen,
            self.origins.last_change(seen.row_id, seen.sequence, seen.added_by, earlier),
        )

    def finish(self) -> None:
        """Walk back until every row's path has ended."""
        while self._order:
            _, snapshot = heapq.heappop(self._order)
            paths = self._waiting.pop(snapshot)
            found = self._read(self._by_id[snapshot], set(paths))
            for row_id, path in paths.items():
                seen = found.get(row_id)
                if seen is None:
                    path.note = self._not_there(path)
                    continue
                origin = self.origins.last_change(row_id, seen.sequence, seen.added_by)
                self._step(path, seen, origin)

    def told(self, path: _Path) -> RowHistory:
        """Return a path as the answer shows it."""
        versions: list[RowVersion] = []
        for place, (seen, origin) in enumerate(path.steps):
            last = place == len(path.steps) - 1
            older = None if last else path.steps[place + 1][0]
            changes: tuple[Change, ...] | None = () if path.complete else None
            if older is not None:
                changes = changed(older.values, seen.values)
            versions.append(
                RowVersion(
                    values=seen.values,
                    last_updated_sequence_number=seen.sequence,
                    file=seen.file,
                    position=seen.position,
                    origin=origin,
                    changes=changes,
                )
            )
        return RowHistory(
            row_id=path.row_id,
            birth=path.birth,
            versions=tuple(versions),
            complete=path.complete,
            note=path.note,
        )

    def _step(self, path: _Path, seen: Seen, origin: Origin) -> None:
        path.steps.append((seen, origin))
        number = seen.sequence
        if path.row_id is None or number is None:
            path.note = "rows of this table had no ids when it was written: no older version of it"
            path.note += " can be told from other rows"
            return
        if path.birth.sequence_number == number:
            path.complete = True
            return
        parent = self._before(number)
        if parent is None:
            path.note = self._expired(path)
        elif len(path.steps) >= VERSIONS_MAX:
            path.note = f"older versions are left out: {VERSIONS_MAX} are shown"
        else:
            if parent.id not in self._waiting:
                heapq.heappush(self._order, (-parent.sequence_number, parent.id))
            self._waiting[parent.id][path.row_id] = path

    def _before(self, number: int) -> SnapshotInfo | None:
        """Return the table's state before a write, where it is still kept."""
        writer = self._by_sequence.get(number)
        if writer is None or writer.parent is None:
            return None
        return self._by_id.get(writer.parent)

    def _read(self, at: SnapshotInfo, row_ids: set[int]) -> dict[int, Seen]:
        # A row mostly matched the filter before, too: then partitions and statistics help.
        found = _by_id(seen_rows(self._question, at, among=row_ids))
        left = row_ids - found.keys()
        if left and self._question.where is not None:
            found.update(_by_id(seen_by_id(self._question, at, left)))
        return found

    def _expired(self, path: _Path) -> str:
        note = "older versions have expired"
        oldest = min(
            (info.time for info in self._question.state.snapshots), default="no time on record"
        )
        note += f" (the oldest snapshot kept is of {oldest})"
        if path.birth.batch is not None:
            note += f"; the ledger still names the birth batch {path.birth.batch}"
        return note

    def _not_there(self, path: _Path) -> str:
        if self._question.missing:
            return "a data file that may hold the version before is gone"
        if path.birth.sequence_number is None:
            return "what it was before cannot be followed: rows had no ids then"
        return "the snapshot before does not hold the row: its history is not told in full"


def _by_id(rows: Iterable[Seen]) -> dict[int, Seen]:
    return {seen.row_id: seen for seen in rows if seen.row_id is not None}


def changed(older: Mapping[str, Json], newer: Mapping[str, Json]) -> tuple[Change, ...]:
    """Return the columns whose values differ, in the order of the newer version."""
    return tuple(
        Change(column=name, before=older.get(name), after=value)
        for name, value in newer.items()
        if older.get(name) != value
    )
