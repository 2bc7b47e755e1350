"""Diff on real tables without row ids: places, counts, samples, and bad input."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from odi_audit.errors import AmbiguousBatch, EntryNotFound, TableNotFound, UsageError
from odi_audit.model.tables import parse
from odi_audit.query.diff import Diff, MatchedBy, diff
from odi_audit.query.places import batch_of, batches_by_sequence, resolve_place
from tests.unit.query.conftest import ROWS, Bench


def ask(bench: Bench, before: str, after: str, **how: object) -> Diff:
    return diff(
        bench.ledger,
        bench.catalog,
        parse("sales.orders"),
        before,
        after,
        **how,  # type: ignore[arg-type]
    )


def test_between_two_batches_the_second_batch_s_rows_were_added(bench: Bench) -> None:
    first, second = bench.land(), bench.land()
    found = ask(bench, first, second, limit=3)
    assert (found.added, found.removed, found.changed, found.rewritten) == (10, 0, 0, 0)
    assert found.matched_by is MatchedBy.VALUES
    assert (found.before.batch, found.after.batch) == (first, second)
    assert [row.values["id"] for row in found.samples] == [10, 11, 12]
    assert found.schema.none


def test_by_key_a_changed_row_is_told_with_what_changed(bench: Bench) -> None:
    first = bench.land()
    rows = pa.table({"id": [3], "region": ["south"]}, schema=ROWS)
    bench.table().overwrite(rows, overwrite_filter="id = 3")
    found = ask(bench, first, "main", key=["id"])
    assert (found.added, found.removed, found.changed) == (0, 0, 1)
    assert found.columns == {"region": 1}
    (row,) = found.samples
    assert row.to_json() == {
        "change": "changed",
        "row_id": None,
        "batch": None,
        "values": {"id": 3, "region": "south"},
        "differences": {"region": ["r", "south"]},
    }
    assert found.after.batch is None


def test_backwards_is_the_opposite(bench: Bench) -> None:
    first, second = bench.land(), bench.land()
    found = ask(bench, second, first)
    assert (found.added, found.removed) == (0, 10)
    assert {row.change for row in found.samples} == {"removed"}


def test_a_row_that_one_batch_can_have_removed_names_it(bench: Bench) -> None:
    first = bench.land()
    intent = bench.intend(op="delete")
    bench.table().delete("id = 4", snapshot_properties=bench.stamps(intent))
    state = bench.state()
    assert state.current_snapshot is not None
    bench.record(intent, state.current_snapshot, operation="delete")
    (row,) = ask(bench, first, "main").samples
    assert (row.change, row.values["id"], row.batch) == ("removed", 4, intent.batch)


def test_a_filter_narrows_and_the_limit_bounds_the_samples_only(bench: Bench) -> None:
    first, second = bench.land(), bench.land()
    found = ask(bench, first, second, where="id >= 15", limit=0)
    assert (found.added, found.samples) == (5, ())


def test_columns_that_came_and_were_renamed_are_told(bench: Bench) -> None:
    first = bench.land()
    with bench.table().update_schema() as update:
        update.rename_column("region", "area")
    ids = pa.table({"id": pa.array([99], pa.int64()), "area": ["x"]})
    bench.table().append(ids.cast(bench.table().schema().as_arrow()))
    found = ask(bench, first, "main")
    assert found.schema.renamed == {"region": "area"}
    assert (found.added, found.removed) == (1, 0)


def test_a_data_file_that_is_gone_is_named_and_its_rows_are_not_called_new(bench: Bench) -> None:
    first = bench.land()
    (file,) = bench.table().inspect.files()["file_path"].to_pylist()
    bench.table().delete("id = 4")
    bench.land()
    Path(file.removeprefix("file://")).unlink()
    found = ask(bench, first, "main")
    assert found.missing == (file,)
    assert (found.added, found.removed, found.changed) == (0, 0, 0)
    # Nine that were carried over, and ten that are new but have no ids to show it.
    assert (found.untold, found.samples) == (19, ())
    assert found.to_json()["missing"] == [file]


@pytest.mark.parametrize("limit", [-1, 10_001])
def test_a_limit_out_of_bounds_is_refused(bench: Bench, limit: int) -> None:
    batch = bench.land()
    with pytest.raises(UsageError, match="limit"):
        ask(bench, batch, batch, limit=limit)


def test_bad_places_are_told_apart(bench: Bench) -> None:
    batch = bench.land()
    other = bench.create("sales.others")
    elsewhere = bench.land("sales.others")
    with pytest.raises(EntryNotFound, match=r"has landed no snapshot on table sales\.orders"):
        ask(bench, batch, elsewhere)
    with pytest.raises(EntryNotFound):
        ask(bench, batch, "b-ffffffffffff")
    with pytest.raises(AmbiguousBatch):
        ask(bench, batch, "b-")
    with pytest.raises(EntryNotFound):
        ask(bench, batch, "no-such-tag")
    with pytest.raises(TableNotFound, match=r"sales\.orders"):
        diff(bench.ledger, bench.catalog, parse("sales.order"), batch, batch)
    assert other.current_snapshot is None


def test_a_batch_whose_snapshot_has_expired_is_said_to_have(bench: Bench) -> None:
    first, second = bench.land(), bench.land()
    start = bench.state().snapshots[0].id
    bench.table().maintenance.expire_snapshots().by_id(int(start)).commit()
    with pytest.raises(EntryNotFound, match=f"snapshot {start} of batch {first}.*has expired"):
        ask(bench, first, second)
    # The ledger still knows which batch made which change.
    assert batches_by_sequence(bench.ledger, bench.state()) == {1: first, 2: second}


def test_a_place_is_a_batch_a_snapshot_a_branch_or_a_time(bench: Bench) -> None:
    batch = bench.land()
    (info,) = bench.state().snapshots
    state = bench.state()
    for text in (batch, batch[:12], info.id, "main", "2126-01-01"):
        assert resolve_place(bench.ledger, state, text) == info, text
    bench.table().manage_snapshots().create_tag(int(info.id), "b-tag").commit()
    assert resolve_place(bench.ledger, bench.state(), "b-tag").id == info.id


def test_a_stamp_alone_names_no_batch(bench: Bench) -> None:
    intent = bench.intend()
    snapshot = bench.write(bench.stamps(intent))
    assert batch_of(bench.ledger, bench.state(), snapshot) is None
    bench.record(intent, snapshot)
    assert batch_of(bench.ledger, bench.state(), snapshot) == intent.batch
