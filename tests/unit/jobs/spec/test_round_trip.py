"""Any valid spec can be written and read again; and every one of its keys matters."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml as pyyaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from jobs.spec import JobSpec, check_text, dump_spec, parse_spec, spec_digest, to_document
from jobs.spec.explain import fields_of, keys_at
from jobs.spec.schema import json_schema
from jobs.spec.writing import to_yaml

ROOT = Path(__file__).parents[4]
READY = sorted((ROOT / "jobs/ready").glob("*.yaml"))
ENV = {"WINDOW_FROM": "2026-03-01", "WINDOW_TO": "2026-03-02", "SECRET": "very-secret"}
EDITOR = Draft202012Validator(json_schema())

WORD = st.from_regex(r"[a-z][a-z0-9_]{0,10}", fullmatch=True)
COLUMN = WORD | st.sampled_from(["odd name", "Größe"])
TEXT = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1
).filter(str.strip)
DURATION = st.sampled_from(["1s", "90s", "5m", "1h30m", "1d"])
SIZE = st.sampled_from(["1MB", "128MB", "1GiB", "1.5GB"])
TYPE = st.sampled_from(["bigint not null", "decimal(10,2)", "array<string>", "struct<a: int>"])
COLUMNS = st.dictionaries(WORD, TYPE, min_size=1, max_size=4)
TERM = st.builds("{}({})".format, st.sampled_from(["days", "hours"]), WORD) | WORD
TABLE = st.builds("out.{}".format, WORD)


def part(**keys: st.SearchStrategy[object]) -> st.SearchStrategy[dict[str, object]]:
    """Keys that may each be left out."""
    return st.fixed_dictionaries({}, optional=dict(keys))


def literal(text: str) -> str:
    return text.replace("${", "$${")


KAFKA = st.builds(
    lambda fixed, rest: fixed | rest,
    st.fixed_dictionaries(
        {
            "type": st.just("kafka"),
            "servers": st.sampled_from(["h:1", "h:1,i:2", ["h:1", "i:2"]]),
            "topics": st.lists(WORD, min_size=1, max_size=3) | WORD,
            "value": st.just({"format": "json"}),
        }
    ),
    part(
        start=st.sampled_from(["earliest", {"timestamp": "2026-01-31T01:02:03.5Z"}]),
        key=st.sampled_from([{"format": "text"}, {"format": "raw"}]),
        keep=st.lists(st.sampled_from(["topic", "offset", "headers"]), unique=True),
        options=st.fixed_dictionaries(
            {}, optional={"sasl.password": st.just("${SECRET}"), "a.b": TEXT.map(literal)}
        ),
    ),
)
FILES = st.builds(
    lambda fixed, rest: fixed | rest,
    st.fixed_dictionaries(
        {"type": st.just("files"), "path": TEXT.map(literal), "format": st.just("parquet")}
    ),
    part(settle=st.sampled_from(["0s", "1m"])),
)
TARGET = st.one_of(
    part(partition_by=st.lists(TERM, max_size=2)).map(lambda rest: {"mode": "append"} | rest),
    st.builds(
        lambda key, rest: {"mode": "upsert", "key": key} | rest,
        st.lists(COLUMN.map(lambda name: f"`{name}`" if " " in name else name), min_size=1)
        | WORD.filter(lambda one: one != "from_event"),
        part(order_by=WORD, delete_when=TEXT.map(literal), raw=st.just({"table": "raw.t"})),
    ),
    st.builds(lambda where: {"mode": "replace", "where": where}, TEXT.map(literal)),
)
REST = part(
    description=TEXT.map(literal),
    owner=TEXT.map(literal),
    batch=part(every=DURATION, rows=st.integers(1, 10**9), bytes=SIZE),
    transform=st.sampled_from(["a.b:c", "SELECT 1 FROM batch", {"python": "m:f"}]),
    contract=part(
        required=st.lists(WORD, max_size=2), rules=st.dictionaries(WORD, TEXT.map(literal))
    ),
    dead_letter=st.just({"table": "dead.t"}),
)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, object]:
    target = draw(TARGET) | {"table": draw(TABLE)}
    target |= draw(part(evolve=st.just("strict"), file_size=SIZE, provenance=st.just("row")))
    document = {"version": 1, "job": "a/" + draw(WORD), "source": draw(KAFKA | FILES)}
    return document | {"target": target} | draw(REST)


def written(document: object) -> str:
    return to_yaml(document)  # type: ignore[arg-type]


VALUES = st.recursive(
    st.text()
    | st.integers()
    | st.booleans()
    | st.none()
    | st.sampled_from([":0", "- a", "? b", "#"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.text(), VALUES, min_size=1, max_size=3))
def test_another_reader_takes_what_is_written_for_the_same_values(value: dict[str, object]) -> None:
    text = to_yaml(value)  # type: ignore[arg-type]
    assert YAML(typ="safe", pure=True).load(text) == value
    assert pyyaml.safe_load(text) == value


@settings(max_examples=60, deadline=None)
@given(documents())
def test_any_valid_spec_is_the_same_when_written_and_read_again(
    document: dict[str, object],
) -> None:
    spec = parse_spec(written(document), ENV)
    text = dump_spec(spec)
    again = parse_spec(text, ENV)
    assert again == spec
    assert dump_spec(again) == text
    assert spec_digest(again) == spec_digest(spec)
    assert ENV["SECRET"] not in text
    # The schema for editors takes what is valid, as a person writes it and as we do.
    assert not list(EDITOR.iter_errors(document))
    assert not list(EDITOR.iter_errors(to_document(spec)))


@settings(max_examples=60, deadline=None)
@given(documents(), st.data())
def test_a_mistyped_key_of_any_valid_spec_is_told_in_its_line(
    document: dict[str, object], data: st.DataObject
) -> None:
    section = data.draw(st.sampled_from(["", "source", "target", "batch", "contract"]))
    inner = document if not section else document.get(section)
    if not isinstance(inner, dict) or not inner:
        return
    key = data.draw(st.sampled_from(sorted(inner)))
    inner["zzqq"] = inner.pop(key)
    text = written(document)
    # Found by the text alone, not by the parser under test.
    lines = [n for n, line in enumerate(text.splitlines(), 1) if re.search(r"\bzzqq:", line)]
    found = {problem.key: problem for problem in check_text(text, ENV).problems}
    dotted = f"{section}.zzqq" if section else "zzqq"
    if (section, key) == ("source", "type"):
        assert "source.type" in found
    else:
        assert found[dotted].mark.line in lines


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(READY),
    st.lists(
        st.tuples(
            st.integers(0, 2000),
            st.integers(0, 12),
            st.sampled_from(
                [
                    "",
                    "x",
                    ": ",
                    "\n",
                    "  ",
                    "- ",
                    "[",
                    "{a: 1}",
                    "~",
                    "'",
                    "#",
                    "7",
                    "${Q}",
                    "*a",
                    "[]",
                ]
            ),
        ),
        min_size=1,
        max_size=4,
    ),
)
def test_a_spec_that_was_cut_and_pasted_is_read_or_told_and_never_a_bug(
    path: Path, edits: list[tuple[int, int, str]]
) -> None:
    text = path.read_text("utf-8")
    for at, length, new in edits:
        place = at % len(text)
        text = text[:place] + new + text[place + length :]
    found = check_text(text, ENV)
    assert (found.spec is None) == bool(found.problems)
    lines = text.count("\n") + 2
    for problem in found.problems:
        assert 1 <= problem.mark.line <= lines
        assert problem.message
    if found.spec is not None:
        assert parse_spec(dump_spec(found.spec), ENV) == found.spec


def test_a_long_text_with_two_spaces_is_written_as_it_is() -> None:
    for before in range(40, 90):
        text = f"{'x' * before}  {'y' * 40} z"
        document = {"version": 1, "job": "a/b", "description": text, "target": {"table": "a.b"}}
        source = {"type": "files", "path": "in", "format": "avro"}
        spec = JobSpec.model_validate(document | {"source": source})
        assert parse_spec(dump_spec(spec), {}).description == text


# -- every key of the ready specs -----------------------------------------------------------------

FREE = {"columns", "options", "rules", "properties", "offsets", "payments"}
"""Below these, names are the writer's own."""
KEY = re.compile(r"^( *)([a-z_-]+):")


