"""History of a table: who did what to it, in order.

Owns the joining of a table's entries with the snapshots that it still has: what was done, what
was tried and refused, and what came past the committer. Must never take a snapshot for ours
because of its stamps alone: the ledger says so, or nobody does.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice

from odi_audit.canonical import Json, JsonObject, digits
from odi_audit.catalog.state import SnapshotInfo, TableState, history
from odi_audit.errors import UsageError
from odi_audit.ids import BatchId, JobName, RunId, SnapshotId
from odi_audit.ledger.port import EntryFilter, Ledger
from odi_audit.model.entries import EFFECTS, Entry, Kind
from odi_audit.model.tables import TableRef
from odi_audit.query import facts
from odi_audit.query.dropped import files_deleted, rows_dropped
from odi_audit.query.lookup import Named, first_since, newer_first, newest, with_open
from odi_audit.query.writers import Writer, recorded_writer, writer

LIMIT_DEFAULT = 100
LIMIT_MAX = 100_000
"""More lines than anyone reads; whoever needs all asks `odi-audit sql`, which streams."""
_FAILED = (Kind.REFUSED, Kind.ABANDONED, Kind.UNKNOWN)
_ASIDE = (Kind.REPLAY, Kind.GAP_ACCEPTED)
_SHOWN_MAX = 5


class Outcome(StrEnum):
    """How an operation ended."""

    DONE = "done"
    UNDONE = "undone"
    REFUSED = "refused"
    ABANDONED = "abandoned"
    UNKNOWN = "unknown"
    OPEN = "open"
    FOREIGN = "foreign"
    UNRECORDED = "unrecorded"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEvent:
    """One thing that was done to a table, or tried.

    ``outcome`` is ``foreign`` for a snapshot that came past the committer, and ``unrecorded`` for
    one with our stamps that the ledger does not say has landed. ``time_exact`` is False where
    only the moment is known by which it had happened.
    """

    time: str
    outcome: Outcome
    operation: str
    batch: BatchId | None = None
    job: JobName | None = None
    run: RunId | None = None
    principal: str | None = None
    code: str | None = None
    source: str | None = None
    offsets: str = ""
    rows: int | None = None
    snapshot: SnapshotId | None = None
    sequence_number: int | None = None
    retained: bool | None = None
    """Whether the table still has the snapshot; None where there is none, or no table."""
    detail: str | None = None
    writer: Writer | None = None
    entry: int | None = None
    time_exact: bool = True
    recovered: bool = False

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        body: dict[str, Json] = {name: getattr(self, name) for name in self.__slots__}
        return {
            **body,
            "outcome": self.outcome.value,
            "sequence_number": digits(self.sequence_number),
            "writer": None if self.writer is None else self.writer.to_json(),
        }


def timeline(
    ledger: Ledger,
    table: Named,
    *,
    since: str | None = None,
    until: str | None = None,
    limit: int = LIMIT_DEFAULT,
) -> list[TableEvent]:
    """Return what happened to a table, oldest first; of more than ``limit`` the newest.

    Raises:
        UsageError: the limit is not between 1 and :data:`LIMIT_MAX`.
    """
    if not 1 <= limit <= LIMIT_MAX:
        raise UsageError(f"limit {limit} is not between 1 and {LIMIT_MAX}")
    span = _Span(since=since, until=until)
    looking = _Looking(ledger=ledger, ref=table.ref, snapshots=_snapshots(table.state))
    recorded = list(islice(looking.recorded(span), limit))
    foreign = [event for event in looking.foreign(table.state) if span.holds(event.time)]
    events = heapq.nlargest(limit, [*recorded, *foreign], key=_order)
    return sorted(events, key=_order)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    since: str | None
    until: str | None

    def holds(self, time: str) -> bool:
        return (self.since is None or time >= self.since) and (
            self.until is None or time < self.until
        )


def _order(event: TableEvent) -> tuple[str, int]:
    return event.time, -1 if event.entry is None else event.entry


def _snapshots(state: TableState | None) -> Mapping[str, SnapshotInfo] | None:
    return None if state is None else {info.id: info for info in state.snapshots}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Looking:
    """One question about one table."""

    ledger: Ledger
    ref: TableRef
    snapshots: Mapping[str, SnapshotInfo] | None

    # -- what the ledger says -----------------------------------------------------------------

    def recorded(self, span: _Span) -> Iterator[TableEvent]:
        """Yield what was done and what failed, newest first."""
        where = EntryFilter(since=span.since, until=span.until)
        done = newest(self.ledger, replace(where, kinds=EFFECTS, table=self.ref.uuid))
        failed = newest(self.ledger, replace(where, kinds=_FAILED))
        doubtful = {entry.intent for entry in self.ledger.find(EntryFilter(kinds=(Kind.UNKNOWN,)))}
        merged = heapq.merge(done, failed, key=newer_first)
        first = first_since(self.ledger, span.since)
        for entry in with_open(self.ledger, merged, first=first):
            if entry.kind in EFFECTS:
                yield self._effect(entry)
            elif entry.kind is Kind.INTENT:
                still_open = entry.index not in doubtful and span.holds(entry.time)
                if still_open and self._mine(entry):
                    yield self._attempt(entry, entry, Outcome.OPEN)
            else:
                yield from self._failure(entry)

    def _effect(self, entry: Entry) -> TableEvent:
        known = entry.facts
        snapshot = facts.text(known, "snapshot")
        undone = None
        if entry.kind is Kind.LANDED and entry.batch is not None:
            undone = self.ledger.undone(entry.batch, self.ref.uuid)
        retained = None
        if snapshot is not None and self.snapshots is not None:
            retained = snapshot in self.snapshots
        offsets = facts.obj(known, "offsets")
        return TableEvent(
            # When it took effect: what came past the committer is known by that alone.
            time=facts.text(known, "committed_at") or entry.time,
            outcome=Outcome.DONE if undone is None else Outcome.UNDONE,
            operation=facts.operation(entry),
            batch=entry.batch,
            job=entry.job,
            run=entry.run,
            principal=facts.text(known, "principal"),
            code=facts.text(known, "code"),
            source=None if offsets is None else facts.text(offsets, "source"),
            offsets=facts.describe_offsets(offsets),
            rows=facts.rows(entry),
            snapshot=None if snapshot is None else SnapshotId(snapshot),
            sequence_number=facts.number(known, "sequence_number"),
            retained=retained,
            detail=self._detail(entry, undone),
            entry=entry.index,
            recovered=entry.recovered,
        )

    def _detail(self, entry: Entry, undone: Entry | None) -> str | None:
        parts = [described] if (described := describe(entry)) else []
        if undone is not None:
            parts.append(f"taken out again by entry {undone.index} ({undone.kind.value})")
        if entry.kind is Kind.LANDED and entry.batch is not None:
            asides = self.ledger.find(EntryFilter(kinds=_ASIDE, batch=entry.batch))
            parts += [
                _aside(aside)
                for aside in asides
                if aside.intent == entry.intent and aside.table in {None, entry.table}
            ]
        return "; ".join(parts) or None

    def _failure(self, entry: Entry) -> Iterator[TableEvent]:
        intent = None if entry.intent is None else self.ledger.get(entry.intent)
        if intent is None or not self._mine(intent):
            return
        if entry.kind is Kind.UNKNOWN and self.ledger.settled_by(intent.index) is not None:
            return  # it was found out since: what settled it is told
        yield self._attempt(entry, intent, Outcome(entry.kind.value))

    def _attempt(self, entry: Entry, intent: Entry, outcome: Outcome) -> TableEvent:
        operations = [
            str(item.get("op"))
            for item in facts.objects(intent.facts, "operations")
            if item.get("table_uuid") in {self.ref.uuid, None, ""}
        ]
        offsets = facts.obj(intent.facts, "offsets")
        code = facts.text(entry.facts, "code") if outcome is Outcome.REFUSED else None
        reason = facts.text(entry.facts, "reason")
        return TableEvent(
            time=entry.time,
            outcome=outcome,
            operation=", ".join(dict.fromkeys(operations)) or "unknown",
            batch=intent.batch,
            job=intent.job,
            run=intent.run,
            principal=facts.text(intent.facts, "principal"),
            code=facts.text(intent.facts, "code"),
            source=None if offsets is None else facts.text(offsets, "source"),
            offsets=facts.describe_offsets(offsets),
            detail=": ".join(part for part in (code, reason) if part) or None,
            entry=entry.index,
            recovered=entry.recovered,
        )

    def _mine(self, intent: Entry) -> bool:
        return facts.touches(intent, self.ref.uuid, self.ref.name)

    # -- what came past the committer ---------------------------------------------------------

    def foreign(self, state: TableState | None) -> Iterator[TableEvent]:
        """Yield the snapshots that the ledger did not make, kept or recorded before they went."""
        for entry in self.ledger.find(EntryFilter(kinds=(Kind.FOREIGN,), table=self.ref.uuid)):
            snapshot = str(facts.text(entry.facts, "snapshot"))
            if self.snapshots is None or snapshot not in self.snapshots:
                yield self._expired(entry, snapshot)
        if state is None:
            return
        main = {info.id for info in history(state)}
        for info in state.snapshots:
            if info.batch is None or (info.id in main and not self._told(info.batch, info.id)):
                yield _past_the_committer(info, in_main=info.id in main)

    def _told(self, batch: BatchId, snapshot: SnapshotId) -> bool:
        """Say whether the ledger tells of a stamped snapshot: as landed, or as on its way."""
        landed = self.ledger.landed(batch, self.ref.uuid)
        if landed is None:
            return bool(self.ledger.open_attempts(batch))
        return facts.text(landed.facts, "snapshot") == snapshot

    def _expired(self, entry: Entry, snapshot: str) -> TableEvent:
        exact = facts.text(entry.facts, "committed_at")
        return TableEvent(
            time=exact or entry.time,
            time_exact=exact is not None,
            outcome=Outcome.FOREIGN,
            operation=facts.text(entry.facts, "operation") or "unknown",
            rows=facts.counted_rows(entry),
            snapshot=SnapshotId(snapshot),
            sequence_number=facts.number(entry.facts, "sequence_number"),
            retained=False,
            writer=recorded_writer(entry),
            detail=("it is gone" if self.snapshots is None else "it has expired")
            + "; this entry was made before",
            entry=entry.index,
        )


def _past_the_committer(info: SnapshotInfo, *, in_main: bool) -> TableEvent:
    stamped = info.batch is not None
    detail = f"stamped with {info.batch}, which the ledger does not bear out" if stamped else None
    return TableEvent(
        time=info.time,
        outcome=Outcome.UNRECORDED if stamped else Outcome.FOREIGN,
        operation=info.operation or "unknown",
        batch=info.batch,
        rows=facts.number(info.summary, "added-records"),
        snapshot=info.id,
        sequence_number=info.sequence_number,
        retained=True,
        writer=writer(info.summary),
        detail=detail if in_main else "not in main",
    )


def describe(entry: Entry) -> str | None:
    """Return what an effect without rows did, in one line."""
    known = entry.facts
    if entry.kind is Kind.SCHEMA_CHANGE:
        batch = facts.text(known, "for_batch")
        needed = "" if batch is None else f", for batch {batch}"
        return f"{', '.join(schema_steps(known))}{needed}" or None
    if entry.kind is Kind.TABLE_CREATED:
        version = facts.number(known, "format_version")
        return None if version is None else f"format v{version}"
    if entry.kind is Kind.TABLE_DROPPED:
        rows = rows_dropped(entry)
        files = "deleted" if files_deleted(entry) else "left where they are"
        return f"{'unknown' if rows is None else f'{rows:,}'} rows; its files were {files}"
    if entry.kind is Kind.TABLE_RENAMED:
        return f"from {facts.text(known, 'from_name')} to {facts.text(known, 'to_name')}"
    if entry.kind in {Kind.ROLLBACK, Kind.UNDO}:
        undone = facts.texts(known, "undone")
        more = f" and {len(undone) - _SHOWN_MAX} more" if len(undone) > _SHOWN_MAX else ""
        to = facts.text(known, "to")
        back = f"back to snapshot {to}; " if to else ""
        return f"{back}took out {', '.join(undone[:_SHOWN_MAX]) or 'no batch'}{more}"
    if "expired" in known:
        return f"{len(facts.texts(known, 'expired'))} snapshots expired"
    return None


def schema_steps(known: JsonObject) -> list[str]:
    """Return the steps of a schema change, a line each."""
    steps = known.get("steps")
    if not isinstance(steps, list | tuple):
        return []
    return [" ".join(map(str, step)) for step in steps if isinstance(step, list | tuple)]


def _aside(entry: Entry) -> str:
    if entry.kind is Kind.REPLAY:
        return f"a replay, generation {facts.number(entry.facts, 'generation')}"
    return f"gap accepted: {facts.text(entry.facts, 'reason')}"
