from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from odi_audit.catalog import SnapshotInfo, TableState
from odi_audit.errors import TableNotFound, UsageError
from odi_audit.ids import SnapshotId
from odi_audit.model.entries import Draft, Kind
from odi_audit.model.tables import parse
from odi_audit.query.trace import Confidence, Origins, plain, trace

if TYPE_CHECKING:
    from conftest import Bench

ORDERS = parse("sales.orders")


def test_a_row_of_a_v2_table_is_traced_to_the_batch_of_its_file(bench: Bench) -> None:
    bench.land()
    batch = bench.land()
    (row,) = trace(bench.ledger, bench.catalog, ORDERS, "id = 15")
    assert row.values == {"id": 15, "region": "r"}
    assert row.row_id is None
    assert row.birth.confidence is Confidence.FILE
    assert row.birth.batch == batch
    assert row.birth.job == "sales/orders"
    assert row.birth.principal == "ana"
    assert row.birth.offsets == {
        "kind": "mapping",
        "source": "topic",
        "ranges": {"p0": [10, 20]},
    }
    assert row.last_change == row.birth


def test_a_foreign_row_is_named_as_such_and_gets_no_batch(bench: Bench) -> None:
    bench.land()
    snapshot = bench.write()
    (row,) = trace(bench.ledger, bench.catalog, ORDERS, "id = 12")
    assert row.birth.foreign
    assert row.birth.batch is None
    assert row.birth.snapshot == snapshot


def test_a_stamp_without_a_landed_entry_is_a_claim_and_not_an_answer(bench: Bench) -> None:
    intent = bench.intend()
    bench.write(bench.stamps(intent))
    (row,) = trace(bench.ledger, bench.catalog, ORDERS, "id = 3")
    assert row.birth.batch is None
    assert not row.birth.foreign
    assert str(intent.batch) in str(row.birth.note)


def test_the_limit_and_the_filter_are_kept(bench: Bench) -> None:
    bench.land()
    bench.land()
    assert len(trace(bench.ledger, bench.catalog, ORDERS, limit=13)) == 13
    assert trace(bench.ledger, bench.catalog, ORDERS, "id = 999") == []
    assert len(trace(bench.ledger, bench.catalog, ORDERS, "id >= 18")) == 2


def test_a_table_without_snapshots_has_no_rows(bench: Bench) -> None:
    assert trace(bench.ledger, bench.catalog, ORDERS) == []


@pytest.mark.parametrize("where", ["id ~ 3", "nothing = 1", "id = 'x'", "id =", ""])
def test_a_filter_that_does_not_fit_is_refused(bench: Bench, where: str) -> None:
    bench.land()
    with pytest.raises(UsageError):
        trace(bench.ledger, bench.catalog, ORDERS, where)


def test_an_unknown_table_and_a_wrong_limit_are_refused(bench: Bench) -> None:
    with pytest.raises(TableNotFound):
        trace(bench.ledger, bench.catalog, parse("sales.order"), "id = 1")
    with pytest.raises(UsageError):
        trace(bench.ledger, bench.catalog, ORDERS, limit=0)


# -- row ids: a v3 table, as its metadata would say --------------------------------------------


def snapshot(
    number: int, first: int, added: int, operation: str = "append", records: int | None = None
) -> SnapshotInfo:
    return SnapshotInfo(
        id=SnapshotId(str(number)),
        parent=None,
        sequence_number=number,
        time="2026-11-16T00:00:00.000000Z",
        operation=operation,
        summary={"added-records": str(added if records is None else records)},
        first_row_id=first,
        added_rows=added,
        schema_id=0,
        manifest_list="",
    )


def v3(bench: Bench, *snapshots: SnapshotInfo) -> TableState:
    return replace(bench.state(), format_version=3, snapshots=snapshots)


def landed(bench: Bench, info: SnapshotInfo, operation: str = "append") -> str:
    intent = bench.intend()
    bench.ledger.append(
        Draft(
            kind=Kind.LANDED,
            job=intent.job,
            run=intent.run,
            batch=intent.batch,
            table=bench.state().ref,
            intent=intent.index,
            settles=True,
            facts={
                "operation": operation,
                "snapshot": info.id,
                "sequence_number": info.sequence_number,
                "first_row_id": info.first_row_id,
                "added_rows": info.added_rows,
                "counts": {"rows": int(info.summary["added-records"])},
            },
        )
    )
    return str(intent.batch)


