"""Consumers: positions that move when a reading is confirmed, and not before."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from odi_audit.committer.parts import Parts
from odi_audit.committer.run import Run
from odi_audit.errors import EntryNotFound, LedgerConflict, LedgerLocked, StorageError, UsageError
from odi_audit.ids import JobName, RunId
from odi_audit.ledger.port import EntryFilter
from odi_audit.model.entries import Entry, Kind
from odi_audit.model.tables import parse
from odi_audit.query.consumers import Standing, check_consumer, list_consumers, position, reads
from odi_audit.reading import access_of, open_changes, pending_page
from odi_audit.readings import Access, ChangeReading, StableReading
from odi_audit.settings import Settings
from tests.unit.query.conftest import ROWS, Bench

TABLE = "sales.orders"


def no_spark() -> None:
    raise AssertionError("nothing here may start Spark")


@pytest.fixture
def parts(bench: Bench, settings: Settings) -> Parts:
    return Parts(
        ledger=bench.ledger,
        catalog=lambda: bench.catalog,
        spark=no_spark,  # type: ignore[arg-type]
        settings=settings,
        clock=bench.clock,
        owner="owner",
        principal="ana",
        code="v1",
    )


@pytest.fixture
def access(parts: Parts) -> Access:
    return access_of(parts)


def changes(access: Access, consumer: str = "billing", **how: object) -> ChangeReading:
    return open_changes(access, TABLE, consumer=consumer, **how)  # type: ignore[arg-type]


def ids(reading: ChangeReading | StableReading) -> list[int]:
    return [int(row) for row in reading.to_table()["id"].to_pylist()]


def entries(bench: Bench) -> list[Entry]:
    return bench.ledger.find(EntryFilter(kinds=(Kind.READ,)))


def test_a_new_consumer_reads_everything_and_then_only_what_is_new(
    bench: Bench, access: Access
) -> None:
    first = bench.land()
    with changes(access) as reading:
        table = reading.to_table()
    assert table["id"].to_pylist() == list(range(10))
    assert set(table["_change"].to_pylist()) == {"insert"}
    assert set(table["_batch"].to_pylist()) == {first}
    second = bench.land()
    with changes(access) as reading:
        assert (reading.inserted_count, reading.batches_count) == (10, 1)
        table = reading.to_table()
    assert table["id"].to_pylist() == list(range(10, 20))
    assert set(table["_batch"].to_pylist()) == {second}
    with changes(access) as reading:
        assert ids(reading) == []
    assert len(entries(bench)) == 2


def test_what_a_confirmed_reading_records(bench: Bench, access: Access) -> None:
    bench.land()
    size = bench.ledger.head().size
    with changes(access, columns=["id"], where="region = 'r' and id < 7") as reading:
        assert len(ids(reading)) == 7
    (entry,) = entries(bench)
    (info,) = bench.state().snapshots
    assert entry.table == bench.state().ref
    assert (entry.job, entry.run, entry.batch) == (None, None, None)
    assert dict(entry.facts) == {
        "consumer": "billing",
        "mode": "changes",
        "columns": ["id"],
        "where": "region = '?' and id < 7",
        "principal": "ana",
        "began": size,
        "began_at": bench.ledger.get(size - 1).time,
        "form": "arrow",
        "from_snapshot": None,
        "from_sequence": None,
        "to_snapshot": info.id,
        "to_sequence": 1,
        "to_time": info.time,
        "batches": 1,
        "rows": 7,
        "inserted": 7,
        "updated": 0,
        "deleted": 0,
    }


def test_a_crash_before_the_confirmation_reads_the_same_range_again(
    bench: Bench, access: Access
) -> None:
    bench.land()

    def crash() -> None:
        with changes(access) as reading:
            assert len(ids(reading)) == 10
            raise RuntimeError("a crash")

    with pytest.raises(RuntimeError, match="a crash"):
        crash()
    assert entries(bench) == []
    with changes(access) as reading:
        assert len(ids(reading)) == 10
    assert len(entries(bench)) == 1


def test_what_was_not_read_to_its_end_is_not_confirmed(bench: Bench, access: Access) -> None:
    bench.land()
    bench.land()
    with pytest.raises(UsageError, match="not read to its end"), changes(access) as reading:
        next(iter(reading))
    with pytest.raises(UsageError, match="not read to its end"):
        changes(access).commit()
    assert entries(bench) == []


def test_a_confirmation_is_recorded_once(bench: Bench, access: Access) -> None:
    bench.land()
    with changes(access) as reading:
        ids(reading)
        assert reading.commit() == reading.commit() is not None
    assert len(entries(bench)) == 1


def test_of_two_readings_of_one_consumer_the_second_confirmation_is_refused(
    bench: Bench, access: Access
) -> None:
    bench.land()
    one, two = changes(access), changes(access)
    ids(one), ids(two)
    one.commit()
    with pytest.raises(LedgerConflict, match="meanwhile"):
        two.commit()
    assert len(entries(bench)) == 1


def test_of_two_processes_that_confirm_at_once_one_is_refused(
    bench: Bench, access: Access, tmp_path: Path
) -> None:
    bench.land()
    reading = changes(access)
    ids(reading)
    # Another process, stopped between its look at the position and its entry.
    other = create_holder(tmp_path, f"consumer:{bench.state().ref.uuid}:billing")
    try:
        with pytest.raises(LedgerLocked, match=r"another process reads sales\.orders as consumer"):
            reading.commit()
        assert entries(bench) == []
    finally:
        other.kill()
        other.wait()
    # Its lock died with it.
    assert reading.commit() is not None
    assert not bench.ledger.is_alive(f"consumer:{bench.state().ref.uuid}:billing")


def create_holder(folder: Path, owner: str) -> subprocess.Popen[str]:
    script = (
        "import sys, time\n"
        "from odi_audit.clock import SystemClock\n"
        "from odi_audit.ledger import open_ledger\n"
        "ledger = open_ledger(sys.argv[1], clock=SystemClock())\n"
        "ledger.hold(sys.argv[2])\n"
        "print('held', flush=True)\n"
        "time.sleep(60)\n"
    )
    made = subprocess.Popen(
        [sys.executable, "-c", script, f"sqlite:///{folder / 'ledger.db'}", owner],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert made.stdout is not None
    assert made.stdout.readline() == "held\n"
    return made


def test_threads_that_confirm_at_once_record_one_reading(bench: Bench, access: Access) -> None:
    bench.land()
    readings = [changes(access) for _ in range(4)]
    for reading in readings:
        ids(reading)
    start = threading.Barrier(len(readings))

    def confirm(reading: ChangeReading) -> bool:
        start.wait()
        try:
            return reading.commit() is not None
        except LedgerConflict:
            return False

    with ThreadPoolExecutor(len(readings)) as pool:
        assert sum(pool.map(confirm, readings)) == 1
    assert len(entries(bench)) == 1


def test_a_reading_that_lacks_a_data_file_is_never_confirmed(bench: Bench, access: Access) -> None:
    bench.land()
    (file,) = bench.table().inspect.files()["file_path"].to_pylist()
    bench.land()
    Path(file.removeprefix("file://")).unlink()
    with pytest.raises(StorageError, match="cannot be read"), changes(access) as reading:
        ids(reading)
    missing: list[str] = []
    reading = changes(access, missing=missing)
    assert ids(reading) == list(range(10, 20))
    assert missing == [file]
    with pytest.raises(StorageError, match=r"is gone.*not confirmed"):
        reading.commit()
    assert entries(bench) == []
    page = pending_page(access, TABLE, consumer="billing")
    assert (page.missing, page.inserted, len(page.rows)) == ((file,), 10, 10)
    # Past it there is one way, by name, and it is recorded as that.
    pending_page(access, TABLE, consumer="billing", apply=True)
    (entry,) = entries(bench)
    assert (entry.facts["skipped"], entry.facts["rows"]) == (True, 10)


def test_consumers_do_not_move_each_other(bench: Bench, access: Access) -> None:
    bench.land()
    with changes(access, "billing") as reading:
        ids(reading)
    with changes(access, "search") as reading:
        assert len(ids(reading)) == 10


def test_rows_that_went_are_read_with_the_batch_that_took_them(
    bench: Bench, access: Access
) -> None:
    bench.land()
    with changes(access) as reading:
        ids(reading)
    intent = bench.intend(op="delete")
    bench.table().delete("id = 4", snapshot_properties=bench.stamps(intent))
    current = bench.state().current_snapshot
    assert current is not None
    bench.record(intent, current, operation="delete")
    with changes(access) as reading:
        (row,) = reading.to_table().to_pylist()
    assert (row["id"], row["_change"], row["_batch"]) == (4, "delete", intent.batch)


def test_a_rewritten_file_of_a_table_without_ids_names_no_batch_it_cannot_know(
    bench: Bench, access: Access
) -> None:
    bench.land()
    # Foreign, and it carries nine rows of the batch over into a new file.
    bench.table().delete("id = 4")
    with changes(access) as reading:
        assert set(reading.to_table()["_batch"].to_pylist()) == {None}


def test_an_expired_position_is_an_error_with_the_choices(bench: Bench, access: Access) -> None:
    bench.land()
    with changes(access) as reading:
        ids(reading)
    bench.land()
    bench.land()
    start, middle, _ = bench.state().snapshots
    bench.table().maintenance.expire_snapshots().by_id(int(start.id)).commit()
    with pytest.raises(EntryNotFound) as raised:
        changes(access)
    message = raised.value.message
    assert "since='start'" in message
    assert "since='oldest' reads what changed since the oldest snapshot that is kept" in message
    assert f"(snapshot {middle.id} of" in message
    assert [state.standing for state in list_consumers(bench.ledger, bench.catalog)] == [
        Standing.EXPIRED
    ]
    with changes(access, since="oldest") as reading:
        assert ids(reading) == list(range(20, 30))
    with changes(access, since="start") as reading:
        assert sorted(ids(reading)) == list(range(30))


def test_a_reading_can_begin_at_a_place(bench: Bench, access: Access) -> None:
    first = bench.land()
    bench.land()
    with changes(access, since=first) as reading:
        assert ids(reading) == list(range(10, 20))


def test_an_empty_table_gives_nothing_and_records_nothing(bench: Bench, access: Access) -> None:
    with changes(access) as reading:
        assert reading.to_table().num_rows == 0
        assert reading.schema.names[:3] == ["id", "region", "_change"]
    assert entries(bench) == []
    with pytest.raises(UsageError, match="no snapshot"):
        _ = reading.offsets


def test_a_run_that_reads_is_named_in_the_entry(bench: Bench, parts: Parts, access: Access) -> None:
    bench.land()
    run = Run(parts, JobName("sales/copying"), RunId("11111111-1111-4111-8111-111111111111"))
    with open_changes(access_of(parts, run), TABLE, consumer="copier") as reading:
        ids(reading)
        offsets = reading.offsets
    (entry,) = entries(bench)
    assert (entry.job, entry.run) == (run.job, run.run_id)
    uuid, snapshot = bench.state().ref.uuid, bench.state().current_snapshot
    assert offsets.to_json()["ranges"] == {uuid: [None, snapshot]}


def test_a_stable_reading_is_of_one_snapshot_and_moves_no_position(
    bench: Bench, access: Access
) -> None:
    bench.land()
    state = bench.state()
    (info,) = state.snapshots
    reading = StableReading(access, state, info, "books", columns=None, where=None, as_="arrow")
    bench.land()
    with reading:
        assert ids(reading) == list(range(10))
    (entry,) = entries(bench)
    assert (entry.facts["mode"], entry.facts["rows"]) == ("stable", 10)
    assert position(bench.ledger, state.ref.uuid, "books") is None
    assert [read.consumer for read in reads(bench.ledger)] == ["books"]


def test_the_list_tells_how_far_behind_each_is(bench: Bench, access: Access) -> None:
    bench.land()
    with changes(access, "slow") as reading:
        ids(reading)
    bench.land()
    bench.land()
    with changes(access, "fast") as reading:
        ids(reading)
    found = {item.position.consumer: item for item in list_consumers(bench.ledger, bench.catalog)}
    assert (found["slow"].standing, found["slow"].lag_batches) == (Standing.BEHIND, 2)
    assert (found["fast"].standing, found["fast"].lag_batches) == (Standing.CURRENT, 0)
    bench.writer.drop_table(parse(TABLE).parts)
    gone = list_consumers(bench.ledger, bench.catalog)
    assert {item.standing for item in gone} == {Standing.TABLE_GONE}


def test_a_position_that_was_rolled_back_reads_what_the_rollback_took(
    bench: Bench, access: Access
) -> None:
    bench.land()
    bench.land()
    with changes(access) as reading:
        ids(reading)
    first, second = (info.id for info in bench.state().snapshots)
    bench.table().manage_snapshots().rollback_to_snapshot(int(first)).commit()
    undo = bench.note(Kind.ROLLBACK, removed_snapshots=[second])
    (state,) = list_consumers(bench.ledger, bench.catalog)
    assert state.standing is Standing.ROLLED_BACK
    with changes(access) as reading:
        table = reading.to_table()
    assert table["id"].to_pylist() == list(range(10, 20))
    assert set(table["_change"].to_pylist()) == {"delete"}
    assert set(table["_batch"].to_pylist()) == {undo.batch}
    with changes(access) as reading:
        assert ids(reading) == []


def test_a_page_confirms_nothing_unless_it_is_to(bench: Bench, access: Access) -> None:
    bench.land()
    page = pending_page(access, TABLE, consumer="billing", limit=3)
    assert (page.inserted, len(page.rows), page.cut, page.entry) == (10, 3, True, None)
    assert entries(bench) == []
    page = pending_page(access, TABLE, consumer="billing", limit=0, apply=True)
    (entry,) = entries(bench)
    assert page.entry == entry.index
    assert (entry.facts["skipped"], entry.facts["rows"]) == (True, 0)
    assert pending_page(access, TABLE, consumer="billing").inserted == 0
    with pytest.raises(UsageError, match="limit"):
        pending_page(access, TABLE, consumer="billing", limit=-1)


@pytest.mark.parametrize("name", ["", " a", "a\n", "x" * 201])
def test_a_consumer_s_name_is_checked(name: str) -> None:
    with pytest.raises(UsageError, match="consumer name"):
        check_consumer(name)


def test_an_unknown_column_names_near_ones(bench: Bench, access: Access) -> None:
    bench.land()
    with pytest.raises(UsageError, match="no column regoin; did you mean region"):
        changes(access, columns=["regoin"])
    with pytest.raises(UsageError, match="neither 'arrow' nor 'spark'"):
        changes(access, as_="pandas")


def test_a_schema_that_grew_meanwhile_is_the_one_that_is_read(bench: Bench, access: Access) -> None:
    bench.land()
    with changes(access) as reading:
        ids(reading)
    with bench.table().update_schema() as update:
        update.add_column("note", bench.table().schema().find_type("region"))
    rows = pa.table({"id": [77], "region": ["x"]}, schema=ROWS).append_column("note", [["n"]])
    bench.table().append(rows)
    with changes(access) as reading:
        (row,) = reading.to_table().to_pylist()
    assert (row["id"], row["note"], row["_batch"]) == (77, "n", None)
