"""The relay's state on PostgreSQL: the contract, and an account that cannot write to the ledger."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from lineage.relay.relay import Manner
from lineage.relay.sources import LEDGER
from lineage.relay.state_open import SCHEMA, open_state
from lineage.relay.state_sql import SqlState
from odi_audit.clock import SystemClock
from odi_audit.errors import LedgerReadOnly, RelayStateUnavailable
from odi_audit.ledger import create_ledger, open_ledger
from odi_audit.ledger.grants import Roles, grant
from odi_audit.ledger.postgresql import PostgresDatabase
from odi_audit.model.entries import Draft, Kind
from tests.contract.relay.contract import StateContract, StatePlace, lease, state
from tests.stack.postgres import PostgresServer, running_postgres
from tests.support.marquez import receiver
from tests.support.relaying import events_in, fill, forever, http, judge, relay_of

__all__ = ["lease", "state"]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_postgres() as running:
        yield running


class PostgresStatePlace(StatePlace):
    def __init__(self, server: PostgresServer) -> None:
        self.url = server.url(server.new_database())
        self.opened: list[SqlState] = []

    def open(self) -> SqlState:
        made = open_state(self.url)
        assert made is not None
        self.opened.append(made)
        return made


class TestPostgresqlState(StateContract):
    @pytest.fixture
    def place(self, server: PostgresServer) -> Iterator[PostgresStatePlace]:
        made = PostgresStatePlace(server)
        yield made
        for opened in made.opened:
            opened.close()


def test_the_relays_account_reads_the_ledger_and_writes_its_own_schema_only(
    server: PostgresServer,
) -> None:
    database = server.new_database()
    ledger = create_ledger(server.url(database), clock=SystemClock())
    fill(ledger, range(6))
    name, password = server.new_login()
    assert isinstance(ledger.database, PostgresDatabase)
    grant(ledger.database, Roles(readers=[name]), apply=True)
    url = server.url(database, user=name, password=password)
    with pytest.raises(RelayStateUnavailable):
        open_state(url)
    with server.admin(database) as connection:
        connection.execute(
            sql.SQL("CREATE SCHEMA {} AUTHORIZATION {}").format(
                sql.Identifier(SCHEMA), sql.Identifier(name)
            )
        )
    store = open_state(url)
    assert store is not None
    reader = open_ledger(url, clock=SystemClock(), read_only=True)
    with receiver() as backend:
        manner = Manner(settle_s=0.05, retry_s_max=0.02)
        outcome = relay_of(http(backend.url), reader, store, manner=manner).run(forever())
        assert (outcome.sent, outcome.left) == (18, 0)
        taken = [(one.index, one.run, one.state) for one in backend.arrivals if one.taken]
        judge(events_in(ledger), taken, backend.states)
    assert store.positions("default") == {LEDGER: "18"}
    with pytest.raises(LedgerReadOnly):
        open_ledger(url, clock=SystemClock()).append(Draft(kind=Kind.READ))
    with (
        psycopg.connect(url, autocommit=True) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("DELETE FROM odi_ledger.entries")
    for opened in (store, reader, ledger):
        opened.close()


def test_a_relays_round_does_not_wait_for_an_append_nor_an_append_for_it(
    server: PostgresServer,
) -> None:
    url = server.url(server.new_database())
    ledger = create_ledger(url, clock=SystemClock(), busy_timeout_s=2)
    store = open_state(url, busy_timeout_s=2)
    assert store is not None
    with ledger.database.writing():
        store.begin("m", "http://m", {})
    other = open_state(url)
    assert other is not None
    with other._database.writing():
        fill(ledger, range(1))
    assert ledger.head().size == 3
    for opened in (store, other, ledger):
        opened.close()
