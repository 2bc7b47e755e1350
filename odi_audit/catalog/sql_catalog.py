"""A catalog that is kept in SQL tables, on SQLite or PostgreSQL, read with the driver alone.

Owns the two queries that a reader needs, and what the drivers' errors mean. The tables are those
of Iceberg's JDBC catalog, which Spark writes. Must never write, not even an empty file, and must
never put a password into a message.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from odi_audit.errors import CatalogUnavailable, ConfigError

if TYPE_CHECKING:
    import psycopg
    from pyiceberg.table import Table

DOCTOR: Final = "odi-audit doctor"
BUSY_TIMEOUT_S: Final = 5.0
CONNECT_TIMEOUT_S: Final = 10
_TABLE = "TABLE"
_LIST = "SELECT * FROM iceberg_tables WHERE catalog_name = ?"
_ONE = _LIST + " AND table_namespace = ? AND table_name = ?"
Row: TypeAlias = dict[str, object]


class SqlTables:
    """The tables of one catalog in a SQL database."""

    def __init__(self, name: str, database: SqliteTables | PostgresTables) -> None:
        self.name = name
        self._database = database

    def names(self) -> Iterator[tuple[str, ...]]:
        """Yield the parts of every table's name."""
        for row in self._database.rows(_LIST, (self.name,)):
            # A table in no namespace has no name that anybody could write.
            if _is_table(row) and row["table_namespace"]:
                yield (*str(row["table_namespace"]).split("."), str(row["table_name"]))

    def load(self, parts: tuple[str, ...], properties: Mapping[str, str]) -> Table | None:
        """Return a table, with its metadata read; None where there is none of that name."""
        found = self._database.rows(_ONE, (self.name, ".".join(parts[:-1]), parts[-1]))
        places = [row["metadata_location"] for row in found if _is_table(row)]
        if not places or not places[0]:
            return None
        return _table(parts, str(places[0]), dict(properties))

    def close(self) -> None:
        """Let go of the connection."""
        self._database.close()


def _is_table(row: Row) -> bool:
    # The first version of the catalog's tables has no such column, and no views.
    return row.get("iceberg_type") in {None, _TABLE}


def _table(parts: tuple[str, ...], location: str, properties: dict[str, str]) -> Table:
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.exceptions import ValidationError
    from pyiceberg.io import load_file_io
    from pyiceberg.serializers import FromInputFile
    from pyiceberg.table import Table

    reader = load_file_io(properties, location)
    try:
        metadata = FromInputFile.table_metadata(reader.new_input(location))
    except ValidationError as problem:
        raise ValueError(f"{location} holds no table metadata: {problem}") from problem
    return Table(
        identifier=parts,
        metadata=metadata,
        metadata_location=location,
        io=load_file_io({**properties, **metadata.properties}, location),
        catalog=NoopCatalog("read"),
    )


# -- SQLite -----------------------------------------------------------------------------------


class SqliteTables:
    """A catalog's file. It is opened for each question: one that was put back is seen at once."""

    def __init__(self, url: str, place: str) -> None:
        path, _, wait = url.removeprefix("sqlite:///").partition("?timeout=")
        self._path = Path(path)
        self._wait_s = float(wait) if wait else BUSY_TIMEOUT_S
        self._place = place

    def rows(self, sql: str, params: Sequence[str]) -> list[Row]:
        """Run a query and return all its rows.

        Raises:
            CatalogUnavailable: the file is locked, damaged, gone, or holds no catalog.
        """
        try:
            with closing(self._connect()) as connection:
                connection.execute("PRAGMA query_only = ON")
                found = connection.execute(sql, params)
                names = [column[0] for column in found.description]
                return [dict(zip(names, row, strict=True)) for row in found]
        except sqlite3.Error as problem:
            raise unavailable(self._place, str(problem)) from problem

    def _connect(self) -> sqlite3.Connection:
        # A reader who may write can also take in what a crashed writer left in the log.
        uri = f"{self._path.absolute().as_uri()}?mode="
        if os.access(self._path, os.W_OK) and os.access(self._path.parent, os.W_OK):
            uri += "rw"
        else:
            log = self._path.with_name(self._path.name + "-wal")
            # A copy on a read-only disk: nobody writes, and SQLite could not make its side files.
            uri += "ro" if log.exists() else "ro&immutable=1"
        return sqlite3.connect(uri, uri=True, timeout=self._wait_s)

    def close(self) -> None:
        """Nothing is kept open."""


# -- PostgreSQL -------------------------------------------------------------------------------


class PostgresTables:
    """A catalog on a server: one connection, made anew once it has broken."""

    def __init__(self, url: str, place: str) -> None:
        import psycopg
        from psycopg import conninfo

        scheme, _, rest = url.partition("://")
        try:
            params = conninfo.conninfo_to_dict(f"{scheme.partition('+')[0]}://{rest}")
        except psycopg.Error:
            # The driver's message repeats parts of the URL, and so perhaps the password.
            raise ConfigError(
                "the catalog's PostgreSQL URL cannot be read",
                hint="write it like postgresql://user@host:5432/database",
            ) from None
        self._params: dict[str, Any] = {
            "connect_timeout": CONNECT_TIMEOUT_S,
            "application_name": "odi-audit",
            **params,
        }
        self._place = place
        self._lock = threading.Lock()
        self._connection: psycopg.Connection[Any] | None = None

    def rows(self, sql: str, params: Sequence[str]) -> list[Row]:
        """Run a query and return all its rows; none where the server has no catalog tables yet.

        Raises:
            CatalogUnavailable: the server did not answer.
        """
        import psycopg
        from psycopg import errors

        try:
            with self._lock:
                return self._query(sql, params)
        except errors.UndefinedTable:
            # Spark makes the tables of a server's catalog at its first use: until then there are
            # none.
            return []
        except psycopg.Error as problem:
            raise unavailable(self._place, str(problem)) from problem

    def _query(self, sql: str, params: Sequence[str]) -> list[Row]:
        import psycopg

        for attempt in (1, 2):
            connection = self._connected()
            try:
                found = connection.execute(sql.replace("?", "%s").encode(), tuple(params))
                names = [column.name for column in found.description or ()]
                return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
            except psycopg.OperationalError:
                if attempt == 2 or not connection.closed:
                    raise
        raise AssertionError("the second attempt returns or raises")

    def _connected(self) -> psycopg.Connection[Any]:
        import psycopg

        if self._connection is None or self._connection.closed:
            made: psycopg.Connection[Any] = psycopg.connect(**self._params, autocommit=True)
            made.execute("SELECT set_config('default_transaction_read_only', 'on', false)")
            self._connection = made
        return self._connection

    def close(self) -> None:
        """Let go of the connection."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()


def unavailable(place: str, reason: str) -> CatalogUnavailable:
    """Return the error of a catalog that could not be read, with what to do about it."""
    lines = reason.strip().splitlines()
    first = lines[0] if lines else "no reason given"
    if "locked" in first:
        hint = "another process is writing to it: try again, or find it with: " + DOCTOR
    elif "no such table" in first or "does not exist" in first:
        hint = "it holds no catalog tables: restore it from a copy, or: odi-audit init"
    elif "not a database" in first or "malformed" in first:
        hint = "the file is damaged: restore it from a copy, then: " + DOCTOR
    else:
        hint = DOCTOR
    return CatalogUnavailable(f"the catalog {place} could not be read: {first}", hint=hint)
