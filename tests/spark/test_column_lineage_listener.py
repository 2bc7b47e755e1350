"""Ours beside openlineage-spark's: the same plans through both, and every difference explained.

One child process runs all plans under the listener, on a Hadoop catalog, where it works. Direct
edges must be equal, with the names of their datasets; a difference must be in ``DIFFERENCES``,
which is also the table of docs/column-lineage.md, and one that no longer occurs must go.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from odi_audit.spark import jars
from odi_audit.spark.conf import jars_dir
from odi_audit.workspace import Workspace
from tests.support import plans

ROOT = Path(__file__).parents[2]
CHILD_WAIT_S_MAX = 900
"""A quiet machine needs a minute; several of these on two cores need many."""
PLANS_EQUAL_MIN = 40

Edge: TypeAlias = tuple[str, str, str, str, str, bool]
"""Output column, namespace, name, input column, subtype, masking."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How the two differ for one plan, and why ours says what it says."""

    plan: str
    ours: str
    listener: str
    reason: str


DIFFERENCES = [
    Difference(
        plan="rollup",
        ours="region, cust: IDENTITY",
        listener="nothing",
        reason="The values pass through Spark's Expand node, which the listener does not look at.",
    ),
    Difference(
        plan="unpivot",
        ours="v: id, cust IDENTITY",
        listener="nothing",
        reason="As for rollup.",
    ),
    Difference(
        plan="plain_scalar_subquery",
        ours="best: rank AGGREGATION",
        listener="nothing",
        reason="A subquery that is not correlated stays inside the expression; the listener does "
        "not look into it.",
    ),
    Difference(
        plan="stack",
        ours="v: id, cust",
        listener="k and v: id, cust",
        reason="stack() deals its arguments out to its columns; k holds literals only.",
    ),
    Difference(
        plan="deduplicated",
        ours="id, name: IDENTITY",
        listener="id, name: AGGREGATION",
        reason="The optimiser writes dropDuplicates as first(); the analysed plan keeps what was "
        "meant: values pass unchanged.",
    ),
    Difference(
        plan="python_udf",
        ours="twice: name TRANSFORMATION",
        listener="nothing",
        reason="The optimiser moves Python functions into a node of their own, which the listener "
        "does not look at.",
    ),
    Difference(
        plan="merge",
        ours="id, name, rank: the source's columns",
        listener="id, name, rank: the target's own columns, IDENTITY",
        reason="The listener sees the rewritten plan's rows that are copied, not the source's "
        "that are merged.",
    ),
    Difference(
        plan="update",
        ours="name: name TRANSFORMATION; rank: id IDENTITY",
        listener="every column: itself, IDENTITY",
        reason="As for merge: the assignments are lost in the rewritten plan.",
    ),
    Difference(
        plan="delete",
        ours="nothing; the condition's columns decide the rows",
        listener="every column: itself, IDENTITY",
        reason="Rows that stay are copied by the rewritten plan, but nothing was written into a "
        "column.",
    ),
]


@pytest.fixture(scope="module")
def listened(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a child process that ran every plan."""
    folder = tmp_path_factory.mktemp("listened")
    with Workspace.init(tmp_path_factory.mktemp("settings") / "lake") as lake:
        paths = jars.ensure(jars_dir(lake.settings), ["core", "listener"])
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.listened", str(folder), *map(str, paths)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=CHILD_WAIT_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


@pytest.fixture(scope="module")
def ours(listened: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads((listened / "ours.json").read_text("utf-8"))
    return found


@pytest.fixture(scope="module")
def theirs(listened: Path) -> dict[str, dict[str, Any]]:
    """The facet of each plan's write; of a plan without one, an empty one."""
    found: dict[str, dict[str, Any]] = {}
    for line in (listened / "events.jsonl").read_text("utf-8").splitlines():
        event = json.loads(line)
        written = re.search(r"\.(append|replace)_data\.", event["job"]["name"])
        if event["eventType"] != "COMPLETE" or written is None:
            continue
        for output in event["outputs"]:
            name = output["name"].rpartition("/out_")[2]
            facet = output["facets"].get("columnLineage")
            found[name] = facet or found.get(name) or {"fields": {}}
    return found


def direct_of_ours(fact: Mapping[str, Any]) -> set[Edge]:
    return {
        (
            column,
            fact["inputs"][edge["input"]]["namespace"],
            fact["inputs"][edge["input"]]["name"],
            edge["field"],
            edge["subtype"],
            bool(edge.get("masking")),
        )
        for column, edges in fact["fields"].items()
        for edge in edges
        if edge["type"] == "DIRECT"
    }


def direct_of_theirs(facet: Mapping[str, Any]) -> set[Edge]:
    return {
        (
            column,
            edge["namespace"],
            edge["name"],
            edge["field"],
            step["subtype"],
            bool(step["masking"]),
        )
        for column, field in facet["fields"].items()
        for edge in field["inputFields"]
        for step in edge["transformations"]
        if step["type"] == "DIRECT"
    }


def test_the_listener_was_heard_for_every_plan(
    ours: dict[str, dict[str, Any]], theirs: dict[str, dict[str, Any]]
) -> None:
    assert set(ours) == {*plans.SQL, *plans.FRAMES, "append", "merge", "update", "delete"}
    silent = {"python_udf", "values"}
    assert set(ours) - set(theirs) <= silent, "no event was found for these"
    assert sum(1 for facet in theirs.values() if facet["fields"]) >= PLANS_EQUAL_MIN


def test_direct_edges_are_equal_but_for_the_differences_that_are_listed(
    ours: dict[str, dict[str, Any]], theirs: dict[str, dict[str, Any]]
) -> None:
    differ = {
        name
        for name, fact in ours.items()
        if direct_of_ours(fact) != direct_of_theirs(theirs.get(name, {"fields": {}}))
    }
    assert differ == {item.plan for item in DIFFERENCES}
    equal = [name for name in ours if name not in differ and direct_of_ours(ours[name])]
    assert len(equal) >= PLANS_EQUAL_MIN


def test_nothing_of_these_plans_is_unknown_to_us(ours: dict[str, dict[str, Any]]) -> None:
    assert {name: fact["unknown"] for name, fact in ours.items() if fact["unknown"]} == {}


def test_every_column_that_the_listener_names_at_all_is_named_by_us(
    ours: dict[str, dict[str, Any]], theirs: dict[str, dict[str, Any]]
) -> None:
    # Of indirect edges the two say the same in different words: the optimiser makes a join of a
    # subquery, and adds "is not null" to the key of a join.
    copied = {"merge", "update", "delete"}
    for name, facet in theirs.items():
        if name in copied or name not in ours:
            continue
        named = {(edge["name"], edge["field"]) for edge in _all_of_theirs(facet)}
        known = {
            (ours[name]["inputs"][edge["input"]]["name"], edge["field"])
            for edge in _all_of_ours(ours[name])
        }
        assert named <= known, name


def test_the_documents_table_of_differences_is_this_one() -> None:
    text = (ROOT / "docs" / "column-lineage.md").read_text("utf-8")
    rows = [
        tuple(cell.strip() for cell in line.strip("|").split("|"))
        for line in text.splitlines()
        if line.startswith("| `")
    ]
    listed = [(f"`{item.plan}`", item.ours, item.listener, item.reason) for item in DIFFERENCES]
    assert [row for row in rows if len(row) == 4] == listed


def _all_of_ours(fact: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from fact["dataset"]
    for edges in fact["fields"].values():
        yield from edges


def _all_of_theirs(facet: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from facet.get("dataset") or []
    for field in facet["fields"].values():
        yield from field["inputFields"]
