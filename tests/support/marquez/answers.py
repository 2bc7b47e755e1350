"""The read side of Marquez: what it kept, in the shapes of its API.

Lists come in pages of a hundred unless asked otherwise. Runs of one moment have no order among
themselves: two pages may show one of them twice and another not at all, as with PostgreSQL.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any
from urllib.parse import unquote

from tests.support.marquez.backend import Backend
from tests.support.marquez.graphs import column_lineage, lineage
from tests.support.marquez.rows import Job, Name, Version
from tests.support.marquez.rules import Doc
from tests.support.marquez.shapes import (
    Refused,
    dataset_head,
    dataset_node,
    find_dataset,
    find_job,
    find_run,
    id_of,
    job_head,
    job_node,
    must_have_namespace,
    page,
    run_document,
)


def answer(backend: Backend, path: str, query: dict[str, str]) -> Any:
    """Return the document for a GET; ``path`` still has its escapes. Raises Refused."""
    for pattern, reply in _ROUTES:
        found = re.fullmatch(pattern, path)
        if found is not None:
            with backend.lock:
                return reply(backend, [unquote(part) for part in found.groups()], query)
    raise Refused(404, "HTTP 404 Not Found")


def _namespaces(backend: Backend, _: list[str], query: dict[str, str]) -> Doc:
    names = sorted(backend.namespaces)
    return {"namespaces": [_namespace(backend, name) for name in page(names, query)]}


def _one_namespace(backend: Backend, parts: list[str], _: dict[str, str]) -> Doc:
    must_have_namespace(backend, parts[0])
    return _namespace(backend, parts[0])


def _namespace(backend: Backend, name: str) -> Doc:
    moment = backend.namespaces[name]
    return {
        "name": name,
        "createdAt": moment,
        "updatedAt": moment,
        "ownerName": "anonymous",
        "description": None,
        "isHidden": False,
    }


def _jobs(backend: Backend, parts: list[str], query: dict[str, str]) -> Doc:
    found = [job for job in backend.jobs.values() if not parts or job.name[0] == parts[0]]
    found.sort(key=lambda job: job.updated, reverse=True)
    # A list names the datasets of a job's newest run; only the job by itself those of its version.
    shown = [_job(backend, job, of_latest_run=True) for job in page(found, query)]
    return {"jobs": shown, "totalCount": len(found)}


def _one_job(backend: Backend, parts: list[str], _: dict[str, str]) -> Doc:
    return _job(backend, find_job(backend, parts), of_latest_run=False)


def _job(backend: Backend, job: Job, *, of_latest_run: bool) -> Doc:
    newest = sorted(
        (backend.runs[run] for run in job.runs), key=lambda run: run.updated, reverse=True
    )[:10]
    inputs: set[Name] = set()
    outputs: set[Name] = set()
    if newest:
        inputs = {backend.made[version].dataset for version in newest[0].inputs}
        outputs = {backend.made[version].dataset for version in newest[0].outputs}
    if job.version is not None and not of_latest_run:
        versioned = job.versions[job.version]
        inputs, outputs = set(versioned[0]) or inputs, set(versioned[1]) or outputs
    return {
        **job_head(job),
        "inputs": [id_of(name) for name in sorted(inputs)],
        "outputs": [id_of(name) for name in sorted(outputs)],
        "latestRun": run_document(backend, newest[0]) if newest else None,
        "latestRuns": [run_document(backend, run) for run in newest],
        "facets": job.facets,
        "currentVersion": job.version,
        "labels": [],
        "tags": [],
    }


def _runs(backend: Backend, parts: list[str], query: dict[str, str]) -> Doc:
    job = find_job(backend, parts)
    mixed = int(query.get("offset", 0))
    runs = [backend.runs[run] for run in job.runs]
    runs.sort(key=lambda run: hash((run.id, mixed)))
    runs.sort(key=lambda run: run.started or "", reverse=True)
    shown = [run_document(backend, run) for run in page(runs, query)]
    return {"runs": shown, "totalCount": len(runs)}


def _one_run(backend: Backend, parts: list[str], _: dict[str, str]) -> Doc:
    return run_document(backend, find_run(backend, parts[0]))


def _run_facets(backend: Backend, parts: list[str], query: dict[str, str]) -> Doc:
    run = find_run(backend, parts[0])
    kind = query.get("type", "").lower()
    if kind not in {"run", "job"}:
        raise Refused(400, "query param type must not be null")
    facets = run.facets if kind == "run" else backend.jobs[run.job].facets
    return {"runId": run.id, "facets": facets}


def _datasets(backend: Backend, parts: list[str], query: dict[str, str]) -> Doc:
    names = sorted(name for name in backend.datasets if name[0] == parts[0])
    shown = [_dataset(backend, name) for name in page(names, query)]
    return {"datasets": shown, "totalCount": len(names)}


def _one_dataset(backend: Backend, parts: list[str], _: dict[str, str]) -> Doc:
    return _dataset(backend, find_dataset(backend, parts))


def _dataset(backend: Backend, name: Name) -> Doc:
    held = backend.datasets[name]
    current = None if held.current is None else backend.made[held.current]
    columns = [
        {
            "name": column,
            "inputFields": [
                {
                    "namespace": source[0],
                    "dataset": source[1],
                    "field": source[2],
                    "transformationDescription": how[0],
                    "transformationType": how[1],
                }
                for source, how in edges.items()
            ],
        }
        for (namespace, dataset, column), edges in backend.columns.items()
        if (namespace, dataset) == name and edges
    ]
    return {
        **dataset_head(backend, name),
        "lastModifiedAt": None if current is None else current.created,
        "lastLifecycleState": None if current is None else current.lifecycle,
        "currentVersion": held.current,
        "columnLineage": columns or None,
        "facets": {} if current is None else current.facets,
        "deleted": held.deleted,
    }


def _versions(backend: Backend, parts: list[str], query: dict[str, str]) -> Doc:
    find_dataset(backend, parts)
    made = [backend.made[item] for item in backend.of_dataset.get((parts[0], parts[1]), [])]
    made.sort(key=lambda version: version.created, reverse=True)
    shown = [_version(backend, version) for version in page(made, query)]
    return {"versions": shown, "totalCount": len(made)}


def _one_version(backend: Backend, parts: list[str], _: dict[str, str]) -> Doc:
    find_dataset(backend, parts)
    version = backend.made.get(parts[2])
    if version is None:
        raise Refused(404, f"Dataset version '{parts[2]}' not found.")
    return _version(backend, version)


def _version(backend: Backend, version: Version) -> Doc:
    run = None if version.run is None else run_document(backend, backend.runs[version.run])
    head = dataset_head(backend, backend.symlinks.get(version.dataset, version.dataset))
    return {
        **{key: head[key] for key in head if key != "updatedAt"},
        "createdAt": version.created,
        "version": version.uuid,
        "fields": [{**item, "tags": []} for item in version.fields],
        "lifecycleState": version.lifecycle,
        "currentSchemaVersion": None,
        "createdByRun": run,
        "facets": version.facets,
    }


# -- events and search -----------------------------------------------------------------------------


def _events(backend: Backend, _: list[str], query: dict[str, str]) -> Doc:
    newest_first = query.get("sortDirection", "desc").lower() == "desc"
    first = datetime.fromisoformat(query.get("after", "1970-01-01T00:00:00+00:00"))
    before = datetime.fromisoformat(query.get("before", "2030-01-01T00:00:00+00:00"))
    found = [
        event
        for event in backend.events
        if first <= datetime.fromisoformat(event["eventTime"]) < before
    ]
    found.sort(key=lambda event: event["eventTime"], reverse=newest_first)
    return {"events": page(found, query), "totalCount": len(found)}


def _search(backend: Backend, _: list[str], query: dict[str, str]) -> Doc:
    text = query.get("q", "").lower()
    if not text:
        raise Refused(400, "query param q must not be blank")
    jobs = [("JOB", name, job.updated) for name, job in backend.jobs.items()]
    datasets = [("DATASET", name, held.updated) for name, held in backend.datasets.items()]
    wanted, namespace = query.get("filter", "").upper(), query.get("namespace")
    results = [
        {
            "type": kind,
            "name": name[1],
            "updatedAt": updated,
            "namespace": name[0],
            "nodeId": job_node(name) if kind == "JOB" else dataset_node(name),
        }
        for kind, name, updated in sorted([*jobs, *datasets], key=lambda each: each[1][1])
        if text in name[1].lower()
        and wanted in {"", kind}
        and (namespace is None or namespace == name[0])
    ]
    results = results[: int(query.get("limit", 10))]
    return {"totalCount": len(results), "results": results}


_V1 = "/api/v1"
_JOB = f"{_V1}/namespaces/([^/]+)/jobs/([^/]+)"
_DATASET = f"{_V1}/namespaces/([^/]+)/datasets/([^/]+)"
_ROUTES: list[tuple[str, Callable[[Backend, list[str], dict[str, str]], Any]]] = [
    (f"{_V1}/namespaces", _namespaces),
    (f"{_V1}/namespaces/([^/]+)", _one_namespace),
    (f"{_V1}/jobs", _jobs),
    (f"{_V1}/namespaces/([^/]+)/jobs", _jobs),
    (_JOB, _one_job),
    (f"{_JOB}/runs", _runs),
    (f"{_V1}/jobs/runs/([^/]+)", _one_run),
    (f"{_V1}/jobs/runs/([^/]+)/facets", _run_facets),
    (f"{_V1}/namespaces/([^/]+)/datasets", _datasets),
    (_DATASET, _one_dataset),
    (f"{_DATASET}/versions", _versions),
    (f"{_DATASET}/versions/([^/]+)", _one_version),
    (f"{_V1}/lineage", lineage),
    (f"{_V1}/column-lineage", column_lineage),
    (f"{_V1}/events/lineage", _events),
    (f"{_V1}/search", _search),
]
