"""Impact where rows have no ids, and downstream by the ledger; tests/spark follows rows by id."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from odi_audit.canonical import Json
from odi_audit.errors import AmbiguousBatch, EntryNotFound
from odi_audit.ids import BatchId, JobName, RunId
from odi_audit.model.entries import Draft, Entry, Kind
from odi_audit.query.downstream import Reader
from odi_audit.query.impact import Impact, impact
from odi_audit.query.origin import Confidence
from tests.unit.query.conftest import Bench

RUN = RunId("11111111-1111-4111-8111-111111111111")
READING = JobName("sales/copying")


def ask(bench: Bench, batch: str) -> Impact:
    return impact(bench.ledger, bench.catalog, batch)


def read(bench: Bench, table: str = "sales.orders", **more: Json) -> Entry:
    """Record a confirmed read of everything up to now, in a run."""
    state = bench.state(table)
    info = state.snapshots[-1]
    size = bench.ledger.head().size
    began = more.get("began", size)
    assert isinstance(began, int)
    facts: dict[str, Json] = {
        "consumer": "copier",
        "mode": "changes",
        "from_snapshot": None,
        "from_sequence": None,
        "to_snapshot": info.id,
        "to_sequence": info.sequence_number,
        "rows": 10,
        "principal": "ana",
        "began": size,
        "began_at": bench.ledger.get(began - 1).time,
        **more,
    }
    draft = Draft(kind=Kind.READ, job=READING, run=RUN, table=state.ref, facts=facts)
    return bench.ledger.append(draft)[0]


def write(bench: Bench, table: str, run: RunId = RUN, ranges: Json = None) -> BatchId:
    """Land a batch of the reading job, as the committer records it: with its parent run."""
    plain = bench.intend(table, job=READING)
    facts: dict[str, Json] = {**plain.facts, "parent_run": run}
    if ranges is not None:
        facts["offsets"] = {"kind": "table", "source": "table:x", "ranges": ranges}
    batch = BatchId("b-" + f"{bench.ledger.head().size:032x}")
    intent = bench.ledger.append(Draft(kind=Kind.INTENT, job=READING, batch=batch, facts=facts))[0]
    shown = bench.stamps(plain, **{"odi.batch-id": batch})
    bench.record(intent, bench.write(shown, table), table)
    return batch


def batches(reader: Reader) -> list[BatchId]:
    return [written.batch for written in reader.wrote]


def test_an_append_that_nothing_touched_is_all_there(bench: Bench) -> None:
    batch = bench.land()
    bench.land()
    (table,) = ask(bench, batch).tables
    fate = table.fate
    assert (fate.written, fate.live, fate.gone, fate.untold, fate.took) == (10, 10, 0, 0, 0)
    assert fate.confidence is Confidence.FILE
    assert (table.files_added, table.files_removed, table.partitions) == (1, 0, ())


def test_rows_in_a_file_that_was_rewritten_are_untold_with_the_batch_that_did_it(
    bench: Bench,
) -> None:
    batch = bench.land()
    intent = bench.intend(op="delete")
    bench.table().delete("id = 4", snapshot_properties=bench.stamps(intent))
    current = bench.state().current_snapshot
    assert current is not None
    bench.record(intent, current, operation="delete")
    fate = ask(bench, batch).tables[0].fate
    assert (fate.written, fate.live, fate.gone, fate.untold) == (10, 0, 0, 10)
    (by,) = fate.untold_by
    assert (by.batch, by.rows) == (intent.batch, 10)
    assert intent.batch is not None
    taking = ask(bench, intent.batch).tables[0].fate
    assert taking.took == 1


def test_a_rolled_back_batch_has_lost_all_to_the_rollback(bench: Bench) -> None:
    first = bench.land()
    second = bench.land()
    start = bench.state().snapshots[0].id
    bench.table().manage_snapshots().rollback_to_snapshot(int(start)).commit()
    undo = bench.note(Kind.ROLLBACK, undone=[second])
    (table,) = ask(bench, second).tables
    assert table.undone_by == undo.index
    assert (table.fate.live, table.fate.gone) == (0, 10)
    assert [(by.batch, by.rows) for by in table.fate.gone_by] == [(undo.batch, 10)]
    assert ask(bench, first).tables[0].fate.live == 10


def test_after_expiry_the_rows_still_in_the_batch_s_files_are_counted(bench: Bench) -> None:
    batch = bench.land()
    bench.land()
    start = bench.state().snapshots[0].id
    bench.table().maintenance.expire_snapshots().by_id(int(start)).commit()
    (table,) = ask(bench, batch).tables
    assert (table.fate.written, table.fate.live, table.fate.untold) == (10, 10, 0)
    assert "expired" in str(table.fate.note)


def test_a_data_file_that_is_gone_is_named_and_the_rest_followed(bench: Bench) -> None:
    batch = bench.land()
    bench.land()
    files = bench.table().inspect.files()["file_path"].to_pylist()
    mine = next(path for path in files if _holds(path, 0))
    Path(mine.removeprefix("file://")).unlink()
    found = ask(bench, batch)
    fate = found.tables[0].fate
    assert found.missing == (mine,)
    assert (fate.written, fate.live, fate.gone) == (0, 0, 0)
    assert fate.note is not None
    assert "data files are gone" in fate.note
    assert found.to_json()["missing"] == [mine]
    other = ask(bench, bench.land())
    assert (other.missing, other.tables[0].fate.live) == ((), 10)


def _holds(path: str, key: int) -> bool:
    return key in pq.read_table(path.removeprefix("file://"))["id"].to_pylist()


def test_a_dropped_table_leaves_what_the_ledger_knows(bench: Bench) -> None:
    batch = bench.land()
    read(bench)
    bench.writer.drop_table(("sales", "orders"))
    found = ask(bench, batch)
    (table,) = found.tables
    assert (table.fate.written, table.fate.live) == (10, None)
    assert table.fate.confidence is Confidence.UNKNOWN
    (reader,) = found.readers
    assert not reader.certain


def test_a_batch_that_landed_nowhere_has_no_impact(bench: Bench) -> None:
    intent = bench.intend()
    assert intent.batch is not None
    with pytest.raises(EntryNotFound, match="landed on no table"):
        ask(bench, intent.batch)
    with pytest.raises(EntryNotFound):
        ask(bench, "b-ffffffff")
    bench.land()
    with pytest.raises(AmbiguousBatch):
        ask(bench, "b-")


def test_reads_before_the_batch_or_from_a_point_after_it_did_not_hold_it(bench: Bench) -> None:
    bench.land()
    read(bench)
    batch = bench.land()
    info = bench.state().snapshots[-1]
    assert ask(bench, batch).readers == ()
    held = read(bench)
    bench.land()
    read(bench, from_snapshot=info.id, from_sequence=info.sequence_number)
    assert [reader.read.entry for reader in ask(bench, batch).readers] == [held.index]


def test_after_expiry_the_numbers_tell_who_held_it_and_a_rollback_before_the_read_counts(
    bench: Bench,
) -> None:
    batch = bench.land()
    held = read(bench)
    bench.note(Kind.ROLLBACK, undone=[batch])
    read(bench)
    bench.land()
    start = bench.state().snapshots[0].id
    bench.table().maintenance.expire_snapshots().by_id(int(start)).commit()
    (reader,) = ask(bench, batch).readers
    assert (reader.read.entry, reader.certain) == (held.index, False)


def test_what_the_reading_run_wrote_after_it_began_to_read_is_downstream(bench: Bench) -> None:
    bench.create("sales.copy")
    bench.create("sales.far")
    batch = bench.land()
    earlier = write(bench, "sales.copy")
    began = bench.ledger.head().size
    # A run writes inside the block, and confirms the reading at its end.
    inside = write(bench, "sales.copy")
    read(bench, began=began)
    after = write(bench, "sales.far")
    write(bench, "sales.copy", run=RunId("22222222-2222-4222-8222-222222222222"))
    (reader,) = ask(bench, batch).readers
    assert batches(reader) == [inside, after]
    assert earlier not in batches(reader)


def test_a_later_read_of_the_same_run_takes_over(bench: Bench) -> None:
    bench.create("sales.copy")
    first = bench.land()
    read(bench)
    one = write(bench, "sales.copy")
    info = bench.state().snapshots[-1]
    bench.land()
    read(bench, from_snapshot=info.id, from_sequence=1)
    two = write(bench, "sales.copy")
    (reader,) = ask(bench, first).readers
    assert batches(reader) == [one]
    assert two not in batches(reader)


def test_the_range_that_a_batch_names_links_it_to_the_read_of_another_run(bench: Bench) -> None:
    # The run wrote, crashed before it confirmed, and was done again by another.
    bench.create("sales.copy")
    batch = bench.land()
    state = bench.state()
    ranges: Json = {state.ref.uuid: [None, state.snapshots[-1].id]}
    lost = RunId("33333333-3333-4333-8333-333333333333")
    wrote = write(bench, "sales.copy", run=lost, ranges=ranges)
    read(bench, began_at="2026-01-01T00:00:00.000000Z")
    (reader,) = ask(bench, batch).readers
    assert batches(reader) == [wrote]


def test_a_circle_is_walked_once(bench: Bench) -> None:
    bench.create("sales.copy")
    batch = bench.land()
    read(bench)
    forth = write(bench, "sales.copy")
    read(bench, "sales.copy", consumer="back")
    back = write(bench, "sales.orders")
    read(bench, consumer="again")
    found = ask(bench, batch)
    # Rows of the batch were read twice: by the copier, and by the last reader.
    assert [reader.read.consumer for reader in found.readers] == ["copier", "again"]
    told = [written for reader in found.readers for written in reader.wrote]
    assert {written.batch for written in told} == {forth, back}
    second = next(written for written in told if written.batch == forth)
    (reader,) = second.readers
    assert [(written.batch, written.again) for written in reader.wrote] == [(back, False)]
    assert next(written for written in told if written.batch == back).again


def test_the_json_form_holds_ids_as_text(bench: Bench) -> None:
    bench.create("sales.copy")
    batch = bench.land()
    read(bench)
    write(bench, "sales.copy")
    body = json.loads(json.dumps(ask(bench, batch).to_json()))
    assert set(body) == {"batch", "job", "time", "tables", "readers", "cut", "missing"}
    assert body["tables"][0]["sequence_number"] == "1"
    assert body["readers"][0]["to_sequence"] == "1"
    assert body["readers"][0]["wrote"][0]["tables"] == ["sales.copy"]
