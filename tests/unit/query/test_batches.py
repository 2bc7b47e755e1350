from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from odi_audit.errors import AmbiguousBatch, EntryNotFound, UsageError
from odi_audit.ids import JobName
from odi_audit.ledger.port import EntryFilter
from odi_audit.model.entries import Draft, Kind
from odi_audit.model.offsets import files, mapping, once
from odi_audit.query import facts
from odi_audit.query.batches import BatchState, list_batches
from odi_audit.query.detail import SnapshotPlace, batch_detail
from odi_audit.query.since import moment

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Bench


def test_a_landed_batch_says_what_it_did(bench: Bench) -> None:
    batch = bench.land()
    (summary,) = list_batches(bench.ledger)
    assert summary.batch == batch
    assert summary.state is BatchState.LANDED
    assert summary.job == "sales/orders"
    assert summary.tables == ("sales.orders",)
    assert summary.operations == ("append",)
    assert summary.rows == 10
    assert summary.source == "topic"
    assert summary.offsets == "p0 [0, 10)"
    assert summary.settled is not None
    assert summary.started < summary.settled


def test_newest_batches_come_first_and_the_limit_keeps_them(bench: Bench) -> None:
    batches = [bench.land() for _ in range(4)]
    found = list_batches(bench.ledger, limit=3)
    assert [summary.batch for summary in found] == [batches[3], batches[2], batches[1]]


def test_each_state_is_told_from_the_others(bench: Bench) -> None:
    bench.ledger.hold("me")
    bench.create("sales.returns")
    batches = {
        BatchState.LANDED: bench.land(),
        BatchState.UNDONE: bench.land(),
        BatchState.OPEN: bench.intend().batch,
        BatchState.IN_FLIGHT: bench.intend(owner="me").batch,
    }
    bench.note(Kind.ROLLBACK, operation="rollback", undone=[batches[BatchState.UNDONE]])
    refused, abandoned, unknown = bench.intend(), bench.intend(), bench.intend()
    bench.settle(refused, Kind.REFUSED, code="ODI-G03", reason="amount >= 0 broken")
    bench.settle(abandoned, Kind.ABANDONED, reason="crashed")
    bench.settle(unknown, Kind.UNKNOWN, reason="no answer")
    partly = bench.intend("sales.orders", "sales.returns")
    bench.record(partly, bench.write(bench.stamps(partly)), settles=False)
    batches |= {
        BatchState.REFUSED: refused.batch,
        BatchState.ABANDONED: abandoned.batch,
        BatchState.UNKNOWN: unknown.batch,
        BatchState.PARTLY_LANDED: partly.batch,
    }
    assert set(batches) == set(BatchState)
    for state, batch in batches.items():
        named = [
            summary.batch
            for summary in list_batches(bench.ledger, job=JobName("sales/orders"), state=state)
        ]
        assert named == [batch], state


def test_a_batch_with_several_attempts_is_one_line(bench: Bench) -> None:
    part = bench.offsets()
    first = bench.intend(offsets=part)
    bench.settle(first, Kind.ABANDONED, reason="crashed")
    batch = bench.land(offsets=part)
    late = bench.intend(offsets=part)
    (summary,) = list_batches(bench.ledger)
    assert (summary.batch, summary.attempts) == (batch, 3)
    assert summary.state is BatchState.LANDED
    assert summary.intent == late.index


def test_a_table_narrows_to_what_was_done_or_meant_to_be_done_to_it(bench: Bench) -> None:
    other = bench.create("sales.other")
    landed = bench.land("sales.other")
    bench.land("sales.orders")
    refused = bench.intend("sales.other")
    bench.settle(refused, Kind.REFUSED, reason="bad")
    bench.settle(bench.intend("sales.orders"), Kind.REFUSED, reason="bad")
    still_open = bench.intend("sales.other")
    found = list_batches(bench.ledger, table=other.ref.uuid)
    assert [summary.batch for summary in found] == [still_open.batch, refused.batch, landed]


def test_since_and_until_are_about_the_start_of_the_last_attempt(bench: Bench) -> None:
    batches = [bench.land() for _ in range(3)]
    starts = [summary.started for summary in reversed(list_batches(bench.ledger))]
    since = [summary.batch for summary in list_batches(bench.ledger, since=starts[1])]
    until = [summary.batch for summary in list_batches(bench.ledger, until=starts[1])]
    assert since == [batches[2], batches[1]]
    assert until == [batches[0]]
    uuid = bench.state().ref.uuid
    both = list_batches(bench.ledger, table=uuid, since=starts[1], until=starts[2])
    assert [summary.batch for summary in both] == [batches[1]]


def test_a_narrowed_list_finds_more_than_one_page_holds(bench: Bench) -> None:
    intents = [bench.intend(job=JobName("sales/busy")) for _ in range(450)]
    for intent in intents:
        bench.settle(intent, Kind.ABANDONED, reason="x")
    wanted = bench.intend(job=JobName("sales/quiet"))
    assert len(list_batches(bench.ledger, limit=1000)) == 451
    (summary,) = list_batches(bench.ledger, job=JobName("sales/quiet"))
    assert summary.batch == wanted.batch


