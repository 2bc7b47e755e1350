"""Avro records become rows: every type, no value changed, and a bad record alone."""

from __future__ import annotations

import io
import uuid
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from jobs.formats.avro_rows import AvroDecoder
from jobs.formats.avro_schema import AvroType, read_schema, suggested
from jobs.formats.decoded import Decoded, Unreadable


def record(*fields: tuple[str, Any], name: str = "shop.R") -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": field, "type": kind} for field, kind in fields],
    }


def wire(schema: Any, row: Any, number: int = 1) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


class Known:
    """Schemas by their ids; counts how often each is asked for."""

    def __init__(self, *schemas: Any) -> None:
        self.schemas = schemas
        self.asked: list[int] = []

    def __call__(self, number: int) -> AvroType:
        self.asked.append(number)
        if not 1 <= number <= len(self.schemas):
            raise Unreadable("the registry does not know this id")
        return read_schema(self.schemas[number - 1])


def decoded(schema: Any, rows: list[Any], columns: pa.Schema, **how: Any) -> Decoded:
    return AvroDecoder(columns, Known(schema), **how).decode([wire(schema, row) for row in rows])


def columns_for(schema: Any) -> pa.Schema:
    kind = read_schema(schema)
    return pa.schema([(name, suggested(inner)) for name, inner in kind.fields])


def one(kind: Any, value: Any, column: pa.DataType | None = None) -> Any:
    """Return what a value of a type is in a column, by default in the one that is suggested."""
    schema = record(("v", kind))
    columns = columns_for(schema) if column is None else pa.schema([("v", column)])
    made = decoded(schema, [{"v": value}], columns)
    if made.rejects:
        return made.rejects[0].reason
    return made.rows.to_pylist()[0]["v"]


LONG_OF = {"type": "long", "logicalType": "timestamp-nanos"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10}
NULLS = {"type": "array", "items": "null"}
UUID = uuid.UUID("12345678-9abc-def0-1234-56789abcdef0")