def keys_of(text: str) -> list[tuple[int, tuple[str, ...]]]:
    """Every key that begins a line, with its path, told by indentation alone."""
    found: list[tuple[int, tuple[str, ...]]] = []
    above: list[tuple[int, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        match = KEY.match(line)
        if match is None:
            continue
        above = [one for one in above if one[0] < len(match[1])]
        path = (*(name for _, name in above), match[2])
        above.append((len(match[1]), match[2]))
        if not FREE & set(path[:-1]) and not path[0].startswith("x-"):
            found.append((number, path))
    return found


CASES = [
    pytest.param(path, number, key, id=f"{path.stem}-{'.'.join(key)}")
    for path in READY
    for number, key in keys_of(path.read_text("utf-8"))
]


def test_the_cases_are_many() -> None:
    assert len(READY) >= 15
    assert len(CASES) > 200


@pytest.mark.parametrize(("path", "number", "key"), CASES)
def test_a_mistyped_key_of_a_ready_spec_is_told_in_its_line(
    path: Path, number: int, key: tuple[str, ...]
) -> None:
    lines = path.read_text("utf-8").splitlines()
    # Two letters swapped, or doubled where there are none to swap: a slip of the hand.
    name = key[-1]
    wrong = (
        name[0] + name[2] + name[1] + name[3:] if len(name) > 2 and name[1] != name[2] else name * 2
    )
    lines[number - 1] = lines[number - 1].replace(f"{name}:", f"{wrong}:", 1)
    found = check_text("\n".join(lines), ENV).problems
    here = [one for one in found if one.key == ".".join((*key[:-1], wrong))]
    if key[-1] == "type":
        assert [one.key for one in found if one.key == ".".join(key)]
        return
    assert [one.mark.line for one in here] == [number]
    assert f"did you mean {name}" in here[0].message


@pytest.mark.parametrize(("path", "number", "key"), CASES)
def test_a_key_that_is_taken_out_of_a_ready_spec_is_missed_where_it_is_needed(
    path: Path, number: int, key: tuple[str, ...]
) -> None:
    lines = path.read_text("utf-8").splitlines()
    indent = len(lines[number - 1]) - len(lines[number - 1].lstrip())
    end = number
    while end < len(lines) and (
        not lines[end].strip() or len(lines[end]) - len(lines[end].lstrip()) > indent
    ):
        end += 1
    before = parse_spec("\n".join(lines), ENV)
    text = "\n".join(lines[: number - 1] + lines[end:])
    found = check_text(text, ENV)
    parent = next((n for n, one in keys_of("\n".join(lines)) if one == key[:-1]), 1)
    required = _required(key, to_document(before))
    if required:
        (problem,) = [one for one in found.problems if one.key == ".".join(key)]
        assert "missing" in problem.message
        # Of a parent that has lost its only key nothing is left but its own line.
        assert problem.mark.line == parent or end > len(lines)
    elif found.spec is not None:
        assert spec_digest(found.spec) != spec_digest(before) or key[-1] in DEFAULTED


DEFAULTED = {
    "mode", "evolve", "compatibility", "create", "file_size", "distribution", "every", "history",
    "valid_from", "valid_to", "current", "read", "bytes", "batch", "tables_max",
}  # fmt: skip
"""Keys that a ready spec writes out although they hold the default."""


def _required(key: tuple[str, ...], document: object) -> bool:
    from pydantic import BaseModel

    from jobs.spec.explain import _field, _model_at

    model = _model_at(key[:-1], document)  # type: ignore[arg-type]
    field = None if model is None else _field(model, key[-1])
    assert model is None or issubclass(model, BaseModel)
    return bool(field is not None and field.is_required())


def test_the_tree_of_keys_follows_the_models() -> None:
    assert "watermark" in keys_at(("source",), {"source": {"type": "jdbc"}})
    assert "from" in keys_at(("bootstrap",), {})
    assert fields_of(JobSpec)["batch"] is not None
