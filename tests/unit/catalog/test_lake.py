from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from odi_audit.catalog import find_stamp, history, open_catalog
from odi_audit.catalog.lake import LakeCatalog
from odi_audit.errors import CatalogUnavailable, StorageError, TableNotFound
from odi_audit.ids import BatchId, TableUuid
from odi_audit.model.tables import TableName, parse
from odi_audit.settings import Settings
from odi_audit.workspace import make_catalog_file

ODD = TableName(("Größe", 'It\'s "Odd" Ünï.x'))
ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    make_catalog_file(tmp_path / "catalog.db")
    return Settings.model_validate(
        {"catalog": {"uri": str(tmp_path / "catalog.db"), "warehouse": str(tmp_path / "wh")}}
    )


@pytest.fixture
def writer(settings: Settings) -> Iterator[SqlCatalog]:
    catalog = SqlCatalog(
        "lake",
        uri=f"sqlite:///{settings.catalog.uri}",
        warehouse=f"file://{settings.catalog.warehouse}",
    )
    for namespace in (("sales",), ("a",), ("a", "b"), ("Größe",)):
        catalog.create_namespace(namespace)
    for name in (("sales", "orders"), ("a", "b", "nested"), ODD.parts):
        catalog.create_table(name, ROWS.schema)
    yield catalog
    catalog.close()


@pytest.fixture
def lake(settings: Settings, writer: SqlCatalog) -> Iterator[LakeCatalog]:
    catalog = open_catalog(settings)
    yield catalog
    catalog.close()


def test_all_tables_are_listed_also_nested_and_odd_ones(lake: LakeCatalog) -> None:
    assert lake.tables() == sorted([TableName(("a", "b", "nested")), ODD, parse("sales.orders")])


def test_a_new_lake_has_no_tables(settings: Settings) -> None:
    assert open_catalog(settings).tables() == []


def test_a_table_with_an_odd_name_is_loaded_by_it(lake: LakeCatalog) -> None:
    state = lake.load(parse('Größe.`It\'s "Odd" Ünï.x`'))
    assert state.name == ODD
    assert parse(state.ref.name) == ODD


def test_a_table_shows_its_schema_and_history(lake: LakeCatalog, writer: SqlCatalog) -> None:
    table = writer.load_table("sales.orders")
    for number in range(3):
        table.append(ROWS, snapshot_properties={"odi.batch-id": f"b-{number}"})
    state = lake.load(parse("sales.orders"))
    assert [(column.name, column.type) for column in state.columns] == [("id", "long")]
    assert state.format_version == 2
    assert not state.has_row_ids
    assert [info.sequence_number for info in history(state)] == [3, 2, 1]
    assert [info.batch for info in state.snapshots] == ["b-0", "b-1", "b-2"]
    assert history(state)[0].id == state.current_snapshot
    assert [entry.snapshot for entry in state.snapshot_log] == [i.id for i in state.snapshots]
    assert all(isinstance(info.id, str) for info in state.snapshots)


def test_a_stamp_is_found_in_a_branch_and_not_beyond_it(
    lake: LakeCatalog, writer: SqlCatalog
) -> None:
    table = writer.load_table("sales.orders")
    table.append(ROWS, snapshot_properties={"odi.batch-id": "b-1"})
    first = table.current_snapshot()
    assert first is not None
    table.manage_snapshots().create_branch(first.snapshot_id, "odi_b-2").commit()
    table.append(ROWS, snapshot_properties={"odi.batch-id": "b-2"}, branch="odi_b-2")
    state = lake.load(parse("sales.orders"))
    assert find_stamp(state, BatchId("b-1")) is not None
    assert find_stamp(state, BatchId("b-2")) is None
    assert find_stamp(state, BatchId("b-2"), "odi_b-2") is not None
    assert find_stamp(state, BatchId("b-1"), "odi_b-2") is not None
    assert find_stamp(state, BatchId("b-1"), "no-such-branch") is None


def test_each_load_sees_what_others_committed(lake: LakeCatalog, writer: SqlCatalog) -> None:
    assert lake.load(parse("sales.orders")).current_snapshot is None
    writer.load_table("sales.orders").append(ROWS)
    assert lake.load(parse("sales.orders")).current_snapshot is not None


def test_a_table_is_found_by_its_uuid_under_a_new_name(
    lake: LakeCatalog, writer: SqlCatalog
) -> None:
    uuid = lake.load(parse("sales.orders")).ref.uuid
    writer.rename_table("sales.orders", "sales.bookings")
    found = lake.load_by_uuid(uuid, name=parse("sales.orders"))
    assert found is not None
    assert found.ref.name == "sales.bookings"
    assert lake.load_by_uuid(TableUuid("no-such")) is None


@pytest.mark.parametrize("wrong", ["sales.order", "Sales.Orders", "sale.orders"])
def test_an_unknown_table_names_the_near_ones(lake: LakeCatalog, wrong: str) -> None:
    with pytest.raises(TableNotFound) as caught:
        lake.load(parse(wrong))
    assert caught.value.facts["near"] == ["sales.orders"]
    assert "did you mean sales.orders?" in caught.value.message


def test_a_catalog_file_that_is_gone_is_told_and_not_made_anew(settings: Settings) -> None:
    path = Path(settings.catalog.uri)
    path.unlink()
    with pytest.raises(CatalogUnavailable):
        open_catalog(settings)
    assert not path.exists()


def test_a_catalog_that_goes_away_in_the_middle_is_told(
    lake: LakeCatalog, settings: Settings
) -> None:
    with closing(sqlite3.connect(settings.catalog.uri)) as connection:
        connection.execute("DROP TABLE iceberg_tables")
        connection.commit()
    with pytest.raises(CatalogUnavailable, match="no such table"):
        lake.tables()
    with pytest.raises(CatalogUnavailable):
        lake.load(parse("sales.orders"))


