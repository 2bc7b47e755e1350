"""Plans: from the leaves upwards, which columns each node has and what its rows rest on.

Owns the meaning of Spark's logical nodes for lineage. A node that is not known here makes its
columns unknown, and only those. Must never touch the JVM: leaves come as values (``leaves``), so
that recorded plans can be read anywhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from odi_audit.canonical import JsonObject
from odi_audit.spark.plan import relations, tree
from odi_audit.spark.plan.expressions import Scope, column_of, rests_on
from odi_audit.spark.plan.tree import Node
from odi_audit.spark.plan.values import (
    FILTER,
    GROUP_BY,
    IDENTITY,
    JOIN,
    SORT,
    TRANSFORMATION,
    Column,
    Dataset,
    Leaf,
    Origin,
    Relation,
    joined,
    stepped,
)

NODES_MAX = 200_000
"""Nodes of plans and expressions that are read; a plan of more was written by a program."""
READ_WAIT_S_MAX = 2.0
"""Time for one plan: more than a hundred times what a wide plan takes."""

_PASSES = frozenset(
    {"CTERelationDef", "CollectMetrics", "EventTimeWatermark", "GlobalLimit", "LocalLimit"}
    | {"Offset", "RebalancePartitions", "Repartition", "RepartitionByExpression", "ResolvedHint"}
    | {"ReturnAnswer", "Sample", "Subquery", "SubqueryAlias", "Tail", "View"}
)
"""Nodes with one child whose columns and rows are the child's."""
_NO_INPUT = frozenset(
    {"CommandResult", "EmptyRelation", "LocalRelation", "OneRowRelation", "Range"}
)
"""Leaves that are made of the statement itself: their columns rest on nothing."""
_LEFT_ONLY = ("LeftSemi", "LeftAnti")
_BOTH = ("Inner", "Cross", "LeftOuter", "RightOuter", "FullOuter", "LeftSingle")


class TooLarge(Exception):
    """The plan is larger than what is worth reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A leaf that holds the rows of another plan: a micro-batch of a streaming query.

    ``known`` are that plan's own leaves: a column that only passes through has one id in both.
    """

    plan: Sequence[JsonObject]
    known: Mapping[int, tuple[Dataset, ...]]


Known: TypeAlias = tuple[Dataset, ...] | Stream
"""What is behind a leaf: the datasets that it reads, or another plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A plan that was read: its relation, and every leaf on the way that reads a dataset."""

    relation: Relation
    leaves: tuple[Leaf, ...]


