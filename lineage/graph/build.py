"""The graph of a ledger: everything that was recorded, or what feeds one version of a table.

Owns the way from tallies to the graph: which dataset is a table of the lake under another name,
which reader is no more than the first half of a writer. Must never hold the ledger in memory.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, replace

from lineage.context import Context, LedgerContext
from lineage.graph.collect import Collector
from lineage.graph.feeding import Feeding
from lineage.graph.inputs import Inputs
from lineage.graph.lean import Lean, Progress, lean, newest_first
from lineage.graph.model import (
    About,
    Column,
    Edge,
    Graph,
    Node,
    NodeKind,
    Share,
    Via,
    dataset_id,
    graph_of,
    table_id,
)
from lineage.graph.tally import LANDED, JobTally, ReadTally, TableTally, Tally, mark_of
from lineage.naming import DatasetName
from lineage.tables import TableView, schema_facet, view
from odi_audit.ids import TableUuid
from odi_audit.ledger.port import EntryFilter, Ledger
from odi_audit.model.entries import Kind
from odi_audit.model.tables import TableRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A moment of a table: entries before ``until`` count, and foreign writes up to ``time``."""

    until: int
    time: str
    asked: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """What feeds, and what is fed: one graph where the whole history is asked for."""

    up: Graph
    down: Graph


def whole_graph(
    ledger: Ledger, *, until: int | None = None, progress: Progress | None = None
) -> Graph:
    """Return everything that the entries before ``until`` say.

    Raises:
        LedgerBroken: an entry cannot be read.
    """
    stop = ledger.head().size if until is None else until
    context = LedgerContext(ledger)
    collector = Collector(Inputs(context))
    for entry in newest_first(ledger, stop, progress):
        collector.add(entry)
    collector.end()
    return _graph(collector, context, stop)


def sides_as_of(
    ledger: Ledger, table: TableUuid, point: Point, *, progress: Progress | None = None
) -> Sides:
    """Return what fed a table's version of a moment, and what had been made of it by then.

    Up, a batch counts if its rows were in that version, or in the version of an input that such
    a batch read. Down, a batch counts if its rows stood in its table at that moment.

    Raises:
        LedgerBroken: an entry cannot be read.
    """
    context = LedgerContext(ledger)
    inputs = Inputs(context)
    up = Collector(inputs, Feeding(table))
    down = Collector(inputs, Feeding(every=True))
    for entry in _with_foreign(ledger, point, progress):
        up.add(entry)
        down.add(entry)
    up.end()
    down.end()
    return Sides(
        up=_graph(up, context, point.until),
        down=_graph(down, context, point.until),
    )


def with_about(ledger: Ledger, graph: Graph, nodes: set[str], until: int) -> dict[str, Node]:
    """Return nodes of a graph with what the ledger knows of the tables among them."""
    context = LedgerContext(ledger)
    return {key: _described(graph.nodes[key], context, until) for key in sorted(nodes)}


def _with_foreign(ledger: Ledger, point: Point, progress: Progress | None) -> Iterator[Lean]:
    """Yield entries newest first, foreign snapshots by the time at which they were made.

    They are recorded when somebody notices them, which may be long after.
    """
    found = [
        lean(stored)
        for entry in ledger.find(EntryFilter(kinds=(Kind.FOREIGN,)))
        for stored in ledger.stored(entry.index, entry.index + 1)
    ]
    foreign = [item for item in found if (item.facts.committed_at or item.time) <= point.time]
    foreign.sort(key=lambda item: item.facts.committed_at or item.time, reverse=True)
    own = (
        entry for entry in newest_first(ledger, point.until, progress) if entry.kind != Kind.FOREIGN
    )
    return heapq.merge(own, foreign, key=_moment, reverse=True)


def _moment(entry: Lean) -> str:
    made = entry.facts.committed_at if entry.kind == Kind.FOREIGN else None
    return made or entry.time


# -- from tallies to the graph -----------------------------------------------------------------


def _graph(collected: Collector, context: Context, until: int) -> Graph:
    named = {uuid: _name(uuid, table, context, until) for uuid, table in collected.tables.items()}
    # A table that was dropped and made again has the old one's place, and so its name: what is
    # known by that name alone is the newer one's, which was met first.
    known = {dataset_id(name): table_id(uuid) for uuid, name in reversed(named.items())}
    reads = _joined(collected, known)
    nodes = {
        table_id(uuid): _table_node(uuid, table, named[uuid])
        for uuid, table in collected.tables.items()
    }
    used = {key for pair in reads for key in pair} | {key for key, _ in collected.writes}
    for key, dataset in collected.datasets.items():
        if key not in known:
            nodes[key] = Node(
                id=key,
                kind=dataset.kind,
                name=dataset.name.name,
                dataset=dataset.name,
                share=_feeds(key, reads),
            )
    for key, job in collected.jobs.items():
        if key in used or job.kind is not NodeKind.CONSUMER:
            nodes[key] = _job_node(key, job)
    return graph_of(nodes, _edges(collected, reads, known))


