from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.stack.ledger.places import PostgresPlace
from tests.stack.postgres import PostgresServer, running_postgres


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    with running_postgres() as running:
        yield running


@pytest.fixture
def place(server: PostgresServer) -> PostgresPlace:
    return PostgresPlace(server)
