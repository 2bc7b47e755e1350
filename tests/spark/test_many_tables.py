"""One batch over many tables, and tables that move while a batch is on its way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import odi_audit as odi
from odi_audit.committer import publishing, road
from odi_audit.errors import (
    CommitConflict,
    Exit,
    OffsetOverlap,
    RuleBroken,
    SchemaMismatch,
    UsageError,
)
from odi_audit.ids import BatchId
from odi_audit.model.entries import Kind
from odi_audit.model.stamps import KEYS
from odi_audit.spark.jvm import Jvm
from tests.support.independent import Eyes, on_disk
from tests.support.story import COLUMNS, TABLE, Teller, at, check_landed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odi_audit.committer.run import Run
    from odi_audit.workspace import Workspace

RAW = "sales.raw"


class Once:
    """A hook for one point of the road: does something there, the first time; must be reached."""

    def __init__(self, point: str, action: Callable[[], object]) -> None:
        self._point = point
        self._action = action
        self.reached: list[str] = []

    def __call__(self, point: str) -> None:
        self.reached.append(point)
        if point == self._point and self.reached.count(point) == 1:
            self._action()


@pytest.fixture
def setup(lake: Workspace, spark: SparkSession) -> Run:
    """Another job's run on two empty tables; it is the one that comes in between."""
    run = odi.run("sales/other", lake=lake).__enter__()
    run.create_table(TABLE, COLUMNS, partitioned_by=["region"])
    run.create_table(RAW, COLUMNS)
    return run


def kinds(lake: Workspace, batch: BatchId) -> list[tuple[Kind, str | None]]:
    return [
        (entry.kind, entry.table.name if entry.table else None)
        for entry in lake.ledger().batch_entries(batch)
    ]


def test_all_is_staged_before_any_is_published_and_published_in_the_order_given(
    lake: Workspace, spark: SparkSession, setup: Run
) -> None:
    eyes, looked = Eyes.on(lake.root), []

    def reach(point: str) -> None:
        looked.append((point, len(eyes.rows(RAW)), len(eyes.rows(TABLE))))

    with odi.run("sales/fan", lake=lake, reach=reach) as run:
        teller = Teller(run=run, spark=spark)
        rows = teller.frame(0, 6)
        with run.batch(offsets=at(0, 6)) as batch:
            batch.append(rows, RAW).upsert(rows, TABLE, key=["id"])
        assert batch.receipt is not None
        first = batch.receipt
    assert looked == [
        ("planned", 0, 0),
        ("intended", 0, 0),
        ("staged", 0, 0),
        ("gated", 0, 0),
        ("published:0", 6, 0),
        ("recorded:0", 6, 0),
        ("published:1", 6, 6),
        ("recorded:1", 6, 6),
    ]
    assert [(item.table.name, item.operation) for item in first.landings] == [
        (RAW, "append"),
        (TABLE, "upsert"),
    ]
    assert kinds(lake, first.batch) == [
        (Kind.INTENT, None),
        (Kind.STAGED, None),
        (Kind.LANDED, RAW),
        (Kind.LANDED, TABLE),
    ]
    staged = lake.ledger().batch_entries(first.batch)[1]
    assert [item["name"] for item in staged.facts["tables"]] == [RAW, TABLE]  # type: ignore[index,union-attr]
    assert {
        eyes.head(name)["summary"]["odi.batch-id"] for name in (RAW, TABLE)
    } == {first.batch}  # fmt: skip
    assert eyes.rows(RAW) == eyes.rows(TABLE)
    with odi.run("sales/fan", lake=lake) as run, run.batch(offsets=at(0, 6)) as again:
        again.append(rows, RAW).upsert(rows, TABLE, key=["id"])
    assert again.receipt is not None
    assert not again.receipt.fresh
    assert again.receipt.landings == first.landings


