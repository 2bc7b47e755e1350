"""Marquez's two graphs: datasets and jobs, and fields of datasets."""

from __future__ import annotations

import re

from tests.support.marquez.backend import Backend
from tests.support.marquez.rows import Column, Job, Name
from tests.support.marquez.rules import Doc
from tests.support.marquez.shapes import (
    Refused,
    dataset_head,
    dataset_node,
    find_dataset,
    find_job,
    id_of,
    job_head,
    job_node,
    run_document,
)

_COLON = re.compile(r":(?!//|\d+)")
"""What stands between two parts of a node's id; no name may begin with a digit, then."""


def lineage(backend: Backend, _: list[str], query: dict[str, str]) -> Doc:
    kind, namespace, name = node_parts(query.get("nodeId", ""), 3)
    if kind == "dataset":
        dataset = find_dataset(backend, [namespace, name])
        touching = [job for job in backend.jobs.values() if dataset in _touched(job)]
        reached = _reach(backend, touching[-1:], int(query.get("depth", 20)))
        if not reached:
            node = {"id": f"dataset:{namespace}:{name}", "type": "DATASET"}
            data = dataset_head(backend, dataset)
            return {"graph": [{**node, "data": data, "inEdges": [], "outEdges": []}]}
    else:
        job = find_job(backend, [namespace, name])
        reached = _reach(backend, [job], int(query.get("depth", 20)))
    nodes = [*_job_nodes(backend, reached), *_dataset_nodes(backend, reached)]
    return {"graph": sorted(nodes, key=lambda node: node["id"])}


def _reach(backend: Backend, start: list[Job], depth: int) -> list[Job]:
    reached = {job.name: job for job in start}
    for _ in range(depth):
        touched = {name for job in reached.values() for name in _touched(job)}
        more = {
            job.name: job
            for job in backend.jobs.values()
            if job.name not in reached and touched & _touched(job)
        }
        if not more:
            break
        reached |= more
    return list(reached.values())


def _touched(job: Job) -> frozenset[Name]:
    return job.inputs | job.outputs


def _job_nodes(backend: Backend, jobs: list[Job]) -> list[Doc]:
    nodes = []
    for job in jobs:
        here = job_node(job.name)
        runs = [backend.runs[run] for run in job.runs]
        latest = max(runs, key=lambda run: run.updated, default=None)
        data = {
            **job_head(job),
            "inputs": [id_of(name) for name in sorted(job.inputs)],
            "outputs": [id_of(name) for name in sorted(job.outputs)],
            "latestRun": None if latest is None else run_document(backend, latest),
        }
        ins = [{"origin": dataset_node(name), "destination": here} for name in sorted(job.inputs)]
        outs = [{"origin": here, "destination": dataset_node(name)} for name in sorted(job.outputs)]
        node = {"id": here, "type": "JOB", "data": data, "inEdges": ins, "outEdges": outs}
        nodes.append(node)
    return nodes


def _dataset_nodes(backend: Backend, jobs: list[Job]) -> list[Doc]:
    nodes = []
    for name in sorted({name for job in jobs for name in _touched(job)}):
        here = dataset_node(name)
        makers = sorted(job.name for job in jobs if name in job.outputs)
        readers = sorted(job.name for job in jobs if name in job.inputs)
        node = {
            "id": here,
            "type": "DATASET",
            "data": dataset_head(backend, backend.symlinks.get(name, name)),
            "inEdges": [{"origin": job_node(job), "destination": here} for job in makers],
            "outEdges": [{"origin": here, "destination": job_node(job)} for job in readers],
        }
        nodes.append(node)
    return nodes


def column_lineage(backend: Backend, _: list[str], query: dict[str, str]) -> Doc:
    """Answer which fields come from which: upwards, and downwards where that is asked for."""
    node = query.get("nodeId", "")
    downstream = query.get("withDownstream", "false").lower() == "true"
    if node.startswith("datasetField:"):
        asked = node_parts(node, 4)
        fields = {(asked[1], asked[2], asked[3])}
    else:
        asked = node_parts(node, 3)
        held = backend.datasets.get((asked[1], asked[2]))
        known = {} if held is None else held.fields
        fields = {(asked[1], asked[2], column) for column in known}
    if not fields:
        raise Refused(404, "Could not find node")
    reached = _reached(backend, fields, int(query.get("depth", 20)), downstream=downstream)
    nodes = {_field_node(field): _field(backend, field) for field in reached}
    for field in reached:
        for source in backend.columns.get(field, {}):
            below, above = _field_node(field), _field_node(source)
            nodes.setdefault(above, _field(backend, source))
            # Both kinds of edge begin at the node that has them; the real server does so too.
            nodes[below]["inEdges"].append({"origin": below, "destination": above})
            nodes[above]["outEdges"].append({"origin": above, "destination": below})
    return {"graph": [nodes[key] for key in sorted(nodes)]}


def _reached(backend: Backend, start: set[Column], depth: int, *, downstream: bool) -> list[Column]:
    """Return the fields that have sources, from these on."""
    seen, front = set(start), set(start)
    for _ in range(depth):
        front = {source for field in front for source in backend.columns.get(field, {})} - seen
        seen |= front
    front = set(start) if downstream else set()
    for _ in range(depth):
        front = {to for to, sources in backend.columns.items() if front & set(sources)} - seen
        seen |= front
    return sorted(field for field in seen if backend.columns.get(field))


def _field(backend: Backend, field: Column) -> Doc:
    edges = backend.columns.get(field, {})
    known = backend.datasets[field[0], field[1]].fields.get(field[2], {})
    data = {
        "namespace": field[0],
        "dataset": field[1],
        "datasetVersion": None,
        "field": field[2],
        "fieldType": known.get("type") if edges else "",
        "inputFields": [
            {
                "namespace": source[0],
                "dataset": source[1],
                "datasetVersion": None,
                "field": source[2],
                "transformationDescription": how[0],
                "transformationType": how[1],
            }
            for source, how in edges.items()
        ],
    }
    here = _field_node(field)
    return {"id": here, "type": "DATASET_FIELD", "data": data, "inEdges": [], "outEdges": []}


def _field_node(field: Column) -> str:
    return ":".join(("datasetField", *field))


def node_parts(node: str, count: int) -> list[str]:
    """Cut a node's id into its kind, its namespace and its names."""
    if re.match(r"(dataset|datasetField|job|run):", node) is None:
        raise Refused(400, f"node ID ({node}) must start with dataset, datasetField, job or run")
    parts = re.split("[:#]", node)
    if len(parts) > count:
        parts = _COLON.split(node, maxsplit=count - 1)
    if len(parts) != count:
        raise Refused(500, "There was an error processing your request.")
    return parts
