"""Where the relay's state lies, and how it is opened: beside the ledger, and apart from it.

Owns the file's and the schema's name. Must never open the ledger, or need a right to change it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from lineage.relay.state_sql import SqlState
from lineage.relay.state_tables import make_tables
from odi_audit.errors import LedgerMissing, OdiError, RelayStateUnavailable
from odi_audit.ledger.database import Database
from odi_audit.ledger.sqlite import SqliteDatabase

FILE_NAME: Final = "relay.db"
SCHEMA: Final = "odi_relay"
_SQLITE: Final = "sqlite://"


class _StateFile(SqliteDatabase):
    """The state in a file. What is written survives the death of the process.

    A power cut may take the last moments of it: then a few events are sent again.
    """

    def _prepare(self) -> None:
        super()._prepare()
        if not self.read_only:
            self._connection.execute("PRAGMA synchronous = NORMAL")


def open_state(
    ledger_url: str,
    *,
    password: str | None = None,
    busy_timeout_s: float = 30.0,
    create: bool = True,
) -> SqlState | None:
    """Open the state that belongs to a ledger; None if it is not there and not to be made.

    Raises:
        RelayStateUnavailable: it cannot be opened or made.
    """
    try:
        database = _database(ledger_url, password, busy_timeout_s, create=create)
    except LedgerMissing:
        return None
    except OdiError as problem:
        raise RelayStateUnavailable(
            f"the relay's state cannot be opened: {problem.message}", hint=problem.hint
        ) from problem
    try:
        if not database.exists() and not create:
            database.close()
            return None
        make_tables(database)
    except BaseException:
        database.close()
        raise
    return SqlState(database)


def _database(url: str, password: str | None, busy_timeout_s: float, *, create: bool) -> Database:
    if url.startswith(_SQLITE):
        path = Path("/" + url.removeprefix(_SQLITE).lstrip("/")).with_name(FILE_NAME)
        return _StateFile(path, create=create, read_only=False, busy_timeout_s=busy_timeout_s)
    from odi_audit.ledger.postgresql import PostgresDatabase, lock_key

    def connect(*, make: bool) -> PostgresDatabase:
        return PostgresDatabase(
            url,
            create=make,
            read_only=False,
            password=password,
            busy_timeout_s=busy_timeout_s,
            schema=SCHEMA,
            lock=lock_key("relay"),
        )

    found = connect(make=False)
    if not create or found.rows("SELECT 1 FROM pg_namespace WHERE nspname = ?", (SCHEMA,)):
        return found
    # Only the first time: making a schema needs a right that the relay can do without later, and
    # at all where somebody made the schema for it.
    found.close()
    return connect(make=True)
