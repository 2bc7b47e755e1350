"""What the ledger asks of a database: rows, one exclusive write at a time, and liveness.

Owns the small interface between the shared store and the two engines, and the errors that both
have. SQL is written once, with
``?`` for parameters. Must never let a driver's error through: engines turn each into one of ours.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

from odi_audit.errors import LedgerLocked, LedgerReadOnly, LedgerUnavailable

SqlValue: TypeAlias = str | int | bytes | None
Row: TypeAlias = tuple[SqlValue, ...]


def octets(value: SqlValue | float) -> bytes:
    """Return the bytes of a stored value; SQLite lets a tamperer store any type in any column."""
    if isinstance(value, bytes):
        return value
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else b""


def not_for_writing(shown: str) -> LedgerReadOnly:
    """Return the error of a write on a ledger that was opened for reading."""
    return LedgerReadOnly(
        f"ledger {shown} was opened for reading only; nothing was recorded",
        hint="open the workspace without read_only, as a run does",
    )


def held_too_long(shown: str, why: str) -> LedgerLocked:
    """Return the error of a writer that waited in vain for its turn."""
    return LedgerLocked(
        f"ledger {shown} is held by another process for longer than we wait: {why}",
        hint="see who writes: odi-audit ledger status; then try again",
    )


def check_process(shown: str, opened_in: int) -> None:
    """Refuse a connection that a fork has copied: two processes would share it.

    Raises:
        LedgerUnavailable: this is not the process that opened it.
    """
    if os.getpid() != opened_in:
        raise LedgerUnavailable(
            f"ledger {shown} was opened before a fork: open it again in the new process"
        )


class AlreadyThere(Exception):
    """A row of that primary key exists; the store says what it means."""


class Session(Protocol):
    """Statements, inside or outside a transaction."""

    def rows(self, sql: str, params: Sequence[SqlValue] = ()) -> list[Row]:
        """Run a query and return all its rows."""
        ...

    def run(self, sql: str, params: Sequence[SqlValue] = ()) -> None:
        """Run one statement."""
        ...

    def run_many(self, sql: str, rows: Iterable[Sequence[SqlValue]]) -> None:
        """Run one statement for each row of parameters.

        Raises:
            AlreadyThere: a row has the primary key of another.
        """
        ...


class Database(Session, Protocol):
    """One ledger's database, as one process sees it; safe to use from several threads."""

    engine: str
    """``sqlite`` or ``postgresql``."""
    shown: str
    """Where it is, for messages: never with a secret."""
    read_only: bool

    def exists(self) -> bool:
        """Say whether the tables of a ledger are there."""
        ...

    def reading(self) -> AbstractContextManager[Session]:
        """Open a view of the database that does not move while others write."""
        ...

    def writing(self) -> AbstractContextManager[Session]:
        """Open a transaction that no other writer can overlap; commit at the end, durably.

        Raises:
            LedgerReadOnly, LedgerLocked: nothing was written.
            LedgerUnavailable: whether it was written is told by reading.
        """
        ...

    def hold(self, owner: str) -> None:
        """Show that ``owner`` is alive until released, closed or dead."""
        ...

    def release(self, owner: str) -> None:
        """Say that ``owner`` has ended; nothing happens if it is not held here."""
        ...

    def is_alive(self, owner: str) -> bool:
        """Say whether somebody holds ``owner``."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...
