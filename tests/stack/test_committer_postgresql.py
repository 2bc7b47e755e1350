"""The committer on PostgreSQL: the same operations, with catalog and ledger on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import odi_audit as odi
from odi_audit.errors import (
    CatalogUnavailable,
    LedgerUnavailable,
    OdiError,
    RuleBroken,
    TableExists,
    TableNotFound,
)
from odi_audit.model.entries import Kind
from odi_audit.query.verify import verify
from odi_audit.spark.session import session_in
from odi_audit.workspace import Choices, Workspace
from tests.stack.postgres import PostgresServer, running_postgres
from tests.support.independent import Eyes
from tests.support.story import COLUMNS, TABLE, Teller, at, check_landed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PRIVATE = "PRIVATE-8141"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_postgres() as running:
        yield running


@pytest.fixture
def lake(jvm: SparkSession, server: PostgresServer, tmp_path: Path) -> Iterator[Workspace]:
    place = f"postgresql://postgres@{server.host}:{server.port}/{server.new_database()}"
    env = {"ODI_CATALOG__PASSWORD": server.password, "ODI_LEDGER__PASSWORD": server.password}
    choices = Choices(catalog_type="postgresql", catalog_uri=place, ledger_url=place)
    with Workspace.init(tmp_path / "lake", env=env, choices=choices) as made:
        made.use_spark(session_in(jvm, made.settings))
        yield made


def look(lake: Workspace, server: PostgresServer) -> Eyes:
    database = lake.settings.catalog.uri.rsplit("/", 1)[1]
    uri = server.url(database).replace("postgresql://", "postgresql+psycopg://")
    return Eyes(uri, lake.root / "warehouse")


@pytest.fixture
def eyes(lake: Workspace, server: PostgresServer) -> Eyes:
    return look(lake, server)


def test_every_operation_lands_with_stamps_entries_and_rows(lake: Workspace, eyes: Eyes) -> None:
    ledger = lake.ledger()
    with odi.run("sales/orders", lake=lake) as run:
        run.create_table(TABLE, COLUMNS, partitioned_by=["region"])
        for operation, commit, rows in Teller(run=run, spark=lake.spark()).steps():
            receipt = commit()
            check_landed(eyes, ledger, receipt, operation)
            assert eyes.rows(TABLE) == sorted(rows.values(), key=str), operation
    assert ledger.open_intents() == []
    assert verify(ledger, lake.catalog()) == []


def test_refusals_repeats_and_many_tables_are_as_on_the_embedded_lake(
    lake: Workspace, eyes: Eyes, server: PostgresServer
) -> None:
    spark = lake.spark()
    with odi.run("sales/orders", lake=lake) as run:
        run.create_table(TABLE, COLUMNS)
        run.create_table("sales.raw", COLUMNS)
        teller = Teller(run=run, spark=spark)
        bad = teller.given((1, PRIVATE, -1))
        rules = odi.Contract(rules={"not negative": "amount >= 0"})
        with pytest.raises(RuleBroken, match=PRIVATE):
            run.append(bad, TABLE, offsets=at(0, 1), contract=rules)
        assert eyes.history(TABLE) == []
        with run.batch(offsets=at(0, 4)) as batch:
            batch.append(teller.frame(0, 4), "sales.raw")
            batch.upsert(teller.frame(0, 4), TABLE, key=["id"])
        assert batch.receipt is not None
        assert batch.receipt.fresh
        again = run.append(teller.frame(4, 5), TABLE, offsets=at(4, 5))
        assert again.batch == run.append(teller.frame(4, 5), TABLE, offsets=at(4, 5)).batch
        run.evolve_schema(TABLE, add={"note": "string"})
        run.rollback(TABLE, to_batch=batch.receipt.batch)
    assert [row[0] for row in eyes.rows(TABLE)] == [0, 1, 2, 3]
    assert verify(lake.ledger(), lake.catalog()) == []
    database = lake.settings.catalog.uri.rsplit("/", 1)[1]
    with server.admin(database) as connection:
        bodies = connection.execute("SELECT body FROM odi_ledger.entries").fetchall()
    assert len(bodies) == lake.ledger().head().size
    assert not [body for (body,) in bodies if PRIVATE.encode() in bytes(body)]  # type: ignore[call-overload]


def test_main_that_moves_is_noticed_by_the_catalogs_own_comparison(
    lake: Workspace, eyes: Eyes
) -> None:
    spark = lake.spark()
    other = odi.run("sales/other", lake=lake).__enter__()
    other.create_table(TABLE, COLUMNS)
    teller = Teller(run=other, spark=spark)
    moved: list[str] = []

    def reach(point: str) -> None:
        if point == "gated":
            moved.append(point)
            other.append(
                teller.given((90 + len(moved), "b", 1)), TABLE, offsets=odi.once(str(len(moved)))
            )

    with odi.run("sales/orders", lake=lake, reach=reach) as run:
        run.append(teller.frame(0, 4), TABLE, offsets=at(0, 4))
        run.upsert(teller.frame(2, 6), TABLE, key=["id"], offsets=at(4, 8))
    assert len(moved) == 2
    assert [row[0] for row in eyes.rows(TABLE)] == [0, 1, 2, 3, 4, 5, 91, 92]
    assert len(eyes.history(TABLE)) == 4


def test_a_server_that_goes_away_in_the_middle_loses_nothing(
    lake: Workspace, server: PostgresServer
) -> None:
    with odi.run("sales/orders", lake=lake) as run:
        run.create_table(TABLE, COLUMNS)
        teller = Teller(run=run, spark=lake.spark())

    def stop(point: str) -> None:
        if point == "staged":
            server.stop("immediate")

    cut = odi.run("sales/orders", lake=lake, reach=stop).__enter__()
    with pytest.raises(OdiError) as caught:
        cut.append(teller.frame(0, 4), TABLE, offsets=at(0, 4))
    server.start()
    assert isinstance(caught.value, CatalogUnavailable | LedgerUnavailable)
    assert caught.value.retry == "safe"
    lake.close()
    with odi.run("sales/orders", lake=lake) as again:
        receipt = again.append(teller.frame(0, 4), TABLE, offsets=at(0, 4))
    assert receipt.fresh
    assert len(look(lake, server).rows(TABLE)) == 4
    kinds = [entry.kind for entry in lake.ledger().batch_entries(receipt.batch)]
    assert kinds.count(Kind.LANDED) == 1
    assert lake.ledger().open_intents() == []


def test_a_rename_is_as_on_the_embedded_lake(lake: Workspace, eyes: Eyes) -> None:
    moved, spark = "archive.orders_2026", lake.spark()

    def taken(point: str) -> None:
        if point == "staged":
            spark.sql("CREATE TABLE lake.sales.taken (id bigint) USING iceberg")

    with odi.run("sales/orders", lake=lake) as run:
        run.create_table(TABLE, COLUMNS)
        teller = Teller(run=run, spark=spark)
        run.append(teller.frame(0, 4), TABLE, offsets=at(0, 4))
        with odi.run("sales/other", lake=lake, reach=taken) as other, pytest.raises(TableExists):
            other.rename_table(TABLE, to="sales.taken")
        receipt = run.rename_table(TABLE, to=moved)
        assert receipt.landing.table.uuid == eyes.metadata(moved)["table-uuid"]
        again = run.rename_table(TABLE, to=moved)
        assert (again.fresh, again.batch) == (False, receipt.batch)
        with pytest.raises(TableNotFound, match=f"renamed it to {moved}"):
            run.rename_table(TABLE, to="sales.elsewhere")
        assert run.append(teller.frame(4, 6), moved, offsets=at(4, 6)).fresh
    assert [row[0] for row in eyes.rows(moved)] == list(range(6))
    assert lake.ledger().open_intents() == []
    assert verify(lake.ledger(), lake.catalog()) == []


@pytest.mark.parametrize("point", ["staged", "published:0"])
def test_a_server_that_goes_away_around_a_rename_leaves_it_done_and_recorded_or_not_done(
    lake: Workspace, server: PostgresServer, point: str
) -> None:
    with odi.run("sales/orders", lake=lake) as run:
        run.create_table(TABLE, COLUMNS)
        uuid = run.append(
            Teller(run=run, spark=lake.spark()).frame(0, 4), TABLE, offsets=at(0, 4)
        ).landing.table.uuid

    def stop(reached: str) -> None:
        if reached == point:
            server.stop("immediate")

    cut = odi.run("sales/orders", lake=lake, reach=stop).__enter__()
    with pytest.raises(OdiError):
        cut.rename_table(TABLE, to="sales.moved")
    server.start()
    lake.close()
    with odi.run("sales/orders", lake=lake) as again:
        receipt = again.rename_table(TABLE, to="sales.moved")
    assert (receipt.fresh, receipt.landing.table.uuid) == (point == "staged", uuid)
    assert look(lake, server).metadata("sales.moved")["table-uuid"] == uuid
    kinds = [entry.kind for entry in lake.ledger().scan()]
    assert kinds.count(Kind.TABLE_RENAMED) == 1
    assert lake.ledger().open_intents() == []
    assert verify(lake.ledger(), lake.catalog()) == []
