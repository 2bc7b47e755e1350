"""The ledger: an append-only, tamper-evident record of what was done to the tables.

Owns how a ledger is opened. Callers see :class:`odi_audit.ledger.port.Ledger`. Must never put a
URL's secret into a message.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from odi_audit.clock import Clock
from odi_audit.errors import ConfigError, LedgerMissing
from odi_audit.ledger import schema, tree
from odi_audit.ledger.database import Database
from odi_audit.ledger.port import (
    EntryFilter,
    Ledger,
    Position,
    StoredEntry,
    TreeHead,
)
from odi_audit.ledger.sqlite import SqliteDatabase
from odi_audit.ledger.store import SqlLedger

__all__ = [
    "BUSY_TIMEOUT_S",
    "EntryFilter",
    "Ledger",
    "Position",
    "SqlLedger",
    "StoredEntry",
    "TreeHead",
    "create_ledger",
    "open_ledger",
]

BUSY_TIMEOUT_S = 30.0
"""How long a writer waits for another: appends take milliseconds, so this is a stuck process."""


def create_ledger(
    url: str,
    *,
    clock: Clock,
    password: str | None = None,
    busy_timeout_s: float = BUSY_TIMEOUT_S,
) -> SqlLedger:
    """Make the ledger if it is not there, and open it for writing. See :func:`open_ledger`."""
    return open_ledger(
        url, clock=clock, create=True, password=password, busy_timeout_s=busy_timeout_s
    )


def open_ledger(
    url: str,
    *,
    clock: Clock,
    create: bool = False,
    read_only: bool = False,
    password: str | None = None,
    busy_timeout_s: float = BUSY_TIMEOUT_S,
    check_tail: bool = True,
) -> SqlLedger:
    """Open a ledger: ``sqlite:///abs/path`` or ``postgresql://…``.

    Reads a few dozen rows, however long the ledger is. ``check_tail=False`` is for ``verify``,
    which looks at damaged ledgers too.

    Raises:
        ConfigError: the URL is of no kind known here.
        LedgerMissing, LedgerReadOnly, LedgerLocked, LedgerTooNew, LedgerBroken,
        LedgerUnavailable: as their names say; the hint says what to do.
    """
    if create and read_only:
        raise ConfigError("a ledger cannot be made by opening it for reading only")
    database = _connect(url, create, read_only, password, busy_timeout_s)
    try:
        if not create and not database.exists():
            raise LedgerMissing(
                f"{database.shown} holds no ledger", hint="odi-audit init", place=database.shown
            )
        if read_only:
            schema.require_current(database)
        elif create or schema.check_version(database, database) < schema.MIGRATIONS[-1].version:
            schema.migrate(database, clock)
        if check_tail:
            tree.check_tail(database)
    except BaseException:
        database.close()
        raise
    return SqlLedger(database, clock)


def _connect(
    url: str, create: bool, read_only: bool, password: str | None, busy_timeout_s: float
) -> Database:
    kind, _, rest = url.partition("://")
    if kind == "sqlite" and rest.startswith("/"):
        # Everything after the slashes is the path, letter by letter: nothing is percent-decoded.
        return SqliteDatabase(
            Path("/" + rest.lstrip("/")),
            create=create,
            read_only=read_only,
            busy_timeout_s=busy_timeout_s,
        )
    if kind in {"postgresql", "postgres"}:
        # Imported here: psycopg takes 0.1 s to load, and most ledgers are files.
        from odi_audit.ledger.postgresql import PostgresDatabase

        return PostgresDatabase(
            url,
            create=create,
            read_only=read_only,
            password=password,
            busy_timeout_s=busy_timeout_s,
        )
    raise ConfigError(
        f"ledger URL of kind {urlsplit(url).scheme or 'none'!r} is not known here",
        hint="use sqlite:///path/to/ledger.db or postgresql://user@host/database",
    )
