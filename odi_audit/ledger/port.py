"""The ledger as the rest of the product sees it.

Owns the interface and its small values; implementations are in ``sqlite`` and ``postgresql``,
under one contract suite. Must never let an entry be changed or removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from odi_audit.ids import BatchId, JobName, TableUuid
from odi_audit.model.entries import Draft, Entry, Kind
from odi_audit.model.offsets import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeHead:
    """The state of the Merkle tree: how many entries, and their root."""

    size: int
    root: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEntry:
    """An entry as it lies in the database, not yet believed: where, which bytes, which leaf."""

    index: int
    body: bytes
    leaf: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a job's last landed batch on a table left one partition of a source."""

    partition: str
    start: Place | None
    end: Place
    identity: str | None
    batch: BatchId
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFilter:
    """Which entries to list; every field narrows. ``first`` and ``before`` are indexes."""

    kinds: tuple[Kind, ...] = ()
    job: JobName | None = None
    batch: BatchId | None = None
    table: TableUuid | None = None
    since: str | None = None
    until: str | None = None
    first: int | None = None
    before: int | None = None


class Ledger(Protocol):
    """An append-only, tamper-evident record of entries.

    Each method is safe from several processes at once. Every error is one of the ``ODI-L`` family.
    """

    def append(self, *drafts: Draft) -> list[Entry]:
        """Record drafts, in order, in one durable transaction; all or none.

        Indexes and times are given here; times never go backwards from one entry to the next.
        An intent's run id is derived from its index.

        Raises:
            LedgerConflict: a LANDED of (batch, table uuid) is there already, or the intent that
                a draft settles is settled already. Nothing was recorded.
            LedgerReadOnly, LedgerLocked, LedgerUnavailable: nothing is known to be recorded.
        """
        ...

    def head(self) -> TreeHead:
        """Return the size and root of the tree; reads no more than log(size) rows."""
        ...

    def get(self, index: int) -> Entry:
        """Return one entry. Raises EntryNotFound."""
        ...

    def scan(self, start: int = 0, stop: int | None = None) -> Iterator[Entry]:
        """Yield entries in order, in bounded memory."""
        ...

    def find(
        self, where: EntryFilter, *, limit: int | None = None, newest_first: bool = False
    ) -> list[Entry]:
        """Return the entries that match, by index; uses indexes, never the whole ledger."""
        ...

    def batch_entries(self, batch: BatchId) -> list[Entry]:
        """Return everything recorded about a batch, in order."""
        ...

    def resolve_batch(self, prefix: str) -> BatchId:
        """Complete a batch id from its first characters (``b-`` may be left out).

        Raises:
            EntryNotFound: none fits. AmbiguousBatch: more than one does; the first few are named.
        """
        ...

    def landed(self, batch: BatchId, table: TableUuid) -> Entry | None:
        """Return the one landed record of a batch on a table."""
        ...

    def open_intents(
        self, *, job: JobName | None = None, first: int = 0, before: int | None = None
    ) -> list[Entry]:
        """Return the intents that nothing has settled yet, in order.

        The cost is that of looking at every intent from ``first`` to before ``before``.
        """
        ...

    def open_runs(self) -> list[Entry]:
        """Return the starts of runs of which no end is recorded yet, in order."""
        ...

    def open_attempts(self, batch: BatchId) -> list[Entry]:
        """Return the unsettled intents of one batch, in order."""
        ...

    def settled_by(self, intent: int) -> Entry | None:
        """Return the entry that settled an intent, or that ended a run by its start."""
        ...

    def positions(
        self, job: JobName, table: TableUuid, source: str, partitions: Sequence[str] | None = None
    ) -> dict[str, Position]:
        """Return where the last landed batches left each partition.

        Batches that a later ROLLBACK or UNDO entry names as undone do not count. ``partitions``
        narrows the answer (a file source has one partition for each file ever read).
        """
        ...

    def job_positions(
        self, job: JobName, source: str, partitions: Sequence[str] | None = None
    ) -> dict[str, Position]:
        """Return where a job's last whole batches left each partition, whichever tables they fed.

        For tables that get only some of a job's rows: what went elsewhere is no gap. A batch that
        has not landed on every table of it does not count.
        """
        ...

    def job_sources(self, job: JobName) -> list[str]:
        """Return the sources under which a job has positions, on any table."""
        ...

    def jobs(self) -> list[JobName]:
        """Return the jobs of every entry that has one, by name; steps from name to name."""
        ...

    def undone(self, batch: BatchId, table: TableUuid) -> Entry | None:
        """Return the ROLLBACK or UNDO entry that took a landed batch out of a table again."""
        ...

    def root_at(self, size: int) -> bytes:
        """Return the root of the first ``size`` entries; reads no more than log(size) rows.

        Raises:
            LedgerBroken: the ledger has fewer entries, or a node of its tree is missing.
        """
        ...

    def inclusion_proof(self, index: int, size: int) -> list[bytes]:
        """Return the RFC 6962 path from an entry to the root of the first ``size`` entries."""
        ...

    def consistency_proof(self, old: int, new: int) -> list[bytes]:
        """Return the RFC 6962 proof that the tree of ``old`` is the start of that of ``new``."""
        ...

    def stored(self, start: int = 0, stop: int | None = None) -> Iterator[StoredEntry]:
        """Yield what is stored, in order, in bounded memory, gaps and damage included."""
        ...

    def rebuild_projections(self) -> int:
        """Make every projection again from the entries, in one transaction; return how many."""
        ...

    def hold(self, owner: str) -> None:
        """Show that ``owner`` is alive, until released or closed, or until this process dies."""
        ...

    def release(self, owner: str) -> None:
        """Say that ``owner`` has ended; nothing happens if it is not held here."""
        ...

    def is_alive(self, owner: str) -> bool:
        """Say whether the process that holds ``owner`` still lives, from any process."""
        ...

    def close(self) -> None:
        """Let go of the database and of every held owner."""
        ...
