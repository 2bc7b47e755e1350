"""Parts of Marquez's answers that several questions share, and how what is asked for is found."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tests.support.marquez.backend import Backend
from tests.support.marquez.rows import Job, Name, Run, Version
from tests.support.marquez.rules import Doc


class Refused(Exception):
    """A question that has no answer, with its status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def job_head(job: Job) -> Doc:
    return {
        "id": id_of(job.name),
        "type": job.type,
        "name": job.name[1],
        "simpleName": job.simple,
        "parentJobName": job.parent,
        "createdAt": job.created,
        "updatedAt": job.updated,
        "namespace": job.name[0],
        "location": job.location,
        "description": job.description,
    }


def run_document(backend: Backend, run: Run) -> Doc:
    duration = None
    if run.started is not None and run.ended is not None:
        took = datetime.fromisoformat(run.ended) - datetime.fromisoformat(run.started)
        duration = int(took.total_seconds() * 1000)
    version = run.job_version
    return {
        "id": run.id,
        "createdAt": run.created,
        "updatedAt": run.updated,
        "nominalStartTime": run.nominal[0],
        "nominalEndTime": run.nominal[1],
        "state": run.state,
        "startedAt": run.started,
        "endedAt": run.ended,
        "durationMs": duration,
        "args": {},
        "jobVersion": None if version is None else {**id_of(run.job), "version": version},
        "inputDatasetVersions": [
            {"datasetVersionId": version_id(backend.made[made]), "facets": facets}
            for made, facets in run.inputs.items()
        ],
        "outputDatasetVersions": [
            {"datasetVersionId": version_id(backend.made[made]), "facets": facets}
            for made, facets in run.outputs.items()
        ],
        "facets": run.facets,
    }


def dataset_head(backend: Backend, name: Name) -> Doc:
    held = backend.datasets[name]
    current = None if held.current is None else backend.made[held.current]
    return {
        "id": id_of(name),
        "type": "DB_TABLE",
        "name": name[1],
        "physicalName": name[1],
        "createdAt": held.created,
        "updatedAt": held.updated,
        "namespace": name[0],
        "sourceName": held.source,
        "fields": [] if current is None else [{**item, "tags": []} for item in current.fields],
        "tags": [],
        "description": held.description,
    }


def page(items: list[Any], query: dict[str, str]) -> list[Any]:
    limit, offset = int(query.get("limit", 100)), int(query.get("offset", 0))
    if limit < 0 or offset < 0:
        raise Refused(400, "must be greater than or equal to 0")
    return items[offset : offset + limit]


def id_of(name: Name) -> Doc:
    return {"namespace": name[0], "name": name[1]}


def version_id(version: Version) -> Doc:
    return {**id_of(version.dataset), "version": version.uuid}


def job_node(name: Name) -> str:
    return f"job:{name[0]}:{name[1]}"


def dataset_node(name: Name) -> str:
    return f"dataset:{name[0]}:{name[1]}"


def must_have_namespace(backend: Backend, name: str) -> None:
    if name not in backend.namespaces:
        raise Refused(404, f"Namespace '{name}' not found.")


def find_job(backend: Backend, parts: list[str]) -> Job:
    must_have_namespace(backend, parts[0])
    found = backend.jobs.get((parts[0], parts[1]))
    if found is None:
        raise Refused(404, f"Job '{parts[1]}' not found.")
    return found


def find_run(backend: Backend, run_id: str) -> Run:
    found = backend.runs.get(run_id.lower())
    if found is None:
        raise Refused(404, f"Run '{run_id}' not found.")
    return found


def find_dataset(backend: Backend, parts: list[str]) -> Name:
    must_have_namespace(backend, parts[0])
    name = (parts[0], parts[1])
    found = backend.symlinks.get(name, name)
    if found not in backend.datasets:
        raise Refused(404, f"Dataset '{parts[1]}' not found.")
    return found
