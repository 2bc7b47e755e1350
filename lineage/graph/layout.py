"""Places for the nodes of a drawing: layers from left to right, few crossings, no overlap.

Owns sizes and gaps; the placing itself is graphlay's (docs/adr/0015-lineage-page.md says why).
The same graph is placed the same way every time. Must never know what a node stands for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

NODES_CAREFUL_MAX = 150
"""Up to this many nodes the slower search for fewer crossings takes no second."""
_SPACING = {
    "layer_gap": 72.0,
    "node_gap": 22.0,
    "dummy_gap": 12.0,
    "port_gap": 9.0,
    "isolated_gap": 22.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much room a node needs."""

    width: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Centres of the nodes, and the corners of each edge's line from its source to its target."""

    centres: Mapping[str, tuple[float, float]]
    lines: Mapping[tuple[str, str], Sequence[tuple[float, float]]]


def place(sizes: Mapping[str, Size], edges: Iterable[tuple[str, str]]) -> Placed:
    """Place nodes in layers so that most edges point to the right."""
    import graphlay

    graph = graphlay.Graph()
    for key in sorted(sizes):
        graph.node(key, width=sizes[key].width, height=sizes[key].height)
    pairs = sorted(edges)
    for source, target in pairs:
        graph.edge(source, target)
    effort = "balanced" if len(sizes) <= NODES_CAREFUL_MAX else "fast"
    drawn = graphlay.layout(
        graph,
        options={"effort": effort, "spacing": _SPACING, "cycles": {"strategy": "follow_flow"}},
    )
    return Placed(
        centres={str(key): (float(x), float(y)) for key, (x, y) in drawn.positions().items()},
        lines={
            pair: [(float(point["x"]), float(point["y"])) for point in edge["points"]]
            for pair, edge in zip(pairs, drawn.edges, strict=True)
        },
    )
