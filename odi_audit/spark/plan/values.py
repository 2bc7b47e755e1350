"""What lineage is made of: kinds of edges, columns with their edges, relations, datasets.

Owns how two steps on the way of a value become one (``Kind.after``) and how edges are joined. Must
never know Spark: everything here is a plain value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple, TypeAlias

DIRECT = "DIRECT"
INDIRECT = "INDIRECT"
_STRENGTH = ("AGGREGATION", "TRANSFORMATION", "IDENTITY")
"""Of two direct steps the stronger one names the whole way."""


class Kind(NamedTuple):
    """How a value of an input gets into an output, in the words of OpenLineage's facet."""

    type: str
    subtype: str
    masking: bool = False

    def after(self, inner: Kind) -> Kind:
        """Return the kind of the way that goes ``inner`` first and then this one.

        A way that is indirect anywhere is indirect; the step nearest to the output names it.
        """
        return _after(self, inner)


@cache
def _after(outer: Kind, inner: Kind) -> Kind:
    # There are a dozen kinds, and a wide plan asks thousands of times.
    if outer.type == INDIRECT:
        chosen = outer
    elif inner.type == INDIRECT:
        chosen = inner
    else:
        chosen = min(outer, inner, key=lambda kind: _STRENGTH.index(kind.subtype))
    return Kind(chosen.type, chosen.subtype, outer.masking or inner.masking)


IDENTITY = Kind(DIRECT, "IDENTITY")
TRANSFORMATION = Kind(DIRECT, "TRANSFORMATION")
MASKING = Kind(DIRECT, "TRANSFORMATION", masking=True)
AGGREGATION = Kind(DIRECT, "AGGREGATION")
CONDITIONAL = Kind(INDIRECT, "CONDITIONAL")
FILTER = Kind(INDIRECT, "FILTER")
GROUP_BY = Kind(INDIRECT, "GROUP_BY")
JOIN = Kind(INDIRECT, "JOIN")
SORT = Kind(INDIRECT, "SORT")
WINDOW = Kind(INDIRECT, "WINDOW")


class Origin(NamedTuple):
    """A column of a leaf of the plan: the leaf's place among those met, and the column's name."""

    leaf: int
    column: str


Edges: TypeAlias = Mapping[Origin, frozenset[Kind]]
NO_EDGES: Edges = {}
NO_REASONS: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a relation: what it rests on, or why that cannot be told."""

    name: str
    edges: Edges = field(default_factory=dict)
    unknown: frozenset[str] = NO_REASONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """The rows of one node of a plan.

    ``columns`` are by expression id, in order; None where the node does not say what it has.
    ``rows`` is what decides which rows there are; ``unknown_rows`` why that is not all of it.
    """

    columns: tuple[tuple[int, Column], ...] | None
    rows: Edges = field(default_factory=dict)
    unknown_rows: frozenset[str] = NO_REASONS


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Dataset:
    """Something that a plan reads, by its OpenLineage name."""

    namespace: str
    name: str
    kind: str = "TABLE"
    table: str | None = None
    table_uuid: str | None = None
    snapshot: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A leaf of a plan that was met: the datasets behind it (several folders), its columns."""

    datasets: tuple[Dataset, ...]
    columns: tuple[tuple[str, str], ...]


def stepped(edges: Edges, kind: Kind) -> dict[Origin, frozenset[Kind]]:
    """Return edges with one more step at their end."""
    return {
        origin: frozenset(kind.after(inner) for inner in kinds) for origin, kinds in edges.items()
    }


def joined(parts: Iterable[Edges]) -> Edges:
    """Return the edges of all parts together; the one part itself where there is only one."""
    filled = [part for part in parts if part]
    if len(filled) < 2:
        return filled[0] if filled else NO_EDGES
    made: dict[Origin, frozenset[Kind]] = {}
    for part in filled:
        for origin, kinds in part.items():
            held = made.get(origin)
            made[origin] = kinds if held is None or held == kinds else held | kinds
    return made