def read(
    nodes: Sequence[JsonObject],
    known: Mapping[int, Known],
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Read:
    """Read a plan; ``known`` has its leaves by the expression id of their first column.

    Raises:
        TooLarge: it has too many nodes, or takes too long.
        ValueError, KeyError: it has not the form that the pinned Spark gives.
    """
    reader = _Reader(known, clock)
    relation = reader.read(tree.parse(nodes), None)
    return Read(relation=relation, leaves=tuple(reader.leaves))


class _Reader:
    def __init__(self, known: Mapping[int, Known], clock: Callable[[], float]) -> None:
        self.leaves: list[Leaf] = []
        self._known: Mapping[int, Known] = known
        self._clock = clock
        self._until = clock() + READ_WAIT_S_MAX
        self._nodes = 0
        self._shared: dict[int, Relation] = {}

    def read(self, root: Node, outer: Scope | None) -> Relation:
        # Children before parents, without recursion: a job may have a thousand steps.
        order: list[Node] = []
        left = [root]
        while left:
            node = left.pop()
            order.append(node)
            left.extend(node.children)
        done: dict[int, Relation] = {}
        for node in reversed(order):
            self._bounded(node)
            inputs = [done[id(child)] for child in node.children]
            done[id(node)] = self._node(node, inputs, outer)
        return done[id(root)]

    def _bounded(self, node: Node) -> None:
        self._nodes += 1 + sum(len(value) for value in node.fields.values() if type(value) is list)
        if self._nodes > NODES_MAX or self._clock() > self._until:
            raise TooLarge

    def _node(self, node: Node, inputs: list[Relation], outer: Scope | None) -> Relation:
        scope = self._scope(inputs, outer)
        rule = _RULES.get(node.kind)
        if rule is not None:
            return rule(self, node, inputs, scope)
        if node.kind in _PASSES and len(inputs) == 1:
            return inputs[0]
        if not inputs:
            return self._leaf(node)
        return relations.opaque(node, inputs)

    def _scope(self, inputs: Sequence[Relation], outer: Scope | None) -> Scope:
        columns: dict[int, Column] = {}
        unnamed: set[str] = set()
        for relation in inputs:
            columns.update(relation.columns or ())
            if relation.columns is None:
                unnamed |= relation.unknown_rows or {"columns without a name"}
        return Scope(columns=columns, outer=outer, subquery=self.read, open=frozenset(unnamed))

    # -- leaves ----------------------------------------------------------------------------------

    def _leaf(self, node: Node) -> Relation:
        attributes = node.expressions("output")
        known = None
        if attributes and (key := tree.expression_id(attributes[0])) is not None:
            known = self._known.get(key)
        if known is None and node.kind in _NO_INPUT:
            constant = [Column(name=tree.name_of(item)) for item in attributes]
            return relations.made(attributes, constant)
        if known is None:
            return relations.opaque(node, [])
        if isinstance(known, Stream):
            return relations.renamed(attributes, self._inside(known))
        place = len(self.leaves)
        self.leaves.append(
            Leaf(
                datasets=known,
                columns=tuple(
                    (tree.name_of(item), tree.type_text(item.fields.get("dataType")))
                    for item in attributes
                ),
            )
        )
        straight = frozenset({IDENTITY})
        names = [tree.name_of(item) for item in attributes]
        return relations.made(
            attributes,
            [Column(name=name, edges={Origin(place, name): straight}) for name in names],
        )

    def _inside(self, stream: Stream) -> Relation:
        around, self._known = self._known, stream.known
        try:
            return self.read(tree.parse(stream.plan), None)
        finally:
            self._known = around

    def reference(self, node: Node, _inputs: list[Relation], _scope: Scope) -> Relation:
        """A common table expression where it is used."""
        found = self._shared.get(cast("int", node.fields.get("cteId")))
        if found is None or node.fields.get("recursive"):
            return relations.opaque(node, [])
        return relations.renamed(node.expressions("output"), found)

    def definition(self, node: Node, inputs: list[Relation], _scope: Scope) -> Relation:
        """A common table expression where it is defined."""
        self._shared[cast("int", node.fields.get("id"))] = inputs[0]
        return inputs[0]

    def with_definitions(self, node: Node, inputs: list[Relation], _scope: Scope) -> Relation:
        """A plan together with the common table expressions that it uses."""
        place = node.fields.get("plan")
        return inputs[place if isinstance(place, int) else -1]

    # -- nodes that make columns -------------------------------------------------------------------

    def project(self, node: Node, inputs: list[Relation], scope: Scope) -> Relation:
        """SELECT."""
        made = node.expressions("projectList")
        return relations.over(
            inputs, relations.made(made, [column_of(item, scope) for item in made])
        )

    def aggregate(self, node: Node, inputs: list[Relation], scope: Scope) -> Relation:
        """GROUP BY."""
        made = node.expressions("aggregateExpressions")
        groups = rests_on(node.expressions("groupingExpressions"), GROUP_BY, scope)
        return relations.over(
            inputs, relations.made(made, [column_of(item, scope) for item in made]), groups
        )

    def window(self, node: Node, inputs: list[Relation], scope: Scope) -> Relation:
        """Columns over windows, beside those that are there."""
        made = node.expressions("windowExpressions")
        more = relations.made(made, [column_of(item, scope) for item in made])
        return relations.beside(inputs[0], more)

    def generate(self, node: Node, inputs: list[Relation], scope: Scope) -> Relation:
        """explode() and its like: columns and rows out of a value."""
        generator = node.expression("generator")
        attributes = node.expressions("generatorOutput")
        if generator is None:
            return relations.opaque(node, inputs)
        whole = rests_on([generator], TRANSFORMATION, scope)
        made = [whole] * len(attributes)
        if generator.kind == "Stack" and attributes:
            values, width = generator.children[1:], len(attributes)
            made = [
                rests_on(list(values[place::width]), TRANSFORMATION, scope)
                for place in range(width)
            ]
        named = [
            Column(name=tree.name_of(attribute), edges=column.edges, unknown=column.unknown)
            for attribute, column in zip(attributes, made, strict=True)
        ]
        # How many rows a value becomes is decided by the value.
        counted = Column(name="", edges=stepped(whole.edges, FILTER), unknown=whole.unknown)
        return relations.over(
            [], relations.beside(inputs[0], relations.made(attributes, named)), counted
        )

    def expand(self, node: Node, _inputs: list[Relation], scope: Scope) -> Relation:
        """Each row several times, with other values: ROLLUP, CUBE, UNPIVOT."""
        projections = node.fields.get("projections")
        attributes = node.expressions("output")
        rows = [
            [column_of(item, scope) for item in tree.trees(projection)]
            for projection in (projections if isinstance(projections, list) else [])
        ]
        if not rows or any(len(row) != len(attributes) for row in rows):
            return relations.opaque(node, _inputs)
        made = [
            Column(
                name=tree.name_of(attribute),
                edges=joined(column.edges for column in columns),
                unknown=frozenset().union(*(column.unknown for column in columns)),
            )
            for attribute, columns in zip(attributes, zip(*rows, strict=True), strict=True)
        ]
        return relations.over(_inputs, relations.made(attributes, made))

    # -- nodes that choose or order rows ---------------------------------------------------------

    def filter(self, node: Node, inputs: list[Relation], scope: Scope) -> Relation:
        """WHERE, HAVING."""
        return relations.over([], inputs[0], rests_on(node.some("condition"), FILTER, scope))

    def sort(self, node: Node, inputs: list[Relation], scope: Scope) -> Relation:
        """ORDER BY; that it matters only before a LIMIT is for the reader to judge."""
        return relations.over([], inputs[0], rests_on(node.expressions("order"), SORT, scope))

    def distinct(self, _node: Node, inputs: list[Relation], _scope: Scope) -> Relation:
        """DISTINCT: every column decides."""
        return relations.over([], inputs[0], relations.all_of(inputs[0], GROUP_BY))

    def deduplicate(self, node: Node, inputs: list[Relation], scope: Scope) -> Relation:
        """dropDuplicates(): the named columns decide."""
        return relations.over([], inputs[0], rests_on(node.expressions("keys"), GROUP_BY, scope))

    def opaque_filter(self, node: Node, inputs: list[Relation], _scope: Scope) -> Relation:
        """A condition that is a function of the caller's own."""
        reasons = frozenset({f"node {node.kind}"})
        return relations.over([], inputs[0], Column(name="", unknown=reasons))

    # -- nodes over several relations ------------------------------------------------------------

    def join(self, node: Node, inputs: list[Relation], scope: Scope) -> Relation:
        """All kinds of joins, by condition, by nearest, and of a table with a lateral subquery."""
        left = inputs[0]
        right = inputs[1] if len(inputs) > 1 else None
        lateral = node.expression("right")
        if lateral is not None and lateral.kind == "LateralSubquery":
            plan = lateral.expression("plan")
            right = None if plan is None else self.read(plan, scope)
            scope = self._scope([left] if right is None else [left, right], scope.outer)
        kind = str((cast("JsonObject", node.fields.get("joinType") or {})).get("object") or "")
        kind = kind.rpartition(".")[2].removesuffix("$")
        if right is None or kind not in (*_LEFT_ONLY, *_BOTH):
            return relations.opaque(node, inputs)
        parts = node.some("condition", "asOfCondition", "orderExpression")
        on = rests_on(parts, JOIN, scope)
        both = left if kind in _LEFT_ONLY else relations.beside(left, right)
        rows = joined([left.rows, right.rows])
        return relations.over(
            [],
            Relation(
                columns=both.columns, rows=rows, unknown_rows=left.unknown_rows | right.unknown_rows
            ),
            on,
        )

    def union(self, node: Node, inputs: list[Relation], _scope: Scope) -> Relation:
        """UNION: column by column, in order; the first part names them."""
        sides = [relation.columns for relation in inputs]
        first = sides[0]
        if first is None or any(side is None or len(side) != len(first) for side in sides):
            return relations.opaque(node, inputs)
        each = zip(*(side for side in sides if side is not None), strict=True)
        columns = tuple(
            (same[0][0], relations.merged([column for _, column in same])) for same in each
        )
        return relations.over(inputs, Relation(columns=columns))

    def set_operation(self, _node: Node, inputs: list[Relation], _scope: Scope) -> Relation:
        """INTERSECT, EXCEPT: rows of the left side, chosen by every column of both."""
        left, right = inputs
        chosen = relations.merged([relations.all_of(left, FILTER), relations.all_of(right, FILTER)])
        rows = relations.over([right], left, chosen)
        return relations.over([left], rows)


_Rule: TypeAlias = Callable[[_Reader, Node, list[Relation], Scope], Relation]
_RULES: dict[str, _Rule] = {
    "Aggregate": _Reader.aggregate,
    "AsOfJoin": _Reader.join,
    "CTERelationDef": _Reader.definition,
    "CTERelationRef": _Reader.reference,
    "Deduplicate": _Reader.deduplicate,
    "DeduplicateWithinWatermark": _Reader.deduplicate,
    "Distinct": _Reader.distinct,
    "Except": _Reader.set_operation,
    "Expand": _Reader.expand,
    "Filter": _Reader.filter,
    "Generate": _Reader.generate,
    "Intersect": _Reader.set_operation,
    "Join": _Reader.join,
    "LateralJoin": _Reader.join,
    "Project": _Reader.project,
    "Sort": _Reader.sort,
    "TypedFilter": _Reader.opaque_filter,
    "Union": _Reader.union,
    "Window": _Reader.window,
    "WithCTE": _Reader.with_definitions,
}
