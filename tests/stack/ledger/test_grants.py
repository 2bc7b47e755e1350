"""Least privilege: what each role can do, and that it cannot do more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg import sql

from odi_audit.clock import SystemClock
from odi_audit.errors import LedgerReadOnly, UsageError
from odi_audit.ledger import SqlLedger, open_ledger
from odi_audit.ledger.grants import Roles, grant
from odi_audit.ledger.postgresql import SCHEMA, PostgresDatabase
from odi_audit.ledger.schema import TABLES
from odi_audit.ledger.verify import verify
from odi_audit.model.entries import Draft, Kind
from tests.contract.ledger.places import land
from tests.stack.ledger.places import PostgresPlace

ENTRIES = f"{SCHEMA}.entries"

NOBODYS_RIGHT = [
    *(f"{verb} {SCHEMA}.{table}" for table in TABLES for verb in ("DELETE FROM", "TRUNCATE")),
    *(f"DROP TABLE {SCHEMA}.{table}" for table in TABLES),
    *(f"ALTER TABLE {SCHEMA}.{table} ADD COLUMN x int" for table in TABLES),
    *(f"ALTER TABLE {SCHEMA}.{table} DISABLE TRIGGER ALL" for table in ("entries", "nodes")),
    f"UPDATE {ENTRIES} SET body = ''",
    f"UPDATE {SCHEMA}.nodes SET hash = ''",
    f"UPDATE {SCHEMA}.entry_index SET kind = 'x'",
    f"UPDATE {SCHEMA}.landed SET idx = 0",
    f"UPDATE {SCHEMA}.migrations SET version = 9",
    f"INSERT INTO {SCHEMA}.migrations VALUES (9, 'x', 'y')",
    f"INSERT INTO {ENTRIES} VALUES (0, '', '') ON CONFLICT (idx) DO UPDATE SET body = ''",
    f"DROP TRIGGER entries_append_only ON {ENTRIES}",
    f"CREATE TRIGGER mine BEFORE INSERT ON {ENTRIES} EXECUTE FUNCTION {SCHEMA}.refuse_change()",
    f"DROP FUNCTION {SCHEMA}.refuse_change() CASCADE",
    f"CREATE OR REPLACE FUNCTION {SCHEMA}.refuse_change() RETURNS trigger LANGUAGE sql AS ''",
    f"CREATE TABLE {SCHEMA}.mine (x int)",
    f"DROP SCHEMA {SCHEMA} CASCADE",
    f"ALTER SCHEMA {SCHEMA} RENAME TO mine",
    f"ALTER TABLE {ENTRIES} OWNER TO CURRENT_USER",
    f"CREATE RULE mine AS ON INSERT TO {ENTRIES} DO INSTEAD NOTHING",
    f"CREATE INDEX mine ON {ENTRIES} (leaf)",
    f"BEGIN; LOCK TABLE {ENTRIES} IN ACCESS EXCLUSIVE MODE",
    "SET session_replication_role = replica",
    "SET ROLE odi_ledger_admin",
    "CREATE ROLE mine",
]
"""What neither a writer nor a reader may do."""


class Granted:
    """A ledger with its roles, and a login for each."""

    def __init__(self, place: PostgresPlace) -> None:
        self.place = place
        self.ledger = place.create(SystemClock())
        land(self.ledger, 1)
        server = place.server
        self.logins = {name: server.new_login() for name in ("writer", "reader", "admin", "other")}
        self.roles = Roles(
            writers=[self.logins["writer"][0]],
            readers=[self.logins["reader"][0]],
            admins=[self.logins["admin"][0]],
        )
        self.plan = self.grant(apply=True)

    def grant(self, *, apply: bool) -> list[str]:
        assert isinstance(self.ledger.database, PostgresDatabase)
        return grant(self.ledger.database, self.roles, apply=apply)

    def url(self, who: str) -> str:
        name, password = self.logins[who]
        return self.place.server.url(self.place.database, user=name, password=password)

    def open(self, who: str, **options: Any) -> SqlLedger:
        return open_ledger(self.url(who), clock=SystemClock(), **options)

    def tries(self, who: str, statement: str) -> None:
        with psycopg.connect(self.url(who), autocommit=True) as connection:
            connection.execute(statement.encode())


@pytest.fixture(scope="module")
def granted(server: Any) -> Any:
    made = Granted(PostgresPlace(server))
    yield made
    made.ledger.close()


@pytest.mark.parametrize("who", ["writer", "reader"])
@pytest.mark.parametrize("statement", NOBODYS_RIGHT)
def test_neither_writer_nor_reader_can_do_more(granted: Granted, who: str, statement: str) -> None:
    before = granted.place.bodies()
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        granted.tries(who, statement)
    assert granted.place.bodies() == before


@pytest.mark.parametrize("who", ["writer", "reader"])
def test_what_a_role_has_it_cannot_hand_on(granted: Granted, who: str) -> None:
    granted.tries(who, f"GRANT ALL ON {ENTRIES} TO PUBLIC")  # A warning, and nothing is granted.
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        granted.tries("other", f"SELECT * FROM {ENTRIES}")


@pytest.mark.parametrize("table", TABLES)
def test_a_reader_cannot_insert(granted: Granted, table: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        granted.tries("reader", f"INSERT INTO {SCHEMA}.{table} DEFAULT VALUES")


def test_a_writer_can_do_all_that_a_ledger_does(granted: Granted) -> None:
    ledger = granted.open("writer")
    intent, _ = land(ledger, 2)
    assert ledger.settled_by(intent)
    ledger.hold("me")
    assert ledger.is_alive("me")
    assert verify(ledger, verifiers=[]).findings == ()
    with pytest.raises(LedgerReadOnly):
        ledger.rebuild_projections()
    ledger.close()


def test_a_reader_can_read_and_verify(granted: Granted) -> None:
    ledger = granted.open("reader", read_only=True)
    assert ledger.head() == granted.ledger.head()
    assert verify(ledger, verifiers=[]).findings == ()
    ledger.close()
    writing = granted.open("reader")
    with pytest.raises(LedgerReadOnly) as caught:
        writing.append(Draft(kind=Kind.READ))
    assert caught.value.hint == "as its owner: odi-audit ledger grant --apply"
    writing.close()


def test_an_administrator_can_rebuild_but_triggers_still_stop_a_slip(granted: Granted) -> None:
    ledger = granted.open("admin")
    assert ledger.rebuild_projections() == ledger.head().size
    ledger.close()
    with pytest.raises(psycopg.errors.RaiseException, match="append-only"):
        granted.tries("admin", f"DELETE FROM {ENTRIES}")
    with pytest.raises(psycopg.errors.RaiseException, match="append-only"):
        granted.tries("admin", f"TRUNCATE {ENTRIES}")


def test_somebody_without_a_role_sees_nothing(granted: Granted) -> None:
    with pytest.raises(LedgerReadOnly, match="may not use"):
        granted.open("other", read_only=True)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        granted.tries("other", f"SELECT * FROM {ENTRIES}")


def test_granting_again_changes_nothing(granted: Granted) -> None:
    def privileges() -> list[tuple[Any, ...]]:
        return granted.place.look(
            "SELECT relname, relacl::text, relowner::regrole::text FROM pg_class c"
            " JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = 'odi_ledger'"
            " AND relkind = 'r' ORDER BY 1"
        )

    before = privileges()
    assert len(before) == len(TABLES), "every table has its owner and its privileges"
    again = granted.grant(apply=True)
    assert privileges() == before
    assert not [statement for statement in again if statement.startswith("CREATE")]


def test_too_much_given_by_hand_is_taken_back(granted: Granted) -> None:
    granted.place.attack(f"GRANT ALL ON {ENTRIES} TO odi_ledger_writer, PUBLIC")
    granted.grant(apply=True)
    for who in ("writer", "other"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            granted.tries(who, f"UPDATE {ENTRIES} SET body = ''")


def test_a_plan_changes_nothing(place: PostgresPlace) -> None:
    ledger = place.create(SystemClock())
    assert isinstance(ledger.database, PostgresDatabase)
    plan = grant(ledger.database, Roles(writer="w1", reader="r1", admin="a1"), apply=False)
    assert plan[0] == 'CREATE ROLE "w1" NOLOGIN'
    found = place.look("SELECT 1 FROM pg_roles WHERE rolname IN ('w1', 'r1', 'a1')")
    assert found == []
    ledger.close()


def test_an_owner_who_is_no_superuser_can_grant(place: PostgresPlace) -> None:
    name, password = place.server.new_login(createrole=True)
    with place.server.admin(place.database) as connection:
        connection.execute(
            sql.SQL("ALTER DATABASE {} OWNER TO {}").format(
                sql.Identifier(place.database), sql.Identifier(name)
            )
        )
    place.url = place.server.url(place.database, user=name, password=password)
    ledger = place.create(SystemClock())
    assert isinstance(ledger.database, PostgresDatabase)
    odd = Roles(writer='w "odd"; DROP', reader="r'ö", admin="a-2")
    grant(ledger.database, odd, apply=True)
    land(ledger, 1)
    assert place.look("SELECT count(*) FROM pg_roles WHERE rolname = 'w \"odd\"; DROP'") == [(1,)]
    ledger.close()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Roles(writer="x", reader="x"),
        lambda: Roles(writer=""),
        lambda: Roles(admin="é" * 32),
        lambda: Roles(writers=["a\0b"]),
    ],
)
def test_names_that_cannot_be_roles_are_refused(make: Callable[[], Roles]) -> None:
    with pytest.raises(UsageError):
        make()
