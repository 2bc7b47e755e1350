"""Relations put together: one beside another, one over others, one under other names.

Owns how the rows and the columns of a node are made from those of its children. Must never look
into an expression.
"""

from __future__ import annotations

from collections.abc import Sequence

from odi_audit.spark.plan import tree
from odi_audit.spark.plan.tree import Node
from odi_audit.spark.plan.values import (
    NO_EDGES,
    NO_REASONS,
    Column,
    Edges,
    Kind,
    Relation,
    joined,
    stepped,
)

UNNAMED = "columns without a name"
MISFIT = "columns that do not fit"


def made(named: Sequence[Node], columns: Sequence[Column]) -> Relation:
    """Return a relation of columns that go by the ids of the expressions given."""
    pairs: list[tuple[int, Column]] = []
    for node, column in zip(named, columns, strict=True):
        key = tree.expression_id(node)
        if key is None:
            return Relation(columns=None, unknown_rows=frozenset({f"expression {node.kind}"}))
        pairs.append((key, column))
    return Relation(columns=tuple(pairs))


def over(inputs: Sequence[Relation], above: Relation, choice: Column | None = None) -> Relation:
    """Return a relation whose rows also rest on those of the inputs, and on what chose them."""
    edges: Edges = NO_EDGES if choice is None else choice.edges
    reasons = NO_REASONS if choice is None else choice.unknown
    return Relation(
        columns=above.columns,
        rows=joined([*(item.rows for item in inputs), above.rows, edges]),
        unknown_rows=above.unknown_rows.union(reasons, *(item.unknown_rows for item in inputs)),
    )


def beside(left: Relation, right: Relation) -> Relation:
    """Return the columns of both, in the rows of the left."""
    columns = None
    if left.columns is not None and right.columns is not None:
        columns = left.columns + right.columns
    return Relation(columns=columns, rows=left.rows, unknown_rows=left.unknown_rows)


def merged(columns: Sequence[Column]) -> Column:
    """Return one column that may have the value of any of these."""
    return Column(
        name=columns[0].name,
        edges=joined(column.edges for column in columns),
        unknown=frozenset[str]().union(*(column.unknown for column in columns)),
    )


def all_of(relation: Relation, kind: Kind) -> Column:
    """Return what every column of a relation rests on, one step further."""
    columns = [column for _, column in relation.columns or ()]
    missing = NO_REASONS if relation.columns is not None else frozenset({UNNAMED})
    return Column(
        name="",
        edges=joined(stepped(column.edges, kind) for column in columns),
        unknown=missing.union(*(column.unknown for column in columns)),
    )


def renamed(attributes: Sequence[Node], found: Relation) -> Relation:
    """Return a relation under other ids and names, column by column."""
    if found.columns is None or len(found.columns) != len(attributes):
        return over([found], unknown(attributes, MISFIT))
    columns = [
        Column(name=tree.name_of(attribute), edges=column.edges, unknown=column.unknown)
        for attribute, (_, column) in zip(attributes, found.columns, strict=True)
    ]
    return over([found], made(attributes, columns))


def unknown(attributes: Sequence[Node], reason: str) -> Relation:
    """Return columns of which nothing but their names is known."""
    reasons = frozenset({reason})
    return made(
        attributes, [Column(name=tree.name_of(item), unknown=reasons) for item in attributes]
    )


def opaque(node: Node, inputs: Sequence[Relation]) -> Relation:
    """Return the columns that a node says it has, all unknown; what it read stays known."""
    reason = f"node {node.kind}"
    attributes = node.expressions("output") or node.expressions("serializer")
    reasons = frozenset({reason})
    columns = unknown(attributes, reason) if attributes else Relation(columns=None)
    return over(inputs, columns, Column(name="", unknown=reasons))