def _joined(collected: Collector, known: dict[str, str]) -> dict[tuple[str, str], ReadTally]:
    """Return the reads with each table under its own node, and readers that wrote left out."""
    reads: dict[tuple[str, str], ReadTally] = {}
    for (node, job), held in collected.reads.items():
        if (node, job) in collected.linked and held.via == {Via.READ}:
            continue
        key = (known.get(node, node), job)
        if key not in reads:
            reads[key] = held
        else:
            reads[key].tally.join(held.tally)
            reads[key].by_run.join(held.by_run)
            reads[key].via |= held.via
    return reads


def _edges(
    collected: Collector, reads: dict[tuple[str, str], ReadTally], known: dict[str, str]
) -> dict[tuple[str, str], Edge]:
    edges: dict[tuple[str, str], Edge] = {}
    per_job: dict[str, list[Edge]] = {}
    for (job, uuid), written in collected.writes.items():
        nodes = {
            key: [known.get(item.node, item.node) for item in span.plan.inputs]
            for key, span in written.plans.items()
        }
        columns, unknown = written.edges(nodes)
        edge = Edge(
            source=job,
            target=table_id(uuid),
            kind="write",
            share=written.tally.share(),
            columns=columns,
            unknown=unknown,
            blind=written.blind,
        )
        edges[edge.source, edge.target] = edge
        per_job.setdefault(job, []).append(edge)
    for (node, job), read in reads.items():
        # Of each batch where its intent says so, else of each read that its runs confirmed.
        tally = read.tally if read.tally.runs else read.by_run
        edges[node, job] = Edge(
            source=node,
            target=job,
            kind="read",
            share=tally.share(),
            via=tuple(via for via in Via if via in read.via),
            columns=tuple(
                column
                for write in per_job.get(job, [])
                for column in write.columns
                if column.input == node
            ),
        )
    return edges


def _name(uuid: str, table: TableTally, context: Context, until: int) -> DatasetName:
    ref = TableRef(uuid=TableUuid(uuid), name=table.name)
    if table.location is None and until:
        return table.named or view(ref, context, until - 1).name
    return TableView(
        ref=ref, location=table.location, schema={}, catalog={}, format_version=None, owner=None
    ).name


def _table_node(uuid: str, table: TableTally, name: DatasetName) -> Node:
    return Node(
        id=table_id(uuid),
        kind=NodeKind.TABLE,
        name=table.name,
        dataset=name,
        uuid=uuid,
        share=table.tally.share(),
        about=About(
            location=table.location,
            owner=None,
            format_version=None,
            snapshot=table.snapshot,
            columns=(),
            earlier_names=tuple(sorted(table.names - {table.name})),
            dropped=None if table.dropped is None else mark_of((table.dropped, LANDED, None)),
        ),
    )


def _job_node(key: str, job: JobTally) -> Node:
    return Node(
        id=key,
        kind=job.kind,
        name=job.name,
        dataset=DatasetName(namespace=job.namespace, name=job.name),
        job=job.job,
        operation=job.operation,
        upkeep=job.upkeep,
        streaming=job.streaming,
        share=job.tally.share(),
    )


def _feeds(node: str, reads: dict[tuple[str, str], ReadTally]) -> Share:
    whole = Tally()
    for (source, _), held in reads.items():
        if source == node:
            whole.join(held.tally if held.tally.runs else held.by_run)
    return whole.share()


def _described(node: Node, context: Context, until: int) -> Node:
    if node.kind is not NodeKind.TABLE or node.uuid is None or node.about is None or not until:
        return node
    seen = view(TableRef(uuid=TableUuid(node.uuid), name=node.name), context, until - 1)
    about = replace(
        node.about,
        location=node.about.location or seen.location,
        owner=seen.owner,
        format_version=seen.format_version,
        columns=tuple(
            Column(name=item.name, type=item.type or "")
            for item in (schema_facet(seen.schema).fields or [] if seen.schema else [])
        ),
    )
    return replace(node, about=about)
