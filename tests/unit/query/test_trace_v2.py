"""Rows without ids: what can be said, and how far it can be relied on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.io.pyarrow import _dataframe_to_data_files

from odi_audit.ids import BatchId, SnapshotId
from odi_audit.model.entries import Draft, Entry, Kind
from odi_audit.model.tables import parse
from odi_audit.query.gone import LOOKALIKE, gone_rows
from odi_audit.query.origin import Confidence
from odi_audit.query.trace import trace
from odi_audit.query.versions import row_history

if TYPE_CHECKING:
    from conftest import Bench

ORDERS = parse("sales.orders")


def record(bench: Bench, intent: Entry, operation: str, **more: object) -> BatchId:
    """Record that the table's newest snapshot is what an intent landed."""
    state = bench.state()
    info = state.snapshots[-1]
    counts = {
        key: int(info.summary[key])
        for key in ("added-records", "deleted-data-files", "deleted-records")
        if key in info.summary
    }
    bench.ledger.append(
        Draft(
            kind=Kind.LANDED,
            job=intent.job,
            run=intent.run,
            batch=intent.batch,
            table=state.ref,
            intent=intent.index,
            settles=True,
            facts={
                "operation": operation,
                "snapshot": info.id,
                "sequence_number": info.sequence_number,
                "counts": counts,
                "committed_at": info.time,
                **more,  # type: ignore[dict-item]
            },
        )
    )
    assert intent.batch is not None
    return intent.batch


def deleted(bench: Bench, where: str) -> BatchId:
    intent = bench.intend(op="delete")
    bench.table().delete(where, snapshot_properties=bench.stamps(intent))
    return record(bench, intent, "delete")


def rewritten(bench: Bench, operation: str, rows: pa.Table, **more: object) -> BatchId:
    """Write the whole table anew in one file and one snapshot."""
    intent = bench.intend(op=operation)
    table = bench.table()
    old = [task.file for task in table.scan().plan_files()]
    with table.transaction() as change:
        made = _dataframe_to_data_files(change.table_metadata, rows, table.io)
        with change.update_snapshot(snapshot_properties=bench.stamps(intent)).overwrite() as into:
            for file in old:
                into.delete_data_file(file)
            for file in made:
                into.append_data_file(file)
    return record(bench, intent, operation, **more)


def content(bench: Bench) -> pa.Table:
    return bench.table().scan().to_arrow()


def expire_all_but_the_last(bench: Bench) -> None:
    state = bench.state()
    old = [int(info.id) for info in state.snapshots if info.id != state.current_snapshot]
    bench.table().maintenance.expire_snapshots().by_ids(old).commit()


def test_a_row_that_a_delete_copied_is_traced_to_the_file_that_it_came_in(bench: Bench) -> None:
    bench.land()
    second = bench.land()
    deleted(bench, "id = 13")
    (row,) = trace(bench.ledger, bench.catalog, ORDERS, "id = 15")
    assert (row.birth.batch, row.birth.confidence) == (second, Confidence.FILE)
    assert "copied" in str(row.birth.note)
    assert row.last_change == row.birth
    (row,) = trace(bench.ledger, bench.catalog, ORDERS, "id = 15", columns=["region"])
    assert row.values == {"region": "r"}
    assert row.birth.batch == second


def test_equal_rows_of_two_batches_stay_two_candidates(bench: Bench) -> None:
    first = bench.land()
    bench.next_row = 0
    second = bench.land()
    rewritten(bench, "compact", content(bench))
    for row in trace(bench.ledger, bench.catalog, ORDERS, "id = 5"):
        assert row.birth.confidence is Confidence.CANDIDATES
        assert set(row.birth.candidates) == {first, second}
        assert row.birth.batch is None


def test_after_expiry_the_record_of_the_rewritten_files_names_the_candidates(bench: Bench) -> None:
    batches = [bench.land() for _ in range(3)]
    rewritten(bench, "compact", content(bench), rewrote={"": [1, 3]})
    expire_all_but_the_last(bench)
    (row,) = trace(bench.ledger, bench.catalog, ORDERS, "id = 15")
    assert row.birth.confidence is Confidence.CANDIDATES
    assert row.birth.candidates == (batches[2], batches[0])
    assert row.birth.candidates_count == 2


def test_files_that_all_came_from_one_write_name_it(bench: Bench) -> None:
    bench.land()
    batch = bench.land()
    rewritten(bench, "compact", content(bench), rewrote={"": [2]})
    expire_all_but_the_last(bench)
    (row,) = trace(bench.ledger, bench.catalog, ORDERS, "id = 15")
    assert (row.birth.batch, row.birth.confidence) == (batch, Confidence.FILE)


