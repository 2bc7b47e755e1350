"""The part of a graph that is asked for: what a table rests on, and what rests on it.

Owns the walk along tables and along columns. Must never walk a circle: what was met is not
followed again. A column whose origin is not known ends in an "unknown", never in a guess.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from lineage.graph.model import DATASETS, Edge, Graph, Node

NODES_MAX = 5_000
"""A drawing of more than this helps nobody; the walk ends there and says so."""
STEPS_MAX = 20_000
"""Steps between columns, likewise."""
DIRECT = "DIRECT"
UNKNOWN = "UNKNOWN"
EVERY = "*"


class Direction(StrEnum):
    """Which way to look."""

    UP = "up"
    DOWN = "down"
    BOTH = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step between columns: what was written, by which job, from what.

    ``field`` is None where it is not known which column it was, ``column`` is ``*`` where every
    row is affected. ``depth`` is negative upwards.
    """

    depth: int
    table: str
    column: str
    job: str
    input: str | None
    field: str | None
    type: str
    subtype: str | None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Nodes by their distance in tables (negative: upstream), edges, and steps of columns."""

    start: str
    column: str | None
    distance: dict[str, int]
    edges: dict[tuple[str, str], Edge]
    steps: tuple[Step, ...] = ()
    cut: bool = False


def select(
    up: Graph,
    down: Graph,
    start: str,
    *,
    direction: Direction = Direction.BOTH,
    depth: int | None = None,
    upkeep: bool = False,
) -> Selection:
    """Return what feeds a table and what it feeds, ``depth`` tables away at most."""
    walk = _Walk(start, depth, upkeep=upkeep)
    if direction is not Direction.DOWN:
        walk.go(up, -1)
    if direction is not Direction.UP:
        walk.go(down, 1)
    return Selection(
        start=start, column=None, distance=walk.distance, edges=walk.edges, cut=walk.cut
    )


def select_column(
    up: Graph,
    down: Graph,
    start: str,
    column: str,
    *,
    direction: Direction = Direction.BOTH,
    depth: int | None = None,
) -> Selection:
    """Return where a column's values come from, and what would change with it.

    Upwards only direct edges are followed, as a filter gives no value; the indirect ones of each
    column on the way are named. Downwards both are: a changed key changes what was joined by it.
    """
    walk = _ColumnWalk(start, column, depth)
    if direction is not Direction.DOWN:
        walk.up(up)
    if direction is not Direction.UP:
        walk.down(down)
    return Selection(
        start=start,
        column=column,
        distance=walk.distance,
        edges=walk.edges,
        steps=tuple(walk.steps),
        cut=walk.cut,
    )


class _Walk:
    def __init__(self, start: str, depth: int | None, *, upkeep: bool) -> None:
        self.distance = {start: 0}
        self.edges: dict[tuple[str, str], Edge] = {}
        self.cut = False
        self._start, self._depth, self._upkeep = start, depth, upkeep

    def go(self, graph: Graph, way: int) -> None:
        """Walk breadth first: a job lies with the table that it was met from."""
        met = {self._start}
        queue = deque([(self._start, 0)])
        while queue:
            table, far = queue.popleft()
            if self._depth is not None and far >= self._depth:
                continue
            for job in _near(graph, table, way):
                if not self._wanted(graph.nodes[job]):
                    continue
                self._take(graph, table, job, way)
                self.distance.setdefault(job, way * (far + 1))
                for other in _near(graph, job, way):
                    self._take(graph, job, other, way)
                    if other in met:
                        continue
                    if len(self.distance) >= NODES_MAX:
                        self.cut = True
                        return
                    met.add(other)
                    self.distance.setdefault(other, way * (far + 1))
                    queue.append((other, far + 1))

    def _wanted(self, job: Node) -> bool:
        return self._upkeep or not job.upkeep

    def _take(self, graph: Graph, near: str, far: str, way: int) -> None:
        key = (near, far) if way > 0 else (far, near)
        self.edges.setdefault(key, graph.edges[key])


class _ColumnWalk:
    def __init__(self, start: str, column: str, depth: int | None) -> None:
        self.distance = {start: 0}
        self.edges: dict[tuple[str, str], Edge] = {}
        self.steps: list[Step] = []
        self.cut = False
        self._start, self._column, self._depth = start, column, depth

    def up(self, graph: Graph) -> None:
        met = {(self._start, self._column)}
        queue = deque([(self._start, self._column, 0)])
        while queue and not self.cut:
            table, column, far = queue.popleft()
            if self._depth is not None and far >= self._depth:
                continue
            for step in _origins(graph, table, column, -(far + 1)):
                self._keep(graph, step)
                key = (step.input or "", step.field or "")
                if step.type == DIRECT and step.input and step.field and key not in met:
                    met.add(key)
                    queue.append((step.input, step.field, far + 1))

    def down(self, graph: Graph) -> None:
        met = {(self._start, self._column)}
        queue = deque([(self._start, self._column, 0)])
        while queue and not self.cut:
            table, column, far = queue.popleft()
            if self._depth is not None and far >= self._depth:
                continue
            for step in _effects(graph, table, column, far + 1):
                self._keep(graph, step)
                key = (step.table, step.column)
                # A row that comes or goes is followed no further: every column would be met.
                if step.type != UNKNOWN and step.column != EVERY and key not in met:
                    met.add(key)
                    queue.append((*key, far + 1))

    def _keep(self, graph: Graph, step: Step) -> None:
        if len(self.steps) >= STEPS_MAX:
            self.cut = True
            return
        self.steps.append(step)
        far = step.depth
        for node, lies in ((step.job, far), (step.table, far if far > 0 else far + 1)):
            self.distance.setdefault(node, lies)
        self.edges.setdefault((step.job, step.table), graph.edges[step.job, step.table])
        key = (step.input or "", step.job)
        if key in graph.edges:
            self.distance.setdefault(key[0], far if far < 0 else far - 1)
            self.edges.setdefault(key, graph.edges[key])


def _origins(graph: Graph, table: str, column: str, depth: int) -> Iterator[Step]:
    """Yield the steps from a column to what it rests on, job by job."""
    for job in graph.into.get(table, ()):
        write = graph.edges[job, table]
        if graph.nodes[job].upkeep:
            continue
        found = False
        for edge in write.columns:
            if edge.column is None or _same(edge.column, column):
                found = found or edge.column is not None
                yield Step(
                    depth=depth,
                    table=table,
                    column=edge.column or EVERY,
                    job=job,
                    input=edge.input,
                    field=edge.field,
                    type=edge.type,
                    subtype=edge.subtype,
                )
        reason = None
        if any(_same(name, column) for name in write.unknown):
            reason = "the plan does not tell"
        elif write.blind and not found:
            reason = "no columns were recorded"
        if reason is not None:
            # One step to each dataset that the job read: any column of it may be behind.
            sources: list[str | None] = [item for item in graph.into.get(job, ()) if item != table]
            for source in sources or [None]:
                yield Step(
                    depth=depth,
                    table=table,
                    column=column,
                    job=job,
                    input=source,
                    field=None,
                    type=UNKNOWN,
                    subtype=None,
                    reason=reason,
                )


def _effects(graph: Graph, table: str, column: str, depth: int) -> Iterator[Step]:
    """Yield the steps from a column to what rests on it, job by job."""
    for job in graph.out.get(table, ()):
        if graph.nodes[job].upkeep:
            continue
        for written in graph.out.get(job, ()):
            write = graph.edges[job, written]
            for edge in write.columns:
                if edge.input == table and _same(edge.field, column):
                    yield Step(
                        depth=depth,
                        table=written,
                        column=edge.column or EVERY,
                        job=job,
                        input=table,
                        field=column,
                        type=edge.type,
                        subtype=edge.subtype,
                    )
            if written == table:
                continue
            told = dict.fromkeys(write.unknown, "the plan does not tell")
            if write.blind and not write.columns:
                told = {EVERY: "no columns were recorded"}
            for name, reason in told.items():
                yield Step(
                    depth=depth,
                    table=written,
                    column=name,
                    job=job,
                    input=table,
                    field=column,
                    type=UNKNOWN,
                    subtype=None,
                    reason=reason,
                )


def _near(graph: Graph, node: str, way: int) -> tuple[str, ...]:
    return (graph.out if way > 0 else graph.into).get(node, ())


def _same(one: str, other: str) -> bool:
    """Say whether two columns overlap: the same, or one of them a field of the other."""
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


def is_dataset(node: Node) -> bool:
    """Say whether a node is read and written, rather than reads and writes."""
    return node.kind in DATASETS
