"""The views of ``odi-audit sql``: what the ledger and the tables' metadata look like as rows.

Owns the name, the columns and the making of each view (docs/guide/sql.md says what they mean).
Rows are made one by one, when a query reads them. Must never write, and must never read
the catalog for a view that is about the ledger alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias, cast

from odi_audit.canonical import Json, JsonObject
from odi_audit.catalog.state import history
from odi_audit.ids import BatchId, TableUuid
from odi_audit.ledger.port import EntryFilter, Ledger
from odi_audit.model.entries import EFFECTS, Entry, Kind
from odi_audit.query import facts
from odi_audit.query.batches import BatchSummary, summarise
from odi_audit.query.lookup import walk

if TYPE_CHECKING:
    from odi_audit.catalog.lake import LakeCatalog

_FAILED = (Kind.REFUSED, Kind.ABANDONED, Kind.UNKNOWN)
_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
Row: TypeAlias = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """Where rows come from. The catalog is opened by the first view that needs it."""

    ledger: Ledger
    catalog: Callable[[], LakeCatalog]


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewColumn:
    """One column: its name, and its type in DuckDB's words."""

    name: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A view: its columns, and how its rows are made."""

    name: str
    about: str
    columns: tuple[ViewColumn, ...]
    rows: Callable[[Lake], Iterator[Row]]


# -- the ledger ------------------------------------------------------------------------------


def _entries(lake: Lake) -> Iterator[Row]:
    for entry in lake.ledger.scan():
        yield (
            entry.index,
            _time(entry.time),
            entry.kind.value,
            entry.job,
            entry.run,
            entry.batch,
            None if entry.table is None else entry.table.name,
            None if entry.table is None else entry.table.uuid,
            entry.intent,
            entry.settles,
            entry.recovered,
            facts.text(entry.facts, "principal"),
            _text(entry.facts),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    """What was taken out of tables again, looked up once for a whole scan."""

    ledger: Ledger
    entries: Mapping[tuple[BatchId, TableUuid], tuple[Entry, ...]]

    def undone(self, batch: BatchId, table: TableUuid) -> Entry | None:
        """Return the first entry that took a batch out of a table."""
        return next(iter(self.entries.get((batch, table), ())), None)

    def is_alive(self, owner: str) -> bool:
        """Ask the ledger."""
        return self.ledger.is_alive(owner)

    def after(self, landed: Entry) -> int | None:
        """Return the index of the entry that undid a landing."""
        if landed.batch is None or landed.table is None or landed.kind is not Kind.LANDED:
            return None
        found = self.entries.get((landed.batch, landed.table.uuid), ())
        return next((entry.index for entry in found if entry.index > landed.index), None)


def _taken(ledger: Ledger) -> _Taken:
    found: dict[tuple[BatchId, TableUuid], tuple[Entry, ...]] = {}
    for entry in walk(ledger, EntryFilter(kinds=(Kind.ROLLBACK, Kind.UNDO))):
        if entry.table is not None:
            for batch in facts.texts(entry.facts, "undone"):
                key = (BatchId(batch), entry.table.uuid)
                found[key] = (*found.get(key, ()), entry)
    return _Taken(ledger=ledger, entries=found)


def _batches(lake: Lake) -> Iterator[Row]:
    """Add up batches in one pass over the ledger.

    A batch whose only attempt was carried through is complete when that is recorded. Every other
    one has an attempt that failed or is open, and is looked up by its id at the end.
    """
    ledger, taken = lake.ledger, _taken(lake.ledger)
    later = {entry.batch for entry in ledger.open_intents()}
    later |= {entry.batch for entry in walk(ledger, EntryFilter(kinds=_FAILED))}
    under_way: dict[BatchId, list[Entry]] = {}
    for entry in ledger.scan():
        if entry.batch is None or entry.batch in later:
            continue
        mine = under_way.setdefault(entry.batch, [])
        mine.append(entry)
        if entry.settles:
            summary = summarise(taken, under_way.pop(entry.batch))
            if summary is not None:
                yield _batch_row(summary)
    # What began while this pass was under way has not been settled yet.
    for batch in [*under_way, *(batch for batch in later if batch is not None)]:
        summary = summarise(ledger, ledger.batch_entries(batch))
        if summary is not None:
            yield _batch_row(summary)


def _batch_row(summary: BatchSummary) -> Row:
    return (
        summary.batch,
        summary.job,
        summary.run,
        summary.state.value,
        list(summary.tables),
        list(summary.operations),
        summary.rows,
        summary.source,
        summary.offsets,
        summary.generation,
        _time(summary.started),
        _time(summary.settled),
        summary.attempts,
        summary.intent,
        summary.recovered,
    )


def _commits(lake: Lake) -> Iterator[Row]:
    taken = _taken(lake.ledger)
    for entry in walk(lake.ledger, EntryFilter(kinds=EFFECTS)):
        known = entry.facts
        yield (
            entry.index,
            _time(entry.time),
            _time(facts.text(known, "committed_at")),
            entry.batch,
            entry.job,
            entry.run,
            None if entry.table is None else entry.table.name,
            None if entry.table is None else entry.table.uuid,
            entry.kind.value,
            facts.operation(entry),
            facts.text(known, "snapshot"),
            facts.number(known, "sequence_number"),
            facts.number(known, "first_row_id"),
            facts.number(known, "added_rows"),
            facts.rows(entry),
            facts.number(known, "schema_id"),
            facts.text(known, "principal"),
            facts.text(known, "code"),
            facts.text(known, "source"),
            _text(facts.obj(known, "counts") or {}),
            taken.after(entry),
            entry.recovered,
        )


def _runs(lake: Lake) -> Iterator[Row]:
    # Of one that was taken for dead and told its end later, the later word is the true one.
    ended = walk(lake.ledger, EntryFilter(kinds=(Kind.RUN_ENDED,)))
    ends = {entry.intent: entry for entry in ended}
    for entry in walk(lake.ledger, EntryFilter(kinds=(Kind.RUN_STARTED,))):
        end = ends.get(entry.index)
        known, told = entry.facts, {} if end is None else end.facts
        yield (
            entry.run,
            entry.job,
            _time(entry.time),
            None if end is None else _time(end.time),
            facts.text(told, "outcome"),
            facts.text(told, "error_code"),
            facts.text(told, "reason"),
            known.get("streaming") is True,
            facts.text(known, "principal"),
            facts.text(known, "code"),
            facts.text(known, "host"),
            entry.index,
        )


def _offsets(lake: Lake) -> Iterator[Row]:
    taken = _taken(lake.ledger)
    for entry in walk(lake.ledger, EntryFilter(kinds=(Kind.LANDED,))):
        offsets = facts.obj(entry.facts, "offsets") or {}
        identity = facts.obj(offsets, "identity") or {}
        for partition, pair in (facts.obj(offsets, "ranges") or {}).items():
            start, end = cast("Sequence[Json]", pair)
            yield (
                entry.index,
                _time(entry.time),
                entry.batch,
                entry.job,
                None if entry.table is None else entry.table.name,
                None if entry.table is None else entry.table.uuid,
                facts.text(offsets, "source"),
                facts.text(offsets, "kind"),
                partition,
                None if start is None else str(start),
                str(end),
                start if isinstance(start, int) else None,
                end if isinstance(end, int) else None,
                facts.text(identity, partition),
                facts.number(entry.facts, "generation"),
                entry.facts.get("moves_position") is not False,
                taken.after(entry),
            )


# -- the tables ------------------------------------------------------------------------------


def _snapshots(lake: Lake) -> Iterator[Row]:
    catalog = lake.catalog()
    for name in catalog.tables():
        state = catalog.load(name)
        main = {info.id for info in history(state)}
        for info in state.snapshots:
            yield (
                state.ref.name,
                state.ref.uuid,
                info.id,
                info.parent,
                info.sequence_number,
                _time(info.time),
                info.operation,
                info.batch,
                info.id in main,
                info.id == state.current_snapshot,
                info.first_row_id,
                info.added_rows,
                info.schema_id,
                facts.number(info.summary, "added-records"),
                facts.number(info.summary, "deleted-records"),
                facts.number(info.summary, "total-records"),
                info.summary.get("engine-name"),
                info.summary.get("app-id") or info.summary.get("spark.app.id"),
                _text(info.summary),
            )


def _files(lake: Lake) -> Iterator[Row]:
    from odi_audit.catalog.inventory import current_files

    catalog = lake.catalog()
    for name in catalog.tables():
        state = catalog.load(name)
        for file in current_files(state):
            yield (
                state.ref.name,
                state.ref.uuid,
                state.current_snapshot,
                file.path,
                file.content,
                file.format,
                _text(file.partition),
                file.spec_id,
                file.rows_count,
                file.size_bytes,
                file.added_by,
                file.sequence_number,
            )


def _findings(lake: Lake) -> Iterator[Row]:
    from odi_audit.query.verify import verify

    for finding in verify(lake.ledger, lake.catalog()):
        found = cast("JsonObject", finding.to_json()["facts"])
        yield (finding.code, finding.subject, finding.message, finding.hint, _text(found))


def _time(text: str | None) -> datetime | None:
    # Views hold UTC without a zone: DuckDB needs no time zone data to work with that.
    return None if text is None else datetime.fromisoformat(text.removesuffix("Z"))


def _text(value: Mapping[str, Json]) -> str:
    return _ENCODE(value)


def _view(
    name: str, about: str, rows: Callable[[Lake], Iterator[Row]], columns: Sequence[str]
) -> View:
    pairs = (column.split(" ") for column in columns)
    return View(
        name=name,
        about=about,
        rows=rows,
        columns=tuple(ViewColumn(name=column, type=kind) for column, kind in pairs),
    )


VIEWS: Mapping[str, View] = {
    view.name: view
    for view in (
        _view(
            "batches", "One row for each batch, as `odi-audit batches` lists them.", _batches,
            ("batch VARCHAR", "job VARCHAR", "run VARCHAR", "state VARCHAR", "tables VARCHAR[]",
             "operations VARCHAR[]", "rows BIGINT", "source VARCHAR", "offsets VARCHAR",
             "generation BIGINT", "started TIMESTAMP", "settled TIMESTAMP", "attempts BIGINT",
             "intent BIGINT", "recovered BOOLEAN"),
        ),
        _view(
            "commits", "One row for each thing done to a table.", _commits,
            ("entry BIGINT", "time TIMESTAMP", "committed_at TIMESTAMP", "batch VARCHAR",
             "job VARCHAR", "run VARCHAR", "table_name VARCHAR", "table_uuid VARCHAR",
             "kind VARCHAR", "operation VARCHAR", "snapshot VARCHAR", "sequence_number BIGINT",
             "first_row_id BIGINT", "added_rows BIGINT", "rows BIGINT", "schema_id BIGINT",
             "principal VARCHAR", "code VARCHAR", "source VARCHAR", "counts VARCHAR",
             "undone_by BIGINT", "recovered BOOLEAN"),
        ),
        _view(
            "offsets", "One row for each part of a source that landed in a table.", _offsets,
            ("entry BIGINT", "time TIMESTAMP", "batch VARCHAR", "job VARCHAR",
             "table_name VARCHAR", "table_uuid VARCHAR", "source VARCHAR", "kind VARCHAR",
             "partition VARCHAR", "start_place VARCHAR", "end_place VARCHAR",
             "start_number BIGINT", "end_number BIGINT", "identity VARCHAR", "generation BIGINT",
             "moves_position BOOLEAN", "undone_by BIGINT"),
        ),
        _view(
            "runs", "One row for each run of a job; its batches name it as `parent_run`.", _runs,
            ("run VARCHAR", "job VARCHAR", "started TIMESTAMP", "ended TIMESTAMP",
             "outcome VARCHAR", "error_code VARCHAR", "reason VARCHAR", "streaming BOOLEAN",
             "principal VARCHAR", "code VARCHAR", "host VARCHAR", "entry BIGINT"),
        ),
        _view(
            "entries", "One row for each entry of the ledger.", _entries,
            ("index BIGINT", "time TIMESTAMP", "kind VARCHAR", "job VARCHAR", "run VARCHAR",
             "batch VARCHAR", "table_name VARCHAR", "table_uuid VARCHAR", "intent BIGINT",
             "settles BOOLEAN", "recovered BOOLEAN", "principal VARCHAR", "facts VARCHAR"),
        ),
        _view(
            "snapshots", "One row for each snapshot that a table still has.", _snapshots,
            ("table_name VARCHAR", "table_uuid VARCHAR", "snapshot VARCHAR", "parent VARCHAR",
             "sequence_number BIGINT", "time TIMESTAMP", "operation VARCHAR", "batch VARCHAR",
             "in_main BOOLEAN", "is_current BOOLEAN", "first_row_id BIGINT", "added_rows BIGINT",
             "schema_id BIGINT", "added_records BIGINT", "deleted_records BIGINT",
             "total_records BIGINT", "engine VARCHAR", "application VARCHAR", "summary VARCHAR"),
        ),
        _view(
            "files", "One row for each file of each table's current snapshot.", _files,
            ("table_name VARCHAR", "table_uuid VARCHAR", "snapshot VARCHAR", "path VARCHAR",
             "content VARCHAR", "format VARCHAR", "partition VARCHAR", "spec_id BIGINT",
             "rows BIGINT", "size_bytes BIGINT", "added_by VARCHAR", "sequence_number BIGINT"),
        ),
        _view(
            "findings", "What `odi-audit verify` finds, computed when it is read.", _findings,
            ("code VARCHAR", "subject VARCHAR", "message VARCHAR", "hint VARCHAR",
             "facts VARCHAR"),
        ),
    )
}  # fmt: skip
"""Every view, by its name."""
