"""The columns of a table that is not there yet: what the spec tells, and what records show."""

from __future__ import annotations

import pytest

from jobs.runner import kafka_columns
from jobs.spec import parse_spec
from jobs.spec.model import JobSpec
from tests.unit.jobs.formats.events import Event, records

SPEC = """
version: 1
job: a/b
source: {type: kafka, servers: 'h:1', topics: [t], value: {format: %s}, key: {format: %s}}
target: {table: a.b, evolve: %s}
"""
CHUNK = records([Event(b'{"id": 1, "n": 2}', b'{"n": 1.5, "name": "a"}'), Event(None, b"{}")])


def spec(value: str, key: str, evolve: str = "strict") -> JobSpec:
    return parse_spec(SPEC % (value, key, evolve), {})


@pytest.mark.parametrize(
    ("value", "key", "columns"),
    [
        ("raw", "text", {"value": "binary", "_key": "string"}),
        ("json, columns: 'n int'", "raw", {"n": "int", "_key": "binary"}),
        ("text", "json, columns: 'id int not null'", {"value": "string", "id": "int not null"}),
        ("json", "text", None),
        ("text", "json", None),
    ],
)
def test_the_spec_tells_columns_of_both_sides_or_the_records_must_show_some(
    value: str, key: str, columns: dict[str, str] | None
) -> None:
    assert kafka_columns.told(spec(value, key)) == columns


def test_records_show_the_columns_of_each_side_and_keys_also_to_a_strict_table() -> None:
    value, key = kafka_columns.sides(spec("json", "json", "permissive"))
    assert kafka_columns.shown(value, [CHUNK]) == {"n": "double", "name": "string"}
    assert kafka_columns.shown(key, [CHUNK]) == {"id": "bigint", "n": "bigint"}
    strict = kafka_columns.sides(spec("json, columns: 'n double'", "json"))[1]
    assert kafka_columns.shown(strict, [CHUNK]) == {"id": "bigint", "n": "bigint"}
