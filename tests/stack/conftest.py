"""Real servers, one of each for the whole test process; a test that breaks one starts it again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

import pytest

from odi_audit.spark.session import session_in
from odi_audit.workspace import Workspace
from tests.support.servers.connect import Connect
from tests.support.servers.debezium import Captured, running_database
from tests.support.servers.kafka import Kafka
from tests.support.servers.process import Server
from tests.support.servers.registry import Registry
from tests.support.servers.toxiproxy import Toxiproxy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Kind = TypeVar("Kind", bound=Server)


def running(server: Kind) -> Iterator[Kind]:
    """Start a server, hand it out, and remove it at the end."""
    try:
        server.start_first()
        yield server
    finally:
        server.remove()


@pytest.fixture
def lake(make_lake: Callable[..., Workspace], jvm: SparkSession) -> Workspace:
    """Return a new lake on the Spark of this process."""
    made = make_lake()
    made.use_spark(session_in(jvm, made.settings))
    return made


@pytest.fixture(scope="session")
def _kafka() -> Iterator[Kafka]:
    yield from running(Kafka())


@pytest.fixture
def kafka(_kafka: Kafka) -> Kafka:
    """The broker, running, whatever the last test did to it."""
    return up(_kafka)


@pytest.fixture(scope="session")
def _registry() -> Iterator[Registry]:
    yield from running(Registry())


@pytest.fixture
def registry(_registry: Registry) -> Registry:
    """The schema registry, running."""
    return up(_registry)


@pytest.fixture(scope="session")
def _connect(_kafka: Kafka) -> Iterator[Connect]:
    yield from running(Connect(up(_kafka).bootstrap))


@pytest.fixture
def connect(_connect: Connect, kafka: Kafka) -> Connect:
    """The Connect worker, running, on :func:`kafka`."""
    return up(_connect)


@pytest.fixture(scope="session")
def _captured(_connect: Connect) -> Iterator[Captured]:
    with running_database() as server:
        yield Captured(server=server, connect=_connect)


@pytest.fixture
def debezium_postgres(_captured: Captured, connect: Connect) -> Captured:
    """A PostgreSQL whose tables Debezium can capture into :func:`kafka`."""
    return _captured


@pytest.fixture(scope="session")
def _toxiproxy() -> Iterator[Toxiproxy]:
    yield from running(Toxiproxy())


@pytest.fixture
def toxiproxy(_toxiproxy: Toxiproxy) -> Toxiproxy:
    """The proxy, running."""
    return up(_toxiproxy)


def up(server: Kind) -> Kind:
    """Start a server again if a test left it down."""
    if not server.running:
        server.start()
    return server
