"""Bad input and broken surroundings: a clear error, the right status, and nothing lost."""

from __future__ import annotations

import dataclasses
import json
import os
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as sf

import odi_audit as odi
from odi_audit.cli.app import run as command
from odi_audit.committer.run import Run
from odi_audit.errors import (
    BadTableName,
    CatalogUnavailable,
    Exit,
    LedgerBroken,
    LedgerLocked,
    LedgerMissing,
    LedgerReadOnly,
    LedgerTooNew,
    NotSupported,
    OdiError,
    OutcomeUnknown,
    SchemaMismatch,
    StorageError,
    TableNotFound,
    UsageError,
)
from odi_audit.ids import new_run_id
from odi_audit.model.entries import Kind
from odi_audit.model.receipts import Receipt
from odi_audit.model.tables import parse
from odi_audit.query.verify import verify
from odi_audit.spark.session import session_in
from odi_audit.workspace import Workspace
from tests.contract.ledger.places import SqlitePlace
from tests.support.independent import Eyes, on_disk
from tests.support.story import COLUMNS, TABLE, Teller, at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ODD = 'Größe.`It\'s a "Täble" of O``Hara`'
QUICK = {"catalog.properties": json.dumps({"jdbc.busy_timeout": "100"})}


@pytest.fixture
def run(lake: Workspace, spark: SparkSession) -> Run:
    started = odi.run("sales/orders", lake=lake).__enter__()
    started.create_table(TABLE, COLUMNS)
    return started


@pytest.fixture
def teller(run: Run, spark: SparkSession) -> Teller:
    return Teller(run=run, spark=spark)


def fails(kind: type[OdiError], status: Exit, commit: Callable[[], object]) -> OdiError:
    with pytest.raises(kind) as caught:
        commit()
    assert type(caught.value) is kind
    assert caught.value.exit_status is status
    assert caught.value.hint or kind is LedgerReadOnly
    return caught.value


# -- what the caller asks for --------------------------------------------------------------------


def test_an_unknown_table_is_named_with_its_neighbours(run: Run, teller: Teller) -> None:
    told = fails(
        TableNotFound,
        Exit.NOT_FOUND,
        lambda: run.append(teller.frame(0, 1), "sales.order", offsets=at(0, 1)),
    )
    assert "did you mean sales.orders?" in told.message
    fails(TableNotFound, Exit.NOT_FOUND, lambda: run.delete("nowhere.at_all", where="true"))
    for name in ("orders", "sales.", "sales.`a", "sales.a/b", "sales..b"):
        with pytest.raises(BadTableName) as caught:
            run.delete(name, where="true")
        assert caught.value.exit_status is Exit.USAGE


def test_columns_that_do_not_fit_are_listed_one_by_one(
    lake: Workspace, run: Run, teller: Teller
) -> None:
    size = lake.ledger().head().size
    wrong = teller.frame(0, 2).selectExpr("id AS ID", "'x' AS amount", "1 AS colour")
    told = fails(SchemaMismatch, Exit.FINDINGS, lambda: run.append(wrong, TABLE, offsets=at(0, 2)))
    assert told.facts["differences"] == [
        "missing   region string",
        "extra     colour int",
        "wrong     amount: table has int, batch has string",
    ]
    assert "evolve_schema" in str(told.hint)
    assert [entry.kind for entry in lake.ledger().scan(size)] == [Kind.INTENT, Kind.REFUSED]
    two = teller.frame(0, 2).selectExpr("id", "region", "amount", "amount AS AMOUNT")
    told = fails(SchemaMismatch, Exit.FINDINGS, lambda: run.append(two, TABLE, offsets=at(0, 2)))
    assert "ambiguous" in told.message
    told = fails(
        SchemaMismatch,
        Exit.FINDINGS,
        lambda: run.upsert(teller.frame(0, 2).drop("amount"), TABLE, key=["id"], offsets=at(0, 2)),
    )
    assert "missing   amount int" in told.message
    # A narrower type fits, in any order of the columns and any spelling of their names.
    fits = teller.frame(0, 2).selectExpr("CAST(amount AS smallint) AS Amount", "region", "id")
    assert run.append(fits, TABLE, offsets=at(0, 2)).fresh
    assert Eyes.on(lake.root).rows(TABLE) == [(0, "r0", 0), (1, "r1", 3)]


