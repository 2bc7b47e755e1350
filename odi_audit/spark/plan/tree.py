"""Spark's plans and expressions as JSON: a flat list, parents before children, made into a tree.

Owns the form that ``TreeNode.toJSON`` has in the pinned Spark. Must never recurse: a plan may be
as deep as a job has steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from odi_audit.canonical import Json, JsonObject


@dataclass(frozen=True, slots=True)
class Node:
    """One node: the last part of its Java class, its own fields, its children."""

    kind: str
    fields: JsonObject
    children: tuple[Node, ...]

    def expression(self, name: str) -> Node | None:
        """Return the expression or the plan that a field holds; None where it holds none."""
        value = self.fields.get(name)
        return parse(cast("Sequence[JsonObject]", value)) if is_tree(value) else None

    def some(self, *names: str) -> list[Node]:
        """Return the expressions of those fields that hold one."""
        found = [self.expression(name) for name in names]
        return [node for node in found if node is not None]

    def expressions(self, name: str) -> list[Node]:
        """Return the list of expressions that a field holds."""
        return trees(self.fields.get(name))


def parse(nodes: Sequence[JsonObject]) -> Node:
    """Return the root of a flat list of nodes.

    Raises:
        ValueError: the list is no tree.
    """
    waiting: list[Node] = []
    for fields in reversed(nodes):
        count = fields["num-children"]
        if not isinstance(count, int) or count > len(waiting):
            raise ValueError("the plan's JSON lacks children")
        children = tuple(waiting.pop() for _ in range(count))
        waiting.append(
            Node(str(fields["class"]).rpartition(".")[2].removesuffix("$"), fields, children)
        )
    if len(waiting) != 1:
        raise ValueError(f"the plan's JSON has {len(waiting)} roots")
    return waiting[0]


def is_tree(value: Json) -> bool:
    """Say whether a field's value is itself a flat list of nodes."""
    return (
        isinstance(value, list)
        and bool(value)
        and isinstance(value[0], dict)
        and "num-children" in value[0]
    )


def trees(value: Json) -> list[Node]:
    """Return each tree of a list of trees; what is no tree is left out."""
    if not isinstance(value, list):
        return []
    return [parse(cast("Sequence[JsonObject]", item)) for item in value if is_tree(item)]


def expression_id(node: Node) -> int | None:
    """Return the id by which an attribute or an alias is known in its plan."""
    return id_of(node.fields.get("exprId"))


def id_of(value: Json) -> int | None:
    """Return the number of an expression id; the JVM's part of it is the same in one plan."""
    found = value.get("id") if isinstance(value, dict) else None
    return found if isinstance(found, int) else None


def name_of(node: Node) -> str:
    """Return the name of an attribute or an alias."""
    return str(node.fields.get("name") or "")


_SHORT = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}


def type_text(value: Json) -> str:
    """Return a data type in one line, as ``DESCRIBE`` prints it."""
    if isinstance(value, str):
        return _SHORT.get(value, value)
    if not isinstance(value, dict):
        return "unknown"
    match value.get("type"):
        case "struct":
            fields = cast("Sequence[JsonObject]", value.get("fields") or [])
            inside = ",".join(f"{item['name']}:{type_text(item['type'])}" for item in fields)
            return f"struct<{inside}>"
        case "array":
            return f"array<{type_text(value.get('elementType'))}>"
        case "map":
            return f"map<{type_text(value.get('keyType'))},{type_text(value.get('valueType'))}>"
        case "udt":
            return type_text(value.get("sqlType"))
        case other:
            return str(other)
