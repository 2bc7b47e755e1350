from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.expressions.visitors import bind
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from odi_audit.catalog.filters import DEPTH_MAX, FILTER_LENGTH_MAX, read
from odi_audit.catalog.predicates import matches, pruning, row_groups, terms
from odi_audit.catalog.projection import arrow_type, leaves
from odi_audit.errors import UsageError

ID = UUID("6f1f9d3e-0000-4000-8000-000000000001")
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "region", StringType(), required=False),
    NestedField(3, "amount", DecimalType(10, 2), required=False),
    NestedField(4, "day", DateType(), required=False),
    NestedField(5, "at", TimestamptzType(), required=False),
    NestedField(6, "local", TimestampType(), required=False),
    NestedField(7, "ratio", DoubleType(), required=False),
    NestedField(8, "small", IntegerType(), required=False),
    NestedField(9, "ok", BooleanType(), required=False),
    NestedField(10, "key", UUIDType(), required=False),
    NestedField(11, "raw", BinaryType(), required=False),
    NestedField(12, "short", FloatType(), required=False),
    NestedField(13, "clock", TimeType(), required=False),
    NestedField(14, "order total", LongType(), required=False),
    NestedField(
        15,
        "who",
        StructType(
            NestedField(16, "name", StringType(), required=False),
            NestedField(17, "age", IntegerType(), required=False),
        ),
        required=False,
    ),
    NestedField(18, "tags", ListType(19, StringType()), required=False),
    NestedField(20, "four", FixedType(4), required=False),
)
NAN = float("nan")
FULL = {
    "id": 1,
    "region": "north",
    "amount": Decimal("8.50"),
    "day": date(2026, 11, 1),
    "at": datetime(2026, 11, 1, 12, tzinfo=UTC),
    "local": datetime(2026, 11, 1, 12, tzinfo=UTC).replace(tzinfo=None),
    "ratio": 0.5,
    "small": 7,
    "ok": True,
    "key": ID.bytes,
    "raw": b"\x00\xff",
    "short": 1.1,
    "clock": time(12, 30),
    "order total": 3,
    "who": {"name": "ana", "age": 40},
    "tags": ["a"],
    "four": b"abcd",
}
EMPTY = {"id": 2}
ODD = {"id": 3, "region": "it's", "amount": Decimal("-0.01"), "ratio": NAN, "who": {"age": 1}}
ROWS = pa.Table.from_pylist(
    [{part.name: row.get(part.name) for part in SCHEMA.fields} for row in (FULL, EMPTY, ODD)],
    pa.schema([pa.field(part.name, arrow_type(part.field_type)) for part in SCHEMA.fields]),
)


def found(where: str) -> list[int]:
    predicate = read(where, SCHEMA)
    columns = leaves(SCHEMA.fields, [column.combine_chunks() for column in ROWS.columns])
    assert set(terms(predicate)) <= SCHEMA.field_ids
    bind(SCHEMA, pruning(predicate), case_sensitive=True)
    mask = matches(predicate, columns, len(ROWS))
    return list(ROWS["id"].filter(mask).to_pylist())


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("id = 1", [1]),
        ("1 < id", [2, 3]),
        ("id == 1 or id <> 1", [1, 2, 3]),
        ("id = '2'", [2]),
        ("id = 2.0", [2]),
        ("id > 1.5 and id <= 2.5", [2]),
        ("id = 1.5 or id in (1.5)", []),
        ("id != 1.5", [1, 2, 3]),
        ("small != 1e3", [1]),
        ("id < 99999999999999999999999", [1, 2, 3]),
        ("id > 99999999999999999999999", []),
        ("id != 99999999999999999999999", [1, 2, 3]),
        ("small < 5000000000", [1]),
        ("small > -5000000000", [1]),
        ("region = 'it''s'", [3]),
        ("region != 'north'", [3]),
        ("not region = 'north'", [3]),
        ("region not in ('north', 'south')", [3]),
        ("not (region in ('north') or id = 2)", [3]),
        ("not (region = 'x' and id = 2)", [1, 3]),
        ("region is null", [2]),
        ("not region is null", [1, 3]),
        ("region IS NOT NULL AND NOT id = 3", [1]),
        ("region like 'n%'", [1]),
        ("region like '_o%h'", [1]),
        ("region not like 'n%'", [3]),
        ("amount = 8.5", [1]),
        ("amount = 8.500", [1]),
        ("amount = 8", []),
        ("amount > 8", [1]),
        ("amount = 8.505", []),
        ("amount < 8.505", [1, 3]),
        ("amount <= 8.495", [3]),
        ("amount > -0.015", [1, 3]),
        ("amount >= -0.005", [1]),
        ("amount between 8.5 and 8.5", [1]),
        ("amount not between 0 and 8.499", [1, 3]),
        ("amount < 1e20", [1, 3]),
        ("amount in (8.5, 9)", [1]),
        ("day = '2026-11-01'", [1]),
        ("day < DATE '2026-11-02'", [1]),
        ("at = '2026-11-01T12:00:00'", [1]),
        ("at = '2026-11-01 13:00:00+01:00'", [1]),
        ("at > '2026-11-01'", [1]),
        ("at >= TIMESTAMP '2026-11-02'", []),
        ("local = '2026-11-01 12:00:00'", [1]),
        ("local < '2026-11-01'", []),
        ("ratio = 0.5", [1]),
        ("ratio > 1", [3]),
        ("ratio is nan", [3]),
        ("ratio is not nan", [1]),
        ("short = 1.1", []),
        ("short > 1.1", [1]),
        ("ok = true", [1]),
        ("true = ok", [1]),
        ("ok != 'true'", []),
        ("true", [1, 2, 3]),
        ("not true", []),
        ("key = '6f1f9d3e-0000-4000-8000-000000000001'", [1]),
        ("key in ('6f1f9d3e-0000-4000-8000-000000000001')", [1]),
        ("raw = X'00FF'", [1]),
        ("four = x'61626364'", [1]),
        ("clock = '12:30:00'", [1]),
        ('"order total" = 3', [1]),
        ("`order total` = +3", [1]),
        ("who.name = 'ana'", [1]),
        ("who.age = 1 and who.name is null", [3]),
        ("who is null", [2]),
        ("tags is not null", [1]),
    ],
)
def test_a_filter_finds_what_sql_would(where: str, expected: list[int]) -> None:
    assert found(where) == expected