def test_a_refusal_in_the_second_table_leaves_the_first_untouched(
    lake: Workspace, spark: SparkSession, setup: Run
) -> None:
    eyes = Eyes.on(lake.root)
    with odi.run("sales/fan", lake=lake) as run:
        teller = Teller(run=run, spark=spark)
        contract = odi.Contract(rules={"small": "amount < 5"})

        def both(count: int) -> None:
            with run.batch(offsets=at(0, count)) as batch:
                batch.append(teller.frame(0, count), RAW)
                batch.append(teller.frame(0, count), TABLE, contract=contract)

        with pytest.raises(RuleBroken):
            both(6)
        assert eyes.history(RAW) == eyes.history(TABLE) == []
        # Both parts can be looked at, also the one that was in order.
        assert len(eyes.metadata(RAW)["refs"]) == len(eyes.metadata(TABLE)["refs"]) == 1
        both(1)
        assert eyes.rows(RAW) == eyes.rows(TABLE) == [(0, "r0", 0)]
        # A batch whose block raised was never meant to be committed.
        size = lake.ledger().head().size
        with pytest.raises(TypeError), run.batch(offsets=at(1, 2)) as batch:
            batch.append(teller.frame(1, 2), RAW).upsert(teller.frame(1, 2), TABLE)  # type: ignore[call-arg]
        assert lake.ledger().head().size == size
        with pytest.raises(UsageError, match="each table once"):  # noqa: SIM117
            with run.batch(offsets=at(1, 2)) as batch:
                batch.append(teller.frame(1, 2), RAW).delete(RAW, where="true")
        with pytest.raises(UsageError, match="no operation"), run.batch(offsets=at(1, 2)):
            pass


def test_an_append_is_put_on_the_new_head_without_writing_its_rows_again(
    lake: Workspace, spark: SparkSession, setup: Run
) -> None:
    eyes = Eyes.on(lake.root)
    teller = Teller(run=setup, spark=spark)
    warehouse = Path(lake.settings.catalog.warehouse or "")
    written: list[set[str]] = []

    def come_in_between() -> None:
        written.append(on_disk(warehouse))
        setup.append(teller.frame(100, 104), TABLE, offsets=odi.once("between"))

    hook = Once("gated", come_in_between)
    with odi.run("sales/orders", lake=lake, reach=hook) as run:
        receipt = run.append(teller.frame(0, 8), TABLE, offsets=at(0, 8))
    assert hook.reached.count("gated") == 1
    head = check_landed(eyes, lake.ledger(), receipt, "append")
    older = eyes.history(TABLE)[1]
    assert older["summary"]["odi.job"] == "sales/other"
    assert head["parent-snapshot-id"] == older["snapshot-id"]
    # The files that were staged are the files that landed; nothing was written twice or left over.
    assert written[0] <= eyes.data_files(TABLE) == on_disk(warehouse)
    assert [row[0] for row in eyes.rows(TABLE)] == sorted([*range(8), *range(100, 104)], key=str)
    ids = spark.sql(f"SELECT _row_id FROM lake.{TABLE}").collect()
    assert len({row[0] for row in ids}) == 12
    # The STAGED entry names the snapshot that was given up; the LANDED one the one that is there.
    staged = lake.ledger().batch_entries(receipt.batch)[1]
    assert staged.facts["tables"][0]["snapshot"] != receipt.snapshot  # type: ignore[index,call-overload]


def test_an_upsert_is_staged_again_on_the_new_head(
    lake: Workspace, spark: SparkSession, setup: Run
) -> None:
    eyes = Eyes.on(lake.root)
    teller = Teller(run=setup, spark=spark)
    warehouse = Path(lake.settings.catalog.warehouse or "")
    hook = Once(
        "gated",
        lambda: setup.append(
            teller.given((3, "r3", -3), (50, "r2", 50)), TABLE, offsets=odi.once("between")
        ),
    )
    with odi.run("sales/orders", lake=lake, reach=hook) as run:
        receipt = run.upsert(teller.frame(0, 8), TABLE, key=["id"], offsets=at(0, 8))
    assert hook.reached.count("gated") == 1
    check_landed(eyes, lake.ledger(), receipt, "upsert")
    expected = {number: (number, f"r{number % 4}", number * 3) for number in range(8)}
    expected[50] = (50, "r2", 50)
    # What came in between was seen: row 3 was updated, not inserted a second time.
    assert eyes.rows(TABLE) == sorted(expected.values(), key=str)
    live = eyes.data_files(TABLE)
    assert {path for path in on_disk(warehouse) if "/data/" in path} == live


