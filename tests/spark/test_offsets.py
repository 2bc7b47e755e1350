"""Offsets: each part of a source lands once, in order, and everything else is said aloud."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import odi_audit as odi
from odi_audit.errors import (
    BatchReused,
    Exit,
    OdiError,
    OffsetGap,
    OffsetOverlap,
    OffsetsMissing,
    SourceChanged,
    UsageError,
)
from odi_audit.ids import JobName
from odi_audit.model.entries import Kind
from odi_audit.model.tables import parse
from odi_audit.query.verify import verify
from tests.support.independent import Eyes
from tests.support.story import COLUMNS, TABLE, Teller, at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odi_audit.committer.run import Run
    from odi_audit.model.offsets import Offsets
    from odi_audit.workspace import Workspace

JOB = "sales/orders"


@pytest.fixture
def run(lake: Workspace) -> Run:
    started = odi.run(JOB, lake=lake, principal="ana").__enter__()
    started.create_table(TABLE, COLUMNS)
    return started


@pytest.fixture
def teller(run: Run, spark: SparkSession) -> Teller:
    return Teller(run=run, spark=spark)


def position(lake: Workspace, source: str = "orders topic") -> dict[str, object]:
    uuid = lake.catalog().load(parse(TABLE)).ref.uuid
    found = lake.ledger().positions(JobName(JOB), uuid, source)
    return {name: place.end for name, place in found.items()}


def kinds(lake: Workspace, *wanted: Kind) -> list[str]:
    return [str(entry.batch) for entry in lake.ledger().scan() if entry.kind in wanted]


def refused(kind: type[OdiError], status: Exit, commit: Callable[[], object]) -> OdiError:
    with pytest.raises(kind) as caught:
        commit()
    assert type(caught.value) is kind
    assert caught.value.exit_status is status
    assert caught.value.hint
    return caught.value


def test_gaps_and_overlaps_are_refused_and_an_accepted_gap_is_recorded(
    lake: Workspace, run: Run, teller: Teller
) -> None:
    run.append(teller.frame(0, 4), TABLE, offsets=at(0, 100))

    def append(offsets: Offsets, **more: str) -> Callable[[], object]:
        return lambda: run.append(teller.frame(4, 6), TABLE, offsets=offsets, **more)  # type: ignore[arg-type]

    told = refused(OffsetOverlap, Exit.FINDINGS, append(at(50, 150)))
    assert "starts at 50" in told.message
    assert "ended at 100" in told.message
    told = refused(OffsetGap, Exit.FINDINGS, append(at(150, 200)))
    assert "accept_gap" in str(told.hint)
    assert position(lake) == {"p0": 100}
    append(at(150, 200), accept_gap="retention had removed them")()
    (accepted,) = [entry for entry in lake.ledger().scan() if entry.kind is Kind.GAP_ACCEPTED]
    assert accepted.facts["reason"] == "retention had removed them"
    assert accepted.facts["principal"] == "ana"
    assert "starts at 150" in str(accepted.facts["gap"])
    assert position(lake) == {"p0": 200}
    # Another job, another source and another table each have their own place.
    run.append(teller.frame(6, 7), TABLE, offsets=odi.mapping("elsewhere", {"p0": (0, 5)}))
    with odi.run("sales/second", lake=lake) as second:
        second.append(teller.frame(7, 8), TABLE, offsets=at(0, 10))
    assert position(lake) == {"p0": 200}


def test_the_same_batch_twice_is_told_so_and_lands_once(
    lake: Workspace, run: Run, teller: Teller
) -> None:
    first = run.append(teller.frame(0, 4), TABLE, offsets=at(0, 4))
    size = lake.ledger().head().size
    again = run.append(teller.frame(0, 4), TABLE, offsets=at(0, 4))
    assert (first.fresh, again.fresh) == (True, False)
    assert (again.batch, again.landings, again.run) == (first.batch, first.landings, first.run)
    assert lake.ledger().head().size == size
    with odi.run(JOB, lake=lake) as restarted:
        assert not restarted.append(teller.frame(0, 4), TABLE, offsets=at(0, 4)).fresh
    assert len(Eyes.on(lake.root).rows(TABLE)) == 4
    told = refused(
        BatchReused,
        Exit.CONFLICT,
        lambda: run.upsert(teller.frame(0, 4), TABLE, key=["id"], offsets=at(0, 4)),
    )
    assert "(append)" in told.message
    assert "(upsert)" in told.message


def test_a_replay_is_recorded_and_never_turns_the_position_back(
    lake: Workspace, run: Run, teller: Teller
) -> None:
    eyes = Eyes.on(lake.root)
    run.append(teller.frame(0, 4), TABLE, offsets=at(0, 4))
    run.append(teller.frame(4, 8), TABLE, offsets=at(4, 8))
    replayed = run.upsert(
        teller.given((2, "again", 1)), TABLE, key=["id"], offsets=at(2, 3), generation=1
    )
    assert kinds(lake, Kind.REPLAY) == [replayed.batch]
    assert '"generation":1' in eyes.head(TABLE)["summary"]["odi.offsets"]
    assert position(lake) == {"p0": 8}
    assert run.append(teller.frame(8, 9), TABLE, offsets=at(8, 9)).fresh
    assert position(lake) == {"p0": 9}
    # One that reaches beyond what was read moves the position; one beyond a gap is a gap.
    run.upsert(teller.frame(8, 12), TABLE, key=["id"], offsets=at(8, 12), generation=1)
    assert position(lake) == {"p0": 12}
    refused(
        OffsetGap,
        Exit.FINDINGS,
        lambda: run.append(teller.frame(20, 21), TABLE, offsets=at(20, 21), generation=1),
    )
    with pytest.raises(UsageError):
        run.append(teller.frame(0, 1), TABLE, offsets=at(12, 13), generation=-1)
    assert verify(lake.ledger(), lake.catalog()) == []


def test_a_batch_that_was_rolled_back_lands_again_as_a_new_generation(
    lake: Workspace, run: Run, teller: Teller
) -> None:
    eyes = Eyes.on(lake.root)
    kept = run.append(teller.frame(0, 4), TABLE, offsets=at(0, 4))
    gone = run.append(teller.frame(4, 8), TABLE, offsets=at(4, 8))
    run.rollback(TABLE, to_snapshot=kept.snapshot)
    assert position(lake) == {"p0": 4}
    told = refused(
        BatchReused,
        Exit.CONFLICT,
        lambda: run.append(teller.frame(4, 8), TABLE, offsets=at(4, 8)),
    )
    assert told.hint is not None
    assert "generation=1" in told.hint
    again = run.append(teller.frame(4, 8), TABLE, offsets=at(4, 8), generation=1)
    assert again.batch != gone.batch
    assert position(lake) == {"p0": 8}
    assert len(eyes.rows(TABLE)) == 8


def test_a_recreated_topic_stops_the_job_until_it_is_told_to_go_on(
    lake: Workspace, run: Run, teller: Teller
) -> None:
    def orders(start: int, end: int, topic_id: str) -> Offsets:
        return odi.kafka(
            {"orders": {0: (start, end)}},
            bootstrap="broker:9092",
            cluster_id="c1",
            topic_ids={"orders": topic_id},
        )

    run.append(teller.frame(0, 4), TABLE, offsets=orders(0, 4, "old"))
    told = refused(
        SourceChanged,
        Exit.FINDINGS,
        lambda: run.append(teller.frame(4, 6), TABLE, offsets=orders(0, 2, "new")),
    )
    assert "was old" in told.message
    assert "is new" in told.message
    # Even where the offsets would seem to continue.
    refused(
        SourceChanged,
        Exit.FINDINGS,
        lambda: run.append(teller.frame(4, 6), TABLE, offsets=orders(4, 6, "new")),
    )
    run.append(teller.frame(4, 6), TABLE, offsets=orders(0, 2, "new"), generation=1)
    assert run.append(teller.frame(6, 7), TABLE, offsets=orders(2, 3, "new")).fresh
    assert position(lake, "kafka://c1") == {"orders-0": 3}


def test_a_file_that_changed_after_it_was_read_is_noticed(
    run: Run, teller: Teller, tmp_path: Path
) -> None:
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    first.write_text("1\n", "utf-8")
    second.write_text("2\n", "utf-8")
    run.append(teller.frame(0, 1), TABLE, offsets=odi.files([first]))
    assert not run.append(teller.frame(0, 1), TABLE, offsets=odi.files([first])).fresh
    # The same file in other company is still read already.
    refused(
        OffsetOverlap,
        Exit.FINDINGS,
        lambda: run.append(teller.frame(0, 2), TABLE, offsets=odi.files([first, second])),
    )
    first.write_text("1\n1\n", "utf-8")
    told = refused(
        SourceChanged,
        Exit.FINDINGS,
        lambda: run.append(teller.frame(0, 2), TABLE, offsets=odi.files([first])),
    )
    assert str(first) in told.message
    assert run.append(teller.frame(1, 2), TABLE, offsets=odi.files([second])).fresh


def test_an_empty_batch_moves_the_offsets_and_is_recorded(
    lake: Workspace, run: Run, teller: Teller
) -> None:
    eyes = Eyes.on(lake.root)
    nothing = teller.frame(0, 1).filter("id < 0")
    # The first batch of a table may be the empty one.
    run.append(nothing, TABLE, offsets=at(0, 10))
    run.upsert(nothing, TABLE, key=["id"], offsets=at(10, 20))
    run.overwrite(nothing, TABLE, where="id = 99", offsets=at(20, 30))
    run.update(TABLE, where="id = 99", set={"amount": "0"}, offsets=at(30, 40))
    run.delete(TABLE, where="id = 99", offsets=at(40, 50))
    run.compact(TABLE)
    assert position(lake) == {"p0": 50}
    assert len(kinds(lake, Kind.LANDED)) == len(eyes.history(TABLE)) == 6
    assert eyes.rows(TABLE) == []


def test_rows_from_outside_need_offsets(run: Run, teller: Teller) -> None:
    told = refused(OffsetsMissing, Exit.USAGE, lambda: run.append(teller.frame(0, 1), TABLE))
    assert "odi.once" in str(told.hint)
    with pytest.raises(OffsetsMissing):
        run.upsert(teller.frame(0, 1), TABLE, key=["id"])
    with pytest.raises(UsageError):
        run.upsert(teller.frame(0, 1), TABLE, key=[], offsets=at(0, 1))


def test_offsets_too_many_for_a_stamp_are_a_digest_there_and_whole_in_the_ledger(
    lake: Workspace, run: Run, teller: Teller
) -> None:
    wide = odi.mapping("wide", {f"partition-{number}": (0, number) for number in range(500)})
    receipt = run.append(teller.frame(0, 1), TABLE, offsets=wide)
    stamp = Eyes.on(lake.root).head(TABLE)["summary"]["odi.offsets"]
    assert len(stamp) < 200
    assert '"partitions":500' in stamp
    landed = lake.ledger().landed(receipt.batch, receipt.landing.table.uuid)
    assert landed is not None
    assert len(landed.facts["offsets"]["ranges"]) == 500  # type: ignore[index,call-overload,arg-type]
    assert position(lake, "wide")["partition-499"] == 499