def test_conditions_and_keys_that_are_not_valid_change_nothing(
    lake: Workspace, run: Run, teller: Teller
) -> None:
    run.append(teller.frame(0, 4), TABLE, offsets=at(0, 4))
    before = Eyes.on(lake.root).head(TABLE)
    rows = teller.frame(4, 5)
    for wrong in (
        lambda: run.delete(TABLE, where="no_such = 1"),
        lambda: run.delete(TABLE, where="id ="),
        lambda: run.delete(TABLE, where="id = 1; DROP TABLE lake.sales.orders"),
        lambda: run.update(TABLE, where="id = 1", set={"no_such": "1"}),
        lambda: run.update(TABLE, where="id = 1", set={}),
        lambda: run.upsert(rows, TABLE, key=["no_such"], offsets=at(4, 5)),
        lambda: run.upsert(rows, TABLE, key=["id"], order_by=["no_such"], offsets=at(4, 5)),
        lambda: run.upsert(rows, TABLE, key=["id"], delete_when="gone", offsets=at(4, 5)),
        lambda: run.append(
            rows, TABLE, offsets=at(4, 5), contract=odi.Contract(rules={"r": "no_such > 0"})
        ),
        lambda: odi.run("no-namespace", lake=lake),
    ):
        with pytest.raises(UsageError) as caught:
            wrong()
        assert caught.value.exit_status is Exit.USAGE
        assert len(str(caught.value)) < 2000
    # An overwrite of half a file would need the other half to be written again.
    fails(
        NotSupported,
        Exit.USAGE,
        lambda: run.overwrite(rows, TABLE, where="id = 1", offsets=at(4, 5)),
    )
    assert Eyes.on(lake.root).head(TABLE) == before
    assert lake.ledger().open_intents() == []