def test_each_logical_type_has_a_column_that_holds_every_value() -> None:
    assert one(LONG_OF, 1_700_000_000_123_456_789) == 1_700_000_000_123_456_789
    local = {"type": "long", "logicalType": "local-timestamp-millis"}
    assert one(local, 1_001) == datetime(1970, 1, 1, 0, 0, 1, 1000)  # noqa: DTZ001 - it has no zone
    assert one({"type": "int", "logicalType": "date"}, date(2026, 11, 18)) == date(2026, 11, 18)
    assert one({"type": "int", "logicalType": "time-millis"}, time(1, 2, 3)) == "01:02:03.000000"
    great = Decimal("-1234567890123456789012345678.0123456789")
    assert one(DECIMAL, great) == great
    fixed = {"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}
    made = decoded(record(("v", {**fixed, "logicalType": "none"})), [{"v": UUID.bytes}],
                   pa.schema([("v", pa.binary())]))  # fmt: skip
    assert made.rows.to_pylist() == [{"v": UUID.bytes}]
    raw = wire(record(("v", {**fixed, "logicalType": "none"})), {"v": UUID.bytes})
    text = AvroDecoder(pa.schema([("v", pa.string())]), Known(record(("v", fixed)))).decode([raw])
    assert text.rows.to_pylist() == [{"v": str(UUID)}]
    assert suggested(read_schema(LONG_OF)) == pa.int64()


@pytest.mark.parametrize(
    ("kind", "value", "column", "reason"),
    [
        ("long", 5, pa.timestamp("us", tz="UTC"), "long does not fit a column of type timestamp"),
        ("string", "5", pa.int64(), "string does not fit a column of type int64"),
        ("int", 5, pa.string(), "int does not fit a column of type string"),
        ("double", 1.5, pa.int64(), "double does not fit a column of type int64"),
        (LONG_OF, 1_001, pa.timestamp("us", tz="UTC"), "lose data"),
        ("long", 2**53 + 1, pa.float64(), "not in range"),
        (DECIMAL, Decimal("1.5"), pa.decimal128(10, 0), "data loss"),
        ({"type": "long", "logicalType": "local-timestamp-micros"},
         datetime(2026, 1, 1), pa.timestamp("us", tz="UTC"), "does not fit"),  # noqa: DTZ001
        (["null", "int", "string"], "x", pa.string(), "union does not fit"),
    ],
)  # fmt: skip
def test_a_value_that_would_be_changed_is_put_aside(
    kind: Any, value: Any, column: pa.DataType, reason: str
) -> None:
    found = one(kind, value, column)
    assert str(found).startswith("column v: ")
    assert reason in found


def test_conversions_that_change_nothing_are_made() -> None:
    assert one("int", 5, pa.int64()) == 5
    assert one("int", 5, pa.decimal128(4, 2)) == Decimal("5.00")
    assert one("long", 2**53, pa.float64()) == 2.0**53
    assert one("double", 0.5, pa.float32()) == 0.5
    assert one("string", "2026-11-18", pa.date32()) == date(2026, 11, 18)
    assert one("bytes", b"abc", pa.binary(3)) == b"abc"
    assert one(LONG_OF, 1_000, pa.timestamp("us", tz="UTC")).microsecond == 1
    assert one(["null", "int", "long"], 7) == 7
    assert one(["null", "int", "string"], "x") == {"member0": None, "member1": "x"}
    assert one(["int", "string", "null"], None) is None


def test_a_column_that_is_too_narrow_is_reported_with_the_type_it_needs() -> None:
    schema = record(("i", "long"), ("f", "double"), ("d", DECIMAL), ("s", "string"))
    columns = pa.schema(
        [("i", pa.int32()), ("f", pa.float32()), ("d", pa.decimal128(12, 10)), ("s", pa.string())]
    )
    rows = [
        {"i": 1, "f": 1.0, "d": Decimal(1), "s": "fits"},
        {"i": 2**40, "f": 0.1, "d": Decimal(12345), "s": "does not"},
    ]
    made = decoded(schema, rows, columns)
    assert made.wider == {"i": pa.int64(), "f": pa.float64(), "d": pa.decimal128(15, 10)}
    assert (made.places, [item.place for item in made.rejects]) == ((0,), [1])
    assert decoded(schema, rows, columns, strict=True).wider == {}


def test_fields_that_the_table_lacks_are_reported_also_inside_of_columns() -> None:
    inner = record(("a", "int"), ("b", ["null", "string"]), name="I")
    schema = record(
        ("id", "long"),
        ("new", ["null", "double"]),
        ("place", inner),
        ("items", {"type": "array", "items": "I"}),
        ("by", {"type": "map", "values": ["null", "I"]}),
        ("nothing", "null"),
    )
    small = pa.struct([("a", pa.int32())])
    columns = pa.schema(
        [("id", pa.int64()), ("place", small), ("items", pa.list_(small)),
         ("by", pa.map_(pa.string(), small))]
    )  # fmt: skip
    row = {"id": 1, "new": None, "place": {"a": 1, "b": "x"}, "items": [{"a": 2, "b": None}],
           "by": {"k": {"a": 3, "b": None}}, "nothing": None}  # fmt: skip
    made = decoded(schema, [row], columns)
    assert made.unknown == {
        "new": pa.float64(),
        "place.b": pa.string(),
        "items.b": pa.string(),
        "by.b": pa.string(),
    }
    (found,) = made.rows.to_pylist()
    assert (found["place"], found["items"]) == ({"a": 1}, [{"a": 2}])
    assert found["by"] == [("k", {"a": 3})]
    strict = decoded(schema, [row], columns, strict=True)
    assert [item.reason for item in strict.rejects] == ["field new is no column of the table"]


def test_columns_that_a_schema_lacks_are_null_unless_they_are_required() -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("gone", pa.string())])
    made = decoded(record(("id", ["null", "long"])), [{"id": 1}, {"id": None}], columns)
    assert made.rows.to_pylist() == [{"id": 1, "gone": None}]
    assert [item.reason for item in made.rejects] == ["column id is required, and is null"]