@pytest.mark.parametrize(
    ("where", "place", "problem"),
    [
        ("id = = 7", 6, "expected a value"),
        ("id = ", 5, "expected a value"),
        ("id 7", 4, "expected a comparison"),
        ("id = 7 region = 'x'", 8, "expected AND, OR or the end"),
        ("id = 7 and", 11, "expected a column"),
        ("region = 'north", 10, "a quote is not closed"),
        ("region = north", 10, "in single quotes, like 'north'"),
        ("(id = 7", 8, "expected )"),
        ("id in 7", 7, "expected ("),
        ("id = 7; drop table x", 7, "';' means nothing"),
        ("id = null", 6, "write IS NULL"),
        ("id not 7", 8, "expected IN, LIKE or BETWEEN"),
        ("id is 7", 7, "expected NULL"),
        ("id is nan", 7, "only floats can be NaN"),
        ("small like 'x'", 12, "small is int, not a text"),
        ("id = 'seven'", 6, "'seven' is no number"),
        ("id = 1e999999999", 6, "out of all bounds"),
        ("region = 7", 10, "region is string"),
        ("day = 'soon'", 7, "write it like '2026-11-01'"),
        ("local > '2026-11-01T00:00:00Z'", 9, "it has no zone"),
        ("raw = 'ab'", 7, "hexadecimal"),
        ("ok = 1", 6, "write true or false"),
        ("who = 'x'", 7, "nested"),
        ("regoin = 'north'", 1, "did you mean region"),
        ("Region = 'north'", 1, "did you mean region"),
        ("id = 1 and who.nme = 'x'", 12, "did you mean who.name"),
        ("", 1, "expected a column"),
    ],
)
def test_a_filter_that_goes_wrong_is_shown_with_the_place(
    where: str, place: int, problem: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read(where, SCHEMA)
    message, shown, caret = caught.value.message.split("\n")
    assert problem in message
    assert caught.value.facts["place"] == place
    assert shown.strip() == where.strip()
    assert caret.index("^") == len("    ") + place - 1


def test_only_the_part_around_the_place_is_shown_of_a_long_filter() -> None:
    with pytest.raises(UsageError) as caught:
        read("id = 1 or " * 1000 + "id ~ 7" + " or id = 1" * 1000, SCHEMA)
    _, shown, caret = caught.value.message.split("\n")
    assert len(shown) < 110
    assert shown[caret.index("^")] == "~"


def test_a_filter_without_end_and_one_without_bottom_are_refused() -> None:
    with pytest.raises(UsageError, match="longer than"):
        read("id = 1 or " * FILTER_LENGTH_MAX, SCHEMA)
    with pytest.raises(UsageError, match="levels deep"):
        read("(" * (DEPTH_MAX + 1) + "id = 1", SCHEMA)


def test_a_filter_of_thousands_of_parts_is_walked_without_falling_over() -> None:
    many = " or ".join(f"id = {number}" for number in range(5000))
    assert found(many) == [1, 2, 3]
    assert row_groups(read(many, SCHEMA), {1: "id"}) is not None


def test_statistics_are_asked_no_more_than_the_filter_says() -> None:
    assert str(pruning(read("ratio > 1 or short = 1", SCHEMA))) == "AlwaysTrue()"
    assert "StartsWith" in str(pruning(read("region like 'no%th'", SCHEMA)))
    assert str(pruning(read("region like '%th'", SCHEMA))) == "AlwaysTrue()"
    assert str(pruning(read("amount = 8.505", SCHEMA))) == "AlwaysFalse()"
    assert "IsNull" in str(pruning(read("region is null", SCHEMA)))
    assert str(pruning(read("who.name is null", SCHEMA))) == "AlwaysTrue()"
    assert prune_columns(SCHEMA, set(terms(read("who.age = 1", SCHEMA)))).column_names
