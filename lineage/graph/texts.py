"""A lineage as text for other tools: Mermaid's flowchart and Graphviz's dot.

Owns their syntax. Every name is escaped: one with quotes, brackets or line breaks in it is a label
like any other. Must never let a name become syntax.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from lineage.graph.answer import Lineage
from lineage.graph.model import ColumnEdge, Edge, Node, NodeKind
from odi_audit.redact import redact_text

COLUMNS_SHOWN_MAX = 12
"""Columns in one edge's label; `--json` has them all."""
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u2028\u2029\ud800-\udfff\ufffe\uffff]")
_SPACES = re.compile(r"[\t\r\n ]+")
_PLAIN = re.compile(r"[^\w .,:/@+=()*-]", re.ASCII)
_MERMAID = {
    NodeKind.TABLE: ('[("', '")]'),
    NodeKind.TOPIC: ('>"', '"]'),
    NodeKind.FILES: ('[/"', '"/]'),
    NodeKind.DATABASE: ('[["', '"]]'),
    NodeKind.STREAM: ('>"', '"]'),
    NodeKind.SOURCE: ('["', '"]'),
    NodeKind.JOB: ('(["', '"])'),
    NodeKind.CONSUMER: ('{{"', '"}}'),
    NodeKind.FOREIGN: ('(["', '"])'),
}
_DOT = {
    NodeKind.TABLE: "cylinder",
    NodeKind.TOPIC: "cds",
    NodeKind.FILES: "folder",
    NodeKind.DATABASE: "box3d",
    NodeKind.STREAM: "cds",
    NodeKind.SOURCE: "note",
    NodeKind.JOB: "box",
    NodeKind.CONSUMER: "hexagon",
    NodeKind.FOREIGN: "box",
}


def mermaid(lineage: Lineage, *, columns: bool = False) -> Iterator[str]:
    """Yield the lines of a Mermaid flowchart."""
    ids = {key: f"n{place}" for place, key in enumerate(sorted(lineage.nodes))}
    yield "flowchart LR"
    for key, node in sorted(lineage.nodes.items()):
        left, right = _MERMAID[node.kind]
        yield f"  {ids[key]}{left}{_mermaid(label(node))}{right}"
    for (source, target), edge in sorted(lineage.selection.edges.items()):
        said = edge_label(edge) if columns else ""
        arrow = "-.->" if _is_unsure(edge) else "-->"
        text = f'|"{_mermaid(said)}"|' if said else ""
        yield f"  {ids[source]} {arrow}{text} {ids[target]}"
    yield "  classDef asked stroke-width:3px"
    yield f"  class {ids[lineage.selection.start]} asked"


def dot(lineage: Lineage, *, columns: bool = False) -> Iterator[str]:
    """Yield the lines of a Graphviz digraph."""
    ids = {key: f"n{place}" for place, key in enumerate(sorted(lineage.nodes))}
    yield "digraph lineage {"
    yield "  rankdir=LR;"
    yield '  node [fontname="sans-serif", fontsize=11];'
    yield '  edge [fontname="sans-serif", fontsize=9];'
    for key, node in sorted(lineage.nodes.items()):
        more = ", penwidth=3" if key == lineage.selection.start else ""
        style = ", style=rounded" if node.kind is NodeKind.JOB else ""
        said = f'label="{_dot(label(node))}", tooltip="{_dot(full_name(node))}"'
        yield f"  {ids[key]} [shape={_DOT[node.kind]}, {said}{style}{more}];"
    for (source, target), edge in sorted(lineage.selection.edges.items()):
        said = edge_label(edge) if columns else ""
        options = [f'label="{_dot(said)}"'] if said else []
        options += ["style=dashed"] if _is_unsure(edge) else []
        yield f"  {ids[source]} -> {ids[target]}" + (
            f" [{', '.join(options)}];" if options else ";"
        )
    yield "}"


def label(node: Node) -> str:
    """Return what a node is called in a drawing."""
    return f"{node.name} (dropped)" if is_dropped(node) else node.name


def is_dropped(node: Node) -> bool:
    """Say whether a node is a table that was dropped."""
    return node.about is not None and node.about.dropped is not None


def full_name(node: Node) -> str:
    """Return the name under which every tool knows the node."""
    if node.dataset is None:
        return node.name
    return f"{node.dataset.namespace} {node.dataset.name}"


def edge_label(edge: Edge) -> str:
    """Return the columns of a write in short; a read says them at the write that they are of."""
    if edge.kind != "write":
        return ""
    by_column: dict[str, Counter[str]] = {}
    for item in edge.columns:
        by_column.setdefault(item.column or "*", Counter())[origin(item)] += 1
    lines = [f"{column} ← {_told(found)}" for column, found in sorted(by_column.items())]
    lines += [f"{column} ← ?" for column in edge.unknown]
    if edge.blind and not lines:
        lines = ["columns not recorded"]
    if len(lines) > COLUMNS_SHOWN_MAX:
        lines = [*lines[:COLUMNS_SHOWN_MAX], f"and {len(lines) - COLUMNS_SHOWN_MAX} more"]
    return "\n".join(lines)


def _told(origins: Counter[str]) -> str:
    """Return origins, each once: a column of the same name may come from many inputs."""
    return ", ".join(
        text if count == 1 else f"{text} from {count} inputs" for text, count in origins.items()
    )


def origin(edge: ColumnEdge) -> str:
    """Return the input's column, with what was done to it."""
    word = (edge.subtype or edge.type).lower()
    return f"{edge.field} ({word})"


def clean(text: str) -> str:
    """Return a text without secrets and without characters that no document may hold."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", redact_text(text))


def _mermaid(text: str) -> str:
    # Mermaid reads #35; and its like as characters; every other escape depends on the place.
    lines = [_SPACES.sub(" ", line) for line in clean(text).split("\n")]
    return "<br/>".join(
        _PLAIN.sub(lambda match: f"#{ord(match[0])};", line.strip()) for line in lines
    )


def _dot(text: str) -> str:
    lines = [_SPACES.sub(" ", line) for line in clean(text).split("\n")]
    return "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in lines)


def _is_unsure(edge: Edge) -> bool:
    return [via.value for via in edge.via] == ["run"]
