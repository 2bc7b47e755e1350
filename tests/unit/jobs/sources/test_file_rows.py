"""Files in tasks: every format, bad lines by their number, files that are not what they were."""

from __future__ import annotations

import gzip
import hashlib
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.tasks.file_rows import FilePiece, FilesWork, batches
from jobs.tasks.rows import NEWS, OFFSET, PARTITION, REASON, VALUE, TaskFailed
from odi_audit.errors import UsageError

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("amount", pa.decimal128(8, 2)),
        pa.field("at", pa.timestamp("us", tz="UTC")),
    ]
)
AT = datetime(2026, 11, 1, 8, 30, tzinfo=UTC)


def piece(path: Path) -> FilePiece:
    data = path.read_bytes()
    return FilePiece(path=str(path), content=f"{len(data)}:{hashlib.sha256(data).hexdigest()}")


def read(path: Path, form: Any, schema: pa.Schema = SCHEMA, **more: Any) -> list[dict[str, Any]]:
    work = FilesWork(format=form, schema=schema.serialize().to_pybytes(), **more)
    return [row for batch in batches(work, [piece(path)]) for row in batch.to_pylist()]


def rows(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    good = [row for row in found if row[REASON] is None and row[NEWS] is None]
    return [(row["id"], row["name"], row["amount"], row["at"]) for row in good]


def letters(found: list[dict[str, Any]]) -> list[tuple[int, bytes]]:
    return [(row[OFFSET], row[VALUE]) for row in found if row[REASON] is not None]


def news(found: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    return next((json.loads(row[NEWS]) for row in found if row[NEWS] is not None), {})


def test_csv_keeps_quoted_line_breaks_and_names_bad_lines_by_their_number(tmp_path: Path) -> None:
    path = tmp_path / "a b%20[1].csv"
    path.write_bytes(
        b"\xef\xbb\xbfID,name,amount,at\r\n"
        b'1,"two\nlines, and ""quotes""",12.34,2026-11-01T08:30:00Z\r\n'
        b"\r\n"
        b"x,broken,1,2026-11-01 08:30:00\n"
        b"2,,-0.50,2026-11-01 10:30:00+02:00\n"
        b'3,"",12.345,\n'
        b"4,too,many,fields,here\n"
        b",no id,1,\n"
        b"5,last,1,2026-11-01 08:30:00"
    )
    found = read(path, "csv")
    assert rows(found) == [
        (1, 'two\nlines, and "quotes"', Decimal("12.34"), AT),
        (2, None, Decimal("-0.50"), AT),
        (5, "last", Decimal("1.00"), AT),
    ]
    assert sorted(number for number, _ in letters(found)) == [5, 7, 8, 9]
    assert dict(letters(found))[8] == b"4,too,many,fields,here"
    assert {row[PARTITION] for row in found if row[OFFSET]} == {str(path)}


def test_csv_options_are_kept_and_unknown_ones_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("1;NA;2;\n", "latin-1")
    given = {"delimiter": ";", "header": "false", "nullValue": "NA", "encoding": "latin-1"}
    found = read(path, "csv", options=given | {"nullValue": "NA"})
    assert letters(found) == [(1, b"1;NA;2;")]  # an empty text is no time, where null is NA
    path.write_text("1;NA;2;NA\n", "latin-1")
    assert rows(read(path, "csv", options=given)) == [(1, None, Decimal("2.00"), None)]
    with pytest.raises(UsageError, match="mode is not known for csv"):
        read(path, "csv", options={"mode": "PERMISSIVE"})


def test_fields_that_the_table_lacks_are_told_or_make_rejects_where_it_is_strict(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,extra,more\n1,5,x\n2,6,\n")
    assert news(read(path, "csv"))["unknown"] == {"extra": "bigint", "more": "string"}
    assert [number for number, _ in letters(read(path, "csv", strict=True))] == [2, 3]
    assert news(read(path, "csv", notes=False))["unknown"] == {}
    path = tmp_path / "a.json"
    path.write_text('{"id": 1, "extra": 1.5}\n\n{"id": 3000000000}\n')
    found = read(path, "json")
    assert news(found)["unknown"] == {"extra": "double"}
    assert news(found)["wider"] == {"id": "bigint"}
    assert [number for number, _ in letters(found)] == [3]
    path = tmp_path / "a.avro"
    write_avro(path, [{"id": 3_000_000_000, "name": "wide", "extra": None}])
    assert news(read(path, "avro"))["wider"] == {"id": "bigint"}


def write_avro(path: Path, records: list[dict[str, Any]]) -> None:
    fields = [
        {"name": "id", "type": ["null", "long"]},
        {"name": "name", "type": ["null", "string"]},
        {"name": "extra", "type": ["null", "double"]},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
    ]
    kind = {"type": "record", "name": "row", "fields": fields}
    with path.open("wb") as stream:
        fastavro.writer(stream, fastavro.parse_schema(kind), records)


def test_typed_files_are_fitted_and_their_bad_rows_told_in_json(tmp_path: Path) -> None:
    path = tmp_path / "a.avro"
    write_avro(
        path,
        [
            {"id": 1, "name": "a", "extra": 2.5, "at": AT},
            {"id": None, "name": "no id", "extra": None, "at": None},
        ],
    )
    found = read(path, "avro")
    assert rows(found) == [(1, "a", None, AT)]
    assert [number for number, _ in letters(found)] == [2]
    assert json.loads(letters(found)[0][1])["name"] == "no id"
    assert news(found)["unknown"] == {"extra": "double"}
    path = tmp_path / "a.parquet"
    table = pa.table({"Id": pa.array([1, 2**40, 3]), "name": ["a", "b", None]})
    pq.write_table(table, path, row_group_size=1)
    found = read(path, "parquet")
    assert [row[:2] for row in rows(found)] == [(1, "a"), (3, None)]
    assert letters(found)[0][0] == 2
    assert news(found)["wider"] == {"id": "bigint"}


def test_a_packed_file_is_read_and_known_by_its_packed_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(b'{"id": 1, "name": "a"}\n{"id": 2}'))
    assert [row[0] for row in rows(read(path, "json"))] == [1, 2]
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(TaskFailed, match=r"a\.json\.gz cannot be read as json"):
        read(path, "json")


@pytest.mark.parametrize("form", ["csv", "json", "parquet", "avro"])
def test_a_file_that_is_not_what_was_planned_fails_the_batch(tmp_path: Path, form: Any) -> None:
    path = tmp_path / f"a.{form}"
    content = {
        "csv": lambda: path.write_text("id,name\n1,a\n"),
        "json": lambda: path.write_text('{"id": 1, "name": "a"}\n'),
        "parquet": lambda: pq.write_table(pa.table({"id": [1]}), path),
        "avro": lambda: write_avro(path, [{"id": 1, "name": None, "extra": None, "at": None}]),
    }[form]
    content()
    planned = piece(path)
    work = FilesWork(format=form, schema=SCHEMA.serialize().to_pybytes())
    assert list(batches(work, [planned]))
    path.write_bytes(path.read_bytes().replace(b"1", b"2", 1) + b" ")
    with pytest.raises(TaskFailed, match=r"changed since|cannot be read"):
        list(batches(work, [planned]))
    path.unlink()
    with pytest.raises(TaskFailed, match="is gone"):
        list(batches(work, [planned]))


@pytest.mark.parametrize("form", ["parquet", "avro"])
def test_a_damaged_file_is_named(tmp_path: Path, form: Any) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"no such format")
    with pytest.raises(TaskFailed, match=f"cannot be read as {form}"):
        read(path, form)
