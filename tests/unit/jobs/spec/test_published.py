"""What is published: the schema, the ready specs, the guide."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from jobs.spec import check_text, load_spec, parse_spec
from jobs.spec.explain import parts_below
from jobs.spec.model import JobSpec
from jobs.spec.reference import FILE as GUIDE
from jobs.spec.reference import PARTS, updated
from jobs.spec.schema import FILE as SCHEMA
from jobs.spec.schema import json_schema, schema_text
from jobs.spec.summary import understand
from odi_audit.cli.app import COMMANDS, load_command

ROOT = Path(__file__).parents[4]
READY = sorted((ROOT / "jobs/ready").glob("*.yaml"))
ENV = {"WINDOW_FROM": "2026-03-01", "WINDOW_TO": "2026-03-02"}
GUIDE_ENV = {"KAFKA_PASSWORD": "kafka-pw", "REGISTRY_PASSWORD": "reg-pw", "DB_PASSWORD": "db-pw"}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PATTERNS = {*range(1, 15), 17}


def stem(path: Path) -> str:
    return path.stem


def test_the_published_schema_is_the_models_own() -> None:
    assert SCHEMA.read_text("utf-8") == schema_text(), "python -m jobs.spec.schema"


def test_the_schema_is_a_schema_and_describes_every_key() -> None:
    made = json_schema()
    Draft202012Validator.check_schema(made)
    without = [
        f"{part}.{name}"
        for part, one in _objects(made)
        for name, key in one.get("properties", {}).items()
        if not key.get("description")
    ]
    assert without == []


def _objects(schema: Any) -> Iterator[tuple[str, Any]]:
    yield "top", schema
    yield from schema["$defs"].items()


@pytest.mark.parametrize("path", READY, ids=stem)
def test_a_ready_spec_is_valid_for_us_and_for_editors(path: Path) -> None:
    spec = load_spec(path, ENV)
    assert spec.owner
    assert spec.description
    plain = YAML(typ="safe", pure=True).load(path.read_text("utf-8"))
    assert [error.message for error in Draft202012Validator(json_schema()).iter_errors(plain)] == []
    assert path.read_text("utf-8").startswith(
        "# yaml-language-server: $schema=../schema/job-1.json\n"
    )
    assert understand(spec).lines


@pytest.mark.parametrize(
    ("old", "new"),
    [("topics:", "topcs:"), ("days(ts)", "[1]"), ("format: json", "format: jsn"), ("job:", "jobb:"),
     ("version: 1", "version: 2"), ("mode: append", "mode: apend")],
)  # fmt: skip
def test_editors_see_a_mistake_by_the_schema(old: str, new: str) -> None:
    text = READY[0].read_text("utf-8")
    assert text.count(old) == 1
    plain = YAML(typ="safe", pure=True).load(text.replace(old, new))
    assert list(Draft202012Validator(json_schema()).iter_errors(plain))


def test_there_is_a_ready_spec_for_each_pattern_with_its_own_job_and_tables() -> None:
    assert {int(path.stem[:2]) for path in READY} == PATTERNS
    specs = [load_spec(path, ENV) for path in READY]
    assert len({spec.job for spec in specs}) == len(specs)
    targets = [spec.target.table for spec in specs if spec.target.table]
    assert len(set(targets)) == len(targets)


@pytest.mark.parametrize("path", READY, ids=stem)
def test_a_ready_spec_names_the_auditors_question_and_a_command_that_there_is(path: Path) -> None:
    text = path.read_text("utf-8")
    assert "# An auditor asks: " in text
    calls = re.findall(r"odi-audit ([a-z-]+)(?: ([a-z]+))?((?: [^&\n]*)?)", text)
    assert calls
    for name, sub, rest in calls:
        assert name in COMMANDS
        command = load_command(name)
        command = getattr(command, "commands", {}).get(sub, command)
        known = {option for parameter in command.params for option in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", rest)) <= known, (name, rest)


def test_every_yaml_block_of_the_guide_is_a_valid_spec() -> None:
    blocks = [body for kind, body in FENCE.findall(GUIDE.read_text("utf-8")) if kind == "yaml"]
    assert len(blocks) >= 8
    jobs = [parse_spec(body, GUIDE_ENV).job for body in blocks]
    assert len(set(jobs)) == len(jobs)


def test_the_problems_in_the_guide_are_the_ones_that_are_told() -> None:
    (shown,) = [body for kind, body in FENCE.findall(GUIDE.read_text("utf-8")) if kind == "text"]
    text = (
        "version: 1\njob: sales/orders\nsource:\n  type: kafka\n  servers: broker:9092\n"
        "  topcs: [orders]\n  value:\n    format: json\n    columns: order_id bigint\n\n"
        "batch:\n  every: 60\n\ntarget:\n  table: sales.orders\n  mode: upsert\n"
    )
    told = [problem.at("orders.yaml") for problem in check_text(text, {}).problems]
    lines = [line.strip().partition("…")[0] for line in shown.splitlines()[1:]]
    assert len(told) == len(lines) == 3
    for said, line in zip(told, lines, strict=True):
        assert said.startswith(line)


def test_the_reference_in_the_guide_is_the_models_own() -> None:
    text = GUIDE.read_text("utf-8")
    assert updated(text) == text, "python -m jobs.spec.reference"


def test_every_part_of_a_spec_is_in_the_reference() -> None:
    assert {part for _, part in PARTS} == {JobSpec, *parts_below(JobSpec).values()}