def test_without_such_a_record_every_earlier_batch_that_was_not_undone_may_be_meant(
    bench: Bench,
) -> None:
    first = bench.land()
    bad = bench.land()
    bench.note(Kind.ROLLBACK, undone=[bad], removed_snapshots=[])
    third = bench.land()
    rewritten(bench, "compact", content(bench))
    later = bench.land()
    state = bench.state()
    compaction = state.snapshots[-2]
    expire_all_but_the_last(bench)
    (row,) = trace(bench.ledger, bench.catalog, ORDERS, "id = 5")
    # The snapshot is not in the table any more, and its record says nothing of files.
    assert compaction.id not in {info.id for info in bench.state().snapshots}
    assert row.birth.confidence is Confidence.CANDIDATES
    assert row.birth.candidates == (third, first)
    assert later not in row.birth.candidates
    assert "not on record" in str(row.birth.note)


def test_a_deleted_row_is_found_with_the_batch_that_deleted_it(bench: Bench) -> None:
    bench.land()
    born = bench.land()
    taker = deleted(bench, "id = 13")
    bench.land()
    found = gone_rows(bench.ledger, bench.catalog, ORDERS, "id = 13")
    (row,) = found.rows
    assert row.values == {"id": 13, "region": "r"}
    assert (row.deleted_by.batch, row.deleted_by.confidence) == (taker, Confidence.FILE)
    assert row.birth.batch == born
    assert not row.rolled_back
    assert row.note is None
    assert found.horizon.complete
    assert not found.cut
    assert gone_rows(bench.ledger, bench.catalog, ORDERS, "id = 14").rows == ()
    before = gone_rows(bench.ledger, bench.catalog, ORDERS, "id = 13", as_of=row.last_seen)
    assert before.rows == ()


def test_a_row_that_was_deleted_or_changed_is_not_called_deleted(bench: Bench) -> None:
    bench.land()
    rows = content(bench)
    changed = rows.set_column(1, "region", pa.array(["x"] * rows.num_rows))
    taker = rewritten(bench, "upsert", changed)
    found = gone_rows(bench.ledger, bench.catalog, ORDERS, "id = 3").rows
    assert [(row.deleted_by.batch, row.note) for row in found] == [(taker, LOOKALIKE)]


def test_what_a_rollback_took_with_it_is_told_as_rolled_back(bench: Bench) -> None:
    bench.land()
    kept = bench.state().current_snapshot
    bad = bench.land()
    lost = bench.state().current_snapshot
    bench.table().manage_snapshots().rollback_to_snapshot(int(str(kept))).commit()
    back = bench.note(Kind.ROLLBACK, undone=[bad], removed_snapshots=[lost], operation="rollback")
    (row,) = gone_rows(bench.ledger, bench.catalog, ORDERS, "id = 15").rows
    assert row.rolled_back
    assert row.deleted_by.batch == back.batch
    assert row.deleted_by.operation == "rollback"
    assert row.birth.batch == bad
    assert row.last_seen == lost


def test_beyond_the_oldest_snapshot_the_ledger_names_who_took_rows_out(bench: Bench) -> None:
    bench.land()
    taker = deleted(bench, "id = 3")
    bench.land()
    expire_all_but_the_last(bench)
    found = gone_rows(bench.ledger, bench.catalog, ORDERS, "id = 3")
    assert found.rows == ()
    assert not found.horizon.complete
    assert found.horizon.snapshot == bench.state().current_snapshot
    assert [item.batch for item in found.horizon.takings] == [taker]


def test_the_limit_cuts_and_says_so(bench: Bench) -> None:
    bench.land()
    deleted(bench, "id < 5")
    found = gone_rows(bench.ledger, bench.catalog, ORDERS, limit=2)
    assert len(found.rows) == 2
    assert found.cut
    assert not gone_rows(bench.ledger, bench.catalog, ORDERS, limit=5).cut


def test_a_row_without_an_id_has_one_version_and_says_why(bench: Bench) -> None:
    batch = bench.land()
    (history,) = row_history(bench.ledger, bench.catalog, ORDERS, "id = 3")
    (version,) = history.versions
    assert version.origin.batch == batch
    assert version.changes is None
    assert not history.complete
    assert "no ids" in str(history.note)


def test_a_moment_before_is_read_as_it_was(bench: Bench) -> None:
    first = bench.land()
    snapshot = bench.state().current_snapshot
    bench.land()
    for as_of in (str(snapshot), first, first[:12]):
        found = trace(bench.ledger, bench.catalog, ORDERS, as_of=as_of, limit=50)
        assert {row.birth.batch for row in found} == {first}
        assert len(found) == 10
    assert SnapshotId(str(snapshot)) == bench.state().snapshots[0].id
