"""The ledger's tables: versioned migrations, each applied once and whole.

Owns the SQL of the tables for both engines. A released migration never changes. Must never
change an entry: a migration adds tables, indexes or projections, and no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from odi_audit import clock
from odi_audit.errors import LedgerBroken, LedgerReadOnly, LedgerTooNew
from odi_audit.ledger.database import Database, Session

_TYPES: Mapping[str, Mapping[str, str]] = {
    "sqlite": {"int": "INTEGER", "bytes": "BLOB", "text": "TEXT", "idx": "INTEGER"},
    "postgresql": {
        "int": "BIGINT", "bytes": "BYTEA", "text": 'TEXT COLLATE "C"', "idx": "BIGINT",
    },
}  # fmt: skip
"""Text is compared byte by byte on both engines: prefixes and times are looked up by range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One step: SQL for both engines (``{int}``, ``{text}``…), and what only one of them needs."""

    version: int
    name: str
    common: tuple[str, ...]
    only: Mapping[str, tuple[str, ...]]

    def statements(self, engine: str) -> list[str]:
        """Return the step's SQL for one engine."""
        types = _TYPES[engine]
        return [sql.format_map(types) for sql in self.common] + list(self.only.get(engine, ()))


_FIRST_TABLES = (
    (
        "CREATE TABLE entries (idx {idx} PRIMARY KEY CHECK (idx >= 0),"
        " body {bytes} NOT NULL, leaf {bytes} NOT NULL)"
    ),
    (
        "CREATE TABLE nodes (level {int} NOT NULL CHECK (level > 0), idx {int} NOT NULL,"
        " hash {bytes} NOT NULL, PRIMARY KEY (level, idx))"
    ),
    (
        "CREATE TABLE entry_index (idx {idx} PRIMARY KEY, time {text} NOT NULL,"
        " kind {text} NOT NULL, job {text}, run {text}, batch {text}, table_uuid {text},"
        " intent {int}, recovered {int} NOT NULL)"
    ),
    "CREATE INDEX entry_index_time ON entry_index (time, idx)",
    "CREATE INDEX entry_index_kind ON entry_index (kind, idx)",
    "CREATE INDEX entry_index_job ON entry_index (job, kind, idx) WHERE job IS NOT NULL",
    "CREATE INDEX entry_index_batch ON entry_index (batch, idx) WHERE batch IS NOT NULL",
    (
        "CREATE INDEX entry_index_table ON entry_index (table_uuid, kind, idx)"
        " WHERE table_uuid IS NOT NULL"
    ),
    (
        "CREATE TABLE landed (batch {text} NOT NULL, table_uuid {text} NOT NULL,"
        " idx {int} NOT NULL UNIQUE, PRIMARY KEY (batch, table_uuid))"
    ),
    "CREATE TABLE settled (intent {int} PRIMARY KEY, idx {int} NOT NULL UNIQUE)",
    (
        "CREATE TABLE positions (idx {int} NOT NULL, part {text} NOT NULL, job {text} NOT NULL,"
        " table_uuid {text} NOT NULL, source {text} NOT NULL, batch {text} NOT NULL,"
        " start_place {text} NOT NULL, end_place {text} NOT NULL, identity {text},"
        " PRIMARY KEY (idx, part))"
    ),
    "CREATE INDEX positions_part ON positions (job, table_uuid, source, part, idx)",
    (
        "CREATE TABLE undone (idx {int} NOT NULL, batch {text} NOT NULL,"
        " table_uuid {text} NOT NULL,"
        " PRIMARY KEY (idx, batch))"
    ),
    "CREATE INDEX undone_batch ON undone (batch, table_uuid, idx)",
)

_REFUSAL = "the ledger is append-only"
"""Triggers stop a slip of the hand. Against ill will, only the tree and its heads help."""

_FIRST = Migration(
    version=1,
    name="entries, nodes and projections",
    common=_FIRST_TABLES,
    only={
        "sqlite": tuple(
            f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
            f"BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END"
            for table in ("entries", "nodes")
            for verb in ("UPDATE", "DELETE")
        ),
        "postgresql": (
            (
                "CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS "
                f"$$ BEGIN RAISE EXCEPTION '{_REFUSAL}'; END $$"
            ),
            *(
                f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE "
                f"ON {table} FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
                for table in ("entries", "nodes")
            ),
        ),
    },
)

MIGRATIONS: tuple[Migration, ...] = (_FIRST,)
TABLES = (
    "migrations", "entries", "nodes", "entry_index", "landed", "settled", "positions", "undone",
)  # fmt: skip
"""Every table of the newest version."""


def migrate(
    database: Database, now: clock.Clock, migrations: Sequence[Migration] = MIGRATIONS
) -> int:
    """Bring the database to the newest version known here, in one transaction; return it.

    Raises:
        LedgerTooNew: it is of a newer version.
    """
    with database.writing() as session:
        if not database.exists():
            for sql in _migrations_table(database.engine):
                session.run(sql)
        found = check_version(database, session, migrations)
        for step in migrations:
            if step.version > found:
                for sql in step.statements(database.engine):
                    session.run(sql)
                session.run(
                    "INSERT INTO migrations (version, name, applied_at) VALUES (?, ?, ?)",
                    (step.version, step.name, clock.to_text(now.now())),
                )
    return migrations[-1].version


def check_version(
    database: Database, session: Session, migrations: Sequence[Migration] = MIGRATIONS
) -> int:
    """Return the version of the tables.

    Raises:
        LedgerTooNew: it is newer than what is known here.
    """
    found = session.rows("SELECT coalesce(max(version), 0) FROM migrations")[0][0]
    if not isinstance(found, int):
        raise LedgerBroken(f"ledger {database.shown}: its version {found!r} is not a number")
    known = migrations[-1].version
    if found > known:
        raise LedgerTooNew(
            f"ledger {database.shown} has format version {found}, and this program knows "
            f"up to {known}",
            hint="install the version of odi-audit that wrote it, or a newer one",
            found=found,
            known=known,
        )
    return found


def require_current(database: Database) -> None:
    """Check, for a reader, that the tables are of the version known here.

    Raises:
        LedgerTooNew: they are newer. LedgerReadOnly: they are older, and a reader cannot migrate.
    """
    found = check_version(database, database)
    if found < MIGRATIONS[-1].version:
        raise LedgerReadOnly(
            f"ledger {database.shown} has format version {found}, expected "
            f"{MIGRATIONS[-1].version}: it must be opened once by somebody who may change it",
            hint="run a writing command as the ledger's owner, such as: odi-audit ledger seal",
            found=found,
        )


def _migrations_table(engine: str) -> list[str]:
    types = _TYPES[engine]
    return [
        "CREATE TABLE migrations (version {int} PRIMARY KEY, name {text} NOT NULL,"
        " applied_at {text} NOT NULL)".format_map(types)
    ]
