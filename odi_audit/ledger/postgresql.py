"""The ledger's database on PostgreSQL: its own schema, one writer at a time by an advisory lock.

Owns connections, time limits, and what PostgreSQL's errors mean. Must never repeat a write whose
outcome is not known, and must never put a password into a message.
"""

from __future__ import annotations

import hashlib
import os
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

import psycopg
from psycopg import conninfo, errors

from odi_audit.errors import (
    ConfigError,
    LedgerBroken,
    LedgerLocked,
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

SCHEMA: Final = "odi_ledger"
CONNECT_TIMEOUT_S: Final = 10
STATEMENT_TIMEOUT_S: Final = 600
"""A rebuild of millions of rows is one statement chain, but no single statement takes this long."""
_KEEPALIVE: Final = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
"""A dead server or network is noticed in a minute; without it, in hours."""


def lock_key(text: str) -> int:
    """Return the 64-bit advisory lock key of a text."""
    data = hashlib.sha256(b"odi-audit ledger\n" + text.encode()).digest()[:8]
    return int.from_bytes(data, "big", signed=True)


_APPEND_KEY: Final = lock_key("append")


class PostgresDatabase:
    """One connection for statements, and one more for the owners that this process holds."""

    engine = "postgresql"

    def __init__(
        self,
        url: str,
        *,
        create: bool,
        read_only: bool,
        password: str | None,
        busy_timeout_s: float,
        schema: str = SCHEMA,
        lock: int = _APPEND_KEY,
    ) -> None:
        """Connect. Who keeps something else than a ledger here gives its own schema and lock.

        Raises:
            ConfigError: the URL is malformed. LedgerUnavailable: the server does not answer.
        """
        self._params, self.shown = _parsed(url, password)
        self.read_only = read_only
        self._create = create
        self._schema, self._write_key = schema, lock
        self._busy_timeout_ms = int(busy_timeout_s * 1000)
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._in_transaction = False
        self._held: list[str] = []
        self._holder: psycopg.Connection[Any] | None = None
        with self._ours():
            self._connection = self._connect()
        _ALL.add(self)

    def _connect(self) -> psycopg.Connection[Any]:
        made = psycopg.connect(**self._params, autocommit=True)
        settings = {
            "search_path": self._schema,
            "statement_timeout": str(STATEMENT_TIMEOUT_S * 1000),
            "lock_timeout": str(self._busy_timeout_ms),
            "synchronous_commit": "on",
            "client_encoding": "UTF8",
            "default_transaction_read_only": "on" if self.read_only else "off",
        }
        for name, value in settings.items():
            made.execute("SELECT set_config(%s, %s, false)", (name, value))
        return made

    # -- statements -------------------------------------------------------------------------------

    def rows(self, sql: str, params: Sequence[SqlValue] = ()) -> list[Row]:
        """Run a query and return all its rows; a broken connection is made anew, once."""
        with self._lock, self._ours():
            try:
                return self._query(sql, params)
            except psycopg.OperationalError:
                if self._in_transaction or not self._connection.closed:
                    raise
                self._connection = self._connect()
                return self._query(sql, params)

    def _query(self, text: str, params: Sequence[SqlValue]) -> list[Row]:
        found = self._connection.execute(_marks(text), tuple(params)).fetchall()
        return cast("list[Row]", found)

    def run(self, sql: str, params: Sequence[SqlValue] = ()) -> None:
        """Run one statement."""
        with self._lock, self._ours():
            if params:
                self._connection.execute(_marks(sql), tuple(params))
            else:
                self._connection.execute(sql.encode())

    def run_many(self, sql: str, rows: Iterable[Sequence[SqlValue]]) -> None:
        """Run one statement for each row of parameters."""
        with self._lock, self._ours(), self._connection.cursor() as cursor:
            cursor.executemany(_marks(sql), [tuple(row) for row in rows])

    def exists(self) -> bool:
        """Say whether the tables of a ledger are there, and may be read."""
        found = self.rows(
            "SELECT has_schema_privilege(n.oid, 'USAGE') FROM pg_class c"
            " JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = ? AND c.relname = 'migrations'",
            (self._schema,),
        )
        if found and not found[0][0]:
            raise LedgerReadOnly(
                f"ledger {self.shown}: this user may not use the schema {self._schema}",
                hint="as its owner: odi-audit ledger grant --apply",
            )
        return bool(found)

    # -- transactions -----------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Open a view of the database that does not move while others write."""
        with self._transaction("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"):
            yield self

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """Open a transaction that no other writer can overlap; commit at the end, durably."""
        if self.read_only:
            raise not_for_writing(self.shown)
        with self._lock:
            self._keep_holds()
            with self._transaction("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"):
                self.rows("SELECT pg_advisory_xact_lock(?)", (self._write_key,))
                if self._create:
                    self.run(f"CREATE SCHEMA IF NOT EXISTS {self._schema}")
                    self._create = False
                yield self

    @contextmanager
    def administering(self) -> Iterator[psycopg.Connection[Any]]:
        """Open a write transaction on the bare connection, for statements about roles."""
        with self.writing(), self._ours():
            yield self._connection

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        with self._lock:
            self.rows("SELECT 1")  # A connection that broke since is made anew here.
            self.run(begin)
            self._in_transaction = True
            try:
                yield
                self.run("COMMIT")
            except BaseException:
                self._roll_back()
                raise
            finally:
                self._in_transaction = False

    def _roll_back(self) -> None:
        """End the transaction; a connection that is gone has ended it already."""
        if not self._connection.closed:
            try:
                self._connection.rollback()
            except psycopg.OperationalError:
                self._connection.close()

    # -- liveness and end -------------------------------------------------------------------------

    def hold(self, owner: str) -> None:
        """Show that ``owner`` is alive: a session's lock ends with the session."""
        with self._lock, self._ours():
            if owner in self._held:
                return
            if self._holder is None or self._holder.closed:
                self._holder = self._connect()
            self._take(self._holder, owner)
            self._held.append(owner)

    def release(self, owner: str) -> None:
        """Say that ``owner`` has ended; nothing happens if it is not held here."""
        with self._lock, self._ours():
            if owner not in self._held:
                return
            self._held.remove(owner)
            try:
                cast("psycopg.Connection[Any]", self._holder).execute(
                    "SELECT pg_advisory_unlock(%s)", (_owner_key(owner),)
                )
            except psycopg.OperationalError:
                return  # The session is gone, and its locks with it.

    def _take(self, holder: psycopg.Connection[Any], owner: str) -> None:
        row = holder.execute("SELECT pg_try_advisory_lock(%s)", (_owner_key(owner),)).fetchone()
        if row is None or row[0] is not True:
            raise LedgerLocked(f"owner {owner!r} is held by another process", owner=owner)

    def _keep_holds(self) -> None:
        """Before each write: if the holder's connection broke, take the locks again."""
        if not self._held:
            return
        with self._ours():
            try:
                cast("psycopg.Connection[Any]", self._holder).execute("SELECT 1")
            except psycopg.OperationalError:
                self._holder = self._connect()
                for owner in self._held:
                    self._take(self._holder, owner)

    def is_alive(self, owner: str) -> bool:
        """Say whether a session holds the owner's lock; looks, and never takes it."""
        key = _owner_key(owner) & 0xFFFFFFFFFFFFFFFF
        return bool(
            self.rows(
                "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted"
                " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
                " AND classid::bigint = ? AND objid::bigint = ? AND objsubid = 1",
                (key >> 32, key & 0xFFFFFFFF),
            )
        )

    def close(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._held.clear()
            if self._holder is not None:
                self._let_go(self._holder)
            self._connection.close()

    def _let_go(self, holder: psycopg.Connection[Any]) -> None:
        """Unlock before closing: the server may see the end of a session a moment later."""
        try:
            holder.execute("SELECT pg_advisory_unlock_all()")
        except psycopg.OperationalError:
            return  # The session is gone, and its locks with it.
        finally:
            holder.close()

    def forget(self) -> None:
        """Drop the connections that a fork copied, without a word to the server.

        They are the parent's. A copy would keep its locks after its death.
        """
        for connection in (self._connection, self._holder):
            if connection is not None and not connection.closed:
                with Path(os.devnull).open("rb+") as nothing:
                    os.dup2(nothing.fileno(), connection.fileno())

    # -- errors -----------------------------------------------------------------------------------

    @contextmanager
    def _ours(self) -> Iterator[None]:
        """Turn PostgreSQL's errors into ours."""
        check_process(self.shown, self._pid)
        try:
            yield
        except psycopg.Error as problem:
            raise meaning(problem, self.shown) from problem


_ALL: weakref.WeakSet[PostgresDatabase] = weakref.WeakSet()


def _forget_in_child() -> None:
    for database in list(_ALL):
        database.forget()


os.register_at_fork(after_in_child=_forget_in_child)


def meaning(problem: psycopg.Error, shown: str) -> OdiError | AlreadyThere:
    """Return the error of ours that says what a driver's error means."""
    where, why = f"ledger {shown}", str(problem).strip().split("\n")[0]
    match problem:
        case errors.UniqueViolation():
            return AlreadyThere(why)
        case errors.LockNotAvailable() | errors.DeadlockDetected():
            return held_too_long(shown, why)
        case errors.InsufficientPrivilege() | errors.ReadOnlySqlTransaction():
            return LedgerReadOnly(
                f"{where}: this user may not do that: {why}",
                hint="as its owner: odi-audit ledger grant --apply",
            )
        case errors.UndefinedTable() | errors.UndefinedColumn() | errors.RaiseException():
            return LedgerBroken(f"{where}: {why}", hint="odi-audit ledger verify")
        case errors.CheckViolation() | errors.DataCorrupted() | errors.IndexCorrupted():
            return LedgerBroken(f"{where} is damaged: {why}", hint="odi-audit ledger verify")
    return LedgerUnavailable(f"{where} did not answer: {why}", hint="odi-audit doctor")


def _owner_key(owner: str) -> int:
    return lock_key("owner\n" + owner)


def _marks(text: str) -> bytes:
    """Turn ``?`` into the driver's marks; our SQL has no other use of either sign."""
    return text.replace("?", "%s").encode()


def _parsed(url: str, password: str | None) -> tuple[dict[str, Any], str]:
    """Return connection parameters, and the place as it may be shown."""
    try:
        params: dict[str, Any] = conninfo.conninfo_to_dict(url)
    except psycopg.Error:
        # The driver's message repeats parts of the URL, and so perhaps the password.
        raise ConfigError(
            "the ledger's PostgreSQL URL cannot be read",
            hint="write it like postgresql://user@host:5432/database",
        ) from None
    if password is not None:
        params["password"] = password
    params = {"connect_timeout": CONNECT_TIMEOUT_S, "application_name": "odi-audit"} | (
        dict(_KEEPALIVE) | params
    )
    user = f"{params['user']}@" if "user" in params else ""
    place = f"{params.get('host', 'local')}:{params.get('port', 5432)}"
    return params, f"postgresql://{user}{place}/{params.get('dbname', '')}"
