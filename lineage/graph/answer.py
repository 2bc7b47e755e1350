"""One question and its answer: the library's side of ``odi-audit lineage``.

Owns the order of the steps (find the table, build, select, describe) and the form that ``--json``
prints, ``odi.lineage/1``. Must never print, and must never show a secret.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from lineage.graph.ask import Asked, find, find_at, near_columns
from lineage.graph.build import Point, Sides, sides_as_of, whole_graph, with_about
from lineage.graph.fold import folded
from lineage.graph.lean import Progress
from lineage.graph.model import Edge, Mark, Node, Share, table_id
from lineage.graph.select import EVERY, UNKNOWN, Direction, Selection, Step, select, select_column
from odi_audit.canonical import Json, JsonObject
from odi_audit.errors import EntryNotFound, UsageError
from odi_audit.ledger.port import Ledger
from odi_audit.redact import redact

SCHEMA = "odi.lineage/1"
DEPTH_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked: ``TABLE[.COLUMN]``, which way, how far, at which moment."""

    text: str
    direction: Direction = Direction.BOTH
    depth: int | None = None
    as_of: str | None = None
    upkeep: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """The answer. ``nodes`` have what the ledger knows of them; ``distance`` orders them."""

    asked: Asked
    question: Question
    point: Point | None
    entries: int
    nodes: Mapping[str, Node]
    selection: Selection

    @property
    def start(self) -> Node:
        """The table that was asked for."""
        return self.nodes[self.selection.start]

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints, without secrets."""
        chosen = self.selection
        body: dict[str, Json] = {
            "table": self.start.name,
            "table_uuid": self.asked.table.uuid,
            "node": chosen.start,
            "column": self.asked.column,
            "direction": self.question.direction.value,
            "depth": self.question.depth,
            "as_of": None
            if self.point is None
            else {
                "asked": self.point.asked,
                "time": self.point.time,
                "entry": self.point.until - 1,
            },
            "entries": self.entries,
            "cut": chosen.cut,
            "nodes": [
                _node(node, chosen.distance[key]) for key, node in sorted(self.nodes.items())
            ],
            "edges": [_edge(edge) for _, edge in sorted(chosen.edges.items())],
            "steps": [_step(step) for step in chosen.steps],
        }
        return cast("JsonObject", redact(body))


def ask(
    ledger: Ledger,
    question: Question,
    *,
    moment: Callable[[str], str],
    progress: Progress | None = None,
) -> Lineage:
    """Answer a question about lineage. ``moment`` reads a time as people write it.

    Raises:
        TableNotFound, EntryNotFound, AmbiguousBatch: what was named is not on record.
        UsageError: there is no such column, the depth is out of bounds, or a time is none.
        LedgerBroken: an entry cannot be read.
    """
    if question.depth is not None and not 1 <= question.depth <= DEPTH_MAX:
        raise UsageError(f"depth {question.depth} is not between 1 and {DEPTH_MAX}")
    at = None
    until = ledger.head().size
    if question.as_of is None:
        whole = whole_graph(ledger, until=until, progress=progress)
        asked = find(ledger, question.text, whole)
        sides = Sides(up=whole, down=whole)
    else:
        asked, at = find_at(ledger, question.text, question.as_of, moment)
        until = at.until
        sides = sides_as_of(ledger, asked.table.uuid, at, progress=progress)
    start = table_id(asked.table.uuid)
    if start not in sides.up.nodes and start not in sides.down.nodes:
        raise EntryNotFound(
            f"nothing is on record of table {asked.table.name} as of {question.as_of}",
            hint=f"odi-audit history {asked.table.name}",
            table=asked.table.name,
        )
    chosen = _select(sides, asked, question)
    nodes: dict[str, Node] = {}
    for graph in (sides.up, sides.down):
        wanted = {key for key in chosen.distance if key in graph.nodes and key not in nodes}
        nodes |= with_about(ledger, graph, wanted, until)
    shown: Mapping[str, Node] = nodes
    if not question.upkeep:
        shown, chosen = folded(nodes, chosen)
    made = Lineage(
        asked=asked, question=question, point=at, entries=until, nodes=shown, selection=chosen
    )
    if asked.column is not None:
        _check_column(made, asked.column)
    return made


def _select(sides: Sides, asked: Asked, question: Question) -> Selection:
    start = table_id(asked.table.uuid)
    if asked.column is not None:
        return select_column(
            sides.up,
            sides.down,
            start,
            asked.column,
            direction=question.direction,
            depth=question.depth,
        )
    return select(
        sides.up,
        sides.down,
        start,
        direction=question.direction,
        depth=question.depth,
        upkeep=question.upkeep,
    )


def _check_column(made: Lineage, column: str) -> None:
    about = made.start.about
    names = [item.name for item in about.columns] if about is not None else []
    top = column.partition(".")[0]
    told = any(
        step.type != UNKNOWN and (step.depth == 1 or (step.depth == -1 and step.column != EVERY))
        for step in made.selection.steps
    )
    if told or not names or column in names or top in names:
        # A column that is told of was there once, whatever the table has now.
        return
    near = near_columns(column, names)
    tail = f"; did you mean {' or '.join(near)}?" if near else ""
    raise UsageError(
        f"table {made.start.name} has no column {column!r}{tail}",
        hint=f"the columns are: {', '.join(names)}",
        near=near,
    )


# -- JSON ----------------------------------------------------------------------------------------


def _node(node: Node, distance: int) -> JsonObject:
    about = node.about
    return {
        "id": node.id,
        "kind": node.kind.value,
        "name": node.name,
        "namespace": None if node.dataset is None else node.dataset.namespace,
        "dataset": None if node.dataset is None else node.dataset.name,
        "table_uuid": node.uuid,
        "job": node.job,
        "operation": node.operation,
        "upkeep": node.upkeep,
        "streaming": node.streaming,
        "members": node.members,
        "distance": distance,
        **_share(node.share),
        "facets": None
        if about is None
        else {
            "location": about.location,
            "owner": about.owner,
            "format_version": about.format_version,
            "snapshot": about.snapshot,
            "earlier_names": list(about.earlier_names),
            "dropped": None if about.dropped is None else _mark(about.dropped),
            "columns": [{"name": item.name, "type": item.type} for item in about.columns],
        },
    }


def _edge(edge: Edge) -> JsonObject:
    return {
        "id": edge.id,
        "source": edge.source,
        "target": edge.target,
        "kind": edge.kind,
        "via": [via.value for via in edge.via],
        **_share(edge.share),
        "columns": [
            {
                "column": item.column,
                "input": item.input,
                "field": item.field,
                "type": item.type,
                "subtype": item.subtype,
                "masking": item.masking,
                "first": item.first,
                "last": item.last,
            }
            for item in edge.columns
        ],
        "unknown": list(edge.unknown),
        "batches_without_columns": edge.blind,
    }


def _share(share: Share) -> JsonObject:
    return {
        "batches": share.batches,
        "runs": share.runs,
        "rows": share.rows,
        "states": dict(share.states),
        "first": None if share.first is None else _mark(share.first),
        "last": None if share.last is None else _mark(share.last),
        "recent": [_mark(mark) for mark in share.recent],
    }


def _mark(mark: Mark) -> JsonObject:
    return {
        "entry": mark.entry,
        "time": mark.time,
        "batch": mark.batch,
        "state": mark.state,
        "rows": mark.rows,
        "snapshot": mark.snapshot,
        "by": mark.by,
    }


def _step(step: Step) -> JsonObject:
    return {
        "depth": step.depth,
        "table": step.table,
        "column": step.column,
        "job": step.job,
        "input": step.input,
        "field": step.field,
        "type": step.type,
        "subtype": step.subtype,
        "reason": step.reason,
    }


__all__ = ["SCHEMA", "Lineage", "Question", "ask"]