@pytest.mark.parametrize("operation", ["append", "upsert"])
def test_when_main_moves_too_often_the_batch_is_given_up_and_leaves_nothing(
    lake: Workspace,
    spark: SparkSession,
    setup: Run,
    relimited: Callable[..., Workspace],
    monkeypatch: pytest.MonkeyPatch,
    operation: str,
) -> None:
    eyes = Eyes.on(lake.root)
    teller = Teller(run=setup, spark=spark)
    warehouse = Path(lake.settings.catalog.warehouse or "")
    monkeypatch.setattr(publishing, "APPEND_ATTEMPTS_FACTOR", 1)
    impatient = relimited(limits__stage_attempts_max="1")
    between = teller.frame(100, 101)
    hook = Once("gated", lambda: setup.append(between, TABLE, offsets=odi.once("between")))
    with odi.run("sales/orders", lake=impatient, reach=hook) as run:

        def commit() -> odi.Receipt:
            rows = teller.frame(0, 8)
            if operation == "append":
                return run.append(rows, TABLE, offsets=at(0, 8))
            return run.upsert(rows, TABLE, key=["id"], offsets=at(0, 8))

        with pytest.raises(CommitConflict) as caught:
            commit()
        assert hook.reached.count("gated") == 1
        assert caught.value.exit_status is Exit.CONFLICT
        assert caught.value.hint
        assert eyes.rows(TABLE) == [(100, "r0", 300)]
        assert on_disk(warehouse) == eyes.data_files(TABLE)
        (abandoned,) = [e for e in lake.ledger().scan() if e.kind is Kind.ABANDONED]
        assert abandoned.settles
        assert lake.ledger().open_intents() == []
        # Nobody is in the way any more: the same batch lands.
        assert commit().fresh
    assert len(eyes.rows(TABLE)) == 9
    impatient.close()


@pytest.mark.parametrize("moment", ["before it is staged", "while it is staged"])
def test_whenever_main_moves_nothing_is_visible_before_it_is_published(
    lake: Workspace,
    spark: SparkSession,
    setup: Run,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
) -> None:
    """Spark loads tables anew when it likes: what it writes must not follow it to main."""
    name = "sales.`or ders`"
    parts, eyes = ("sales", "or ders"), Eyes.on(lake.root)
    setup.create_table(name, COLUMNS, partitioned_by=["region"])
    teller = Teller(run=setup, spark=spark)
    fired: list[str] = []
    mine = ["idle"]

    def come_in_between() -> None:
        if mine[0] not in {"idle", "between"}:
            operation, mine[0] = mine[0], "between"
            setup.append(teller.given((99, "r9", 9)), name, offsets=odi.once(operation))
            fired.append(operation)

    def first(original: Callable[..., object]) -> Callable[..., object]:
        def called(*given: object) -> object:
            come_in_between()
            return original(*given)

        return called

    if moment == "before it is staged":
        monkeypatch.setattr(road, "stage", first(road.stage))
    else:
        monkeypatch.setattr(Jvm, "run", first(Jvm.run))

    def reach(point: str) -> None:
        if point == "gated":
            assert eyes.head(*parts)["summary"]["odi.job"] == "sales/other"

    with odi.run("sales/orders", lake=lake, reach=reach) as run:
        rows, last = teller.frame(0, 4), at(0, 4)
        commits: dict[str, Callable[[], odi.Receipt]] = {
            "append": lambda: run.append(rows, name, offsets=last),
            "upsert": lambda: run.upsert(rows, name, key=["id"], offsets=odi.once("u")),
            "overwrite_partitions": lambda: run.overwrite_partitions(
                rows, name, offsets=odi.once("p")
            ),
            "overwrite": lambda: run.overwrite(rows, name, where="true", offsets=odi.once("o")),
            "update": lambda: run.update(name, where="id = 1", set={"amount": "1"}),
            "delete": lambda: run.delete(name, where="true"),
        }
        for operation, commit in commits.items():
            mine[0] = operation
            assert commit().fresh
            mine[0] = "idle"
            assert eyes.head(*parts)["summary"]["odi.operation"] == operation
    assert fired == list(commits)
    history = eyes.history(*parts)
    assert all(KEYS[0] in item["summary"] for item in history)
    assert len(history) == 2 * len(commits), "nothing landed twice, nothing besides"
    assert eyes.rows(*parts) == []
    assert lake.ledger().open_intents() == []


