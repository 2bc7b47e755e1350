"""A created row that lacks values names the key it had before, in whatever form it is told."""

from __future__ import annotations

import base64
import json
from typing import Any

import pyarrow as pa
import pytest

from jobs.formats.debezium import DebeziumDecoder
from jobs.formats.debezium_avro import AvroFront
from jobs.formats.debezium_envelope import OLD_KEY, UNAVAILABLE, UNAVAILABLE_VALUE
from jobs.formats.debezium_moved import HEADER
from tests.support.connect_avro import avro_schema, on_the_wire
from tests.unit.jobs.formats.events import FORMS, Event, event, packed, records, sample
from tests.unit.jobs.formats.test_avro_debezium import Schemas, in_avro

COLUMNS = pa.schema([("id", pa.int64()), ("customer", pa.string()), ("note", pa.string())])
MOVED = "c-after-ddl-pkchange"
WIDE = pa.schema([
    ("tenant", pa.string()),
    ("price", pa.decimal128(20, 2)),
    ("day", pa.date32()),
    ("at", pa.timestamp("us", tz="UTC")),
    ("tag", pa.binary()),
    ("note", pa.string()),
])  # fmt: skip
KEY_SCHEMA = {
    "type": "struct",
    "fields": [
        {"field": "tenant", "type": "string", "optional": False},
        {
            "field": "price",
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2"},
        },
        {"field": "day", "type": "int32", "name": "io.debezium.time.Date"},
        {"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        {"field": "tag", "type": "bytes"},
    ],
}
OLD = {
    "tenant": 'a "b"\\',
    "price": "12345678901234.50",
    "day": "2026-02-02",
    "at": "2026-02-02T10:00:00.000001+00:00",
    "tag": "AP8=",
}
"""An old key as the control column must hold it."""


def moved(form: str, header: bytes | str | None) -> Event:
    """The sample of a changed key, with a value that was not sent."""
    found = sample(f"{form}-{MOVED}")
    found["value"].get("payload", found["value"])["after"]["note"] = UNAVAILABLE_VALUE
    given: list[Any] = [] if header is None else [("other", b"x"), (HEADER, header)]
    return Event(packed(found["key"]), packed(found["value"]), 0, given)


def told(*events: Event, schema: pa.Schema = COLUMNS, **more: Any) -> list[Any]:
    made = DebeziumDecoder(schema, key=(schema.names[0],), **more).decode(records(events))
    assert not made.rejects
    return [
        None if row[OLD_KEY] is None else json.loads(row[OLD_KEY]) for row in made.rows.to_pylist()
    ]


@pytest.mark.parametrize("form", FORMS)
def test_the_header_of_a_real_event_is_read_whatever_the_form_of_its_key(form: str) -> None:
    ((name, given), *_) = sample(f"{form}-{MOVED}")["headers"]
    assert name == HEADER
    # The client hands over bytes, or a text.
    assert told(moved(form, given), moved(form, given.encode())) == [{"id": 3}, {"id": 3}]


def test_a_header_may_have_a_schema_of_its_own() -> None:
    key = sample(f"schema-{MOVED}")["key"]
    header = packed({"schema": key["schema"], "payload": {"id": 3}})
    assert told(moved("schema", header), moved("plain", header)) == [{"id": 3}, {"id": 3}]


def test_a_header_of_an_event_in_avro_is_in_avro_or_in_json() -> None:
    schemas = Schemas()
    found = in_avro(f"schema-{MOVED}", schemas)
    document = sample(f"schema-{MOVED}")
    value, key = document["value"], document["key"]
    value["payload"]["after"]["note"] = UNAVAILABLE_VALUE
    body = on_the_wire(
        schemas.number(avro_schema(value["schema"])), value["schema"], value["payload"]
    )
    wire = on_the_wire(schemas.number(avro_schema(key["schema"])), key["schema"], {"id": 3})
    given = [Event(found.given_key, body, 0, [(HEADER, item)]) for item in (wire, b'{"id":3}')]
    front = AvroFront(schemas)
    front.load(records(given).values, records(given).keys)
    assert told(*given, front=front) == [{"id": 3}, {"id": 3}]


def wide(header: Any) -> Event:
    """A row of a table with a key of many types."""
    source = {"connector": "postgresql", "lsn": 5, "ts_us": 1}
    after = {"tenant": "new", "price": "AQ==", "day": 1, "at": 1, "tag": "AA=="}
    row = {"type": "struct", "field": "after", "fields": [
        *KEY_SCHEMA["fields"], {"field": "note", "type": "string"},
    ]}  # fmt: skip
    value = {
        "schema": {"type": "struct", "fields": [row]},
        "payload": {"op": "c", "after": {**after, "note": UNAVAILABLE_VALUE}, "source": source},
    }
    key = {"schema": KEY_SCHEMA, "payload": after}
    return Event(packed(key), packed(value), 0, [(HEADER, header)])


def test_keys_of_many_columns_and_types_are_told_as_the_table_holds_them() -> None:
    day, micros = 20_486, 1_770_026_400_000_001
    unscaled = (1_234_567_890_123_450).to_bytes(8, "big")
    same = {"tenant": OLD["tenant"], "day": day, "at": micros, "tag": OLD["tag"]}
    by_json = {"schema": KEY_SCHEMA, "payload": {
        **same, "price": base64.b64encode(unscaled).decode(),
    }}  # fmt: skip
    # Connect's own converter writes a decimal as the number that it is.
    plain = json.dumps(same)[:-1] + ', "price": 12345678901234.50}'
    assert told(wide(packed(by_json)), wide(plain), schema=WIDE) == [OLD, OLD]
    broken = json.dumps({**same, "tenant": "a\nb", "price": 3}).replace("\\n", "\n")
    (found,) = told(wide(broken), schema=WIDE)
    assert (found["tenant"], found["price"]) == ("a\nb", "3.00")


@pytest.mark.parametrize(
    "header",
    [None, b"", b"{", b"[3]", b"null", b'{"id":null}', b'{"id":"x"}', b'{"other":3}', b"\0\0"],
)
def test_what_does_not_say_a_whole_key_is_no_key_and_the_row_is_still_read(header: Any) -> None:
    event_ = moved("plain", header)
    (row,) = DebeziumDecoder(COLUMNS, key=("id",)).decode(records([event_])).rows.to_pylist()
    assert (row["id"], row[UNAVAILABLE], row[OLD_KEY]) == (300, ["note"], None)


class Silent(Event):
    """An event whose headers nobody may ask for."""

    def headers(self) -> list[tuple[str, bytes]]:
        raise AssertionError("the headers were read")


@pytest.mark.parametrize("name", [f"plain-{MOVED}", "plain-u-after-ddl-toast", "plain-d-pkchange"])
def test_headers_are_read_only_for_new_rows_that_lack_values(name: str) -> None:
    found = event(name)
    assert told(Silent(found.given_key, found.given_value)) == [None]
