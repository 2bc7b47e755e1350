"""The graph of a ledger, and the graph that a backend would draw of its events, are one."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lineage.graph.build import whole_graph
from lineage.graph.model import Graph, NodeKind
from lineage.leaving import Event
from odi_audit.committer import records
from odi_audit.errors import RuleBroken
from odi_audit.ids import JobName, RunId
from odi_audit.model.entries import Draft, Kind
from odi_audit.model.offsets import OffsetKind, Offsets, Range, kafka, mapping, once, table_state
from tests.unit.lineage.conftest import RUN, History, Told, new_history, work
from tests.unit.lineage.graph.many import columns, table

Name = tuple[str, str]


@dataclass
class Drawn:
    """What a backend knows after all events, by names only."""

    reads: set[tuple[Name, Name]] = field(default_factory=set)
    writes: Counter[tuple[Name, Name]] = field(default_factory=Counter)
    columns: set[tuple[Name, Name, str | None, Name, str, str, str | None]] = field(
        default_factory=set
    )
    unknown: set[tuple[Name, Name, str]] = field(default_factory=set)


def drawn_of(events: Iterable[Event]) -> Drawn:
    made = Drawn()
    begun: dict[str, dict[Name, str]] = {}
    readers: list[tuple[str, str, Name, Name]] = []
    upkeep = {"COMPACT", "CREATE_TABLE", "DROP_TABLE", "EVOLVE_SCHEMA", "EXPIRE", "ROLLBACK"}
    upkeep |= {"RENAME_TABLE"}
    for event in events:
        body: dict[str, Any] = json.loads(event.body)
        job = (body["job"]["namespace"], body["job"]["name"])
        facets = body["run"]["facets"]
        parent = facets.get("parent", {}).get("run", {}).get("runId")
        for item in body["inputs"]:
            name = (item["namespace"], item["name"])
            made.reads.add((name, job))
            if "odi_read" in facets and parent and body["eventType"] == "START":
                readers.append((parent, body["eventTime"], name, job))
        for item in body["outputs"]:
            name = (item["namespace"], item["name"])
            made.writes[job, name] += 1
            _columns(made, job, name, item["facets"])
        word = body["job"]["facets"]["jobType"]["jobType"]
        if parent and "odi_read" not in facets and word not in upkeep:
            last = begun.setdefault(parent, {})
            if body["eventType"] == "START":
                last[job] = max(last.get(job, ""), body["eventTime"])
    for run, since, name, leaf in readers:
        wrote = [job for job, when in begun.get(run, {}).items() if when >= since]
        for job in wrote:
            made.reads.add((name, job))
            made.reads.discard((name, leaf))
    return made


def _columns(made: Drawn, job: Name, name: Name, facets: dict[str, Any]) -> None:
    facet = facets.get("columnLineage", {})
    items = [*facet.get("fields", {}).items()]
    items.append((None, {"inputFields": facet.get("dataset") or []}))
    for column, held in items:
        for one in held["inputFields"]:
            for how in one["transformations"]:
                source = (one["namespace"], one["name"])
                made.columns.add(
                    (job, name, column, source, one["field"], how["type"], how.get("subtype"))
                )
    for tag in facets.get("tags", {}).get("tags", []):
        if tag["key"] == "lineage" and tag["value"] == "unknown":
            made.unknown.add((job, name, tag["field"]))


def drawn_by_graph(graph: Graph) -> Drawn:
    def name(key: str) -> Name:
        dataset = graph.nodes[key].dataset
        assert dataset is not None
        return dataset.namespace, dataset.name

    made = Drawn()
    for (source, target), edge in graph.edges.items():
        if edge.kind == "read":
            made.reads.add((name(source), name(target)))
            continue
        job, written = name(source), name(target)
        # A table that was made again at the place of a dropped one has its name.
        made.writes[job, written] += edge.share.runs
        for item in edge.columns:
            made.columns.add(
                (job, written, item.column, name(item.input), item.field, item.type, item.subtype)
            )
        planned = [] if graph.nodes[source].operation == "update" else edge.unknown
        made.unknown |= {(job, written, column) for column in planned}
    return made


def same(history: History) -> None:
    graph = whole_graph(history.ledger)
    found, expected = drawn_by_graph(graph), drawn_of(history.events)
    assert found.reads == expected.reads
    assert found.writes == expected.writes
    assert found.columns == expected.columns
    assert found.unknown == expected.unknown


def test_the_graph_of_the_whole_story_is_the_graph_of_its_events(told: Told) -> None:
    same(told.history)
    kinds = {node.kind for node in whole_graph(told.history.ledger).nodes.values()}
    assert kinds >= {
        NodeKind.TABLE,
        NodeKind.TOPIC,
        NodeKind.FILES,
        NodeKind.DATABASE,
        NodeKind.SOURCE,
        NodeKind.JOB,
        NodeKind.CONSUMER,
        NodeKind.FOREIGN,
    }


@pytest.mark.parametrize("seed", range(6))
def test_the_graph_of_a_random_ledger_is_the_graph_of_its_events(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    history = new_history(tmp_path)
    tables = [table(number, "lake") for number in range(6)]
    for ref in tables:
        # A table that nothing is on record of has no location, and so no lasting name.
        history.land(history.intend(work("append", ref)), ref)
    for _ in range(40):
        _random_step(history, chance, tables)
    same(history)
    history.ledger.close()


def _random_step(history: History, chance: random.Random, tables: list[Any]) -> None:
    ref, job = chance.choice(tables), JobName(f"team/{chance.choice('abc')}")
    if chance.random() < 0.15:
        run = chance.choice([None, RUN])
        facts = {"consumer": chance.choice("xy"), "rows": 3, "began": history.ledger.head().size}
        history.add(
            Draft(
                kind=Kind.READ,
                table=ref,
                run=run,
                job=None if run is None else JobName("team/a"),
                facts=facts,
            )
        )
        return
    sources: list[Offsets] = [
        kafka({chance.choice("tu"): {0: (0, 5)}, "v": {1: (1, 2)}}, bootstrap="k:9092"),
        once("x"),
        mapping("queue", {"p": (0, 1)}),
        Offsets(
            kind=OffsetKind.FILES,
            source="file:///in",
            ranges={
                f"/in/{chance.choice('ab')}/{number}.csv": Range(None, "1:a") for number in (1, 2)
            },
        ),
    ]
    word = chance.choice(["append", "append", "upsert", "overwrite", "update", "compact", "delete"])
    works = [work(word, ref)]
    if word == "append" and chance.random() < 0.3:
        works.append(work("append", chance.choice([item for item in tables if item != ref])))
    part = (
        table_state(ref.name, None, {"n": chance.random()})
        if word in {"update", "compact", "delete"}
        else chance.choice(sources)
    )
    plan = (
        columns(*chance.sample(tables, 2)) if word == "append" and chance.random() < 0.6 else None
    )
    opened = history.intend(*works, job=job, offsets=part, columns=plan, again=chance.random())
    end = chance.random()
    if end < 0.1:
        history.refuse(opened, RuleBroken("no", rules=["r"]))
    elif end < 0.2:
        history.settle(records.abandoned(opened, "died"))
    elif end < 0.95:
        for place, (written, _) in enumerate(works):
            history.land(opened, written, word, settles=place == len(works) - 1)


def test_a_run_that_reads_and_then_writes_connects_both_tables(history: History) -> None:
    source, target = table(1, "lake"), table(2, "lake")
    run = RunId("5f8a3f1e-0000-4000-8000-000000000001")
    job = JobName("sales/orders")
    history.land(history.intend(work("append", source), job=JobName("in/raw")), source)
    began = history.ledger.head().size
    opened = history.intend(work("append", target), job=job, offsets=once("1"))
    history.land(opened, target)
    # Confirmed after the write: the reading had begun before it.
    facts = {"consumer": "orders", "began": began, "rows": 10, "to_snapshot": "1"}
    history.add(Draft(kind=Kind.READ, table=source, job=job, run=run, facts=facts))
    graph = whole_graph(history.ledger)
    writer = "job:sales orders.append.lake." + target.name.partition(".")[2]
    assert (f"table:{source.uuid}", writer) in graph.edges
    assert [node.kind for node in graph.nodes.values() if node.kind is NodeKind.CONSUMER] == []
