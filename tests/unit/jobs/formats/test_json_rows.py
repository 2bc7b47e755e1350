"""JSON records as rows: each record is a row or a reject, and a row says what the record said."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.formats.json_rows import JsonDecoder, why_not

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.large_string()),
        ("amount", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("ratio", pa.float64()),
        ("flag", pa.bool_()),
        ("tags", pa.large_list(pa.large_string())),
        ("place", pa.struct([("x", pa.int32()), ("on", pa.date32())])),
    ]
)


def decode(*values: bytes | None, **how: Any) -> Any:
    return JsonDecoder(SCHEMA, **how).decode(values)


NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False, width=32)
ANYTHING = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
FITTING = st.fixed_dictionaries(
    {"id": st.integers(-(2**63), 2**63 - 1)},
    optional={
        "name": st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
        "amount": st.decimals(-(10**8) + 1, 10**8 - 1, places=2).map(str),
        "at": st.datetimes(timezones=st.just(dt.UTC))
        .filter(lambda at: 1700 < at.year < 2200)
        .map(lambda moment: moment.isoformat()),
        "day": st.dates(dt.date(1700, 1, 1), dt.date(2200, 1, 1)).map(str),
        "ratio": st.floats(allow_nan=False, allow_infinity=False),
        "flag": st.booleans(),
        "tags": st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), max_size=3),
        "place": st.fixed_dictionaries({}, optional={"x": st.integers(-(2**31), 2**31 - 1)}),
    },
)


def expected(record: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a record, computed without Arrow."""
    row = {name: record.get(name) for name in SCHEMA.names}
    if row["amount"] is not None:
        row["amount"] = Decimal(row["amount"])
    if row["at"] is not None:
        row["at"] = dt.datetime.fromisoformat(row["at"])
    if row["day"] is not None:
        row["day"] = dt.date.fromisoformat(row["day"])
    if row["place"] is not None:
        row["place"] = {"x": row["place"].get("x"), "on": None}
    return row


@settings(max_examples=60, deadline=None)
@given(st.lists(FITTING.map(lambda r: (r, True)) | ANYTHING.map(lambda r: (r, False)), max_size=12))
def test_every_record_is_a_row_or_a_reject_and_fitting_ones_are_rows(
    records: list[tuple[Any, bool]],
) -> None:
    made = decode(*[json.dumps(record).encode() for record, _ in records])
    rejected = {item.place for item in made.rejects}
    assert sorted([*made.places, *rejected]) == list(range(len(records)))
    for place, row in zip(made.places, made.rows.to_pylist(), strict=True):
        record, fits = records[place]
        if fits:
            assert row == expected(record)
    assert not [place for place in rejected if records[place][1]]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "tombstone"),
        (b"", "empty"),
        (b" \n", "empty"),
        (b"null", "no JSON object"),
        (b"[1]", "no JSON object"),
        (b"x", "no JSON object"),
        (b'{"id":1', "braces|bracket|name|end|Missing"),
        (b'{"id":1}{"id":2}', "2 documents"),
        (b'{"id":1,"id":2}', "twice"),
        (b'{"name":"x"}', "id is required"),
        (b'{"id":"1"}', "number to string"),
        (b'{"id":1.5}', "int64"),
        (b'{"id":9223372036854775808}', "int64"),
        (b'{"id":1,"amount":1.234}', "scale"),
        (b'{"id":1,"amount":"123456789012"}', "precision"),
        (b'{"id":1,"day":"soon"}', "date"),
        (b'{"id":1,"at":"soon"}', "timestamp"),
        (b'{"id":1,"at":5}', "string to number"),
        (b'{"id":1,"flag":"true"}', "boolean"),
        (b'{"id":1,"place":{"x":99999999999}}', "int32"),
    ],
)
def test_a_record_that_does_not_fit_is_a_reject_with_a_reason_and_takes_none_with_it(
    value: bytes | None, reason: str
) -> None:
    import re

    good = [json.dumps({"id": number}).encode() for number in range(40)]
    for place in (0, 17, 40):
        made = decode(*good[:place], value, *good[place:])
        assert [item.place for item in made.rejects] == [place]
        assert re.search(reason, made.rejects[0].reason), made.rejects[0].reason
        assert " row " not in made.rejects[0].reason
        assert made.rows["id"].to_pylist() == list(range(40))


