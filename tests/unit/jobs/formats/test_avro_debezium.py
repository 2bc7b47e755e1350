"""Change events in Avro must say the same as the same events in JSON."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from jobs.formats.avro_schema import AvroType, read_schema
from jobs.formats.debezium import DebeziumDecoder, event_key
from jobs.formats.debezium_avro import AvroFront
from jobs.formats.decoded import Unreadable
from tests.support.connect_avro import avro_schema, on_the_wire
from tests.unit.jobs.formats.events import SAMPLES, Event, event, records, sample

NAMES = sorted(path.stem for path in SAMPLES.glob("schema-*.json"))


class Schemas:
    """What a registry would know."""

    def __init__(self) -> None:
        self.known: list[Any] = []

    def number(self, document: Any) -> int:
        if document not in self.known:
            self.known.append(document)
        return self.known.index(document) + 1

    def __call__(self, number: int) -> AvroType:
        if not 1 <= number <= len(self.known):
            raise Unreadable("not known")
        return read_schema(self.known[number - 1])


def in_avro(name: str, schemas: Schemas) -> Event:
    def wire(document: Any) -> bytes | None:
        if document is None:
            return None
        number = schemas.number(avro_schema(document["schema"]))
        return on_the_wire(number, document["schema"], document["payload"])

    found = sample(name)
    return Event(wire(found["key"]), wire(found["value"]))


def learnt(given: list[Event]) -> pa.Schema:
    """Return the columns that events in JSON show."""
    unknown = DebeziumDecoder(pa.schema([])).decode(records(given)).unknown
    return pa.schema(list(unknown.items()))


@pytest.mark.parametrize("strict", [False, True])
def test_events_in_avro_and_in_json_are_the_same_changes(strict: bool) -> None:
    schemas = Schemas()
    plain, avro = [event(name) for name in NAMES], [in_avro(name, schemas) for name in NAMES]
    columns = learnt(plain)
    assert len(columns) >= 6
    front = AvroFront(schemas)
    expected = DebeziumDecoder(columns, key=["id"], strict=strict).decode(records(plain))
    front.load(records(avro).values, records(avro).keys)
    made = DebeziumDecoder(columns, key=["id"], strict=strict, front=front).decode(records(avro))
    assert made.rows.num_rows >= 10
    assert made.rows.equals(expected.rows)
    assert (made.places, made.rejects) == (expected.places, expected.rejects)
    assert (made.unknown, made.wider) == (expected.unknown, expected.wider)
    values, keys = front.used()
    assert set(values) | set(keys) == set(range(1, len(schemas.known) + 1))
    assert not set(values) & set(keys)


def test_fields_that_a_table_lacks_get_the_same_columns_as_from_json() -> None:
    schemas = Schemas()
    avro = [in_avro(name, schemas) for name in NAMES]
    made = DebeziumDecoder(pa.schema([]), front=AvroFront(schemas)).decode(records(avro))
    assert made.unknown == dict(
        zip(learnt([event(n) for n in NAMES]).names, learnt([event(n) for n in NAMES]).types,
            strict=True)
    )  # fmt: skip


def test_the_events_own_key_is_read_from_avro() -> None:
    schemas = Schemas()
    keys = [in_avro("schema-c", schemas).given_key]
    assert event_key([None, *keys], AvroFront(schemas)) == ("id",)


def test_a_broken_event_is_put_aside_alone() -> None:
    schemas = Schemas()
    sound = in_avro("schema-c", schemas)
    assert sound.given_value is not None
    given = [
        sound,
        Event(sound.given_key, sound.given_value[:-2]),
        Event(sound.given_key, b"{}"),
        Event(sound.given_key, b"\0\0\0\1\0" + sound.given_value[5:]),
        Event(sound.given_key, sound.given_value + b"\0"),
        sound,
    ]
    columns = learnt([event("schema-c")])
    made = DebeziumDecoder(columns, key=["id"], front=AvroFront(schemas)).decode(records(given))
    assert made.places == (0, 5)
    assert [item.place for item in made.rejects] == [1, 2, 3, 4]
    reasons = [item.reason for item in made.rejects]
    assert "middle of a value" in reasons[0]
    assert "begins with the byte 0x7b" in reasons[1]
    assert "schema 256" in reasons[2]
    assert "longer than its schema says" in reasons[3]
