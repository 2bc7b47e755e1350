"""What Marquez keeps of the events that it took, and how an event changes it.

Every step stays once it was done: an event that fails half-way leaves what came before. A run's
state follows the order of arrival. A job's edges are those of its newest version, and an event
without inputs or outputs takes the edges of that kind away until a run ends.
"""

from __future__ import annotations

import hashlib
import re
import threading
import uuid
from typing import Any

from tests.support.marquez.rows import (
    Broken,
    Column,
    Dataset,
    Facets,
    Job,
    Name,
    Run,
    Version,
    without_nulls,
)
from tests.support.marquez.rules import DONE, NAMESPACE, Doc, read, state_of

_DISLIKED = re.compile(r"[^a-z:/A-Z0-9\-_.@+]")


class Backend:
    """Marquez without a network. ``keep_events`` is off where a test sends very many."""

    def __init__(self, *, keep_events: bool = True) -> None:
        self.lock = threading.RLock()
        self.keep_events = keep_events
        self.events: list[Doc] = []
        self.events_count = 0
        self.namespaces: dict[str, str] = {}
        self.jobs: dict[Name, Job] = {}
        self.runs: dict[str, Run] = {}
        self.datasets: dict[Name, Dataset] = {}
        self.symlinks: dict[Name, Name] = {}
        self.made: dict[str, Version] = {}
        self.of_dataset: dict[Name, list[str]] = {}
        self.columns: dict[Column, dict[Column, tuple[str | None, str | None]]] = {}

    @property
    def states(self) -> dict[str, str]:
        """Return the state of each run that events were sent of, so not of mere parents."""
        return {run.id: run.state for run in self.runs.values() if run.told}

    @property
    def versions(self) -> set[tuple[str, str, str]]:
        """Return (run, namespace, name) for each version that a run made."""
        made = self.made.values()
        return {(each.run, *each.dataset) for each in made if each.run is not None}

    def post(self, body: bytes) -> int:
        """Take an event; return the status of the answer."""
        status, event = read(body)
        if status != 201:
            return status
        with self.lock:
            # The raw event has a table of its own, which takes what the model does not. PostgreSQL
            # has no text with a NUL in it, in neither of them.
            if b"\\u0000" not in body:
                self.events_count += 1
                if self.keep_events:
                    self.events.append(without_nulls(event))
            try:
                self._carry_out(event)
            except Broken as broken:
                return broken.status
        return 201

    # -- one event, step by step -------------------------------------------------------------------

    def _carry_out(self, event: Doc) -> None:
        now: str = event["eventTime"]
        job = self._job(event, now)
        run = self._run(event, job, now)
        kind = event.get("eventType")
        facets = event["run"].get("facets") or {}
        run.facets.store(facets, now)
        if kind is None:
            raise Broken(500)
        if run.state in DONE:
            run.ended = now
        elif kind.lower() == "start":
            run.started = now
        job.facets.store(event["job"].get("facets") or {}, now)
        inputs, outputs = event.get("inputs") or [], event.get("outputs") or []
        streaming = job.type == "STREAM"
        spared = streaming and kind.lower() in {"complete", "fail"} and not inputs + outputs
        for dataset in inputs:
            self._dataset(dataset, run, now, is_input=True)
        if not inputs and not spared:
            job.inputs = frozenset()
        for dataset in outputs:
            self._dataset(dataset, run, now, is_input=False)
        if not outputs and not spared:
            job.outputs = frozenset()
        if not spared and (streaming or run.state in DONE):
            self._link(job, run, only_new=streaming)
        if kind.lower() == "complete" or streaming:
            for version in run.outputs:
                self.datasets[self._primary(self.made[version].dataset)].current = version

    def _job(self, event: Doc, now: str) -> Job:
        told = event["job"]
        namespace = formatted(told["namespace"])
        self.namespaces.setdefault(namespace, now)
        facets = told.get("facets") or {}
        is_stream = (facets.get("jobType") or {}).get("processingType", "").upper() == "STREAMING"
        kind = "STREAM" if is_stream else "BATCH"
        parent = self._parent(event, namespace, kind, now)
        name = told["name"]
        if parent is not None:
            name = f"{parent}.{name.removeprefix(parent + '.')}"
        for dataset in event.get("inputs") or []:
            if not NAMESPACE.match(dataset["namespace"]):
                raise Broken(400)
        job = self.jobs.get((namespace, name))
        if job is None:
            simple = name if parent is None else name.removeprefix(parent + ".")
            job = self.jobs[namespace, name] = Job(
                name=(namespace, name),
                simple=simple,
                parent=parent,
                type=kind,
                created=now,
                updated=now,
            )
        job.type, job.updated = kind, now
        job.location = (facets.get("sourceCodeLocation") or {}).get("url")
        job.description = (facets.get("documentation") or {}).get("description")
        return job

    def _parent(self, event: Doc, namespace: str, kind: str, now: str) -> str | None:
        """Return the parent's name; a parent that nobody knows becomes a job with a run."""
        facet = (event["run"].get("facets") or {}).get("parent")
        if facet is None:
            return None
        name: str = facet["job"]["name"]
        if name == event["job"]["name"] and "." in name:
            name = name.rpartition(".")[0]
        run_id = run_uuid(facet["run"]["runId"])
        known = self.runs.get(run_id)
        if known is not None and known.job != (facet["job"]["namespace"], name):
            # Taken for a clash of ids: the parent gets a run of another id beside the one it has.
            run_id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{namespace}/{name}/{run_id}"))
        if run_id not in self.runs:
            job = self.jobs.setdefault(
                (namespace, name),
                Job(
                    name=(namespace, name),
                    simple=name,
                    parent=None,
                    type=kind,
                    created=now,
                    updated=now,
                ),
            )
            run = Run(id=run_id, job=job.name, created=now, updated=now)
            if event.get("eventType") is not None:
                run.state = state_of(event["eventType"])
                if run.state in DONE:
                    run.ended = now
                else:
                    run.started = now
            self.runs[run_id] = run
            job.runs[run_id] = None
        return name

    def _run(self, event: Doc, job: Job, now: str) -> Run:
        run_id = run_uuid(event["run"]["runId"])
        run = self.runs.get(run_id)
        if run is None:
            run = self.runs[run_id] = Run(id=run_id, job=job.name, created=now, updated=now)
            job.runs[run_id] = None
        run.updated, run.told = now, True
        nominal = (event["run"].get("facets") or {}).get("nominalTime") or {}
        run.nominal = (
            nominal.get("nominalStartTime") or run.nominal[0],
            nominal.get("nominalEndTime") or run.nominal[1],
        )
        if event.get("eventType") is not None:
            run.state = state_of(event["eventType"])
        return run

    def _dataset(self, told: Doc, run: Run, now: str, *, is_input: bool) -> None:
        name = (told["namespace"], told["name"])
        facets = told.get("facets") or {}
        self.namespaces.setdefault(told["namespace"], now)
        primary = self._primary(name)
        for other in (facets.get("symlinks") or {}).get("identifiers", []):
            self.namespaces.setdefault(other["namespace"], now)
            self.symlinks.setdefault((other["namespace"], other["name"]), primary)
        dataset = self.datasets.setdefault(primary, Dataset(name=primary, created=now, updated=now))
        self.symlinks.setdefault(primary, primary)
        lifecycle = (facets.get("lifecycleStateChange") or {}).get("lifecycleStateChange", "")
        dataset.updated, dataset.deleted = now, lifecycle.upper() == "DROP"
        dataset.source = (facets.get("dataSource") or {}).get("name", "default")
        dataset.description = (facets.get("documentation") or {}).get("description")
        fields = [_field(item) for item in (facets.get("schema") or {}).get("fields", [])]
        dataset.fields |= {item["name"]: item for item in fields}
        version = self._version(dataset, name, run, fields, lifecycle, now, is_input=is_input)
        if is_input:
            run.inputs.setdefault(version.uuid, Facets())
            dataset.current = dataset.current or version.uuid
        else:
            run.outputs.setdefault(version.uuid, Facets())
            self._column_lineage(primary, run, facets, {item["name"] for item in fields})
        version.facets.store(facets, now)
        if is_input:
            run.inputs[version.uuid].store(told.get("inputFacets") or {}, now)
        else:
            run.outputs[version.uuid].store(told.get("outputFacets") or {}, now)

    def _version(
        self,
        dataset: Dataset,
        name: Name,
        run: Run,
        fields: list[Doc],
        lifecycle: str,
        now: str,
        *,
        is_input: bool,
    ) -> Version:
        if is_input and dataset.current is not None:
            # A read is a read of the newest version, whatever version its facet names.
            held = self.made[dataset.current]
            held.fields = held.fields or fields
            return held
        shape = [(item["name"], item.get("type")) for item in fields]
        made = name_uuid(name, dataset.source, shape, lifecycle, run.id)
        if made not in self.made:
            self.made[made] = Version(
                uuid=made,
                dataset=name,
                run=None if is_input else run.id,
                created=now,
                fields=fields,
                lifecycle=lifecycle,
            )
            self.of_dataset.setdefault(name, []).append(made)
        return self.made[made]

    def _column_lineage(self, output: Name, run: Run, facets: Doc, known: set[str]) -> None:
        """Keep the edges whose ends have a schema: the output's fields, and the run's inputs'."""
        read_fields = {
            (*self.made[version].dataset, item)
            for version in run.inputs
            for item in self.datasets[self._primary(self.made[version].dataset)].fields
        }
        for column, edges in ((facets.get("columnLineage") or {}).get("fields") or {}).items():
            if any("field" not in edge for edge in edges["inputFields"]):
                raise Broken(500)
            if column not in known:
                continue
            held = self.columns.setdefault((*output, column), {})
            how = (edges.get("transformationDescription"), edges.get("transformationType"))
            for edge in edges["inputFields"]:
                source = (edge["namespace"], edge["name"], edge["field"])
                if source in read_fields:
                    held[source] = how

    def _link(self, job: Job, run: Run, *, only_new: bool) -> None:
        """Make the datasets of a run so far the newest version of its job.

        Of a streaming job a version that was there before changes nothing, not even the edges that
        an event without outputs took away.
        """
        inputs = frozenset(self.made[version].dataset for version in run.inputs)
        outputs = frozenset(self.made[version].dataset for version in run.outputs)
        if any(not NAMESPACE.match(namespace) for namespace, _ in inputs | outputs):
            raise Broken(400)
        version = name_uuid(job.name, sorted(inputs), sorted(outputs), job.location)
        if only_new and version in job.versions:
            return
        job.versions[version] = (inputs, outputs)
        job.version = run.job_version = version
        # Marking others as past is a side effect of adding one: without any, nothing is marked.
        job.inputs = inputs or job.inputs
        job.outputs = outputs or job.outputs

    def _primary(self, name: Name) -> Name:
        return self.symlinks.get(name, name)


def formatted(namespace: str) -> str:
    """Return a job's namespace as it is kept: what it does not like becomes an underscore."""
    return _DISLIKED.sub("_", namespace)


def run_uuid(text: str) -> str:
    """Return a run's id as it is kept; one that is no UUID is made into one."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return name_uuid(text)


def name_uuid(*parts: Any) -> str:
    """Return a UUID that says of which parts it was made."""
    return str(uuid.UUID(bytes=hashlib.md5(repr(parts).encode()).digest(), version=3))


def _field(told: Doc) -> Doc:
    return {key: told.get(key) for key in ("name", "type", "description")}
