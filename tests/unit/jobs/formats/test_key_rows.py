"""Keys of plain records become columns beside the value's, on both paths."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from jobs.formats.avro_rows import AvroDecoder
from jobs.formats.decoded import Decoded
from jobs.formats.key_rows import of_keys, together
from jobs.tasks.decoders import Format, JsonFormat, PlainFormat
from jobs.tasks.keys import KeyedFormat, KeyFormat
from jobs.tasks.rows import AROUND, NEWS, REASON, handed_on
from tests.unit.jobs.formats.events import Event, records
from tests.unit.jobs.formats.test_avro_rows import Known, record, wire

ORDERS = pa.schema([("id", pa.int64()), ("name", pa.string())])
VALUE = b'{"name": "n"}'


def keyed(
    kind: Any,
    pairs: Sequence[tuple[bytes | None, bytes | None]],
    schema: pa.Schema = ORDERS,
    *,
    value: Format | None = None,
    strict: bool = False,
) -> Decoded:
    form = KeyedFormat(
        value=value or JsonFormat(strict=strict), key=KeyFormat(kind=kind, strict=strict)
    )
    return form.decoder(schema).decode(records([Event(key, value) for key, value in pairs]))


def rows(made: Decoded) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = made.rows.to_pylist()
    return found


def reasons(made: Decoded) -> dict[int, str]:
    return {item.place: item.reason for item in made.rejects}


def with_key(kind: pa.DataType) -> pa.Schema:
    return ORDERS.append(pa.field("_key", kind))


def test_a_key_that_is_text_is_a_column_of_text() -> None:
    keys = [b"order-1", 'schlüssel \U0001f511 "q" \\ \0'.encode(), None, b"", b"2026-01-01", b"7"]
    made = keyed("text", [(key, VALUE) for key in keys], with_key(pa.string()))
    assert [row["_key"] for row in rows(made)] == [key and key.decode() for key in keys[:2]] + [
        None, "", "2026-01-01", "7",
    ]  # fmt: skip
    assert made.places == range(6)
    assert not made.rejects


def test_a_key_that_is_not_utf_8_makes_a_dead_letter_of_its_record_alone() -> None:
    pairs = [(b"a", VALUE), (b"b\xff", VALUE), (b"c", b"broken"), (b"\xfe", b"broken")]
    made = keyed("text", pairs, with_key(pa.string()))
    assert [row["_key"] for row in rows(made)] == ["a"]
    assert tuple(made.places) == (0,)
    told = reasons(made)
    assert told[1] == "key: not UTF-8 at byte 1"
    assert told[2] == told[3] == "the record is no JSON object"


def test_a_raw_key_keeps_every_byte() -> None:
    keys = [b"\xff\0", None, b""]
    made = keyed("raw", [(key, VALUE) for key in keys], with_key(pa.binary()))
    assert [row["_key"] for row in rows(made)] == keys


def test_the_fields_of_a_key_in_json_are_columns_and_no_key_is_null() -> None:
    pairs = [
        (b'{"id": 1}', VALUE),
        (None, VALUE),
        (b' {"id": 3}\n', b'{"name": "m"}'),
        (b"{}", VALUE),
    ]
    assert rows(keyed("json", pairs)) == [
        {"id": 1, "name": "n"},
        {"id": None, "name": "n"},
        {"id": 3, "name": "m"},
        {"id": None, "name": "n"},
    ]


@pytest.mark.parametrize("kind", ["json", "text", "raw"])
def test_records_without_any_key_are_rows_of_their_values(kind: str) -> None:
    made = keyed(kind, [(None, VALUE)] * 2, with_key(pa.binary()))
    assert rows(made) == [{"id": None, "name": "n", "_key": None}] * 2


def test_what_key_and_value_agree_on_is_one_column_and_else_the_record_is_a_dead_letter() -> None:
    pairs = [
        (b'{"id": 1}', b'{"id": 1, "name": "same"}'),
        (b'{"id": 1}', b'{"id": 2, "name": "other"}'),
        (b'{"id": 3}', b'{"id": null, "name": "filled"}'),
        (b'{"id": null}', b'{"id": 4, "name": "value"}'),
        (b'{"id": "5"}', b'{"id": 5, "name": "text"}'),
    ]
    made = keyed("json", pairs)
    assert [(row["id"], row["name"]) for row in rows(made)] == [
        (1, "same"), (3, "filled"), (4, "value"),
    ]  # fmt: skip
    assert tuple(made.places) == (0, 2, 3)
    told = reasons(made)
    assert told[1] == "column id: the key and the value differ"
    assert told[4].startswith("key: ")


def test_nested_fields_of_both_are_compared_too() -> None:
    schema = pa.schema([("at", pa.struct([("x", pa.int64())])), ("name", pa.string())])
    value = b'{"at": {"x": 1}, "name": "n"}'
    pairs = [
        (b'{"at": {"x": 1}}', value),
        (b'{"at": {"x": 2}}', value),
        (b'{"at": {"x": 3}}', VALUE),
    ]
    made = keyed("json", pairs, schema)
    assert [row["at"]["x"] for row in rows(made)] == [1, 3]
    assert reasons(made) == {1: "column at: the key and the value differ"}


@pytest.mark.parametrize(
    ("key", "kind", "held"),
    [
        (b"7", pa.int64(), 7),
        (b'"seven"', pa.string(), "seven"),
        (b"[1, 2]", pa.list_(pa.int64()), [1, 2]),
        (b"null", pa.string(), None),
        (b"true", pa.bool_(), True),
    ],
)
def test_a_key_in_json_that_is_no_object_is_a_column_of_its_own(
    key: bytes, kind: pa.DataType, held: object
) -> None:
    unknown = keyed("json", [(key, VALUE)]).unknown
    assert unknown == ({} if held is None else {"_key": kind})
    assert rows(keyed("json", [(key, VALUE)], with_key(kind)))[0]["_key"] == held


@pytest.mark.parametrize("key", [b"order-1", b"", b'1, "id": 5', b"NaN", b'"a"} {"b"', b'"\xff"'])
def test_what_is_no_json_is_a_dead_letter_and_never_read_in_part(key: bytes) -> None:
    made = keyed("json", [(key, VALUE), (b'{"id": 1}', VALUE)])
    assert [row["id"] for row in rows(made)] == [1]
    assert set(reasons(made)) == {0}
    assert reasons(made)[0].startswith("key: no")


def test_a_new_field_of_a_key_grows_the_table_and_breaks_a_strict_one() -> None:
    pairs = [(b'{"id": 1, "region": "eu"}', VALUE), (b'{"id": 2}', VALUE)]
    assert keyed("json", pairs).unknown == {"region": pa.string()}
    strict = keyed("json", pairs, strict=True)
    assert not strict.unknown
    assert [row["id"] for row in rows(strict)] == [2]
    assert reasons(strict)[0].startswith("key: ")
    for kind, column in (("text", pa.string()), ("raw", pa.binary())):
        assert keyed(kind, [(b"k", VALUE)]).unknown == {"_key": column}
        assert reasons(keyed(kind, [(b"k", VALUE)], strict=True))


def test_a_column_that_is_too_narrow_for_a_key_is_told_with_what_it_needs() -> None:
    narrow = pa.schema([("id", pa.int32()), ("name", pa.string())])
    made = keyed("json", [(b'{"id": 5000000000}', VALUE), (b'{"id": 1}', VALUE)], narrow)
    assert made.wider == {"id": pa.int64()}
    both = keyed("json", [(b'{"new": 1.5}', b'{"new": 1}')])
    assert both.unknown == {"new": pa.float64()}


def test_a_required_column_may_come_from_the_key() -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
    made = keyed("json", [(b'{"id": 1}', VALUE), (None, VALUE), (None, b'{"id": 3}')], schema)
    assert [row["id"] for row in rows(made)] == [1, 3]
    assert reasons(made) == {1: "column id is required, and is null"}
    assert made.rows.schema == schema


def test_a_key_beside_a_value_that_is_bytes_keeps_its_tombstone() -> None:
    schema = pa.schema([("value", pa.binary()), ("id", pa.int64())])
    pairs = [(b'{"id": 1}', b"\xff"), (b'{"id": 1}', None)]
    made = keyed("json", pairs, schema, value=PlainFormat(kind="raw"))
    assert rows(made) == [{"value": b"\xff", "id": 1}, {"value": None, "id": 1}]
    assert reasons(keyed("json", pairs)) == {
        0: "the record is no JSON object",
        1: "the record has no value (a tombstone)",
    }


def test_a_column_that_json_cannot_fill_is_left_to_the_value() -> None:
    tags = pa.map_(pa.string(), pa.string())
    schema = pa.schema([("id", pa.int64()), ("tags", tags)])
    key = KeyFormat(kind="json").decoder(schema)
    made = key.decode(records([Event(b'{"id": 1}', None), Event(b'{"tags": {"a": "b"}}', None)]))
    assert made.rows["id"].to_pylist() == [1]
    assert reasons(made)[1].startswith("key: column tags is of a type")


def test_avro_keys_are_read_under_their_schema_and_told_apart_from_the_values() -> None:
    whole, alone = record(("id", "long")), "string"
    schema = with_key(pa.string())
    decoder = AvroDecoder(schema, Known(whole, alone), alone="_key")
    keys = [wire(whole, {"id": 1}), wire(alone, "k", 2), None, b"plain", wire(alone, "l", 9)]
    made = of_keys(keys, decoder.decode)
    values = JsonFormat().decoder(schema).decode(records([Event(key, VALUE) for key in keys]))
    both = together(values, made, schema)
    assert [(row["id"], row["_key"]) for row in rows(both)] == [
        (1, None),
        (None, "k"),
        (None, None),
    ]
    assert both.key_schemas == (1, 2)
    assert both.schemas == ()
    assert reasons(both)[3].startswith("key: begins with the byte 0x70")
    assert reasons(both)[4].startswith("key: schema 9")


def test_on_sparks_path_the_same_rows_are_handed_on_with_the_letters_beside_them() -> None:
    pairs = [(b'{"id": 1}', VALUE), (b"no json", VALUE), (None, VALUE)]
    chunk = records([Event(key, value) for key, value in pairs])
    made = KeyedFormat(value=JsonFormat(), key=KeyFormat(kind="json")).decoder(ORDERS).decode(chunk)
    table = pa.Table.from_batches(list(handed_on([(chunk, made)], ORDERS, ["_offset"])))
    told = table.to_pylist()
    good = [row for row in told if row[REASON] is None and row[NEWS] is None]
    assert [(row["id"], row["name"]) for row in good] == [(1, "n"), (None, "n")]
    (letter,) = [row for row in told if row[REASON] is not None]
    assert letter["__odi_key"] == b"no json"
    counted = json.loads(next(row[NEWS] for row in told if row[NEWS]))
    assert (counted["records"], counted["rows"], counted["rejects"]) == (3, 2, 1)
    assert set(AROUND) <= set(table.column_names)