def test_names_with_capitals_quotes_and_letters_of_any_script_go_all_the_way(
    lake: Workspace, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = parse(ODD).parts
    eyes = Eyes.on(lake.root)
    with odi.run("größe/täble", lake=lake) as run:
        teller = Teller(run=run, spark=spark)
        run.create_table(ODD, "id bigint NOT NULL, `Ünit's` string", partitioned_by=["id"])
        rows = teller.frame(0, 4).selectExpr("id", "region AS `Ünit's`")
        run.append(rows, ODD, offsets=odi.once("a"), contract=odi.Contract(key=("Ünit's",)))
        run.upsert(rows.filter("id > 1"), ODD, key=["Ünit's"], offsets=odi.once("b"))
        run.update(ODD, where="id = 1", set={"`Ünit's`": "'ß'"})
        run.delete(ODD, where="id = 0")
        run.evolve_schema(ODD, add={"Höhe": "int"})
        assert run.compact(ODD, where="id > 0", options={"rewrite-all": "true"}).fresh
        assert eyes.rows(*parts) == [(1, "ß", None), (2, "r2", None), (3, "r3", None)]
        last = run.append(rows.selectExpr("*", "1 AS `Höhe`"), ODD, offsets=odi.once("c")).snapshot
        run.delete(ODD, where="true")
        run.rollback(ODD, to_snapshot=last)
        run.expire(ODD)
    assert len(eyes.rows(*parts)) == 7
    assert verify(lake.ledger(), lake.catalog(), tables=[parse(ODD)]) == []
    assert command(["verify", ODD, "--lake", str(lake.root), "--json"]) == 0
    assert command(["batches", "--table", ODD, "--lake", str(lake.root), "--json"]) == 0
    assert "Täble" in capsys.readouterr().out


# -- the ledger ------------------------------------------------------------------------------------


def test_no_ledger_no_write(lake: Workspace, run: Run, teller: Teller) -> None:
    eyes, place = Eyes.on(lake.root), SqlitePlace(lake.root)
    run.append(teller.frame(0, 1), TABLE, offsets=at(0, 1))
    before, written = eyes.head(TABLE), on_disk(lake.root)

    def commit() -> Receipt:
        return run.append(teller.frame(1, 2), TABLE, offsets=at(1, 2))

    def reopened() -> object:
        with Workspace.find(lake.root) as fresh:
            return odi.run("sales/orders", lake=fresh, spark=teller.spark)

    reader = dataclasses.replace(run.parts, ledger=lake.ledger(read_only=True))
    fails(LedgerReadOnly, Exit.CONFIG, Run(reader, run.job, new_run_id()).__enter__)

    path = lake.root / "ledger.db"
    path.rename(lake.root / "away.db")
    fails(LedgerMissing, Exit.CONFIG, commit)
    fails(LedgerMissing, Exit.CONFIG, reopened)
    (lake.root / "away.db").rename(path)
    assert eyes.head(TABLE) == before
    assert on_disk(lake.root) == written
    assert commit().fresh
    lake.close()

    place.attack("INSERT INTO migrations VALUES (99, 'from the future', 'x')")
    fails(LedgerTooNew, Exit.CONFIG, reopened)
    place.attack("DELETE FROM migrations WHERE version = 99")
    place.attack("DELETE FROM entries WHERE idx = (SELECT max(idx) FROM entries)")
    fails(LedgerBroken, Exit.FINDINGS, reopened)
    assert len(eyes.rows(TABLE)) == 2


@contextmanager
def locked(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as held:
        held.execute("BEGIN IMMEDIATE")
        yield held


def test_a_locked_ledger_stops_a_batch_before_and_is_settled_after_its_publish(
    lake: Workspace, run: Run, teller: Teller, relimited: Callable[..., Workspace]
) -> None:
    eyes = Eyes.on(lake.root)
    quick = relimited(ledger__busy_timeout_s="0.2")
    impatient = odi.run("sales/orders", lake=quick).__enter__()
    with locked(lake.root / "ledger.db"):
        fails(LedgerLocked, Exit.CONFIG, odi.run("sales/other", lake=quick).__enter__)
        told = fails(
            LedgerLocked,
            Exit.CONFIG,
            lambda: impatient.append(teller.frame(0, 1), TABLE, offsets=at(0, 1)),
        )
        assert told.retry == "safe"
        assert eyes.history(TABLE) == []
    # Locked in the middle: the batch is in the table, and nobody could write that down.
    held = sqlite3.connect(lake.root / "ledger.db", isolation_level=None)

    def lock(point: str) -> None:
        if point == "published:0":
            held.execute("BEGIN IMMEDIATE")

    broken = relimited(ledger__busy_timeout_s="0.2")
    # Nor can it be written down that the run has ended: an error too, where there is no other.
    with (
        pytest.raises(LedgerLocked),
        odi.run("sales/orders", lake=broken, reach=lock) as cut,
    ):
        told = fails(
            OutcomeUnknown,
            Exit.UNKNOWN,
            lambda: cut.append(teller.frame(0, 1), TABLE, offsets=at(0, 1)),
        )
    assert told.hint is not None
    assert told.hint.startswith("odi-audit reconcile --batch b-")
    held.execute("ROLLBACK")
    held.close()
    assert len(eyes.rows(TABLE)) == 1
    assert len(lake.ledger().open_intents()) == 1
    broken.close()
    with odi.run("sales/orders", lake=lake) as again:
        assert lake.ledger().open_intents() == []
        assert not again.append(teller.frame(0, 1), TABLE, offsets=at(0, 1)).fresh
    (landed,) = [entry for entry in lake.ledger().scan() if entry.kind is Kind.LANDED]
    assert landed.facts["reconciled"] is True
    assert len(eyes.rows(TABLE)) == 1
    quick.close()


# -- the catalog and the disk ----------------------------------------------------------------------


@pytest.fixture
def quick(lake: Workspace, jvm: SparkSession) -> Iterator[Workspace]:
    """The same lake, with a catalog that does not wait for locks."""
    made = Workspace.find(lake.root, overrides=QUICK)
    made.use_spark(session_in(jvm, made.settings))
    yield made
    made.close()


def test_a_catalog_locked_in_the_middle_loses_nothing(
    lake: Workspace, run: Run, quick: Workspace
) -> None:
    eyes = Eyes.on(lake.root)
    release: list[Callable[[], object]] = []

    def lock(point: str) -> None:
        if point == "gated":
            held = sqlite3.connect(
                lake.root / "catalog.db", isolation_level=None, check_same_thread=False
            )
            held.execute("BEGIN IMMEDIATE")
            release.append(held.close)

    with odi.run("sales/orders", lake=quick, reach=lock) as stuck:
        teller = Teller(run=stuck, spark=quick.spark())
        told = fails(
            CatalogUnavailable,
            Exit.CONFIG,
            lambda: stuck.append(teller.frame(0, 2), TABLE, offsets=at(0, 2)),
        )
        assert told.retry == "safe"
        assert len(release) == 1
        release.pop()()
        assert eyes.history(TABLE) == []
        assert lake.ledger().open_intents() == []

        def short(point: str) -> None:
            if point == "gated":
                lock(point)
                threading.Timer(1.0, release.pop()).start()

        with odi.run("sales/orders", lake=lake, reach=short) as patient:
            assert patient.append(teller.frame(0, 2), TABLE, offsets=at(0, 2)).fresh
            # A closed connection is the end of this lock: the timer has fired.
            assert release == []
    assert len(eyes.rows(TABLE)) == 2


def test_a_catalog_gone_in_the_middle_is_no_place_to_publish(
    lake: Workspace, run: Run, teller: Teller
) -> None:
    eyes = Eyes.on(lake.root)
    names = [path.name for path in lake.root.glob("catalog.db*")]

    def take_away(point: str) -> None:
        if point == "gated":
            for name in names:
                (lake.root / name).rename(lake.root / f"away-{name}")

    with odi.run("sales/orders", lake=lake, reach=take_away) as cut:
        fails(
            CatalogUnavailable,
            Exit.CONFIG,
            lambda: cut.append(teller.frame(0, 2), TABLE, offsets=at(0, 2)),
        )
    fails(CatalogUnavailable, Exit.CONFIG, odi.run("sales/orders", lake=lake).__enter__)
    for name in names:
        (lake.root / f"away-{name}").rename(lake.root / name)
    assert eyes.history(TABLE) == []
    assert lake.ledger().open_intents() == []
    batch = [entry.kind for entry in lake.ledger().scan() if entry.batch is not None]
    assert batch[-1] is Kind.ABANDONED
    with odi.run("sales/orders", lake=lake) as again:
        assert again.append(teller.frame(0, 2), TABLE, offsets=at(0, 2)).fresh
    assert len(eyes.rows(TABLE)) == 2


def test_a_run_writes_inside_its_block_only(lake: Workspace, run: Run, teller: Teller) -> None:
    other = odi.run("sales/other", lake=lake)
    fails(UsageError, Exit.USAGE, lambda: other.append(teller.frame(0, 2), TABLE, offsets=at(0, 2)))
    with other:
        assert other.append(teller.frame(0, 2), TABLE, offsets=at(0, 2)).fresh
        owner = other.parts.owner
        assert lake.ledger().is_alive(owner)
    assert not lake.ledger().is_alive(owner), "what an ended run left open, the next may settle"
    fails(UsageError, Exit.USAGE, lambda: other.delete(TABLE, where="id = 1"))


class Disk:
    """A disk of one megabyte in the place of a table's data folder, which a test can fill.

    Mounting needs root. Elsewhere the write fails with the words that the operating system has
    for it, so that what follows from them is tested on every machine.
    """

    def __init__(self, folder: Path) -> None:
        self._filling = folder / "filling"
        size = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
        may = os.geteuid() == 0
        self.real = may and subprocess.run(size, capture_output=True, check=False).returncode == 0

    def fill(self) -> None:
        if self.real:
            self._filling.write_bytes(b"x" * 900_000)

    def free(self) -> None:
        if self.real:
            self._filling.unlink()

    def unwritable(self, frame: DataFrame) -> DataFrame:
        """Return rows that the disk has no room for."""
        if self.real:
            return frame
        told = "java.io.IOException: No space left on device"
        return frame.withColumn("region", sf.when(sf.col("id") >= 0, sf.raise_error(sf.lit(told))))


@pytest.fixture
def small_disk(lake: Workspace) -> Iterator[Disk]:
    folder = Path(lake.settings.catalog.warehouse or "") / "sales" / "orders" / "data"
    folder.mkdir(parents=True)
    disk = Disk(folder)
    yield disk
    if disk.real:
        # Spark may still hold a file of it open: the mount goes away when that is closed.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_leaves_main_as_it_was_and_the_batch_lands_when_there_is_room(
    lake: Workspace, run: Run, teller: Teller, small_disk: Disk
) -> None:
    eyes = Eyes.on(lake.root)
    run.append(teller.frame(0, 2), TABLE, offsets=at(0, 2))
    small_disk.fill()
    many = teller.spark.range(2, 60_000, 1, 1).selectExpr(
        "id", "cast(rand(7) AS string) AS region", "CAST(id AS int) AS amount"
    )
    much = small_disk.unwritable(many)
    told = fails(StorageError, Exit.CONFIG, lambda: run.append(much, TABLE, offsets=at(2, 60_000)))
    assert "disk is full" in told.message
    assert told.retry == "safe"
    assert len(eyes.history(TABLE)) == 1
    assert lake.ledger().open_intents() == []
    small_disk.free()
    few = many.limit(10)
    assert run.append(few, TABLE, offsets=at(2, 60_000)).fresh
    assert len(eyes.rows(TABLE)) == 12
