"""A lake whose catalog and ledger are in PostgreSQL: Spark and pyiceberg on one real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from odi_audit.clock import SystemClock
from odi_audit.doctor import State, examine
from odi_audit.errors import CatalogUnavailable, LedgerUnavailable
from odi_audit.model.tables import TableName
from odi_audit.spark import listing
from odi_audit.spark.session import session_in
from odi_audit.workspace import Choices, Workspace
from tests.stack.postgres import PostgresServer, running_postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_postgres() as running:
        yield running


def make(server: PostgresServer, root: Path) -> tuple[Workspace, dict[str, str]]:
    """A lake in a database of its own; the password is in the environment only."""
    place = f"postgresql://postgres@{server.host}:{server.port}/{server.new_database()}"
    env = {"ODI_CATALOG__PASSWORD": server.password, "ODI_LEDGER__PASSWORD": server.password}
    choices = Choices(catalog_type="postgresql", catalog_uri=place, ledger_url=place)
    return Workspace.init(root, env=env, choices=choices), env


def test_spark_and_pyiceberg_share_a_catalog_on_postgresql(
    jvm: SparkSession, server: PostgresServer, tmp_path: Path
) -> None:
    lake, _ = make(server, tmp_path / "lake")
    assert lake.catalog().tables() == []
    spark = session_in(jvm, lake.settings)
    lake.use_spark(spark)
    name = TableName(("Sales", "Örders 'x'"))
    spark.sql("CREATE NAMESPACE lake.Sales")
    spark.sql(f"CREATE TABLE {name.sql('lake')} (id BIGINT) USING iceberg")
    spark.sql(f"INSERT INTO {name.sql('lake')} VALUES (1), (2)")
    assert listing.tables(spark, "lake") == lake.catalog().tables() == [name]
    state = lake.catalog().load(name)
    assert state.format_version == 3
    assert [snapshot.summary["added-records"] for snapshot in state.snapshots] == ["2"]
    lake.close()


def test_the_doctor_finds_a_lake_on_postgresql_healthy(
    jvm: SparkSession, server: PostgresServer, tmp_path: Path
) -> None:
    lake, _ = make(server, tmp_path / "lake")
    lake.use_spark(session_in(jvm, lake.settings))
    checks = list(examine(lake, clock=SystemClock(), spark=True))
    assert [check for check in checks if check.state is not State.OK] == []
    lake.close()


def test_the_password_is_in_no_file_of_the_lake(server: PostgresServer, tmp_path: Path) -> None:
    lake, _ = make(server, tmp_path / "lake")
    lake.close()
    for path in lake.root.rglob("*"):
        assert not path.is_file() or server.password.encode() not in path.read_bytes()


def test_a_wrong_password_is_an_error_without_the_password(
    server: PostgresServer, tmp_path: Path
) -> None:
    lake, env = make(server, tmp_path / "lake")
    lake.close()
    wrong = dict.fromkeys(env, "not-the-password")
    found = Workspace.find(lake.root, env=wrong)
    with pytest.raises(CatalogUnavailable) as catalog:
        found.catalog().tables()
    with pytest.raises(LedgerUnavailable) as ledger:
        found.ledger()
    for caught in (catalog, ledger):
        assert "not-the-password" not in str(caught.value)
