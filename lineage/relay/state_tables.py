"""The tables of the relay's state, and the errors of the database that holds them.

Owns the SQL of the tables for both engines. Must never touch the ledger's tables: on SQLite the
state is a file of its own, on PostgreSQL a schema of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from odi_audit.errors import (
    LedgerBroken,
    LedgerLocked,
    LedgerMissing,
    LedgerReadOnly,
    LedgerUnavailable,
    RelayStateUnavailable,
)
from odi_audit.ledger.database import Database

VERSION = 1
_TABLES = (
    "CREATE TABLE migrations (version {int} PRIMARY KEY)",
    (
        "CREATE TABLE destinations (name {text} PRIMARY KEY, address {text} NOT NULL,"
        " sent {int} NOT NULL, sent_at {text}, error {text}, error_at {text}, stopped {text},"
        " orders {int} NOT NULL)"
    ),
    (
        "CREATE TABLE positions (destination {text} NOT NULL, source {text} NOT NULL,"
        " position {text} NOT NULL, PRIMARY KEY (destination, source))"
    ),
    (
        "CREATE TABLE marks (destination {text} NOT NULL, source {text} NOT NULL,"
        " event {text} NOT NULL, run {text} NOT NULL, settled {int} NOT NULL,"
        " PRIMARY KEY (destination, source, event))"
    ),
    (
        "CREATE TABLE letters (destination {text} NOT NULL, source {text} NOT NULL,"
        " event {text} NOT NULL, number {int} NOT NULL, run {text} NOT NULL, state {text} NOT NULL,"
        " stand {text} NOT NULL, reason {text} NOT NULL, status {int}, tries {int} NOT NULL,"
        " first_at {text} NOT NULL, last_at {text} NOT NULL,"
        " PRIMARY KEY (destination, source, event))"
    ),
    "CREATE INDEX letters_run ON letters (destination, run, number)",
    (
        "CREATE TABLE dropped (destination {text} NOT NULL, source {text} NOT NULL,"
        " event {text} NOT NULL, run {text} NOT NULL, state {text} NOT NULL,"
        " refusal {text} NOT NULL, reason {text} NOT NULL, who {text} NOT NULL,"
        " dropped_at {text} NOT NULL)"
    ),
    (
        "CREATE TABLE doubts (destination {text} NOT NULL, run {text} NOT NULL,"
        " source {text} NOT NULL, event {text} NOT NULL, since {text} NOT NULL, echo {text},"
        " due_at {text}, PRIMARY KEY (destination, run))"
    ),
    (
        "CREATE TABLE leases (destination {text} PRIMARY KEY, holder {text} NOT NULL,"
        " token {int} NOT NULL, until {text} NOT NULL, given_back {int} NOT NULL)"
    ),
)
_TYPES = {
    "sqlite": {"int": "INTEGER", "text": "TEXT"},
    "postgresql": {"int": "BIGINT", "text": 'TEXT COLLATE "C"'},
}


def make_tables(database: Database) -> None:
    """Make the tables, if they are not there.

    Raises:
        RelayStateUnavailable: they cannot be made, or are of a newer version.
    """
    with told():
        if not database.exists():
            _make(database)
        found = database.rows("SELECT max(version) FROM migrations")[0][0]
    if found != VERSION:
        raise RelayStateUnavailable(
            f"the relay's state {database.shown} has version {found!r}, expected {VERSION}",
            hint="use the version of odi-audit that wrote it",
        )


def _make(database: Database) -> None:
    with database.writing() as session:
        if database.exists():
            return  # Somebody else was first.
        for sql in _TABLES:
            session.run(sql.format_map(_TYPES[database.engine]))
        session.run("INSERT INTO migrations (version) VALUES (?)", (VERSION,))


@contextmanager
def told() -> Iterator[None]:
    """Turn the database's errors, which speak of a ledger, into those of the relay."""
    try:
        yield
    except (
        LedgerBroken, LedgerLocked, LedgerMissing, LedgerReadOnly, LedgerUnavailable,
    ) as problem:  # fmt: skip
        why = problem.message.replace("ledger ", "", 1)
        raise RelayStateUnavailable(f"the relay's state: {why}") from problem
