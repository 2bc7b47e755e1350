"""The reader without a JVM: tables that pyiceberg writes, in format v2."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, UUIDType

from odi_audit.catalog import TableState, open_catalog
from odi_audit.catalog.attribution import live_by_ranges, live_by_sequence, live_rows
from odi_audit.catalog.deletes import KeySet
from odi_audit.catalog.lake import LakeCatalog
from odi_audit.catalog.rows import FILE, LINEAGE_COLUMNS, lineage_rows
from odi_audit.errors import EntryNotFound, StorageError, UsageError
from odi_audit.ids import SnapshotId
from odi_audit.model.tables import parse
from odi_audit.settings import Settings
from odi_audit.workspace import make_catalog_file

NAME = "sales.orders"
ROWS = pa.schema([pa.field("id", pa.int64()), pa.field("region", pa.string())])


class Place:
    def __init__(self, lake: LakeCatalog, writer: SqlCatalog) -> None:
        self.lake, self.writer = lake, writer
        writer.create_namespace("sales")

    def create(self, schema: pa.Schema | Schema = ROWS, **properties: str) -> Table:
        return self.writer.create_table(NAME, schema, properties=properties)

    @property
    def state(self) -> TableState:
        return self.lake.load(parse(NAME))

    def ids(self, where: str | None = None, **about: object) -> list[int]:
        found = lineage_rows(self.state, where, **about)  # type: ignore[arg-type]
        return sorted(number for batch in found for number in batch.column("id").to_pylist())

    def files(self) -> list[Path]:
        found = lineage_rows(self.state, columns=[])
        names = {name for batch in found for name in batch.column(FILE).to_pylist()}
        return [Path(name.removeprefix("file://")) for name in sorted(names)]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    make_catalog_file(tmp_path / "catalog.db")
    settings = Settings.model_validate(
        {"catalog": {"uri": str(tmp_path / "catalog.db"), "warehouse": str(tmp_path / "wh")}}
    )
    writer = SqlCatalog(
        "lake",
        uri=f"sqlite:///{settings.catalog.uri}",
        warehouse=f"file://{settings.catalog.warehouse}",
    )
    lake = open_catalog(settings)
    yield Place(lake, writer)
    lake.close()
    writer.close()


def rows(start: int, end: int) -> pa.Table:
    return pa.table({"id": range(start, end), "region": ["r"] * (end - start)}, schema=ROWS)


def test_a_table_without_snapshots_has_no_rows(place: Place) -> None:
    place.create()
    assert place.ids() == []
    assert live_rows(place.state).rows_count == 0


def test_a_data_file_that_is_gone_is_named_and_the_rest_is_answered(place: Place) -> None:
    table = place.create()
    for start in (0, 10, 20):
        table.append(rows(start, start + 10))
    lost = place.files()[1]
    kept = [n for n in range(30) if n not in pq.read_table(lost).column("id").to_pylist()]
    lost.unlink()
    missing: list[str] = []
    assert place.ids(missing=missing) == kept
    assert [name.removeprefix("file://") for name in missing] == [str(lost)]
    with pytest.raises(StorageError, match="cannot be read"):
        place.ids()
    # Counting a plain file asks its manifest alone, and needs no file.
    assert live_rows(place.state).rows_count == 30


def test_a_damaged_file_is_an_error_even_where_a_lost_one_would_not_be(place: Place) -> None:
    place.create().append(rows(0, 10))
    place.files()[0].write_bytes(b"PAR1 but no more than that")
    with pytest.raises(StorageError):
        place.ids(missing=[])


def test_what_is_not_there_is_told_with_what_is_near(place: Place) -> None:
    place.create().append(rows(0, 1))
    with pytest.raises(UsageError, match="did you mean region") as caught:
        list(lineage_rows(place.state, columns=["regoin"]))
    assert "id, region" in str(caught.value.hint)
    with pytest.raises(EntryNotFound, match="no snapshot 77"):
        list(lineage_rows(place.state, snapshot=SnapshotId("77")))
    with pytest.raises(EntryNotFound, match="no snapshot 77"):
        live_rows(place.state, SnapshotId("77"))


def test_columns_come_in_one_type_whichever_file_they_are_read_from(place: Place) -> None:
    table = place.create()
    table.append(rows(0, 5))
    with table.update_schema() as update:
        update.add_column("note", StringType())
        update.add_column("n", IntegerType())
    table.append(
        pa.table(
            {
                "id": [5],
                "region": ["r"],
                "note": pa.array(["x"], pa.large_string()),
                "n": pa.array([1], pa.int32()),
            }
        )
    )
    with table.update_schema() as update:
        update.update_column("n", LongType())
    found = pa.Table.from_batches(lineage_rows(place.state, columns=["note", "n", "id"]))
    assert found.column_names == ["id", "note", "n", *LINEAGE_COLUMNS]
    assert found.schema.field("note").type == pa.string()
    assert found.schema.field("n").type == pa.int64()
    assert place.ids("note is null") == [0, 1, 2, 3, 4]
    assert place.ids("n = 1 and note = 'x'") == [5]
    assert place.ids("n != 1 or note != 'y'") == [5]


def test_a_uuid_is_read_and_found(place: Place) -> None:
    one, two = UUID(int=1), UUID(int=2**127)
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "key", UUIDType(), required=False),
    )
    keys = pa.array([one.bytes, two.bytes, None], pa.binary(16))
    rows_ = pa.table({"id": [1, 2, 3], "key": pa.ExtensionArray.from_storage(pa.uuid(), keys)})
    place.create(schema).append(rows_)
    found = pa.Table.from_batches(lineage_rows(place.state))
    assert found.column("key").to_pylist() == [one, two, None]
    assert place.ids(f"key = '{two}'") == [2]
    assert place.ids(f"key in ('{one}', '{two}')") == [1, 2]
    assert place.ids(f"key != '{two}'") == [1]


def test_a_row_group_that_cannot_match_is_not_read(place: Place) -> None:
    table = place.create(**{"write.parquet.row-group-limit": "1000"})
    table.append(rows(0, 10_000))
    file = place.files()[0]
    assert pq.ParquetFile(file).num_row_groups == 10
    whole = file.read_bytes()
    groups = pq.ParquetFile(file).metadata
    start = groups.row_group(3).column(0).dictionary_page_offset or 0
    start = start or groups.row_group(3).column(0).data_page_offset
    # Break the fourth group's first page: who reads it will know.
    file.write_bytes(whole[:start] + b"\xff" * 64 + whole[start + 64 :])
    assert place.ids("id = 9500") == [9500]
    with pytest.raises(StorageError):
        place.ids("id = 3500")


def test_rows_without_ids_are_counted_by_the_snapshot_of_their_file(place: Place) -> None:
    table = place.create()
    table.append(rows(0, 10))
    table.append(rows(10, 15))
    first, second = place.state.snapshots
    found = live_rows(place.state, starts=[0])
    assert found.by_file_snapshot == {first.id: 10, second.id: 5}
    assert (found.by_sequence, found.by_start, found.files_read_count) == ({}, (0,), 0)
    assert live_rows(place.state, first.id).rows_count == 10
    assert live_by_sequence(place.state) == {}
    assert live_by_ranges(place.state, None, [0, 5]) == [0, 0]


def test_a_file_of_two_million_rows_is_never_whole_in_memory(
    place: Place, tmp_path: Path, run_python: Callable[[str], str]
) -> None:
    table = place.create(
        pa.schema([pa.field("id", pa.int64()), pa.field("text", pa.string())]),
        **{"write.parquet.row-group-limit": "100000"},
    )
    count = 2_000_000
    texts = pa.repeat(pa.scalar("t" * 100), count)
    table.append(pa.table({"id": range(count), "text": texts}))
    del texts
    peak, found = run_python(
        f"""