def test_a_file_that_is_no_catalog_is_told(settings: Settings) -> None:
    for leftover in Path(settings.catalog.uri).parent.glob("catalog.db*"):
        leftover.unlink()
    Path(settings.catalog.uri).write_bytes(b"not a database at all, but long enough" * 200)
    with pytest.raises(CatalogUnavailable, match="not a database") as caught:
        open_catalog(settings).tables()
    assert "restore" in str(caught.value.hint)


def test_a_catalog_that_stays_locked_is_told(settings: Settings, writer: SqlCatalog) -> None:
    path = settings.catalog.uri
    short = settings.model_copy(
        update={
            "catalog": settings.catalog.model_copy(
                update={"properties": {"uri": f"sqlite:///{path}?timeout=0.2"}}
            )
        }
    )
    writer.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("PRAGMA journal_mode=DELETE")
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(CatalogUnavailable, match="locked") as caught:
            open_catalog(short).tables()
    assert "another process" in str(caught.value.hint)


def test_a_catalog_of_the_first_version_is_read_and_a_view_is_no_table(
    lake: LakeCatalog, settings: Settings
) -> None:
    with closing(sqlite3.connect(settings.catalog.uri)) as connection:
        connection.execute(
            "UPDATE iceberg_tables SET iceberg_type = 'VIEW' WHERE table_name LIKE 'n%'"
        )
        connection.commit()
        assert lake.tables() == sorted([ODD, parse("sales.orders")])
        with pytest.raises(TableNotFound):
            lake.load(TableName(("a", "b", "nested")))
        connection.execute("ALTER TABLE iceberg_tables DROP COLUMN iceberg_type")
        connection.commit()
    assert parse("sales.orders") in lake.tables()
    assert lake.load(parse("sales.orders")).ref.name == "sales.orders"


def test_tables_of_another_catalog_in_the_same_file_are_not_ours(
    lake: LakeCatalog, settings: Settings
) -> None:
    with closing(sqlite3.connect(settings.catalog.uri)) as connection:
        connection.execute(
            "UPDATE iceberg_tables SET catalog_name = 'x' WHERE table_name = 'orders'"
        )
        connection.commit()
    assert parse("sales.orders") not in lake.tables()
    with pytest.raises(TableNotFound):
        lake.load(parse("sales.orders"))


def test_reading_changes_no_byte_of_the_catalog(settings: Settings, writer: SqlCatalog) -> None:
    writer.close()
    path = Path(settings.catalog.uri)
    before = path.read_bytes()
    catalog = open_catalog(settings)
    assert len(catalog.tables()) == 3
    catalog.load(parse("sales.orders"))
    assert path.read_bytes() == before


def test_a_copy_that_nobody_may_write_is_read_without_side_files(
    settings: Settings, writer: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.close()
    path = Path(settings.catalog.uri)
    # Not by the file's mode: root may write whatever it says.
    monkeypatch.setattr("odi_audit.catalog.sql_catalog.os.access", lambda *_: False)
    made: list[str] = []
    connect = sqlite3.connect

    def connecting(place: str, **options: object) -> sqlite3.Connection:
        made.append(place)
        return connect(place, **options)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr("odi_audit.catalog.sql_catalog.sqlite3.connect", connecting)
    assert len(open_catalog(settings).tables()) == 3
    assert made == [f"{path.as_uri()}?mode=ro&immutable=1"]
    assert [place.name for place in path.parent.glob("catalog.db*")] == ["catalog.db"]


def test_a_catalog_that_was_put_back_is_seen_by_whoever_had_it_open(
    lake: LakeCatalog, settings: Settings, writer: SqlCatalog
) -> None:
    assert len(lake.tables()) == 3
    writer.close()
    path = Path(settings.catalog.uri)
    for leftover in path.parent.glob("catalog.db*"):
        leftover.unlink()
    with pytest.raises(CatalogUnavailable):
        lake.tables()
    make_catalog_file(path)
    assert lake.tables() == []


def test_metadata_that_is_not_json_is_a_storage_error(lake: LakeCatalog) -> None:
    state = lake.load(parse("sales.orders"))
    Path(state.metadata_location.removeprefix("file://")).write_text("{", "utf-8")
    with pytest.raises(StorageError, match=r"sales\.orders"):
        lake.load(parse("sales.orders"))


def test_loading_a_table_imports_no_sql_toolkit_and_no_web_client(
    settings: Settings, writer: SqlCatalog, run_python: Callable[[str], str]
) -> None:
    heavy = "{'sqlalchemy', 'requests', 'urllib3', 'psycopg', 'pandas', 'duckdb'}"
    values = {"uri": settings.catalog.uri, "warehouse": settings.catalog.warehouse}
    loaded = run_python(
        "import sys\nfrom odi_audit.catalog import open_catalog\n"
        "from odi_audit.model.tables import parse\nfrom odi_audit.settings import Settings\n"
        f"catalog = open_catalog(Settings.model_validate({{'catalog': {values!r}}}))\n"
        "assert 'pyiceberg' not in sys.modules\n"
        "catalog.load(parse('sales.orders'))\n"
        f"print(sorted({heavy} & set(sys.modules)))"
    )
    assert loaded.strip() == "[]"


def test_a_metadata_file_that_is_gone_is_a_storage_error(
    lake: LakeCatalog, settings: Settings
) -> None:
    state = lake.load(parse("sales.orders"))
    Path(state.metadata_location.removeprefix("file://")).unlink()
    with pytest.raises(StorageError, match=r"sales\.orders"):
        lake.load(parse("sales.orders"))