@pytest.mark.parametrize("point", ["planned", "intended"])
def test_a_copy_that_was_faster_with_the_same_batch_is_no_error(
    lake: Workspace, spark: SparkSession, setup: Run, point: str
) -> None:
    teller = Teller(run=setup, spark=spark)
    rows = teller.frame(0, 3)
    for offsets in (at(0, 3), odi.once("by name")):
        copy = odi.run("sales/orders", lake=lake).__enter__()
        hook = Once(point, lambda copy=copy, at=offsets: copy.append(rows, TABLE, offsets=at))  # type: ignore[misc]
        with odi.run("sales/orders", lake=lake, reach=hook) as run:
            assert not run.append(rows, TABLE, offsets=offsets).fresh
        assert hook.reached.count(point) == 1
    assert len(Eyes.on(lake.root).rows(TABLE)) == 6
    assert lake.ledger().open_intents() == []


def test_a_second_copy_of_the_job_cannot_land_what_overlaps(
    lake: Workspace, spark: SparkSession, setup: Run
) -> None:
    eyes = Eyes.on(lake.root)
    teller = Teller(run=setup, spark=spark)
    copy = odi.run("sales/orders", lake=lake).__enter__()
    hook = Once("gated", lambda: copy.append(teller.frame(0, 12), TABLE, offsets=at(0, 12)))
    with (
        odi.run("sales/orders", lake=lake, reach=hook) as run,
        pytest.raises(OffsetOverlap),
    ):
        run.append(teller.frame(0, 8), TABLE, offsets=at(0, 8))
    assert hook.reached.count("gated") == 1
    assert len(eyes.rows(TABLE)) == 12
    assert lake.ledger().open_intents() == []
    # The same batch, published by the copy in between, is told so.
    hook = Once("gated", lambda: copy.append(teller.frame(12, 14), TABLE, offsets=at(12, 14)))
    with odi.run("sales/orders", lake=lake, reach=hook) as run:
        receipt = run.append(teller.frame(12, 14), TABLE, offsets=at(12, 14))
    assert not receipt.fresh
    assert len(eyes.rows(TABLE)) == 14
    assert receipt.snapshot == str(eyes.head(TABLE)["snapshot-id"])
    assert lake.ledger().open_intents() == []


@pytest.mark.parametrize("operation", ["append", "upsert"])
def test_a_schema_that_changed_in_between_is_noticed(
    lake: Workspace, spark: SparkSession, setup: Run, operation: str
) -> None:
    eyes = Eyes.on(lake.root)
    teller = Teller(run=setup, spark=spark)
    hook = Once("gated", lambda: setup.evolve_schema(TABLE, drop=["amount"]))
    with odi.run("sales/orders", lake=lake, reach=hook) as run:
        rows = teller.frame(0, 8)
        commit = {
            "append": lambda: run.append(rows, TABLE, offsets=at(0, 8)),
            "upsert": lambda: run.upsert(rows, TABLE, key=["id"], offsets=at(0, 8)),
        }[operation]
        with pytest.raises(SchemaMismatch, match="extra     amount"):
            commit()
    assert hook.reached.count("gated") == 1
    assert eyes.history(TABLE) == []
    assert lake.ledger().open_intents() == []
