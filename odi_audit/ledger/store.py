"""The ledger over a SQL database: one implementation of the port for both engines.

Owns appending (index, time, bytes, tree and projections in one transaction). Must never change
or remove an entry, and must never give an answer that its indexes do not support.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import cast

from odi_audit import clock
from odi_audit.errors import LedgerBroken, LedgerConflict, UsageError
from odi_audit.ids import BatchId, JobName, TableUuid
from odi_audit.ledger import merkle, reading, tree
from odi_audit.ledger.database import AlreadyThere, Database, Session
from odi_audit.ledger.port import EntryFilter, Position, StoredEntry, TreeHead
from odi_audit.ledger.projection import COLUMNS, Rows, project
from odi_audit.model.entries import Draft, Entry, Kind

DRAFTS_MAX = 10_000
"""Entries in one transaction: more would hold other writers off for seconds."""
ENTRY_BYTES_MAX = 32 * 1024 * 1024
"""A batch over the most partitions allowed, with long file names, is about half of it."""
_REBUILD_CHUNK = 2_000


class SqlLedger:
    """An append-only, tamper-evident record of entries in a SQL database."""

    def __init__(self, database: Database, now: clock.Clock) -> None:
        """Take a database whose tables are there and current (see ``open_ledger``)."""
        self.database = database
        self._clock = now
        self._settled_below = {Kind.INTENT: 0, Kind.RUN_STARTED: 0}
        """Every one below is settled. Settled stays settled, so the marks only rise."""

    # -- writing ----------------------------------------------------------------------------------

    def append(self, *drafts: Draft) -> list[Entry]:
        """Record drafts, in order, in one durable transaction; all or none."""
        if not drafts:
            return []
        _check_drafts(drafts)
        try:
            with self.database.writing() as session:
                return self._append(session, drafts)
        except AlreadyThere as problem:
            raise self._conflict(drafts) from problem

    def _append(self, session: Session, drafts: Sequence[Draft]) -> list[Entry]:
        size, moment = self._tail(session)
        entries = [draft.numbered(size + at, moment) for at, draft in enumerate(drafts)]
        edge = tree.nodes(session, merkle.frontier(size))
        growth = merkle.Growth(size, [edge[node] for node in merkle.frontier(size)])
        bodies: list[tuple[int, bytes, bytes]] = []
        nodes: list[tuple[int, int, bytes]] = []
        rows: Rows = {table: [] for table in COLUMNS}
        for entry in entries:
            body = _bytes(entry)
            leaf = merkle.leaf_hash(body)
            bodies.append((entry.index, body, leaf))
            nodes.extend((node.level, node.index, node.hash) for node in growth.add(leaf))
            _add_rows(rows, entry)
        session.run_many("INSERT INTO entries (idx, body, leaf) VALUES (?, ?, ?)", bodies)
        if nodes:
            session.run_many("INSERT INTO nodes (level, idx, hash) VALUES (?, ?, ?)", nodes)
        _insert(session, rows)
        return entries

    def _tail(self, session: Session) -> tuple[int, datetime]:
        """Return the next index and the next time, which is never before the last one."""
        last, indexed, time = session.rows(
            "SELECT (SELECT max(idx) FROM entries), (SELECT max(idx) FROM entry_index),"
            " (SELECT time FROM entry_index ORDER BY idx DESC LIMIT 1)"
        )[0]
        if last != indexed:
            raise LedgerBroken(
                f"ledger {self.database.shown}: the last entry is {last!r}, and its index ends "
                f"at {indexed!r}",
                hint="odi-audit ledger verify",
            )
        moment = self._clock.now()
        if last is None:
            return 0, moment
        try:
            before = clock.from_text(str(time))
        except ValueError as problem:
            raise LedgerBroken(
                f"ledger {self.database.shown}: the time of entry {last!r} is {time!r}",
                hint="odi-audit ledger verify",
            ) from problem
        return cast("int", last) + 1, max(moment, before)

    def _conflict(self, drafts: Sequence[Draft]) -> LedgerConflict | LedgerBroken:
        """Say which record was there already."""
        for draft in drafts:
            if draft.kind is Kind.LANDED and draft.batch and draft.table:
                before = self.landed(draft.batch, draft.table.uuid)
                if before is not None:
                    return _landed_twice(draft, before.index)
            if draft.settles and draft.intent is not None:
                before = self.settled_by(draft.intent)
                if before is not None:
                    return _settled_twice(draft, before)
        return LedgerBroken(
            f"ledger {self.database.shown} has rows where its next entries belong: its tail "
            "was cut, or something else wrote to it",
            hint="odi-audit ledger verify",
        )

    def rebuild_projections(self) -> int:
        """Make every projection again from the entries, in one transaction; return how many."""
        try:
            with self.database.writing() as session:
                for table in COLUMNS:
                    session.run(f"DELETE FROM {table}")  # noqa: S608  a constant
                count, size = 0, tree.size(session)
                for low in range(0, size, _REBUILD_CHUNK):
                    rows: Rows = {table: [] for table in COLUMNS}
                    for raw in reading.stored(session, low, min(low + _REBUILD_CHUNK, size)):
                        _add_rows(rows, reading.decode(raw.body, raw.index, self.database.shown))
                        count += 1
                    _insert(session, rows)
                return count
        except AlreadyThere as problem:
            raise LedgerBroken(
                f"ledger {self.database.shown}: two entries record what may be recorded once",
                hint="odi-audit ledger verify",
            ) from problem

    # -- the tree ---------------------------------------------------------------------------------

    def head(self) -> TreeHead:
        """Return the size and root of the tree."""
        return tree.head(self.database)

    def root_at(self, size: int) -> bytes:
        """Return the root of the first ``size`` entries."""
        self._require(size)
        return merkle.root(size, tree.reader(self.database))

    def inclusion_proof(self, index: int, size: int) -> list[bytes]:
        """Return the path from an entry to the root of the first ``size`` entries."""
        self._require(size)
        if not 0 <= index < size:
            raise UsageError(f"entry {index} is not among the first {size} entries")
        return merkle.inclusion(index, size, tree.reader(self.database))

    def consistency_proof(self, old: int, new: int) -> list[bytes]:
        """Return the proof that the tree of ``old`` is the beginning of that of ``new``."""
        self._require(new)
        if not 0 < old <= new:
            raise UsageError(f"no consistency proof leads from {old} entries to {new}")
        return merkle.consistency(old, new, tree.reader(self.database))

    def _require(self, size: int) -> None:
        there = tree.size(self.database)
        if not 0 <= size <= there:
            raise LedgerBroken(
                f"ledger {self.database.shown} has {there} entries, and {size} were asked for",
                hint="odi-audit ledger verify",
                size=there,
            )

    # -- reading ----------------------------------------------------------------------------------

    def get(self, index: int) -> Entry:
        """Return one entry. Raises EntryNotFound."""
        return reading.get(self.database, index)

    def scan(self, start: int = 0, stop: int | None = None) -> Iterator[Entry]:
        """Yield entries in order, in bounded memory."""
        return reading.scan(self.database, *self._span(start, stop), self.database.shown)

    def stored(self, start: int = 0, stop: int | None = None) -> Iterator[StoredEntry]:
        """Yield what is stored, in order, in bounded memory, gaps and damage included."""
        return reading.stored(self.database, *self._span(start, stop))

    def _span(self, start: int, stop: int | None) -> tuple[int, int]:
        size = tree.size(self.database)
        return max(start, 0), size if stop is None else min(stop, size)

    def find(
        self, where: EntryFilter, *, limit: int | None = None, newest_first: bool = False
    ) -> list[Entry]:
        """Return the entries that match, by index."""
        return reading.find(self.database, where, limit, newest_first)

    def batch_entries(self, batch: BatchId) -> list[Entry]:
        """Return everything recorded about a batch, in order."""
        return reading.batch_entries(self.database, batch)

    def resolve_batch(self, prefix: str) -> BatchId:
        """Complete a batch id from its first characters."""
        return reading.resolve_batch(self.database, prefix)

    def landed(self, batch: BatchId, table: TableUuid) -> Entry | None:
        """Return the one landed record of a batch on a table."""
        return reading.landed(self.database, batch, table)

    def open_intents(
        self, *, job: JobName | None = None, first: int = 0, before: int | None = None
    ) -> list[Entry]:
        """Return the intents that nothing has settled yet, in order."""
        found = self._unsettled(Kind.INTENT, first, before)
        return [entry for entry in found if job is None or entry.job == job]

    def open_runs(self) -> list[Entry]:
        """Return the starts of runs of which no end is recorded yet, in order."""
        return self._unsettled(Kind.RUN_STARTED, 0, None)

    def _unsettled(self, kind: Kind, first: int, before: int | None) -> list[Entry]:
        size, below = tree.size(self.database), self._settled_below[kind]
        low, high = max(first, below), size if before is None else before
        found = reading.unsettled(self.database, kind, low, high)
        if low == below:
            self._settled_below[kind] = found[0].index if found else max(low, min(high, size))
        return found

    def open_attempts(self, batch: BatchId) -> list[Entry]:
        """Return the unsettled intents of one batch, in order."""
        return reading.open_attempts(self.database, batch)

    def settled_by(self, intent: int) -> Entry | None:
        """Return the entry that settled an intent."""
        return reading.settled_by(self.database, intent)

    def positions(
        self, job: JobName, table: TableUuid, source: str, partitions: Sequence[str] | None = None
    ) -> dict[str, Position]:
        """Return where the last landed batches left each partition."""
        return reading.positions(self.database, job, table, source, partitions)

    def job_positions(
        self, job: JobName, source: str, partitions: Sequence[str] | None = None
    ) -> dict[str, Position]:
        """Return where a job's last whole batches left each partition, over all its tables."""
        return reading.job_positions(self.database, job, source, partitions)

    def job_sources(self, job: JobName) -> list[str]:
        """Return the sources under which a job has positions."""
        return reading.job_sources(self.database, job)

    def jobs(self) -> list[JobName]:
        """Return every job of the ledger, by name."""
        return reading.jobs(self.database)

    def undone(self, batch: BatchId, table: TableUuid) -> Entry | None:
        """Return the entry that took a landed batch out of a table again."""
        return reading.undone(self.database, batch, table)

    # -- liveness ---------------------------------------------------------------------------------

    def hold(self, owner: str) -> None:
        """Show that ``owner`` is alive until released, closed or dead."""
        self.database.hold(owner)

    def release(self, owner: str) -> None:
        """Say that ``owner`` has ended; nothing happens if it is not held here."""
        self.database.release(owner)

    def is_alive(self, owner: str) -> bool:
        """Say whether the process that holds ``owner`` still lives."""
        return self.database.is_alive(owner)

    def close(self) -> None:
        """Let go of the database and of every held owner."""
        self.database.close()