def test_records_of_many_schemas_keep_their_order_and_each_schema_is_asked_for_once() -> None:
    first, second = record(("id", "int")), record(("id", "long"), ("more", "string"))
    known = Known(first, second)
    decoder = AvroDecoder(pa.schema([("id", pa.int64()), ("more", pa.string())]), known)
    values = [
        wire(first, {"id": n}, 1) if n % 3 else wire(second, {"id": n, "more": "m"}, 2)
        for n in range(100)
    ]
    values[50:50] = [None, b"", b"\0\0\0", b'{"id": 1}', wire(first, {"id": 7}, 99)]
    for _ in range(2):
        made = decoder.decode(values)
    assert made.rows["id"].to_pylist() == list(range(100))
    assert made.places == (*range(50), *range(55, 105))
    assert made.schemas == (1, 2)
    assert known.asked == [2, 1, 99]
    assert [(item.place, item.reason[:40]) for item in made.rejects] == [
        (50, "the record has no value (a tombstone)"),
        (51, "the record is empty"),
        (52, "the record has 3 bytes, too few for the "),
        (53, "the record begins with the byte 0x7b, no"),
        (54, "schema 99: the registry does not know th"),
    ]


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        (NULLS, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\0", "more items"),
        ({"type": "array", "items": "string"}, b"\xfe\xff\xff\xff\x0f\0", "more items"),
        ("boolean", b"\2", "neither 0 nor 1"),
        ("int", b"\xfe\xff\xff\xff\xff\1", "more than 32 bits"),
        ("long", b"\xff" * 10 + b"\1", "more than 64 bits"),
        ("string", b"\4\xff\xfe", "not UTF-8"),
        ("string", b"\1", "middle of a value"),
        (["null", "int"], b"\4\2", "no such branch"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\2", "no such symbol"),
        (DECIMAL, b"\0", "a decimal has no bytes"),
        (DECIMAL, b"\x28" + b"\x7f" * 20, "more than 38 digits"),
        ({"type": "int", "logicalType": "time-millis"}, b"\1", "outside of the day"),
        ("int", b"\2\2", "longer than its schema says"),
    ],
)
def test_broken_bytes_are_told_apart_and_take_no_other_record_along(
    kind: Any, body: bytes, reason: str
) -> None:
    schema = record(("v", kind))
    columns = columns_for(schema)
    made = AvroDecoder(columns, Known(schema)).decode([b"\0\0\0\0\1" + body] * 2)
    assert [item.place for item in made.rejects] == [0, 1]
    assert reason in made.rejects[0].reason
    assert made.rows.num_rows == 0


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (record(("next", ["null", "shop.R"])), "holds itself"),
        (record(("v", "shop.Missing")), "does not say what it is"),
        ({"type": "record", "name": "R"}, "not one of Avro"),
    ],
)
def test_a_schema_that_no_table_can_hold_is_told(schema: Any, reason: str) -> None:
    made = AvroDecoder(pa.schema([("v", pa.string())]), Known(schema)).decode([b"\0\0\0\0\1\0"])
    assert reason in made.rejects[0].reason


def test_names_are_found_in_namespaces_and_in_references() -> None:
    other = record(("x", "int"), name="shop.parts.P")
    schema = {**record(("p", "parts.P"), ("q", "Q"), name="R"), "namespace": "shop"}
    schema["fields"][0]["type"] = "shop.parts.P"
    schema["fields"][1]["type"] = {"type": "fixed", "name": "Q", "size": 2}
    schema["fields"].append({"name": "again", "type": "Q"})
    kind = read_schema(schema, [other])
    assert [inner.kind for _, inner in kind.fields] == ["record", "fixed", "fixed"]
    assert kind.fields[2][1].name == "shop.Q"


def test_values_without_a_record_around_them_are_one_column() -> None:
    made = decoded("string", ["a", "b"], pa.schema([("value", pa.string())]))
    assert made.rows["value"].to_pylist() == ["a", "b"]