def test_a_short_list_does_not_read_the_whole_ledger(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(300):
        bench.settle(bench.intend(), Kind.ABANDONED, reason="x")
    read: list[int] = []
    find = bench.ledger.find

    def counting(where: EntryFilter, **options: object) -> object:
        found = find(where, **options)  # type: ignore[arg-type]
        read.append(len(found))
        return found

    monkeypatch.setattr(bench.ledger, "find", counting)
    monkeypatch.delattr(type(bench.ledger), "scan")
    assert len(list_batches(bench.ledger, limit=5)) == 5
    assert sum(read) <= 200


@pytest.mark.parametrize("limit", [0, -1, 100_001])
def test_a_limit_out_of_bounds_is_refused(bench: Bench, limit: int) -> None:
    with pytest.raises(UsageError):
        list_batches(bench.ledger, limit=limit)


def test_a_batch_in_detail_names_attempts_tables_and_entries(bench: Bench) -> None:
    part = bench.offsets()
    bench.settle(
        bench.intend(offsets=part), Kind.REFUSED, code="ODI-G03", reason="amount >= 0 broken"
    )
    batch = bench.land(offsets=part)
    detail = batch_detail(bench.ledger, bench.catalog, batch[:10])
    refused, landed = detail.attempts
    assert (refused.outcome, refused.reason_code) == ("refused", "ODI-G03")
    assert refused.reason == "amount >= 0 broken"
    assert (landed.outcome, landed.principal, landed.pid) == ("landed", "ana", 7)
    (table,) = detail.tables
    assert table.place is SnapshotPlace.MAIN
    assert table.snapshot == bench.state().current_snapshot
    assert detail.offsets == part.to_json()
    assert [entry.kind for entry in detail.entries] == [
        Kind.INTENT,
        Kind.REFUSED,
        Kind.INTENT,
        Kind.LANDED,
    ]


def test_a_detail_says_where_the_snapshot_is_now(bench: Bench) -> None:
    expired, lost, undone = bench.land(), bench.land(), bench.land()
    ids = [info.id for info in bench.state().snapshots]
    bench.land()
    bench.table().maintenance.expire_snapshots().by_ids([int(ids[0]), int(ids[1])]).commit()
    bench.note(Kind.MAINTENANCE, operation="expire", expired=[ids[0]])
    places = {
        batch: batch_detail(bench.ledger, bench.catalog, batch).tables[0].place
        for batch in (expired, lost, undone)
    }
    assert places == {
        expired: SnapshotPlace.EXPIRED,
        lost: SnapshotPlace.MISSING,
        undone: SnapshotPlace.MAIN,
    }
    bench.writer.drop_table(("sales", "orders"))
    assert (
        batch_detail(bench.ledger, bench.catalog, lost).tables[0].place is SnapshotPlace.TABLE_GONE
    )
    assert batch_detail(bench.ledger, None, lost).tables[0].place is SnapshotPlace.NOT_LOOKED


def test_a_renamed_table_is_still_found_by_its_uuid(bench: Bench) -> None:
    batch = bench.land()
    bench.writer.rename_table(("sales", "orders"), ("sales", "bookings"))
    assert batch_detail(bench.ledger, bench.catalog, batch).tables[0].place is SnapshotPlace.MAIN


def test_an_unknown_or_ambiguous_id_is_refused(bench: Bench) -> None:
    bench.land()
    bench.land()
    with pytest.raises(EntryNotFound):
        batch_detail(bench.ledger, None, "b-zzzz")
    with pytest.raises(AmbiguousBatch):
        batch_detail(bench.ledger, None, "b-")


def test_json_keeps_64_bit_numbers_as_text(bench: Bench) -> None:
    batch = bench.land()
    body = batch_detail(bench.ledger, bench.catalog, batch).to_json()
    (table,) = body["tables"]  # type: ignore[misc]
    assert table["snapshot"] == bench.state().current_snapshot
    assert table["sequence_number"] == "1"


def test_offsets_are_described_in_a_line(tmp_path: Path) -> None:
    names = ["a.csv", "b.csv", "c.csv", "d.csv"]
    for name in names:
        (tmp_path / name).write_text(name)
    read = files([tmp_path / name for name in names]).to_json()
    assert facts.describe_offsets(read) == "a.csv, b.csv, c.csv and 1 more"
    assert facts.describe_offsets(once("load-7").to_json()) == "load-7"
    first = mapping("s", {"p": (None, 5)}).to_json()
    assert facts.describe_offsets(first) == "p [, 5)"
    assert facts.describe_offsets({"kind": "kafka", "partitions": 900, "sha256": "x"}).startswith(
        "900 partitions"
    )
    assert facts.describe_offsets(None) == ""


@pytest.mark.parametrize(
    ("counts", "taken"),
    [
        ({"added-position-deletes": 3}, 3),
        ({"added-position-deletes": 5, "removed-position-deletes": 2}, 3),
        ({"deleted-records": 100, "removed-position-deletes": 2}, 98),
        ({"deleted-records": 100, "added-records": 97}, 3),
        ({}, 0),
    ],
)
def test_a_delete_counts_the_rows_that_it_took_away(counts: dict[str, int], taken: int) -> None:
    draft = Draft(kind=Kind.LANDED, facts={"operation": "delete", "counts": counts})
    assert facts.rows(draft.numbered(0, NOW)) == taken


NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("2h", "2026-11-16T10:00:00.000000Z"),
        ("3d", "2026-11-13T12:00:00.000000Z"),
        ("1w", "2026-11-09T12:00:00.000000Z"),
        ("2026-11-01", "2026-11-01T00:00:00.000000Z"),
        ("2026-11-01T10:00:00+02:00", "2026-11-01T08:00:00.000000Z"),
        ("2026-11-01T10:00:00Z", "2026-11-01T10:00:00.000000Z"),
    ],
)
def test_a_moment_is_read_as_people_write_it(written: str, meant: str) -> None:
    assert moment(written, NOW) == meant


@pytest.mark.parametrize("written", ["", "yesterday", "5", "999999w", "2026-13-01"])
def test_a_moment_that_is_none_is_refused(written: str) -> None:
    with pytest.raises(UsageError):
        moment(written, NOW)
