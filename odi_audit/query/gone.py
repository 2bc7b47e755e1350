"""Gone: rows that once matched a filter and are in the table no more, and who took them out.

Owns the walk over the snapshots that are kept: only those that delete or overwrite are compared
with the one before. Must never call a row deleted that was only changed, moved, or rolled back
with its batch, without saying so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain as joined
from itertools import pairwise
from typing import TYPE_CHECKING

from odi_audit.canonical import Json, JsonObject, digits
from odi_audit.catalog.state import SnapshotInfo, TableState, ancestors
from odi_audit.errors import UsageError
from odi_audit.ids import SnapshotId
from odi_audit.ledger.port import EntryFilter, Ledger
from odi_audit.model.entries import Entry, Kind
from odi_audit.model.tables import TableName, TableRef
from odi_audit.query import facts
from odi_audit.query.copies import key_of
from odi_audit.query.dropped import load_table
from odi_audit.query.horizon import Horizon, horizon
from odi_audit.query.origin import Confidence, Origin
from odi_audit.query.origins import Origins
from odi_audit.query.seen import (
    LIMIT_DEFAULT,
    Question,
    Seen,
    ask,
    check_limit,
    seen_by_id,
    seen_ids,
    seen_rows,
)

if TYPE_CHECKING:
    from odi_audit.catalog.lake import LakeCatalog

IDS_MAX = 2_000_000
"""Row ids kept while walking, some 150 MB; a filter that matches more is to be narrowed."""
_ENDS = ("deleted-data-files", "added-delete-files", "added-dvs", "added-position-deletes")
_MERGE_DELETED = "spark.merge-into.num-target-rows-deleted"
_CERTAIN = frozenset({"delete", "overwrite", "overwrite_partitions"})
"""Operations of the committer that change no row: what they took out is gone."""
LOOKALIKE = "deleted or changed: rows without ids do not show which"


@dataclass(frozen=True, slots=True, kw_only=True)
class GoneRow:
    """A row that is gone, as it was last seen. ``rolled_back``: it went with its batch."""

    values: Mapping[str, Json]
    row_id: int | None
    last_updated_sequence_number: int | None
    file: str
    position: int
    last_seen: SnapshotId
    last_seen_time: str
    rolled_back: bool
    deleted_by: Origin
    birth: Origin
    last_change: Origin
    note: str | None

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {
            "values": dict(self.values),
            "row_id": digits(self.row_id),
            "last_updated_sequence_number": digits(self.last_updated_sequence_number),
            "file": self.file,
            "position": digits(self.position),
            "last_seen": self.last_seen,
            "last_seen_time": self.last_seen_time,
            "rolled_back": self.rolled_back,
            "deleted_by": self.deleted_by.to_json(),
            "birth": self.birth.to_json(),
            "last_change": self.last_change.to_json(),
            "note": self.note,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """The rows that are gone, and how far back the answer reaches."""

    table: TableRef
    snapshot: SnapshotId | None
    rows: tuple[GoneRow, ...]
    horizon: Horizon
    cut: bool
    missing: tuple[str, ...]
    entries: tuple[int, ...]


def gone_rows(
    ledger: Ledger,
    catalog: LakeCatalog,
    table: TableName,
    where: str | None = None,
    *,
    as_of: str | None = None,
    columns: Sequence[str] | None = None,
    limit: int = LIMIT_DEFAULT,
) -> Gone:
    """Return rows that matched ``where`` in a snapshot that is kept, and are gone; newest first.

    With ``as_of``: that were gone by then. What was rolled back is told for main as it is.

    Raises:
        TableNotFound, EntryNotFound, UsageError: as for a trace; also where the filter matches
            more rows than can be kept in mind.
    """
    check_limit(limit)
    state = load_table(ledger, catalog, table)
    question = ask(ledger, state, where, as_of=as_of, columns=columns)
    chain = [] if question.at is None else list(ancestors(state, question.at.id))
    search = _Search(ledger, question)
    found: list[GoneRow] = []
    undone = search.rolled_back(chain) if as_of is None else iter(())
    for row in joined(search.on(chain), undone):
        found.append(row)
        if len(found) > limit:
            break
    return Gone(
        table=state.ref,
        snapshot=question.snapshot,
        rows=tuple(found[:limit]),
        horizon=horizon(ledger, state, chain[-1] if chain else None),
        cut=len(found) > limit,
        missing=tuple(question.gone_files),
        entries=tuple(sorted(search.origins.entries)),
    )


class _Search:
    """One search under way, on one table under one filter."""

    def __init__(self, ledger: Ledger, question: Question) -> None:
        self._ledger = ledger
        self._question = question
        self._state: TableState = question.state
        self.origins = Origins(ledger, question.state)

    # -- along one line of snapshots -------------------------------------------------------------

    def on(self, line: Sequence[SnapshotInfo]) -> Iterator[GoneRow]:
        """Yield the rows that are gone at the newest of a line of snapshots, newest first."""
        known: set[int] | None = None
        moved: dict[int, int] = {}
        for place, (child, parent) in enumerate(pairwise(line)):
            # Every version that ever was is in the parent of the snapshot that ended it.
            if not _may_end_versions(child):
                continue
            takes_out = self._may_take_out(child)
            if child.first_row_id is None or parent.first_row_id is None:
                if takes_out:
                    yield from self._by_value(child, parent)
                continue
            if known is None:
                known = seen_ids(self._question, line[0])
            fresh = {
                seen.row_id: seen
                for seen in seen_rows(self._question, parent, but=known)
                if seen.row_id is not None
            }
            known |= fresh.keys()
            _check_count(known)
            alive = self._alive(child, fresh.keys()) if takes_out else set(fresh)
            moved.update(dict.fromkeys(alive, place))
            for row_id in sorted(fresh.keys() - alive):
                yield self._gone(fresh[row_id], parent, self.origins.of_snapshot(child))
        if moved:
            yield from self._moved(line, moved)

    def _moved(self, line: Sequence[SnapshotInfo], moved: Mapping[int, int]) -> Iterator[GoneRow]:
        """Yield those of the rows changed out of the filter that were taken out later."""
        gone = moved.keys() - self._alive(line[0], moved.keys())
        for place in sorted({moved[row_id] for row_id in gone}):
            yield from self._when(line, {id_ for id_ in gone if moved[id_] == place}, 0, place)

    def _when(
        self, line: Sequence[SnapshotInfo], row_ids: set[int], gone_at: int, alive_at: int
    ) -> Iterator[GoneRow]:
        """Find by halves which snapshot took out rows: an id that is gone never comes back."""
        if not row_ids:
            return
        if alive_at - gone_at > 1:
            middle = (gone_at + alive_at) // 2
            alive = self._alive(line[middle], row_ids)
            yield from self._when(line, alive, gone_at, middle)
            yield from self._when(line, row_ids - alive, middle, alive_at)
            return
        parent, origin = line[alive_at], self.origins.of_snapshot(line[gone_at])
        for seen in seen_by_id(self._question, parent, row_ids):
            row = self._gone(seen, parent, origin)
            yield replace(row, note="it matched the filter in an earlier version")

    def _alive(self, at: SnapshotInfo, row_ids: Collection[int]) -> set[int]:
        if not row_ids:
            return set()
        return seen_ids(self._question, at, filtered=False, row_ids=row_ids)

    def _may_take_out(self, info: SnapshotInfo) -> bool:
        if info.summary.get(_MERGE_DELETED) == "0":
            return False
        origin = self.origins.of_snapshot(info)
        return origin.batch is None or origin.operation != "update"

    # -- rows without ids ------------------------------------------------------------------------

    def _by_value(self, child: SnapshotInfo, parent: SnapshotInfo) -> Iterator[GoneRow]:
        """Yield rows of the parent that have no equal in the child."""
        left = Counter(key_of(seen) for seen in seen_rows(self._question, child, whole=True))
        if left.total() > IDS_MAX:
            raise _too_many()
        origin = self.origins.of_snapshot(child)
        certain = origin.operation == "delete" or (
            origin.batch is not None and origin.operation in _CERTAIN
        )
        for seen in seen_rows(self._question, parent, whole=True):
            key = key_of(seen)
            if left[key] > 0:
                left[key] -= 1
                continue
            row = self._gone(seen, parent, replace(origin, confidence=Confidence.FILE))
            yield row if certain else replace(row, note=LOOKALIKE)

    # -- rolled back -----------------------------------------------------------------------------

    def rolled_back(self, main: Sequence[SnapshotInfo]) -> Iterator[GoneRow]:
        """Yield the rows of batches that main has left again, as far as those are kept."""
        entries = self._ledger.find(
            EntryFilter(kinds=(Kind.ROLLBACK, Kind.UNDO), table=self._state.ref.uuid)
        )
        by_snapshot = {
            snapshot: entry
            for entry in entries
            for snapshot in facts.texts(entry.facts, "removed_snapshots")
        }
        were_main = {entry.snapshot for entry in self._state.snapshot_log} | by_snapshot.keys()
        kept = {info.id for info in main}
        lost = [
            info
            for info in reversed(self._state.snapshots)
            if info.id not in kept and info.id in were_main
        ]
        parents = {info.parent for info in lost}
        for tip in lost:
            if tip.id in parents:
                continue
            origin = self._of_rollback(by_snapshot.get(tip.id))
            names = {info.id for info in lost}
            line = [info for info in ancestors(self._state, tip.id) if info.id in names]
            for seen in seen_rows(self._question, tip):
                if self._born_in(seen, line):
                    yield replace(self._gone(seen, tip, origin), rolled_back=True)
            for row in self.on(line):
                if row.row_id is None or _holds(line, row.row_id):
                    yield replace(row, rolled_back=True)

    def _born_in(self, seen: Seen, line: Sequence[SnapshotInfo]) -> bool:
        if seen.row_id is not None:
            return _holds(line, seen.row_id)
        return any(seen.added_by == info.id for info in line) and self.origins.brings_new_rows_only(
            seen.added_by
        )

    def _of_rollback(self, entry: Entry | None) -> Origin:
        if entry is None:
            return Origin(
                confidence=Confidence.UNKNOWN,
                note="main was moved back, and the ledger has no record of it",
            )
        self.origins.entries.add(entry.index)
        return Origin(
            confidence=Confidence.EXACT,
            batch=entry.batch,
            job=entry.job,
            run=entry.run,
            operation=facts.operation(entry),
            time=entry.time,
            principal=facts.text(entry.facts, "principal"),
            code=facts.text(entry.facts, "code"),
            entry=entry.index,
        )

    def _gone(self, seen: Seen, last: SnapshotInfo, deleted_by: Origin) -> GoneRow:
        asked = self._question.columns
        values = seen.values
        if asked is not None:
            values = {name: values[name] for name in asked if name in values}
        return GoneRow(
            values=values,
            row_id=seen.row_id,
            last_updated_sequence_number=seen.sequence,
            file=seen.file,
            position=seen.position,
            last_seen=last.id,
            last_seen_time=last.time,
            rolled_back=False,
            deleted_by=deleted_by,
            birth=self.origins.birth(seen.row_id, seen.added_by),
            last_change=self.origins.last_change(seen.row_id, seen.sequence, seen.added_by),
            note=None,
        )


def _may_end_versions(info: SnapshotInfo) -> bool:
    if info.operation not in {"delete", "overwrite"}:
        return False
    return any(info.summary.get(key, "0") != "0" for key in _ENDS)


def _holds(line: Sequence[SnapshotInfo], row_id: int) -> bool:
    return any(
        info.first_row_id is not None
        and info.first_row_id <= row_id < info.first_row_id + (info.added_rows or 0)
        for info in line
    )


def _check_count(known: set[int]) -> None:
    if len(known) > IDS_MAX:
        raise _too_many()


def _too_many() -> UsageError:
    return UsageError(
        f"the filter matches more than {IDS_MAX:,} rows, more than can be compared at once",
        hint='narrow it: --where "id = 7"',
    )
