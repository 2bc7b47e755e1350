"""Plans as Spark printed them, read without a JVM; and nodes that no reader can know."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from odi_audit.spark.plan import reader
from odi_audit.spark.plan.facts import fact, unknown_fact
from odi_audit.spark.plan.reader import Read, Stream, TooLarge, read
from odi_audit.spark.plan.values import Dataset

PLANS = Path(__file__).parents[3] / "golden" / "plans"
CUST = Dataset(namespace="file", name="/lake/cust")

EXPECTED: dict[str, dict[str, str]] = {
    "inner_join": {
        "id": "orders.id IDENTITY",
        "name": "cust.name IDENTITY",
        "*": "cust.id JOIN, cust.rank JOIN, orders.amount JOIN, orders.cust JOIN",
    },
    "full_join_using": {
        "id": "cust.id CONDITIONAL, cust.id TRANSFORMATION, orders.id CONDITIONAL, "
        "orders.id TRANSFORMATION",
        "name": "cust.name IDENTITY",
        "amount": "orders.amount IDENTITY",
        "*": "cust.id JOIN, orders.id JOIN",
    },
    "lateral_join": {
        "id": "orders.id IDENTITY",
        "name": "cust.name IDENTITY",
        "*": "cust.id FILTER, orders.cust FILTER",
    },
    "grouped": {
        "region": "orders.region IDENTITY",
        "total": "orders.amount AGGREGATION",
        "n": "",
        "*": "orders.region GROUP_BY",
    },
    "rollup": {
        "region": "orders.region IDENTITY",
        "cust": "orders.cust IDENTITY",
        "s": "orders.amount AGGREGATION",
        "*": "orders.cust GROUP_BY, orders.region GROUP_BY",
    },
    "row_number": {
        "id": "orders.id IDENTITY",
        "n": "orders.at WINDOW, orders.region WINDOW",
        "*": "",
    },
    "window_sum": {
        "id": "orders.id IDENTITY",
        "s": "orders.amount AGGREGATION, orders.at WINDOW, orders.region WINDOW",
        "*": "",
    },
    "case_when": {
        "c": "cust.name TRANSFORMATION, cust.rank CONDITIONAL, cust.region CONDITIONAL, "
        "cust.region TRANSFORMATION",
        "*": "",
    },
    "hashes": {
        "m": "cust.name TRANSFORMATION masked",
        "s": "cust.region TRANSFORMATION masked",
        "h": "cust.rank TRANSFORMATION masked",
        "*": "",
    },
    "union_all": {
        "id": "cust.id IDENTITY, orders.cust IDENTITY",
        "name": "cust.name IDENTITY, orders.region IDENTITY",
        "*": "",
    },
    "intersect": {"id": "cust.id IDENTITY", "*": "cust.id FILTER, orders.cust FILTER"},
    "in_subquery": {
        "id": "orders.id IDENTITY",
        "*": "cust.id FILTER, cust.rank FILTER, orders.cust FILTER",
    },
    "exists": {"id": "orders.id IDENTITY", "*": "cust.id FILTER, orders.cust FILTER"},
    "scalar_subquery": {
        "id": "orders.id IDENTITY",
        "best": "cust.id FILTER, cust.name AGGREGATION, orders.cust FILTER",
        "*": "",
    },
    "cte": {"name": "cust.name IDENTITY", "up": "cust.name TRANSFORMATION", "*": "cust.id JOIN"},
    "explode": {
        "id": "orders.id IDENTITY",
        "sku": "orders.items TRANSFORMATION",
        "*": "orders.items FILTER",
    },
    "stack": {
        "k": "",
        "v": "orders.cust TRANSFORMATION, orders.id TRANSFORMATION",
        "*": "orders.cust FILTER, orders.id FILTER",
    },
    "unpivot": {
        "region": "orders.region IDENTITY",
        "k": "",
        "v": "orders.cust IDENTITY, orders.id IDENTITY",
        "*": "orders.cust FILTER, orders.id FILTER",
    },
    "python_udf": {"twice": "cust.name TRANSFORMATION", "*": ""},
    "higher_order": {"t": "orders.id TRANSFORMATION, orders.items TRANSFORMATION", "*": ""},
}


def words(found: Read) -> dict[str, str]:
    """A relation in few words; unknown columns are left to ``unknown``."""

    def told(edges: Mapping[Any, Any]) -> str:
        return ", ".join(
            sorted(
                {
                    f"{found.leaves[origin.leaf].datasets[0].name.rpartition('/')[2]}."
                    f"{origin.column} {kind.subtype}{' masked' if kind.masking else ''}"
                    for origin, kinds in edges.items()
                    for kind in kinds
                }
            )
        )

    columns = found.relation.columns or ()
    return {column.name: told(column.edges) for _, column in columns if not column.unknown} | {
        "*": told(found.relation.rows)
    }


def unknown(found: Read) -> list[str]:
    return [column.name for _, column in found.relation.columns or () if column.unknown]


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_recorded_plan_is_read_as_it_was_meant(name: str) -> None:
    recorded = json.loads((PLANS / f"{name}.json").read_text("utf-8"))
    known = {
        int(key): (Dataset(namespace="file", name=f"/lake/{table}"),)
        for key, table in recorded["known"].items()
    }
    found = read(recorded["plan"], known)
    assert words(found) == EXPECTED[name]
    assert unknown(found) == []
    assert not found.relation.unknown_rows


def test_every_recorded_plan_is_expected() -> None:
    assert {path.stem for path in PLANS.glob("*.json")} == set(EXPECTED)


# -- nodes made by hand ----------------------------------------------------------------------


def attribute(name: str, key: int, kind: str = "long") -> dict[str, Any]:
    return {
        "class": "x.AttributeReference",
        "num-children": 0,
        "name": name,
        "dataType": kind,
        "exprId": {"id": key},
    }


def alias(name: str, key: int, *inside: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"class": "x.Alias", "num-children": 1, "name": name, "exprId": {"id": key}},
        *inside,
    ]


def node(kind: str, children: int, **fields: Any) -> dict[str, Any]:
    return {"class": f"x.{kind}", "num-children": children, **fields}


def scan(first: int = 1) -> dict[str, Any]:
    output = [[attribute("id", first)], [attribute("name", first + 1, "string")]]
    return node("DataSourceV2Relation", 0, output=output)


KNOWN = {1: (CUST,), 11: (Dataset(namespace="file", name="/lake/orders"),)}


@pytest.mark.parametrize(
    "kind",
    [
        "MapInArrow",
        "MapInPandas",
        "PythonMapInArrow",
        "FlatMapGroupsInArrow",
        "ScriptTransformation",
        "NodeOfTheFuture",
    ],
)
def test_a_function_of_the_caller_makes_its_columns_unknown_and_its_input_known(kind: str) -> None:
    made = node(kind, 1, output=[[attribute("a", 7)], [attribute("b", 8)]])
    found = read([made, scan()], KNOWN)
    assert unknown(found) == ["a", "b"]
    assert words(found) == {"*": ""}
    assert found.leaves[0].datasets == (CUST,), "what was read is known all the same"
    assert found.relation.unknown_rows == {f"node {kind}"}


def test_only_the_columns_that_rest_on_an_unknown_one_are_unknown() -> None:
    opaque = node("MapInArrow", 1, output=[[attribute("id", 7)], [attribute("x", 8)]])
    both = node(
        "Join",
        2,
        joinType={"object": "x.Inner$"},
        condition=[node("EqualTo", 2), attribute("id", 7), attribute("id", 11)],
    )
    project = node(
        "Project",
        1,
        projectList=[
            [attribute("name", 12, "string")],
            alias("y", 20, node("Add", 2), attribute("id", 11), attribute("x", 8)),
            alias("one", 21, node("Literal", 0, value="1")),
        ],
    )
    found = read([project, both, opaque, scan(), scan(11)], KNOWN)
    assert unknown(found) == ["y"]
    assert words(found) == {"name": "orders.name IDENTITY", "one": "", "*": "orders.id JOIN"}
    assert found.relation.unknown_rows == {"node MapInArrow"}


def test_a_node_that_does_not_say_what_it_has_leaves_nothing_known_above_it() -> None:
    project = node("Project", 1, projectList=[[attribute("id", 1)]])
    found = read([project, node("NodeOfTheFuture", 1), scan()], KNOWN)
    assert unknown(found) == ["id"], "the same id above a strange node need not be the same value"


def test_rows_that_spark_was_given_are_unknown_and_rows_of_the_statement_rest_on_nothing() -> None:
    given = node("LogicalRDD", 0, output=[[attribute("a", 5)]])
    assert unknown(read([given], {})) == ["a"]
    local = node("LocalRelation", 0, output=[[attribute("a", 5)]])
    assert words(read([local], {})) == {"a": "", "*": ""}
    assert words(read([local], {5: (CUST,)})) == {"a": "cust.a IDENTITY", "*": ""}


def test_a_join_of_a_kind_that_is_not_known_is_not_guessed() -> None:
    strange = node("Join", 2, joinType={"object": "x.Sideways$"})
    found = read([strange, scan(), scan(11)], KNOWN)
    assert found.relation.columns is None
    assert len(found.leaves) == 2


def test_a_recursive_table_expression_is_unknown() -> None:
    project = node("Project", 1, projectList=[[attribute("n", 30)]])
    used = node("CTERelationRef", 0, cteId=3, output=[[attribute("n", 30)]], recursive=True)
    found = read([project, used], {})
    assert unknown(found) == ["n"]


def test_an_opaque_condition_leaves_the_columns_and_doubts_the_rows() -> None:
    found = read([node("TypedFilter", 1), scan()], KNOWN)
    assert words(found) == {"id": "cust.id IDENTITY", "name": "cust.name IDENTITY", "*": ""}
    assert found.relation.unknown_rows == {"node TypedFilter"}


def test_a_micro_batch_is_its_querys_plan_even_where_an_id_passes_through() -> None:
    plan = [
        node("Filter", 1, condition=[node("IsNotNull", 1), attribute("name", 2, "string")]),
        scan(),
    ]
    leaf = node("LogicalRDD", 0, output=[[attribute("id", 1)], [attribute("name", 2, "string")]])
    found = read([leaf], {1: Stream(plan=plan, known={1: (CUST,)})})
    assert words(found) == {
        "id": "cust.id IDENTITY",
        "name": "cust.name IDENTITY",
        "*": "cust.name FILTER",
    }
    narrow = node("LogicalRDD", 0, output=[[attribute("id", 1)]])
    assert unknown(read([narrow], {1: Stream(plan=plan, known={1: (CUST,)})})) == ["id"]


def test_unions_of_different_width_are_not_matched() -> None:
    narrow = node("Project", 1, projectList=[[attribute("id", 11)]])
    found = read([node("Union", 2), scan(), narrow, scan(11)], KNOWN)
    assert found.relation.columns is None


def test_a_cast_to_the_same_type_changes_nothing_and_any_other_does() -> None:
    same = alias("a", 20, node("Cast", 1, dataType="long"), attribute("id", 1))
    other = alias("b", 21, node("Cast", 1, dataType="string"), attribute("id", 1))
    found = read([node("Project", 1, projectList=[same, other]), scan()], KNOWN)
    assert words(found) == {"a": "cust.id IDENTITY", "b": "cust.id TRANSFORMATION", "*": ""}


def test_an_attribute_from_nowhere_is_unknown() -> None:
    found = read([node("Project", 1, projectList=[[attribute("x", 99)]]), scan()], KNOWN)
    assert unknown(found) == ["x"]


def test_several_folders_of_one_scan_are_all_inputs() -> None:
    folders = (CUST, Dataset(namespace="file", name="/lake/more", kind="FILE"))
    found = read([scan()], {1: folders})
    made = fact(dict(_named(found)), found.relation.rows, found)
    assert [item["name"] for item in _objects(made["inputs"])] == ["/lake/cust", "/lake/more"]
    assert [item["input"] for item in _objects(made["fields"]["id"])] == [0, 1]  # type: ignore[index, call-overload]


def test_a_plan_of_thousands_of_steps_needs_no_stack() -> None:
    steps = [node("SubqueryAlias", 1) for _ in range(5000)]
    condition = [node("Or", 2), attribute("id", 1)] * 5000 + [attribute("name", 2, "string")]
    found = read([*steps, node("Filter", 1, condition=condition), scan()], KNOWN)
    assert words(found)["*"] == "cust.id FILTER, cust.name FILTER"


def test_a_plan_with_too_many_nodes_or_too_slow_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(reader, "NODES_MAX", 3)
        with pytest.raises(TooLarge):
            read([node("SubqueryAlias", 1), node("SubqueryAlias", 1), scan()], KNOWN)
    ticks = count(0, 2)
    with pytest.raises(TooLarge):
        read(
            [node("SubqueryAlias", 1), node("SubqueryAlias", 1), scan()],
            KNOWN,
            clock=lambda: float(next(ticks)),
        )


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Project", 2), scan()],
        [scan(), scan()],
        [{"class": "x.Project"}],
    ],
)
def test_json_that_is_no_plan_is_refused(nodes: Sequence[dict[str, Any]]) -> None:
    with pytest.raises((ValueError, KeyError)):
        read(list(nodes), KNOWN)


def test_the_fact_is_the_same_whatever_the_order_of_the_edges() -> None:
    first = read([node("Union", 2), scan(), scan(11)], KNOWN)
    second = read([node("Union", 2), scan(11), scan()], KNOWN)
    made = [fact(dict(_named(item)), item.relation.rows, item) for item in (first, second)]
    assert made[0] == made[1]


def test_a_fact_with_too_many_edges_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read([scan()], KNOWN)
    monkeypatch.setattr("odi_audit.spark.plan.facts.EDGES_MAX", 1)
    with pytest.raises(TooLarge):
        fact(dict(_named(found)), found.relation.rows, found)


def test_an_unknown_fact_names_the_columns_and_the_reason() -> None:
    assert unknown_fact(["b", "a"], "too large") == {
        "inputs": [],
        "fields": {},
        "dataset": [],
        "unknown": ["a", "b"],
        "unknown_rows": True,
        "reasons": ["too large"],
    }


def _named(found: Read) -> list[tuple[str, Any]]:
    return [(column.name, column) for _, column in found.relation.columns or ()]


def _objects(value: Any) -> list[dict[str, Any]]:
    return list(value)
