"""The graph as values: datasets and jobs as nodes, what jobs read and wrote as edges.

Owns their shape. A table of the lake is known by its uuid, so that a rename keeps its identity;
everything else by its OpenLineage name, as in the events. Must never hold every batch: an edge has
its count, its first, its last and the newest few.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from lineage.naming import DatasetName

RECENT_MAX = 10
"""Batches that a node or an edge names; `odi-audit batches` lists the others."""


class NodeKind(StrEnum):
    """What a node stands for."""

    TABLE = "table"
    TOPIC = "topic"
    FILES = "files"
    DATABASE = "database"
    STREAM = "stream"
    SOURCE = "source"
    JOB = "job"
    CONSUMER = "consumer"
    FOREIGN = "foreign"


DATASETS = frozenset(
    {
        NodeKind.TABLE,
        NodeKind.TOPIC,
        NodeKind.FILES,
        NodeKind.DATABASE,
        NodeKind.STREAM,
        NodeKind.SOURCE,
    }
)


class Via(StrEnum):
    """How it is known that a job read a dataset, the surest first."""

    OFFSETS = "offsets"
    COLUMNS = "columns"
    ITSELF = "itself"
    READ = "read"
    RUN = "run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One batch, or one read, at its moment."""

    entry: int
    time: str
    batch: str | None
    state: str
    rows: int | None
    snapshot: str | None
    by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What stands behind a node or an edge.

    ``runs`` are attempts, ``batches`` those that landed. ``states`` counts how attempts ended, and
    ``recent`` has the newest few, newest first.
    """

    runs: int
    batches: int
    rows: int | None
    first: Mark | None
    last: Mark | None
    states: Mapping[str, int]
    recent: tuple[Mark, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table, nested ones by their path."""

    name: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What the ledger knows of a table at the moment that was asked for."""

    location: str | None
    owner: str | None
    format_version: int | None
    snapshot: str | None
    columns: tuple[Column, ...]
    earlier_names: tuple[str, ...]
    dropped: Mark | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A dataset or a job. ``job`` and ``operation`` are what a job node does; upkeep feeds none.

    ``members`` is how many datasets a folded node stands for.
    """

    id: str
    kind: NodeKind
    name: str
    dataset: DatasetName | None
    share: Share
    uuid: str | None = None
    job: str | None = None
    operation: str | None = None
    upkeep: bool = False
    streaming: bool = False
    members: int = 1
    about: About | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnEdge:
    """A column of an output and one that it rests on; ``column`` is None for every row at once."""

    column: str | None
    input: str
    field: str
    type: str
    subtype: str | None
    masking: bool
    first: str
    last: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """``read``: a job's batches read a dataset. ``write``: they wrote a table.

    ``columns`` of a read are those of the job's writes that rest on the dataset. ``unknown`` names
    columns whose origin could not be told, ``blind`` counts batches of which no columns were kept.
    """

    source: str
    target: str
    kind: str
    share: Share
    via: tuple[Via, ...] = ()
    columns: tuple[ColumnEdge, ...] = ()
    unknown: tuple[str, ...] = ()
    blind: int = 0

    @property
    def id(self) -> str:
        """What tells this edge from every other."""
        return f"{self.source} -> {self.target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Everything that some part of a ledger says."""

    nodes: Mapping[str, Node]
    edges: Mapping[tuple[str, str], Edge]
    into: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    out: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def graph_of(nodes: Mapping[str, Node], edges: Mapping[tuple[str, str], Edge]) -> Graph:
    """Return a graph with its neighbours listed, in order."""
    into: dict[str, list[str]] = {}
    out: dict[str, list[str]] = {}
    for source, target in sorted(edges):
        into.setdefault(target, []).append(source)
        out.setdefault(source, []).append(target)
    return Graph(
        nodes=nodes,
        edges=edges,
        into={key: tuple(found) for key, found in into.items()},
        out={key: tuple(found) for key, found in out.items()},
    )


def table_id(uuid: str) -> str:
    """Return the node of a table."""
    return f"table:{uuid}"


def dataset_id(name: DatasetName) -> str:
    """Return the node of what is no table of the lake."""
    return f"dataset:{name.namespace} {name.name}"


def job_id(namespace: str, name: str) -> str:
    """Return the node of a job."""
    return f"job:{namespace} {name}"
