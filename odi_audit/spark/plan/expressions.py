"""Expressions: which columns a value rests on, and in what way.

Owns the meaning of Spark's expressions for lineage. Must never guess: an attribute that is not in
scope and an expression whose inputs do not show make the value unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from odi_audit.spark.plan import tree
from odi_audit.spark.plan.tree import Node
from odi_audit.spark.plan.values import (
    AGGREGATION,
    CONDITIONAL,
    FILTER,
    IDENTITY,
    MASKING,
    TRANSFORMATION,
    WINDOW,
    Column,
    Edges,
    Kind,
    Origin,
    Relation,
)

_MASKING = frozenset(
    {"Count", "Crc32", "HiveHash", "Mask", "Md5", "Murmur3Hash", "Sha1", "Sha2", "XxHash64"}
)
"""What openlineage-spark calls masking: the value cannot be had back from the result."""
_RANKS = frozenset({"CumeDist", "DenseRank", "NTile", "PercentRank", "Rank", "RowNumber"})
"""Window functions whose value is a place in the order; Spark hangs the order below some."""
_SAME_VALUE = frozenset(
    {"Alias", "AssertNotNull", "KnownNotNull", "KnownNullable", "TempResolvedColumn", "UpCast"}
)
_OPAQUE = frozenset({"BoundReference", "LambdaVariable", "UnresolvedAttribute", "UnresolvedStar"})
"""Expressions that stand for a column without saying which."""
_SUBQUERY_VALUE = frozenset({"ScalarSubquery", "ListQuery", "LateralSubquery"})
"""Subqueries whose columns are the value; of the others only the rows matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What an expression can see: columns by id, and what is around its subquery.

    ``open`` says why columns that are not named here may exist all the same.
    """

    columns: dict[int, Column]
    outer: Scope | None
    subquery: Callable[[Node, Scope], Relation]
    open: frozenset[str]

    def find(self, key: int | None) -> Column | None:
        """Return a column of this scope; an outer one is found by ``OuterReference`` only."""
        found = None if key is None else self.columns.get(key)
        if found is None and self.open:
            return Column(name="", unknown=self.open)
        return found


@dataclass(slots=True)
class _Gathered:
    edges: dict[Origin, set[Kind]]
    unknown: set[str]

    def take(self, edges: Edges, kind: Kind) -> None:
        for origin, kinds in edges.items():
            self.edges.setdefault(origin, set()).update(kind.after(inner) for inner in kinds)


def column_of(expression: Node, scope: Scope) -> Column:
    """Return the column that a named expression makes."""
    name = tree.name_of(expression)
    if expression.kind == "AttributeReference":
        found = scope.find(tree.expression_id(expression))
        if found is not None:
            # The same value under the same id: nothing is gathered anew.
            return found if found.name == name else _named(found, name)
    gathered = _gather([(expression, IDENTITY)], scope)
    return Column(
        name=name,
        edges={origin: frozenset(kinds) for origin, kinds in gathered.edges.items()},
        unknown=frozenset(gathered.unknown),
    )


def rests_on(expressions: list[Node], kind: Kind, scope: Scope) -> Column:
    """Return, as a column without a name, what several expressions rest on in one way."""
    gathered = _gather([(expression, kind) for expression in expressions], scope)
    return Column(
        name="",
        edges={origin: frozenset(kinds) for origin, kinds in gathered.edges.items()},
        unknown=frozenset(gathered.unknown),
    )


def _gather(started: list[tuple[Node, Kind]], scope: Scope) -> _Gathered:
    # A stack of our own: conditions of a thousand terms are nested a thousand deep.
    gathered = _Gathered(edges={}, unknown=set())
    left = list(started)
    while left:
        node, kind = left.pop()
        if node.kind == "AttributeReference":
            _take_column(gathered, scope.find(tree.expression_id(node)), kind)
        elif node.kind == "OuterReference":
            _take_outer(gathered, node, kind, scope)
        elif tree.is_tree(node.fields.get("plan")):
            _take_subquery(gathered, node, kind, scope)
        elif node.kind in _OPAQUE:
            gathered.unknown.add(f"expression {node.kind}")
        else:
            left.extend(_steps(node, kind))
    return gathered


def _steps(node: Node, kind: Kind) -> Iterator[tuple[Node, Kind]]:
    """Yield the children of an expression, each with the way from it to the output."""
    children = node.children
    match node.kind:
        case name if name in _SAME_VALUE:
            yield from ((child, kind) for child in children)
        case "Cast" if _casts_nothing(node):
            yield (children[0], kind)
        case "AggregateExpression":
            yield (children[0], kind.after(AGGREGATION))
            yield from ((child, kind.after(FILTER)) for child in children[1:])
        case "WindowExpression":
            function, *specification = children
            if function.kind not in _RANKS:
                yield (function, kind.after(TRANSFORMATION))
            yield from ((child, kind.after(WINDOW)) for child in specification)
        case "CaseWhen":
            # condition, value, condition, value, …, and what is left when none holds
            for place, child in enumerate(children):
                is_condition = place % 2 == 0 and place + 1 < len(children)
                yield (child, kind.after(CONDITIONAL if is_condition else TRANSFORMATION))
        case "If":
            yield (children[0], kind.after(CONDITIONAL))
            yield from ((child, kind.after(TRANSFORMATION)) for child in children[1:])
        case "Coalesce":
            for child in children:
                yield (child, kind.after(CONDITIONAL))
                yield (child, kind.after(TRANSFORMATION))
        case name:
            step = kind.after(MASKING if name in _MASKING else TRANSFORMATION)
            yield from ((child, step) for child in children)


def _casts_nothing(node: Node) -> bool:
    # A view's columns are all cast to the type that they have.
    (child,) = node.children
    return (
        child.kind == "AttributeReference" and child.fields["dataType"] == node.fields["dataType"]
    )


def _take_column(gathered: _Gathered, column: Column | None, kind: Kind) -> None:
    if column is None:
        gathered.unknown.add("a column from nowhere")
    else:
        gathered.take(column.edges, kind)
        gathered.unknown |= column.unknown


def _take_outer(gathered: _Gathered, node: Node, kind: Kind, scope: Scope) -> None:
    inside = node.expression("e")
    around = scope.outer
    while around is not None and inside is not None:
        key = tree.expression_id(inside)
        if key in around.columns or around.open:
            _take_column(gathered, around.find(key), kind)
            return
        around = around.outer
    gathered.unknown.add("an outer column from nowhere")


def _take_subquery(gathered: _Gathered, node: Node, kind: Kind, scope: Scope) -> None:
    """Take what a subquery's rows rest on and, where they are the value, its columns.

    Its children are the outer columns that it uses: they are met inside it, in their place.
    """
    plan = node.expression("plan")
    assert plan is not None
    found = scope.subquery(plan, scope)
    gathered.take(found.rows, kind)
    gathered.unknown |= found.unknown_rows
    if node.kind in _SUBQUERY_VALUE:
        if found.columns is None:
            gathered.unknown.add(f"subquery {plan.kind}")
        for _, column in found.columns or ():
            _take_column(gathered, column, kind)
    elif node.kind != "Exists":
        gathered.unknown.add(f"expression {node.kind}")


def _named(column: Column, name: str) -> Column:
    return Column(name=name, edges=column.edges, unknown=column.unknown)