def test_birth_is_the_range_and_last_change_the_sequence_number(bench: Bench) -> None:
    first, second = snapshot(1, 0, 100), snapshot(2, 100, 5, "overwrite")
    born, changed = landed(bench, first), landed(bench, second, "upsert")
    origins = Origins(bench.ledger, v3(bench, first, second))
    birth = origins.birth(7, SnapshotId("2"))
    change = origins.last_change(7, 2, SnapshotId("2"))
    assert (birth.batch, birth.confidence) == (born, Confidence.EXACT)
    assert (change.batch, change.confidence) == (changed, Confidence.EXACT)
    assert origins.birth(99, None).batch == born
    assert origins.birth(100, None).batch == changed


def test_the_answer_outlives_the_snapshot(bench: Bench) -> None:
    born = landed(bench, snapshot(1, 0, 100))
    origins = Origins(bench.ledger, v3(bench, snapshot(9, 500, 1)))
    birth = origins.birth(7, SnapshotId("9"))
    assert (birth.batch, birth.confidence) == (born, Confidence.EXACT)
    assert birth.note == "the snapshot has expired"


def test_a_foreign_write_that_was_recorded_outlives_its_snapshot_too(bench: Bench) -> None:
    bench.note(
        Kind.FOREIGN,
        snapshot="4",
        operation="append",
        sequence_number=4,
        first_row_id=40,
        added_rows=10,
    )
    origins = Origins(bench.ledger, v3(bench, snapshot(9, 500, 1)))
    birth = origins.birth(45, SnapshotId("9"))
    assert birth.foreign
    assert birth.snapshot == "4"
    assert "expired" in str(birth.note)


@pytest.mark.parametrize("recorded", [True, False])
def test_a_compaction_is_never_an_origin(bench: Bench, recorded: bool) -> None:
    compaction = snapshot(2, 100, 100, "replace")
    if recorded:
        landed(bench, compaction, "compact")
    origins = Origins(bench.ledger, v3(bench, snapshot(1, 0, 100), compaction))
    assert origins.birth(150, SnapshotId("2")).confidence is Confidence.UNKNOWN
    assert origins.last_change(150, 2, SnapshotId("2")).confidence is Confidence.UNKNOWN


def test_a_row_id_or_number_outside_every_write_is_unknown(bench: Bench) -> None:
    origins = Origins(bench.ledger, v3(bench, snapshot(5, 100, 10)))
    assert origins.birth(99, None).confidence is Confidence.UNKNOWN
    assert origins.birth(110, None).confidence is Confidence.UNKNOWN
    assert origins.last_change(105, 4, None).confidence is Confidence.UNKNOWN


def test_rows_numbered_at_an_upgrade_are_not_given_to_the_batch_that_numbered_them(
    bench: Bench,
) -> None:
    old = replace(snapshot(1, 0, 0), first_row_id=None, added_rows=None)
    numbering = replace(snapshot(2, 0, 30, records=10), parent=old.id)
    before, after = landed(bench, old), landed(bench, numbering)
    origins = Origins(bench.ledger, v3(bench, old, numbering))
    assert origins.birth(25, SnapshotId("1")).batch == before
    assert origins.birth(25, SnapshotId("1")).confidence is Confidence.FILE
    assert origins.birth(3, SnapshotId("2")).batch == after
    assert origins.birth(25, SnapshotId("7")).confidence is Confidence.UNKNOWN


@pytest.mark.parametrize("kept", [True, False])
def test_ids_taken_for_rewritten_manifests_hide_no_birth(bench: Bench, kept: bool) -> None:
    first = snapshot(1, 0, 100)
    # A delete that rewrites a manifest takes an id for each row in it, and brings one row.
    second = replace(snapshot(2, 100, 60, "overwrite", records=1), parent=first.id)
    born, changed = landed(bench, first), landed(bench, second, "upsert")
    origins = Origins(bench.ledger, v3(bench, first, second) if kept else v3(bench, second))
    assert origins.birth(140, second.id).batch == changed
    assert origins.birth(140, second.id).confidence is Confidence.EXACT
    assert origins.birth(40, second.id).batch == born


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (2**53, str(2**53)),
        (-(2**60), str(-(2**60))),
        (7, 7),
        (True, True),
        (Decimal("1.50"), "1.50"),
        (datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00+00:00"),
        (date(2026, 1, 1), "2026-01-01"),
        (b"\x00\xff", "AP8="),
        ([1, {"a": 2**60}], [1, {"a": str(2**60)}]),
        (None, None),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
    ],
)
def test_values_fit_into_json_and_lose_no_digit(value: object, shown: object) -> None:
    assert plain(value) == shown
