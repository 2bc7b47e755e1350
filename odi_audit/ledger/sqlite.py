"""The ledger's database on SQLite: one file in WAL mode, every commit on the disk.

Owns the connection, its durability settings, and what SQLite's errors mean. Must never run with
less than ``synchronous=FULL``: an entry that was answered for is not lost by a power cut.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from odi_audit.errors import (
    LedgerBroken,
    LedgerMissing,
    LedgerReadOnly,
    LedgerUnavailable,
    OdiError,
)
from odi_audit.ledger.database import (
    AlreadyThere,
    Row,
    Session,
    SqlValue,
    check_process,
    held_too_long,
    not_for_writing,
)
from odi_audit.ledger.liveness import FileHolds

CACHE_KIB = 16 * 1024
"""The indexes' inner pages of a ledger of millions fit in."""
_SAME_KEY: Final = {sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE}


class SqliteDatabase:
    """One connection to a ledger's file."""

    engine = "sqlite"

    def __init__(self, path: Path, *, create: bool, read_only: bool, busy_timeout_s: float) -> None:
        """Connect.

        Raises:
            LedgerMissing, LedgerReadOnly, LedgerUnavailable: as told by the file.
        """
        self.shown = str(path)
        self.read_only = read_only
        self._path = path
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._holds = FileHolds(path.with_name(path.name + ".live"))
        _check_file(path, create=create, read_only=read_only)
        with self._ours():
            self._connection = sqlite3.connect(
                _uri(path, create=create, read_only=read_only),
                uri=True,
                timeout=busy_timeout_s,
                isolation_level=None,
                check_same_thread=False,
            )
            self._connection.text_factory = _text
            self._prepare()
        self._file = _identity(path)

    def _prepare(self) -> None:
        run = self._connection.execute
        run("PRAGMA trusted_schema = OFF")
        run(f"PRAGMA cache_size = -{CACHE_KIB}")
        if not self.read_only:
            if run("PRAGMA journal_mode").fetchone() != ("wal",):
                run("PRAGMA journal_mode = WAL")
            run("PRAGMA synchronous = FULL")

    # -- statements -------------------------------------------------------------------------------

    def rows(self, sql: str, params: Sequence[SqlValue] = ()) -> list[Row]:
        """Run a query and return all its rows."""
        with self._lock, self._ours():
            return self._connection.execute(sql, params).fetchall()

    def run(self, sql: str, params: Sequence[SqlValue] = ()) -> None:
        """Run one statement."""
        with self._lock, self._ours():
            self._connection.execute(sql, params)

    def run_many(self, sql: str, rows: Iterable[Sequence[SqlValue]]) -> None:
        """Run one statement for each row of parameters."""
        with self._lock, self._ours():
            self._connection.executemany(sql, rows)

    def exists(self) -> bool:
        """Say whether the tables of a ledger are there."""
        return bool(
            self.rows("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'migrations'")
        )

    # -- transactions -----------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Open a view of the database that does not move while others write."""
        with self._lock:
            self.run("BEGIN")
            try:
                yield self
            finally:
                self._roll_back()

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """Open a transaction that no other writer can overlap; commit at the end, durably."""
        if self.read_only:
            raise not_for_writing(self.shown)
        with self._lock:
            self._check_same_file()
            self.run("BEGIN IMMEDIATE")
            try:
                yield self
                self.run("COMMIT")
            finally:
                self._roll_back()

    def _roll_back(self) -> None:
        """End what is still open; SQLite itself has ended it after some errors."""
        if self._connection.in_transaction:
            self.run("ROLLBACK")

    def _check_same_file(self) -> None:
        """Refuse to write into a file that has been removed or replaced: it would be lost."""
        if _identity(self._path) != self._file:
            raise LedgerMissing(
                f"ledger {self.shown} was removed or replaced while it was open; "
                "nothing was recorded",
                hint="put the file back, or recover it: odi-audit ledger rebuild",
            )

    # -- liveness and end -------------------------------------------------------------------------

    def hold(self, owner: str) -> None:
        """Show that ``owner`` is alive until released, closed or dead."""
        if self.read_only:
            raise not_for_writing(self.shown)
        self._holds.hold(owner)

    def release(self, owner: str) -> None:
        """Say that ``owner`` has ended; nothing happens if it is not held here."""
        self._holds.release(owner)

    def is_alive(self, owner: str) -> bool:
        """Say whether somebody holds ``owner``."""
        return self._holds.is_alive(owner)

    def close(self) -> None:
        """Let go of everything."""
        self._holds.close()
        with self._lock:
            self._connection.close()

    # -- errors -----------------------------------------------------------------------------------

    @contextmanager
    def _ours(self) -> Iterator[None]:
        """Turn SQLite's errors into ours."""
        check_process(self.shown, self._pid)
        try:
            yield
        except sqlite3.Error as problem:
            raise self._meaning(problem) from problem

    def _meaning(self, problem: sqlite3.Error) -> OdiError | AlreadyThere:
        extended = getattr(problem, "sqlite_errorcode", None)
        if extended in _SAME_KEY:
            return AlreadyThere(str(problem))
        code = None if extended is None else extended & 0xFF
        where, why = f"ledger {self.shown}", str(problem)
        if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            return held_too_long(self.shown, why)
        if code == sqlite3.SQLITE_READONLY:
            return LedgerReadOnly(f"{where} cannot be written: {why}", hint=f"ls -l {self.shown}")
        if code == sqlite3.SQLITE_FULL:
            return LedgerUnavailable(
                f"{where}: no space left on its disk; nothing was recorded",
                hint=f"free some space: df -h {self._path.parent}",
            )
        if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CONSTRAINT}:
            return LedgerBroken(
                f"{where} is damaged: {why}", hint="restore the file, then: odi-audit ledger verify"
            )
        if code == sqlite3.SQLITE_ERROR and "no such" in why:
            return LedgerBroken(f"{where} lacks a table or column: {why}")
        return LedgerUnavailable(f"{where} did not answer: {why}", hint="odi-audit doctor")


def _text(data: bytes) -> str:
    """Read text that may have been tampered with, without an error and without loss."""
    return data.decode("utf-8", "surrogateescape")


def _check_file(path: Path, *, create: bool, read_only: bool) -> None:
    if not path.exists() and not create:
        raise LedgerMissing(
            f"ledger {path} is not there; no ledger, no write",
            hint="odi-audit init, or, when it was lost: odi-audit ledger rebuild",
            path=str(path),
        )
    if path.exists() and not path.is_file():
        raise LedgerMissing(f"ledger {path} is not a file", path=str(path))
    if not path.exists() and not path.parent.is_dir():
        raise LedgerMissing(f"the folder of ledger {path} is not there", path=str(path))
    if read_only:
        return
    for place in (path, path.parent) if path.exists() else (path.parent,):
        if not os.access(place, os.W_OK):
            raise LedgerReadOnly(
                f"ledger {path}: {place} cannot be written by this user",
                hint=f"ls -ld {place}",
                path=str(place),
            )


def _uri(path: Path, *, create: bool, read_only: bool) -> str:
    mode = "ro" if read_only else "rwc" if create else "rw"
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    log = path.with_name(path.name + "-wal")
    if read_only and not os.access(path.parent, os.W_OK) and not log.exists():
        # A copy on a read-only disk: nobody writes, and SQLite could not make its side files.
        uri += "&immutable=1"
    return uri


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