# -- helpers ------------------------------------------------------------------------------------


def _check_drafts(drafts: Sequence[Draft]) -> None:
    """Refuse drafts that could not be recorded, before anything is locked."""
    if len(drafts) > DRAFTS_MAX:
        raise UsageError(f"{len(drafts)} entries in one append; at most {DRAFTS_MAX} are allowed")
    landed: set[tuple[str, str]] = set()
    settled: set[int] = set()
    for draft in drafts:
        if draft.kind is Kind.LANDED:
            if draft.batch is None or draft.table is None:
                raise UsageError("a landed entry needs a batch and a table")
            key = (draft.batch, draft.table.uuid)
            if key in landed:
                raise _landed_twice(draft, None)
            landed.add(key)
        if draft.settles:
            if draft.intent is None:
                raise UsageError(f"a {draft.kind.value} entry that settles needs its intent")
            if draft.intent in settled:
                raise _settled_twice(draft, None)
            settled.add(draft.intent)


def _bytes(entry: Entry) -> bytes:
    try:
        body = entry.to_bytes()
    except (ValueError, TypeError, RecursionError) as problem:
        raise UsageError(
            f"a {entry.kind.value} entry has facts with no canonical JSON form: {problem}",
            hint="write 64-bit ids as strings, and no NaN",
        ) from problem
    if len(body) > ENTRY_BYTES_MAX:
        raise UsageError(
            f"a {entry.kind.value} entry of {len(body)} bytes; at most {ENTRY_BYTES_MAX}"
        )
    return body