import pyarrow as pa
from odi_audit.catalog import open_catalog
from odi_audit.catalog.rows import lineage_rows
from odi_audit.model.tables import parse
from odi_audit.settings import Settings
folder = {str(tmp_path)!r}
settings = Settings.model_validate(
    {{"catalog": {{"uri": folder + "/catalog.db", "warehouse": folder + "/wh"}}}}
)
state = open_catalog(settings).load(parse({NAME!r}))
found = sum(batch.num_rows for batch in lineage_rows(state, "id >= 0"))
print(pa.default_memory_pool().max_memory(), found)
"""
    ).split()
    assert int(found) == count
    whole_bytes = count * 100
    assert int(peak) < whole_bytes / 2


# -- keys of equality deletes ------------------------------------------------------------------


def held(keys: list[tuple[object, ...]], asked: list[tuple[object, ...]]) -> list[bool]:
    types = [pa.int64(), pa.string()]
    made = [pa.array([key[n] for key in keys], kind) for n, kind in enumerate(types)]
    known = KeySet.of((1, 2), Schema(), pa.table(made, ["1", "2"]))
    columns = {n + 1: pa.array([key[n] for key in asked], kind) for n, kind in enumerate(types)}
    return list(known.holds(columns, len(asked)).to_pylist())


def test_a_key_is_held_only_whole_and_null_equals_null() -> None:
    keys: list[tuple[object, ...]] = [(1, "a"), (2, "b"), (None, "c"), (3, None), (None, None)]
    crossed: list[tuple[object, ...]] = [(1, "b"), (2, "a"), (1, None), (None, "a"), (9, "a")]
    assert held(keys, keys) == [True] * 5
    assert held(keys, crossed) == [False] * 5
