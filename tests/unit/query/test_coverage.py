"""``coverage``: the shares are those of a plain count, and foreign writers are named."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from odi_audit.model.entries import Kind
from odi_audit.model.tables import parse
from odi_audit.query.coverage import STAMPED, Coverage, Period, coverage, label
from odi_audit.query.lookup import find_named
from odi_audit.query.writers import writer

if TYPE_CHECKING:
    from conftest import Bench

SPARK = {"engine-name": "spark", "engine-version": "4.1.3", "app-id": "local-1", "user": "bo"}


def counted(bench: Bench, *tables: str, **more: object) -> Coverage:
    named = [find_named(bench.ledger, bench.catalog, parse(name)) for name in tables]
    return coverage(bench.ledger, bench.catalog, named or None, **more)  # type: ignore[arg-type]


def test_a_table_written_by_us_alone_is_covered_whole(bench: Bench) -> None:
    bench.land()
    bench.land()
    (total,) = counted(bench).totals
    assert (total.snapshots_share, total.rows_share, total.writers) == (1.0, 1.0, ())


def test_the_shares_are_those_of_a_plain_count(bench: Bench) -> None:
    bench.create("sales.other")
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    choice = random.Random(seed)
    ours: Counter[str] = Counter()
    every: Counter[str] = Counter()
    for _ in range(12):
        name = choice.choice(["sales.orders", "sales.other"])
        every[name] += 1
        if choice.random() < 0.6:
            bench.land(name)
            ours[name] += 1
        else:
            bench.write(SPARK, name)
    for total in counted(bench).totals:
        assert total.snapshots_count == every[total.table]
        assert total.snapshots_ours_count == ours[total.table]
        assert total.rows_count == 10 * every[total.table]
        assert total.rows_ours_count == 10 * ours[total.table]
        assert total.snapshots_share == pytest.approx(ours[total.table] / every[total.table], 1e-5)
    assert {total.table for total in counted(bench).totals} == set(every)


def test_foreign_writers_are_named(bench: Bench) -> None:
    bench.land()
    snapshot = bench.write(SPARK)
    bench.write()
    found = counted(bench)
    assert dict(found.totals[0].writers) == {"spark 4.1.3, local-1, user bo": 1, "unknown": 1}
    first = found.foreign[0]
    assert (first.snapshot, first.operation, first.rows) == (snapshot, "append", 10)
    assert (first.retained, first.in_main, first.entry) == (True, True, None)


@pytest.mark.parametrize(
    ("summary", "shown"),
    [
        ({"flink.job-id": "j1"}, "flink, j1"),
        ({"trino_query_id": "q1", "trino_user": "eve"}, "trino, q1, user eve"),
        ({"engine-name": "spark", "app-name": "etl", "app-id": "a"}, "spark, etl a"),
        ({}, "unknown"),
    ],
)
def test_engines_sign_in_different_ways(summary: dict[str, str], shown: str) -> None:
    assert str(writer(summary)) == shown


def test_a_foreign_snapshot_that_has_expired_still_counts(bench: Bench) -> None:
    bench.land()
    bench.note(
        Kind.FOREIGN, snapshot="99", operation="append", counts={"added-records": 30},
        engine="flink", committed_at="2026-10-30T00:00:00.000000Z",
    )  # fmt: skip
    found = counted(bench, period=Period.MONTH)
    (write,) = found.foreign
    assert (write.rows, write.retained, write.time_exact, str(write.writer)) == (
        30, False, True, "flink",
    )  # fmt: skip
    assert found.totals[0].rows_share == 0.25
    assert {share.period: share.snapshots_share for share in found.shares}["2026-10"] == 0.0


def test_a_foreign_entry_without_a_moment_counts_when_it_was_recorded(bench: Bench) -> None:
    noted = bench.note(Kind.FOREIGN, snapshot="99", operation="append")
    (write,) = counted(bench).foreign
    assert (write.time, write.time_exact, str(write.writer)) == (noted.time, False, "unknown")


def test_a_recorded_foreign_snapshot_that_is_still_there_counts_once(bench: Bench) -> None:
    snapshot = bench.write()
    bench.note(Kind.FOREIGN, snapshot=snapshot, operation="append")
    assert counted(bench).totals[0].snapshots_count == 1


def test_copied_stamps_count_as_foreign(bench: Bench) -> None:
    intent = bench.intend()
    stamps = bench.stamps(intent)
    bench.record(intent, bench.write(stamps))
    bench.write(stamps)
    (total,) = counted(bench).totals
    assert total.snapshots_ours_count == 1
    assert total.writers[0][0].startswith(STAMPED)


def test_a_snapshot_on_its_way_is_not_called_foreign(bench: Bench) -> None:
    bench.write(bench.stamps(bench.intend()))
    assert counted(bench).foreign == ()


def test_a_compaction_writes_no_rows(bench: Bench) -> None:
    intent = bench.intend(op="compact")
    bench.record(intent, bench.write(bench.stamps(intent)), operation="compact")
    (total,) = counted(bench).totals
    assert (total.snapshots_count, total.rows_count, total.rows_share) == (1, 0, None)


def test_a_period_narrows_by_when_it_was_committed(bench: Bench) -> None:
    bench.land()
    time = bench.state().snapshots[0].time
    assert counted(bench, since=time).totals[0].snapshots_count == 1
    assert counted(bench, until=time).totals == ()


def test_named_tables_alone_are_counted(bench: Bench) -> None:
    bench.create("sales.other")
    bench.land("sales.other")
    bench.land()
    assert [share.table for share in counted(bench, "sales.other").totals] == ["sales.other"]
    both = counted(bench, "sales.other", "sales.orders")
    assert [share.table for share in both.totals] == ["sales.orders", "sales.other"]


@pytest.mark.parametrize(
    ("period", "expected"),
    [(Period.DAY, "2027-01-01"), (Period.WEEK, "2026-W53"), (Period.MONTH, "2027-01")],
)
def test_periods_are_named_as_iso_8601_names_them(period: Period, expected: str) -> None:
    assert label("2027-01-01T00:00:00.000000Z", period) == expected
