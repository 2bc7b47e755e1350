"""Changes between snapshots of tables whose rows have no ids; tests/spark has those with ids."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from odi_audit.catalog import TableState, open_catalog
from odi_audit.catalog.changes import CHANGE, PAIR, change_schema, changes, compare
from odi_audit.catalog.lake import LakeCatalog
from odi_audit.catalog.touched import file_fate, touched
from odi_audit.errors import EntryNotFound, StorageError, UsageError
from odi_audit.ids import SnapshotId
from odi_audit.model.tables import parse
from odi_audit.settings import Settings
from odi_audit.workspace import make_catalog_file

ROWS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("tags", pa.list_(pa.string())),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    catalog: LakeCatalog
    writer: SqlCatalog

    @property
    def table(self) -> Table:
        return self.writer.load_table(("s", "t"))

    @property
    def state(self) -> TableState:
        return self.catalog.load(parse("s.t"))

    def append(self, *rows: tuple[int, str | None]) -> SnapshotId:
        self.table.append(made(*rows))
        return self.head()

    def replace(self, where: str, *rows: tuple[int, str | None]) -> SnapshotId:
        with self.table.transaction() as transaction:
            transaction.delete(where)
            if rows:
                transaction.append(made(*rows))
        return self.head()

    def head(self) -> SnapshotId:
        current = self.state.current_snapshot
        assert current is not None
        return current


def made(*rows: tuple[int, str | None]) -> pa.Table:
    values = [{"id": key, "name": name, "tags": [f"t{key}", None]} for key, name in rows]
    return pa.Table.from_pylist(values, schema=ROWS)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    make_catalog_file(tmp_path / "catalog.db")
    (tmp_path / "warehouse").mkdir()
    settings = Settings.model_validate(
        {
            "catalog": {
                "uri": str(tmp_path / "catalog.db"),
                "warehouse": str(tmp_path / "warehouse"),
            }
        }
    )
    writer = SqlCatalog(
        "lake", uri=f"sqlite:///{tmp_path / 'catalog.db'}", warehouse=f"file://{tmp_path}/warehouse"
    )
    writer.create_namespace("s")
    writer.create_table(("s", "t"), ROWS)
    catalog = open_catalog(settings)
    yield Place(catalog=catalog, writer=writer)
    catalog.close()
    writer.close()


def images(
    state: TableState, before: SnapshotId | None, after: SnapshotId, **how: Any
) -> Counter[tuple[str, int, str | None]]:
    return Counter(
        (row[CHANGE], row["id"], row["name"])
        for batch in changes(state, before, after, **how)
        for row in batch.to_pylist()
    )


def test_without_a_first_snapshot_every_row_is_an_insert(place: Place) -> None:
    end = place.append((1, "a"), (2, None))
    found = list(changes(place.state, None, end))
    assert [row["tags"] for batch in found for row in batch.to_pylist()] == [
        ["t1", None],
        ["t2", None],
    ]
    assert images(place.state, None, end) == {("insert", 1, "a"): 1, ("insert", 2, None): 1}
    assert {batch.schema for batch in found} == {
        change_schema(place.state, place.state.snapshots[0])
    }


def test_nothing_differs_between_a_snapshot_and_itself(place: Place) -> None:
    end = place.append((1, "a"))
    assert images(place.state, end, end) == {}


def test_a_changed_row_went_and_came_unless_a_key_tells_that_it_is_the_same(place: Place) -> None:
    start = place.append((1, "a"), (2, "b"), (3, "c"))
    end = place.replace("id = 2 or id = 3", (2, "B"), (3, "c"))
    assert images(place.state, start, end) == {("delete", 2, "b"): 1, ("insert", 2, "B"): 1}
    by_key = images(place.state, start, end, key=["id"])
    assert by_key == {("update_before", 2, "b"): 1, ("update_after", 2, "B"): 1}
    compared = compare(place.state, start, end, key=["id"])
    pairs = [row[PAIR] for batch in compared.batches() for row in batch.to_pylist()]
    assert pairs == [0, 0]


def test_images_from_before_come_first_so_that_they_can_be_applied_in_order(place: Place) -> None:
    start = place.append((1, "a"), (2, "b"))
    end = place.replace("id > 0", (1, "x"), (3, "c"))
    order = [
        row[CHANGE]
        for batch in changes(place.state, start, end, key=["id"])
        for row in batch.to_pylist()
    ]
    assert sorted(order[:2]) == ["delete", "update_before"]
    assert sorted(order[2:]) == ["insert", "update_after"]


def test_equal_rows_are_counted_not_merged(place: Place) -> None:
    start = place.append((1, "a"), (1, "a"), (1, "a"))
    end = place.replace("id = 1", (1, "a"))
    assert images(place.state, start, end) == {("delete", 1, "a"): 2}
    assert images(place.state, end, start, key=["id"]) == {("insert", 1, "a"): 2}


def test_a_filter_keeps_a_change_that_matched_before_or_after(place: Place) -> None:
    start = place.append((1, "old"), (2, "b"), (3, "c"))
    end = place.replace("id > 0", (1, "new"), (2, "B"), (3, "c"))
    for where in ("name = 'old'", "name = 'new'"):
        found = images(place.state, start, end, key=["id"], where=where)
        assert found == {("update_before", 1, "old"): 1, ("update_after", 1, "new"): 1}, where
    assert images(place.state, start, end, where="name = 'old'") == {("delete", 1, "old"): 1}


def test_a_filter_that_cannot_be_read_is_said_to_be(place: Place) -> None:
    end = place.append((1, "a"))
    with pytest.raises(UsageError):
        images(place.state, None, end, where="name ===")


def test_chosen_columns_only(place: Place) -> None:
    end = place.append((1, "a"))
    (batch,) = changes(place.state, None, end, columns=["name"])
    assert batch.schema.names[:2] == ["name", CHANGE]


def test_an_unknown_key_names_near_ones(place: Place) -> None:
    end = place.append((1, "a"))
    with pytest.raises(UsageError, match="no column nme; did you mean name"):
        compare(place.state, None, end, key=["nme"])


def test_a_snapshot_that_is_not_there_is_said_to_have_expired(place: Place) -> None:
    end = place.append((1, "a"))
    with pytest.raises(EntryNotFound, match="no snapshot 12345"):
        compare(place.state, SnapshotId("12345"), end)


def paths(place: Place, snapshot: SnapshotId) -> list[Path]:
    listed = place.table.inspect.files(snapshot_id=int(snapshot))["file_path"].to_pylist()
    return [Path(path.removeprefix("file://")) for path in listed]


def holds(path: Path, key: int) -> bool:
    return key in pq.read_table(path)["id"].to_pylist()


def test_only_files_that_differ_are_opened(place: Place) -> None:
    start = place.append((1, "a"))
    (old,) = paths(place, start)
    end = place.append((2, "b"))
    old.unlink()
    assert images(place.state, start, end) == {("insert", 2, "b"): 1}
    with pytest.raises(StorageError, match="cannot be read"):
        images(place.state, None, end)


def test_a_file_that_is_gone_is_named_and_what_it_may_hold_is_not_told(place: Place) -> None:
    start = place.append((1, "a"), (2, "b"))
    (old,) = paths(place, start)
    end = place.replace("id = 1", (3, "c"))
    carried = next(path for path in paths(place, end) if holds(path, 2))
    old.rename(old.with_suffix(".away"))
    missing: list[str] = []
    found = compare(place.state, start, end, missing=missing)
    assert missing == [f"file://{old}"]
    # (2, b) was only carried over: without the old file it would pass for new.
    counts = (found.inserted_count, found.deleted_count, found.updated_count)
    assert (counts, found.untold_count) == ((0, 0, 0), 2)
    assert compare(place.state, start, end, missing=[], where="id = 3").untold_count == 1
    old.with_suffix(".away").rename(old)
    carried.unlink()
    found = compare(place.state, start, end, missing=missing)
    assert found.deleted_count == 0
    with pytest.raises(StorageError, match="cannot be read"):
        compare(place.state, start, end)


def test_a_file_that_is_only_counted_is_missed_when_its_rows_are_asked_for(place: Place) -> None:
    place.append((1, "a"))
    end = place.append((2, "b"))
    gone = paths(place, end)[0]
    gone.unlink()
    missing: list[str] = []
    found = compare(place.state, None, end, missing=missing)
    assert (found.inserted_count, missing) == (2, [])
    assert sum(batch.num_rows for batch in found.batches()) == 1
    assert (found.inserted_count, missing) == (1, [f"file://{gone}"])


def test_a_renamed_column_is_the_same_column(place: Place) -> None:
    start = place.append((1, "a"))
    place.table.update_schema().rename_column("name", "title").commit()
    renamed = pa.table({"id": [2], "title": ["b"], "tags": [[None, "t"]]})
    place.table.append(renamed.cast(place.table.schema().as_arrow()))
    found = [
        row for batch in changes(place.state, start, place.head()) for row in batch.to_pylist()
    ]
    assert [(row["id"], row["title"]) for row in found] == [(2, "b")]
    back = [
        row["name"]
        for batch in changes(place.state, place.head(), start)
        for row in batch.to_pylist()
    ]
    assert back == ["b"]


def test_what_a_snapshot_touched_and_what_became_of_its_files(place: Place) -> None:
    first = place.append((1, "a"), (2, "b"))
    second = place.append((3, "c"))
    third = place.replace("id = 1")
    state = place.state
    info = state.snapshot(third)
    assert info is not None
    look = touched(state, info)
    assert (look.added, look.removed, look.marked, look.partitions) == (1, 1, 0, ())
    start = state.snapshot(first)
    assert start is not None
    fate = file_fate(state, start, third)
    assert (fate.written, fate.live, fate.marked, fate.lost) == (2, 0, 0, {third: 2})
    middle = state.snapshot(second)
    assert middle is not None
    assert file_fate(state, middle, third).live == 1


@pytest.mark.parametrize("seed", range(3))
def test_random_histories_agree_with_a_plain_record(place: Place, seed: int) -> None:
    chance = random.Random(seed)
    rows: Counter[tuple[int, str | None]] = Counter()
    record: dict[SnapshotId, Counter[tuple[int, str | None]]] = {}
    for _ in range(5):
        fresh = [
            (chance.randrange(6), chance.choice(["a", "b", None]))
            for _ in range(chance.randrange(1, 5))
        ]
        if rows and chance.random() < 0.5:
            key = chance.choice(list(rows))[0]
            snapshot = place.replace(f"id = {key}", *fresh)
            rows = Counter({row: count for row, count in rows.items() if row[0] != key})
        else:
            snapshot = place.append(*fresh)
        rows = rows + Counter(fresh)
        record[snapshot] = rows
    for before, after in itertools.product(record, repeat=2):
        went, came = record[before] - record[after], record[after] - record[before]
        expected = {("delete", *row): count for row, count in went.items()}
        expected |= {("insert", *row): count for row, count in came.items()}
        assert images(place.state, before, after) == expected
        by_key = compare(place.state, before, after, key=["id"])
        lost: Counter[int] = Counter()
        won: Counter[int] = Counter()
        for row, count in went.items():
            lost[row[0]] += count
        for row, count in came.items():
            won[row[0]] += count
        assert by_key.updated_count == (lost & won).total()
        assert by_key.deleted_count == (lost - won).total()
        assert by_key.inserted_count == (won - lost).total()
    _with_any_file_gone(place, list(record))


def _with_any_file_gone(place: Place, snapshots: list[SnapshotId]) -> None:
    """What is told then is a part of the truth: nothing is told that is not so."""
    state = place.state
    first, middle, last = snapshots[0], snapshots[2], snapshots[-1]
    pairs = [(first, last), (last, first), (middle, last)]
    for how in ({}, {"key": ["id"]}):
        truth = {pair: images(state, *pair, **how) for pair in pairs}
        for path in {path for snapshot in snapshots for path in paths(place, snapshot)}:
            away = path.rename(path.with_suffix(".away"))
            for pair in pairs:
                missing: list[str] = []
                compared = compare(state, *pair, missing=missing, **how)  # type: ignore[arg-type]
                told = Counter(
                    (row[CHANGE], row["id"], row["name"])
                    for batch in compared.batches()
                    for row in batch.to_pylist()
                )
                if how and missing:
                    # By key a row that is there twice may make another pair.
                    assert told.total() <= truth[pair].total()
                else:
                    assert told <= truth[pair]
                    assert missing or told == truth[pair]
            away.rename(path)
