"""YAML as it is read here: places, limits, and what is refused."""

from __future__ import annotations

import time

import pytest

from jobs.spec.document import DEPTH_MAX, SIZE_BYTES_MAX, VALUES_MAX, parse
from jobs.spec.problems import Mark


def only(text: str) -> tuple[int, int, str]:
    (problem,) = parse(text, {}).problems
    return problem.mark.line, problem.mark.column, problem.message


def test_every_key_and_value_has_its_line_and_column() -> None:
    found = parse("a: 1\nb:\n  - x\n  - {c: y}\n", {})
    assert found.root == {"a": 1, "b": ["x", {"c": "y"}]}
    assert found.keys["b", 1, "c"] == Mark(4, 6)
    assert found.values["b", 1, "c"] == Mark(4, 9)
    assert found.values["b", 0] == Mark(3, 5)
    assert found.key_mark(("b", 1, "nothing")) == Mark(4, 5)


def test_words_of_yaml_1_1_are_texts_and_numbers_are_decimal() -> None:
    text = (
        "a: no\nb: on\nc: 010\nd: 1_000\ne: 2026-01-31\nf: 12:30\ng: true\nh: ~\ni: 0x10\nj: 1.5\n"
    )
    assert parse(text, {}).root == {
        "a": "no", "b": "on", "c": 10, "d": 1000, "e": "2026-01-31", "f": "12:30", "g": True,
        "h": None, "i": 16, "j": 1.5,
    }  # fmt: skip


def test_a_key_that_stands_twice_names_both_lines() -> None:
    assert only("a:\n  b: 1\n  c: 2\n  b: 3\n") == (
        4, 3, "stands here a second time, first in line 2",
    )  # fmt: skip


def test_several_doubled_keys_are_told_at_once() -> None:
    assert [one.mark.line for one in parse("a: 1\nb: 2\na: 3\nb: 4\n", {}).problems] == [3, 4]


def test_anchors_are_followed_and_keep_the_place_where_they_stand() -> None:
    found = parse("x-one: &one {rows: 3}\nbatch: *one\n", {})
    assert found.root == {"batch": {"rows": 3}}
    assert found.keys["batch", "rows"] == Mark(1, 14)


def test_a_merge_gives_way_to_the_keys_beside_it_and_the_first_of_several_wins() -> None:
    text = "x-a: &a {p: 1, q: 1}\nx-b: &b {q: 2, r: 2}\nc:\n  <<: [*a, *b]\n  p: 9\n"
    assert parse(text, {}).root == {"c": {"p": 9, "q": 1, "r": 2}}


def test_a_merge_of_something_else_is_told() -> None:
    assert only("a:\n  <<: 3\n")[:2] == (2, 7)


def test_a_few_lines_that_stand_for_billions_of_values_are_refused_at_once() -> None:
    lines = ["x0: &x0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]" for n in range(1, 12)]
    began = time.monotonic()
    found = parse("\n".join(lines), {})
    assert time.monotonic() - began < 5
    assert f"over {VALUES_MAX:,} values" in found.problems[-1].message
    assert found.root == {}


@pytest.mark.parametrize(
    "text", ["a: &a [*a]\n", "a: " + "[" * (DEPTH_MAX + 2) + "]" * (DEPTH_MAX + 2)]
)
def test_what_is_nested_without_end_is_refused(text: str) -> None:
    assert f"over {DEPTH_MAX} deep" in only(text)[2]


@pytest.mark.parametrize(
    "text", ["[" * 200_000, "a: {" * 40_000, "- " * 100_000, "a: [" + "1," * 100_000]
)
def test_brackets_by_the_thousand_are_refused_at_once(text: str) -> None:
    began = time.monotonic()
    assert "over" in only(text)[2]
    assert time.monotonic() - began < 20


def test_a_file_beyond_any_spec_is_not_parsed() -> None:
    assert "KiB" in only("a: " + "x" * SIZE_BYTES_MAX)[2]


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("", (1, 1), "the file is empty"),
        ("# nothing\n", (1, 1), "the file is empty"),
        ("- a\n- b\n", (1, 1), "expected keys and values"),
        ("a: 1\n\tb: 2\n", (2, 1), "a tab; indent with spaces"),
        ("a: [1,\nb: 2\n", (3, 1), "while parsing a flow"),
        ("a: 1\n---\nb: 2\n", (2, 1), "a spec is one job"),
        ("a: *nope\n", (1, 4), "undefined alias"),
        ("a: b: c\n", (1, 5), "mapping values are not allowed"),
        ("a: !!python/object:os.system x\n", (1, 4), "is not read here"),
        ("a: !include x.yaml\n", (1, 4), "is not read here"),
        ("? [a]\n: 1\n", (1, 3), "a key must be a word"),
        ("a: \x00\n", (1, 1), "this is not YAML"),
        ("a: {b: ${X}}\n", (1, 9), 'must stand in quotes: "${NAME}"'),
    ],
)
def test_what_is_no_spec_is_told_with_its_place(
    text: str, place: tuple[int, int], said: str
) -> None:
    line, column, message = only(text)
    assert said in message
    assert (line, column) == place
