"""A server that goes away: what was answered for is kept, and nothing is written twice."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from odi_audit.clock import SystemClock
from odi_audit.errors import ConfigError, LedgerLocked, LedgerUnavailable
from odi_audit.ledger import SqlLedger, open_ledger
from odi_audit.ledger.verify import verify
from odi_audit.model.entries import Draft, Kind
from tests.contract.ledger.places import land
from tests.stack.ledger.places import PostgresPlace
from tests.stack.postgres import running_postgres


@pytest.fixture
def ledger(place: PostgresPlace) -> Iterator[SqlLedger]:
    made = place.create(SystemClock())
    yield made
    made.close()


def cut_connections(place: PostgresPlace) -> int:
    """End every other session of the database, as a failing network does."""
    rows = place.look(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    return len(rows)


def test_reads_and_writes_go_on_over_a_new_connection(
    place: PostgresPlace, ledger: SqlLedger
) -> None:
    land(ledger, 1)
    assert cut_connections(place) >= 1
    assert ledger.head().size == 2
    assert cut_connections(place) >= 1
    land(ledger, 2)
    assert cut_connections(place) >= 1
    with ledger.database.reading() as session:
        assert session.rows("SELECT count(*) FROM entries") == [(4,)]
    assert verify(ledger, verifiers=[]).findings == ()


def test_a_connection_lost_inside_a_write_is_not_repeated(
    place: PostgresPlace, ledger: SqlLedger
) -> None:
    def write() -> None:
        with ledger.database.writing() as session:
            session.run("INSERT INTO settled VALUES (1, 1)")
            assert cut_connections(place) >= 1
            session.run("INSERT INTO settled VALUES (2, 2)")

    with pytest.raises(LedgerUnavailable):
        write()
    assert place.look("SELECT * FROM settled") == []
    land(ledger, 1)


def test_an_owner_is_held_again_after_its_connection_broke(
    place: PostgresPlace, ledger: SqlLedger
) -> None:
    other = place.open(SystemClock())
    ledger.hold("me")
    assert cut_connections(place) >= 3
    assert not other.is_alive("me")
    ledger.append(Draft(kind=Kind.READ))
    assert other.is_alive("me")
    assert cut_connections(place) >= 1
    taken = place.open(SystemClock())
    taken.hold("me")
    with pytest.raises(LedgerLocked):
        ledger.append(Draft(kind=Kind.READ))
    assert taken.head().size == 1, "whoever lost its name writes no more"
    taken.close()
    other.close()


def test_a_crashed_server_keeps_what_was_answered_for() -> None:
    with running_postgres() as server:
        place = PostgresPlace(server)
        ledger = place.create(SystemClock())
        for number in range(5):
            land(ledger, number)
        server.stop("immediate")
        with pytest.raises(LedgerUnavailable):
            ledger.append(Draft(kind=Kind.READ))
        with pytest.raises(LedgerUnavailable):
            place.open(SystemClock())
        server.start()
        land(ledger, 5)
        assert ledger.head().size == 12
        assert verify(ledger, verifiers=[]).findings == ()
        ledger.close()


def test_a_wrong_password_is_not_repeated(place: PostgresPlace) -> None:
    url = place.server.url(place.database, password="s3cr3t-in-url")
    with pytest.raises(LedgerUnavailable) as caught:
        open_ledger(url, clock=SystemClock())
    assert "s3cr3t" not in str(caught.value)
    with pytest.raises(LedgerUnavailable) as caught:
        open_ledger(place.url, clock=SystemClock(), password="s3cr3t-given")
    assert "s3cr3t" not in str(caught.value)
    assert "s3cr3t" not in repr(caught.value.__cause__)


def test_a_malformed_url_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        open_ledger("postgresql://u:s3cr3t@h:p o r t/d?nonsense=1", clock=SystemClock())
    assert "s3cr3t" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_the_password_may_be_given_beside_the_url(place: PostgresPlace) -> None:
    place.create().close()
    server = place.server
    bare = f"postgresql://postgres@{server.host}:{server.port}/{place.database}"
    ledger = open_ledger(bare, clock=SystemClock(), password=server.password)
    assert server.password not in ledger.database.shown
    ledger.close()


def test_commits_are_durable_whatever_the_servers_default(place: PostgresPlace) -> None:
    place.create().close()
    with place.server.admin(place.database) as connection:
        connection.execute(f"ALTER DATABASE {place.database} SET synchronous_commit = off".encode())
    ledger = place.open(SystemClock())
    assert ledger.database.rows("SHOW synchronous_commit") == [("on",)]
    ledger.close()


def test_the_server_is_a_real_one(place: PostgresPlace) -> None:
    with psycopg.connect(place.url) as connection:
        assert connection.info.server_version >= 150000