def _add_rows(rows: Rows, entry: Entry) -> None:
    try:
        for table, made in project(entry).items():
            rows[table].extend(made)
    except ValueError as problem:
        raise UsageError(f"a {entry.kind.value} entry cannot be recorded: {problem}") from problem


def _insert(session: Session, rows: Rows) -> None:
    for table, columns in COLUMNS.items():
        if rows[table]:
            marks = ", ".join("?" * len(columns))
            session.run_many(
                f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})",  # noqa: S608  constants
                rows[table],
            )


def _landed_twice(draft: Draft, index: int | None) -> LedgerConflict:
    name = draft.table.name if draft.table else None
    return LedgerConflict(
        f"batch {draft.batch} has landed on {name} already"
        + ("" if index is None else f" (entry {index})"),
        hint=f"odi-audit batch {draft.batch}",
        batch=draft.batch,
        table=name,
        index=index,
    )


def _settled_twice(draft: Draft, before: Entry | None) -> LedgerConflict:
    how = "" if before is None else f" by entry {before.index} ({before.kind.value})"
    return LedgerConflict(
        f"{'run' if draft.kind is Kind.RUN_ENDED else 'intent'} {draft.intent} is settled "
        f"already{how}",
        hint=f"odi-audit batch {draft.batch}" if draft.batch else None,
        intent=draft.intent,
        batch=draft.batch,
        index=None if before is None else before.index,
    )