def test_documents_may_be_spread_over_lines_and_be_large() -> None:
    value = json.dumps({"id": 1, "name": "x" * 3_000_000, "tags": ["a", "b"]}, indent=2).encode()
    made = decode(value, b'\n {"id": 2}\n', value)
    assert made.rows["id"].to_pylist() == [1, 2, 1]
    assert not made.rejects


@pytest.mark.parametrize(
    ("times", "factor"), [("seconds", 1), ("millis", 10**3), ("micros", 10**6)]
)
def test_moments_may_be_numbers_since_1970(times: str, factor: int) -> None:
    made = decode(json.dumps({"id": 1, "at": 1_763_287_200 * factor}).encode(), times=times)
    assert made.rows["at"].to_pylist() == [dt.datetime.fromtimestamp(1_763_287_200, dt.UTC)]


def test_fields_that_the_table_lacks_are_reported_with_a_type_or_refused() -> None:
    records = [
        {"id": 1, "count": 5, "empty": None, "when": "2026-11-16T10:00:00Z"},
        {"id": 2, "deep": {"a": [1.5], "n": None}, "place": {"x": 1, "z": "new"}},
    ]
    values = [json.dumps(record).encode() for record in records]
    made = decode(*values)
    assert {name: str(kind) for name, kind in made.unknown.items()} == {
        "count": "int64",
        "when": "string",
        "deep": "struct<a: list<item: double>>",
        "place.z": "string",
    }
    assert made.rows.num_rows == 2
    refused = decode(*values, b'{"id":3}', strict=True)
    assert refused.rows["id"].to_pylist() == [3]
    assert ["unexpected" in item.reason.lower() for item in refused.rejects] == [True, True]


def test_a_column_that_is_too_narrow_is_reported_with_the_type_that_it_needs() -> None:
    schema = pa.schema(
        [("n", pa.int32()), ("f", pa.float32()), ("d", pa.decimal128(6, 2)), ("s", pa.string())]
    )

    def told(*records: dict[str, Any], strict: bool = False) -> tuple[list[int], dict[str, str]]:
        values = [json.dumps(record).encode() for record in records]
        made = JsonDecoder(schema, strict=strict).decode(values)
        return [item.place for item in made.rejects], {k: str(v) for k, v in made.wider.items()}

    assert told({"n": 2**31 - 1, "d": "1234.56", "f": 3e38}) == ([], {})
    assert told({"n": 1}, {"n": 2**31}, {"n": -5}) == ([1], {"n": "int64"})
    assert told({"d": "12345.67"}) == ([0], {"d": "decimal128(18, 2)"})
    assert told({"d": "1" * 30}) == ([0], {"d": "decimal128(38, 2)"})
    assert told({"n": 2**40, "d": 99999.25}) == ([0], {"n": "int64", "d": "decimal128(18, 2)"})
    # What no widening lets in stays a reject, and asks for nothing.
    assert told({"n": 1.5}, {"n": "7"}, {"d": "0.001"}, {"s": 5}) == ([0, 1, 2, 3], {})
    assert told({"n": 2**31}, strict=True) == ([0], {})
    wide = pa.schema([("n", pa.int64()), ("d", pa.decimal128(18, 2))])
    made = JsonDecoder(wide).decode([b'{"n":2147483648,"d":"12345.67"}'])
    assert not made.rejects


def test_what_cannot_be_decoded_is_told_before() -> None:
    assert why_not(SCHEMA) is None
    assert "map" in str(why_not(pa.schema([("m", pa.map_(pa.string(), pa.int32()))])))


def test_a_number_beyond_its_columns_range_is_never_read_as_infinite() -> None:
    schema = pa.schema([("f", pa.float32()), ("l", pa.list_(pa.float64()))])
    made = JsonDecoder(schema).decode([b'{"f": 1.5}', b'{"f": 1e300}', b'{"l": [1, 2e999]}'])
    assert made.rows["f"].to_pylist() == [1.5]
    assert [item.place for item in made.rejects] == [1, 2]
    assert "too narrow" in made.rejects[0].reason
    assert made.wider == {"f": pa.float64()}


def test_a_record_is_never_completed_by_the_next_one_nor_split_in_two() -> None:
    # As many documents as records, and yet no record is one document.
    torn = [b'{"id":1}{"id":2}', b'{"id":3,"place":', b'{"x":4}}']
    made = decode(*torn, b'{"id":5}')
    assert made.rows["id"].to_pylist() == [5]
    assert made.places == (3,)
    assert [item.place for item in made.rejects] == [0, 1, 2]
