"""A lineage as a tree on the terminal: up first, then down.

Owns the lines for people. What was shown once is named and not shown again, so that a graph with
many ways through it stays as short as it is. Must never hide that something is unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lineage.graph.model import NodeKind, Via
from lineage.graph.select import EVERY, UNKNOWN, Direction
from lineage.graph.texts import clean, edge_label, is_dropped
from odi_audit.cli.render import escape

if TYPE_CHECKING:
    from rich.console import Console
    from rich.tree import Tree

    from lineage.graph.answer import Lineage
    from lineage.graph.model import Edge, Node, Share
    from lineage.graph.select import Step

_MARKS = {
    NodeKind.TABLE: "table",
    NodeKind.TOPIC: "topic",
    NodeKind.FILES: "files",
    NodeKind.DATABASE: "database",
    NodeKind.STREAM: "stream",
    NodeKind.SOURCE: "source",
    NodeKind.JOB: "job",
    NodeKind.CONSUMER: "consumer",
    NodeKind.FOREIGN: "not through here",
}


def show(console: Console, found: Lineage, *, columns: bool) -> None:
    """Print the tree, or the two."""
    from rich.tree import Tree

    column = found.asked.column
    name = found.start.name + (f".{column}" if column else "")
    at = "" if found.point is None else f", as of {found.point.asked} ({found.point.time[:19]}Z)"
    gone = found.start.about.dropped if found.start.about is not None else None
    if gone is not None:
        at += f", dropped at {gone.time[:19]}Z by batch {gone.batch}"
    console.print(f"[bold]{_text(name)}[/bold]{_text(at)}", soft_wrap=True)
    for way, direction, title in ((-1, Direction.UP, "fed by"), (1, Direction.DOWN, "feeds")):
        if found.question.direction not in {direction, Direction.BOTH}:
            continue
        root = Tree(f"[bold]{title}[/bold]")
        if column is None:
            _Tables(found, way, columns=columns).grow(root, found.selection.start, set())
        else:
            _grow_steps(root, found, found.selection.start, column, way, set())
        if root.children:
            console.print(root, soft_wrap=True)
        else:
            console.print(f"[bold]{title}[/bold] nothing on record", soft_wrap=True)


class _Tables:
    """The tree of tables and jobs in one direction."""

    def __init__(self, found: Lineage, way: int, *, columns: bool) -> None:
        self._found, self._way, self._columns = found, way, columns
        self._near: dict[str, list[str]] = {}
        for source, target in sorted(found.selection.edges):
            key, other = (source, target) if way > 0 else (target, source)
            self._near.setdefault(key, []).append(other)

    def grow(self, tree: Tree, node: str, shown: set[str]) -> None:
        """Add what lies next to a node, and so on; each node's own branch once."""
        shown.add(node)
        for other in self._near.get(node, []):
            if not self._lies_ahead(other):
                continue
            again = " (above)" if other in shown and self._near.get(other) else ""
            key = (node, other) if self._way > 0 else (other, node)
            edge = self._found.selection.edges[key]
            branch = tree.add(self._line(self._found.nodes[other], edge) + again)
            if self._columns and edge.kind == "write":
                for line in edge_label(edge).splitlines():
                    branch.add(f"[dim]{_text(line)}[/dim]")
            if other not in shown:
                self.grow(branch, other, shown)

    def _lies_ahead(self, node: str) -> bool:
        return node == self._found.selection.start or (
            self._found.selection.distance[node] * self._way > 0
        )

    def _line(self, node: Node, edge: Edge) -> str:
        kind = _MARKS[node.kind]
        if node.kind is NodeKind.JOB:
            kind = f"{node.operation}{', streaming' if node.streaming else ''}"
        if is_dropped(node):
            kind = f"dropped {kind}"
        if node.members > 1:
            kind = f"{node.members:,} folders"
        where = ""
        if node.kind not in {NodeKind.JOB, NodeKind.TABLE} and node.dataset is not None:
            where = f" on {node.dataset.namespace}"
        unsure = ", by its run" if edge.via == (Via.RUN,) else ""
        told = f"{kind}{where}{unsure}; {_share(edge.share)}"
        return f"{_text(node.name)} [dim]{_text(f'({told})')}[/dim]"


def _grow_steps(
    tree: Tree,
    found: Lineage,
    table: str,
    column: str,
    way: int,
    shown: set[tuple[str, str]],
) -> None:
    shown.add((table, column))
    for step in found.selection.steps:
        if step.depth * way < 0:
            continue
        near = (step.table, step.column) if way < 0 else (step.input, step.field)
        if near[0] != table or near[1] not in {column, EVERY}:
            continue
        other = (step.input, step.field) if way < 0 else (step.table, step.column)
        again = " (above)" if other in shown else ""
        branch = tree.add(_step(found, step, other) + again)
        if other[0] and other[1] and not again and step.type != UNKNOWN:
            _grow_steps(branch, found, other[0], other[1], way, shown)


def _step(found: Lineage, step: Step, other: tuple[str | None, str | None]) -> str:
    node = found.nodes.get(other[0] or "")
    name = "unknown" if node is None else node.name
    field = "" if node is None else f".{other[1] or '?'}"
    word = (step.subtype or step.type).lower().replace("_", " ")
    how = f"{step.type.lower()} {word}" if step.subtype else word
    if step.reason is not None:
        how = f"unknown: {step.reason}"
    rows = ", which rows there are" if step.column == EVERY and step.type != UNKNOWN else ""
    by = found.nodes[step.job].name
    return f"{_text(name + field)} [dim]{_text(f'({how}{rows}; {by})')}[/dim]"


def _share(share: Share) -> str:
    parts = [f"{share.batches:,} {'batch' if share.batches == 1 else 'batches'}"]
    if share.rows is not None:
        parts.append(f"{share.rows:,} rows")
    others = [f"{count:,} {state}" for state, count in share.states.items() if state != "landed"]
    parts += others
    if share.last is not None:
        parts.append(f"last {share.last.time[:19]}Z")
    return ", ".join(parts)


def _text(text: str) -> str:
    return escape(clean(text).replace("\n", " ").replace("\r", " "))
