"""A batch that is read once and spread over tables: each gets its part of the offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import odi_audit as odi
from odi_audit.clock import SystemClock
from odi_audit.errors import OffsetGap, OffsetOverlap, UsageError
from odi_audit.ledger import create_ledger
from odi_audit.ledger.port import EntryFilter
from odi_audit.model.entries import Kind
from odi_audit.model.shares import Follows, Share
from odi_audit.query.offsets import continuity
from odi_audit.query.verify import verify
from odi_audit.upkeep.rebuild import rebuild
from tests.support.independent import Eyes
from tests.support.story import COLUMNS, Teller

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odi_audit.committer.run import Run
    from odi_audit.model.offsets import Offsets
    from odi_audit.workspace import Workspace

RED, BLUE, BAD = "sales.red", "sales.blue", "sales.bad"
JOB = "sales/fan"


@pytest.fixture
def teller(lake: Workspace, spark: SparkSession) -> Teller:
    with odi.run("sales/setup", lake=lake) as run:
        for table in (RED, BLUE, BAD):
            run.create_table(table, COLUMNS)
    return Teller(run=run, spark=spark)


def kafka(red: tuple[int, int] | None = None, blue: tuple[int, int] | None = None) -> Offsets:
    topics = {"red": red, "blue": blue}
    given = {topic: {0: pair} for topic, pair in topics.items() if pair is not None}
    return odi.kafka(given, bootstrap="broker:9092", topic_ids={"red": "id-r", "blue": "id-b"})


def test_a_table_that_is_fed_by_one_topic_has_offsets_of_that_topic_only(
    lake: Workspace, teller: Teller
) -> None:
    def both(run: Run, red: tuple[int, int] | None, blue: tuple[int, int] | None) -> None:
        with run.batch(offsets=kafka(red, blue)) as batch:
            if red:
                share = Share(partitions=("red-0",))
                batch.append(teller.frame(*red), RED, share=share)
            if blue:
                share = Share(partitions=("blue-0",))
                batch.append(teller.frame(*blue), BLUE, share=share)

    with odi.run(JOB, lake=lake) as run:
        both(run, (0, 5), (0, 2))
        # A batch without the other topic is no gap for it, and none for this one.
        both(run, (5, 7), None)
        both(run, (7, 9), (2, 4))
        with pytest.raises(OffsetGap, match=BLUE):
            both(run, (9, 10), (5, 6))
        with pytest.raises(OffsetOverlap, match=RED):
            both(run, (8, 9), (4, 6))
        with (
            pytest.raises(UsageError, match="no partition"),
            run.batch(offsets=kafka((9, 10))) as b,
        ):
            b.append(teller.frame(9, 10), RED, share=Share(partitions=("blue-0",)))
    eyes = Eyes.on(lake.root)
    assert [len(eyes.rows(table)) for table in (RED, BLUE)] == [9, 4]
    stamp = str(eyes.head(BLUE)["summary"]["odi.offsets"])
    assert "blue-0" in stamp
    assert "red-0" not in stamp
    ledger = lake.ledger()
    landed = ledger.find(EntryFilter(kinds=(Kind.LANDED,), job=run.job))
    assert [list(entry.facts["offsets"]["ranges"]) for entry in landed] == [  # type: ignore[index,call-overload]
        ["red-0"], ["blue-0"], ["red-0"], ["red-0"], ["blue-0"],
    ]  # fmt: skip
    assert not verify(ledger, lake.catalog())
    # A ledger that is lost comes back from the stamps with the same shares.
    lost = create_ledger(f"sqlite:///{lake.root}/again.db", clock=SystemClock())
    rebuild(lost, lake.catalog(), apply=True)
    assert not verify(lost, lake.catalog())
    assert lost.positions(run.job, landed[1].table.uuid, "kafka://broker:9092").keys() == {"blue-0"}  # type: ignore[union-attr]


def test_a_table_that_gets_some_rows_follows_its_job_and_dead_letters_follow_nothing(
    lake: Workspace, teller: Teller
) -> None:
    some = Share(follows=Follows.JOB)

    def spread(run: Run, start: int, end: int, *tables: str) -> None:
        with run.batch(offsets=kafka((start, end))) as batch:
            for table in tables:
                share = Share(follows=Follows.NOTHING) if table == BAD else some
                batch.append(teller.frame(start, end), table, share=share)

    with odi.run(JOB, lake=lake) as run:
        spread(run, 0, 3, RED, BLUE, BAD)
        spread(run, 3, 5, RED)
        spread(run, 5, 6, BLUE)
        spread(run, 6, 8, BAD, BLUE)
        with pytest.raises(OffsetGap, match=JOB):
            spread(run, 9, 10, RED)
        with pytest.raises(OffsetOverlap, match=JOB):
            spread(run, 7, 9, RED)
        spread(run, 8, 9, RED)
    eyes = Eyes.on(lake.root)
    assert [len(eyes.rows(table)) for table in (RED, BLUE, BAD)] == [6, 6, 5]
    assert not verify(lake.ledger(), lake.catalog())
    blue = Eyes.on(lake.root).metadata(BLUE)["table-uuid"]
    for table in (None, blue):
        assert not continuity(lake.ledger(), table=table).events


def test_a_batch_that_died_between_two_tables_is_finished_and_the_job_goes_on(
    lake: Workspace, teller: Teller
) -> None:
    class Died(BaseException):
        pass

    def die(point: str) -> None:
        if point == "recorded:0":
            raise Died

    def spread(run: Run, start: int, end: int) -> None:
        with run.batch(offsets=kafka((start, end))) as batch:
            for table in (RED, BLUE):
                batch.append(teller.frame(start, end), table, share=Share(follows=Follows.JOB))

    with pytest.raises(Died), odi.run(JOB, lake=lake, reach=die) as run:
        spread(run, 0, 3)
    assert lake.ledger().job_positions(run.job, "kafka://broker:9092") == {}
    with odi.run(JOB, lake=lake) as run:
        assert lake.ledger().job_positions(run.job, "kafka://broker:9092")["red-0"].end == 3
        spread(run, 3, 4)
    eyes = Eyes.on(lake.root)
    assert [len(eyes.rows(table)) for table in (RED, BLUE)] == [4, 4]


@pytest.mark.parametrize("bad_rows", [0, 2])
@pytest.mark.parametrize("point", [None, "intended", "gated", "published:0", "recorded:0"])
def test_a_side_table_is_left_out_of_a_batch_that_has_nothing_for_it(
    lake: Workspace, teller: Teller, point: str | None, bad_rows: int
) -> None:
    class Died(BaseException):
        pass

    def die(reached: str) -> None:
        if reached == point:
            raise Died

    def spread(run: Run) -> odi.Receipt:
        with run.batch(offsets=kafka((0, 5))) as batch:
            batch.append(teller.frame(0, 5), RED)
            batch.append(teller.frame(0, bad_rows), BAD, share=Share(follows=Follows.NOTHING))
        assert batch.receipt is not None
        return batch.receipt

    if point is not None:
        with pytest.raises(Died), odi.run(JOB, lake=lake, reach=die) as run:
            spread(run)
    with odi.run(JOB, lake=lake) as run:
        receipt = spread(run)
        again = spread(run)
    eyes = Eyes.on(lake.root)
    assert [len(eyes.rows(table)) for table in (RED, BAD)] == [5, bad_rows]
    assert len(eyes.history(RED)) == 1
    assert len(eyes.history(BAD)) == (1 if bad_rows else 0)
    names = [BAD, RED] if bad_rows else [RED]
    assert [item.table.name for item in again.landings] == names
    assert receipt.landings == again.landings
    assert not lake.ledger().open_intents()
    assert not verify(lake.ledger(), lake.catalog())
    with (
        pytest.raises(UsageError, match="side tables only"),
        odi.run(JOB, lake=lake) as run,
        run.batch(offsets=kafka((5, 6))) as batch,
    ):
        batch.append(teller.frame(5, 6), BAD, share=Share(follows=Follows.NOTHING))
