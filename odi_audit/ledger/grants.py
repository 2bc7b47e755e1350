"""Least privilege on PostgreSQL: who may write, read and administer a ledger.

Owns three roles: the writer inserts and reads, the reader reads, the administrator owns the tables
and runs migrations. Names are quoted by the driver. Must never give a privilege that is not listed
here; what was given before is taken back first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, LiteralString

import psycopg
from psycopg import sql

from odi_audit.errors import UsageError
from odi_audit.ledger.postgresql import SCHEMA, PostgresDatabase
from odi_audit.ledger.schema import TABLES

ROLE_BYTES_MAX: Final = 63
"""PostgreSQL cuts longer names, and two roles could become one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """The names of the three roles, and the login roles that are to be members of each."""

    writer: str = "odi_ledger_writer"
    reader: str = "odi_ledger_reader"
    admin: str = "odi_ledger_admin"
    writers: Sequence[str] = ()
    readers: Sequence[str] = ()
    admins: Sequence[str] = ()

    def __post_init__(self) -> None:
        names = [self.writer, self.reader, self.admin]
        if len(set(names)) != len(names):
            raise UsageError("writer, reader and administrator must be three different roles")
        for name in [*names, *self.writers, *self.readers, *self.admins]:
            if not name or len(name.encode()) > ROLE_BYTES_MAX or "\0" in name:
                raise UsageError(f"{name[:80]!r} cannot be the name of a PostgreSQL role")

    @property
    def members(self) -> Mapping[str, Sequence[str]]:
        """The members of each role."""
        return {self.writer: self.writers, self.reader: self.readers, self.admin: self.admins}


def grant(database: PostgresDatabase, roles: Roles, *, apply: bool) -> list[str]:
    """Make the roles and their privileges, in one transaction; return the statements.

    Running it again changes nothing. Without ``apply`` nothing is changed at all.

    Raises:
        LedgerReadOnly: the user may not make roles, or does not own the ledger.
    """
    with database.administering() as connection:
        plan = _plan(connection, roles)
        if apply:
            for statement in plan:
                connection.execute(statement)
        return [statement.as_string(connection) for statement in plan]


def _plan(connection: psycopg.Connection[Any], roles: Roles) -> list[sql.Composed]:
    three = {"writer": roles.writer, "reader": roles.reader, "admin": roles.admin}
    plan = [
        _sql("CREATE ROLE {role} NOLOGIN", role=name)
        for name in three.values()
        if _one(connection, "SELECT 1 FROM pg_roles WHERE rolname = %s", name) is None
    ]
    plan += _ownership(connection, roles.admin)
    plan += [
        _sql(text, schema=SCHEMA, **three)
        for text in (
            "REVOKE ALL ON SCHEMA {schema} FROM PUBLIC, {writer}, {reader}",
            "REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM PUBLIC, {writer}, {reader}",
            "REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {schema} FROM PUBLIC, {writer}, {reader}",
            "GRANT USAGE ON SCHEMA {schema} TO {writer}, {reader}",
            "GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {writer}, {reader}",
        )
    ]
    plan += [
        _sql("GRANT INSERT ON {schema}.{table} TO {role}", **_table(table), role=roles.writer)
        for table in TABLES
        if table != "migrations"
    ]
    for role, members in roles.members.items():
        plan += [_sql("GRANT {role} TO {member}", role=role, member=name) for name in members]
    return plan


def _ownership(connection: psycopg.Connection[Any], admin: str) -> list[sql.Composed]:
    """Hand schema, tables and functions to the administrator."""
    plan: list[sql.Composed] = []
    if _one(connection, "SELECT 1 FROM pg_roles WHERE rolname = current_user AND rolsuper") is None:
        # Only a superuser may give away what it owns to a role that it is no member of.
        here = _one(connection, "SELECT current_database()::text") or ""
        plan.append(_sql("GRANT {admin} TO CURRENT_USER", admin=admin))
        plan.append(_sql("GRANT CREATE ON DATABASE {here} TO {admin}", here=here, admin=admin))
    plan.append(_sql("ALTER SCHEMA {schema} OWNER TO {admin}", schema=SCHEMA, admin=admin))
    plan += [
        _sql("ALTER TABLE {schema}.{table} OWNER TO {admin}", **_table(table), admin=admin)
        for table in TABLES
    ]
    plan.append(
        _sql("ALTER FUNCTION {schema}.refuse_change() OWNER TO {admin}", schema=SCHEMA, admin=admin)
    )
    return plan


def _table(name: str) -> dict[str, str]:
    return {"schema": SCHEMA, "table": name}


def _sql(text: LiteralString, **names: str) -> sql.Composed:
    """Put names, quoted, into a statement."""
    return sql.SQL(text).format(**{key: sql.Identifier(name) for key, name in names.items()})


def _one(connection: psycopg.Connection[Any], text: LiteralString, *params: str) -> str | None:
    row = connection.execute(text, params or None).fetchone()
    return None if row is None else str(row[0])
