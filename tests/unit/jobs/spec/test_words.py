"""Durations, sizes, names, columns, partitions: read, written, refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.spec import words
from jobs.spec.columns import PRIMITIVES, Columns, columns, partition_term


@given(st.integers(0, 10**10))
def test_a_duration_is_read_as_it_was_written(milliseconds: int) -> None:
    value = timedelta(milliseconds=milliseconds)
    assert words.duration(words.show_duration(value)) == value


@given(st.integers(0, 2**50))
def test_a_size_is_read_as_it_was_written(count: int) -> None:
    assert words.size(words.show_size(count)) == count


@pytest.mark.parametrize(
    ("text", "value"),
    [("10s", 10), ("5m", 300), ("1h30m", 5400), ("2d", 172800), ("0s", 0), ("1500ms", 1.5)],
)
def test_durations(text: str, value: float) -> None:
    assert words.duration(text).total_seconds() == value


@pytest.mark.parametrize("text", ["5", "5 m", "m", "-5m", "5w", "5M", "", "1.5h", "99999d", None])
def test_what_is_no_duration(text: object) -> None:
    with pytest.raises(ValueError, match=r"write|at most"):
        words.duration(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [("128MB", 128 * 2**20), ("1GiB", 2**30), ("512 kb", 512 * 2**10), ("1.5GB", 3 * 2**29),
     ("7B", 7)],
)  # fmt: skip
def test_sizes(text: str, value: int) -> None:
    assert words.size(text) == value


@pytest.mark.parametrize("text", ["128", "MB", "-1MB", "3XB", 128, "", None, True])
def test_what_is_no_size(text: object) -> None:
    with pytest.raises(ValueError, match="write"):
        words.size(text)


def test_a_time_needs_its_zone_and_a_date_does_not() -> None:
    assert words.moment("2026-01-31T02:00:00+02:00") == datetime(2026, 1, 31, tzinfo=UTC)
    assert words.moment("2026-01-31") == datetime(2026, 1, 31, tzinfo=UTC)
    with pytest.raises(ValueError, match="2026-01-31T00:00:00Z for UTC"):
        words.moment("2026-01-31T00:00:00")


@pytest.mark.parametrize(
    ("name", "pattern", "fits"),
    [
        ("landing.shop_a", "landing.shop_*", True),
        ("landing.shop", "landing.shop_*", False),
        ("landing.x.shop_a", "landing.*", False),
        ("landingxshop", "landing.shop", False),
        ("landing.a1", "landing.a?", True),
    ],
)
def test_a_pattern_of_tables_stays_within_its_namespace(
    name: str, pattern: str, fits: bool
) -> None:
    assert words.matches(name, pattern) is fits


@pytest.mark.parametrize("text", ["*", "*.orders", "sa*es.orders", "sales.[ab]", "sales", ""])
def test_a_pattern_of_tables_has_its_namespace_written_out(text: str) -> None:
    with pytest.raises(ValueError, match=r"write|patterns? knows"):
        words.table_pattern(text)


@pytest.mark.parametrize(
    "text", ["DELETE FROM batch", "SELECT 1", "", "select * from batches", "INSERT INTO batch"]
)
def test_a_transform_is_one_query_over_the_batch(text: str) -> None:
    with pytest.raises(ValueError, match=r"begins with SELECT|does not read|write a text"):
        words.query(text)


def test_a_query_may_begin_with_a_comment_or_with_and_end_with_a_semicolon() -> None:
    assert words.query("-- why\nWITH x AS (SELECT * FROM batch) SELECT * FROM x;").endswith("x")


def test_columns_are_the_same_as_one_text_and_as_one_line_each() -> None:
    text = (
        "order_id BIGINT NOT NULL, `odd name` string comment 'it''s', amount Decimal(10, 2), "
        "tags array<string>, at map<string, struct<x: int, `y z` double>>, raw binary"
    ).replace("it''s", "a, b")
    as_text = columns(text)
    assert as_text.names == ("order_id", "odd name", "amount", "tags", "at", "raw")
    assert [column.required for column in as_text.items] == [True] + [False] * 5
    assert as_text.items[1].comment == "a, b"
    assert as_text.items[4].type == "map<string, struct<x: int, `y z`: double>>"
    as_lines = columns({column.name: column.definition for column in as_text.items})
    assert as_lines == as_text
    assert columns(as_text.ddl) == as_text


NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True) | st.sampled_from(
    ["odd name", "a.b", "Größe", "back`tick", "x,y", "(z)"]
)
TYPES = st.recursive(
    st.sampled_from(PRIMITIVES) | st.builds("decimal({0},{0})".format, st.integers(1, 38)),
    lambda inner: st.builds("array<{}>".format, inner) | st.builds("map<string, {}>".format, inner),
    max_leaves=4,
)


@given(st.dictionaries(NAMES, st.tuples(TYPES, st.booleans()), min_size=1, max_size=6))
def test_any_columns_survive_their_ddl(given_columns: dict[str, tuple[str, bool]]) -> None:
    if len({name.lower() for name in given_columns}) < len(given_columns):
        return
    made = columns(
        {name: kind + " not null" * needed for name, (kind, needed) in given_columns.items()}
    )
    assert isinstance(made, Columns)
    assert columns(made.ddl) == made


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a bigit", "did you mean bigint"),
        ("a long", r"write bigint"),
        ("a varchar(20)", "write string"),
        ("a decimal", "decimal\\(10,2\\)"),
        ("a decimal(40,2)", "at most 38"),
        ("a array<string", "expected '>'"),
        ("a map<string>", "expected ','"),
        ("a int b int", "expected a comma"),
        ("a", "where a type should be"),
        ("a int, A string", "stands twice"),
        ("", "no column"),
        ("a " + "array<" * 20 + "int" + ">" * 20, "nested"),
    ],
)
def test_a_mistyped_column_is_told(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        columns(text)


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("day(ts)", "days(ts)"), ("HOURS( ts )", "hours(ts)"), ("bucket(16,id)", "bucket(16, id)"),
        ("truncate(4, name)", "truncate(4, name)"), ("region", "region"),
        ("days(meta.ts)", "days(meta.ts)"), ("`odd name`", "`odd name`"),
    ],
)  # fmt: skip
def test_partition_transforms(text: str, sql: str) -> None:
    assert partition_term(text).sql == sql
    assert partition_term(sql) == partition_term(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bucket(id, 16)", "the number first"),
        ("bucket(id)", "the number first"),
        ("dys(ts)", "did you mean days"),
        ("bucket(16", "in quotes"),
        ("days(a b)", "backquotes"),
        ("", "write a column"),
        (3, "write a column"),
    ],
)
def test_a_mistyped_partition_is_told(text: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        partition_term(text)
