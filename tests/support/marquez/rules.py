"""What Marquez refuses before it does anything, as it was seen to (FACTS, "Marquez 0.51.1").

An event that passes here can still fail half-way: see ``backend``.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any, TypeAlias

Doc: TypeAlias = dict[str, Any]

NAMESPACE = re.compile(r"^[a-zA-Z:;=/0-9_\-.@+]{1,1024}$")
STATES = {"complete": "COMPLETED", "fail": "FAILED", "abort": "ABORTED"}
"""Every other type of event, known or not, means that the run is running."""
DONE = frozenset(STATES.values())
_REQUIRED: dict[str, tuple[str, ...]] = {
    "parent": ("run", "job"),
    "nominalTime": ("nominalStartTime",),
    "errorMessage": ("message", "programmingLanguage"),
    "documentation": ("description",),
    "sql": ("query",),
    "sourceCodeLocation": ("type", "url"),
    "jobType": ("processingType", "integration", "jobType"),
    "schema": ("fields",),
    "dataSource": ("name", "uri"),
    "columnLineage": ("fields",),
    "lifecycleStateChange": ("lifecycleStateChange",),
    "symlinks": ("identifiers",),
    "version": ("datasetVersion",),
    "storage": ("storageLayer",),
}
"""The facets that it knows, and without which of their fields they are not valid."""


def read(body: bytes) -> tuple[int, Doc]:
    """Return the event and 201, or the status with which it is refused at the door."""
    try:
        event = json.loads(body)
    except ValueError:
        return 500, {}
    if not isinstance(event, dict):
        return 500, {}
    return (201 if _valid(event) else 422), event


def _valid(event: Doc) -> bool:
    run, job = event.get("run"), event.get("job")
    if not isinstance(run, dict) or not isinstance(job, dict):
        return False
    if not all(isinstance(text, str) and text for text in (event.get("producer"),)):
        return False
    if not run.get("runId") or not job.get("namespace") or not job.get("name"):
        return False
    try:
        moment = datetime.fromisoformat(event["eventTime"])
    except (KeyError, TypeError, ValueError):
        return False
    if moment.tzinfo is None:
        return False
    holders = [run.get("facets") or {}, job.get("facets") or {}]
    for dataset in datasets(event):
        if not dataset.get("name") or not dataset.get("namespace"):
            return False
        holders += [dataset.get(key) or {} for key in ("facets", "inputFacets", "outputFacets")]
    return all(_facet_is_valid(name, facet) for held in holders for name, facet in held.items())


def _facet_is_valid(name: str, facet: Any) -> bool:
    required = _REQUIRED.get(name)
    if required is None:
        return True
    if not isinstance(facet, dict) or not facet.get("_producer") or not facet.get("_schemaURL"):
        return False
    if any(key not in facet for key in required):
        return False
    if name == "parent":
        named = facet["job"].get("namespace") and facet["job"].get("name")
        return bool(facet["run"].get("runId") and named)
    if name == "schema":
        return all(item.get("name") for item in facet["fields"])
    if name == "columnLineage":
        return all("inputFields" in item for item in facet["fields"].values())
    return True


def datasets(event: Doc) -> list[Doc]:
    """Return the inputs and the outputs of an event."""
    return [*(event.get("inputs") or []), *(event.get("outputs") or [])]


def state_of(event_type: str) -> str:
    """Return the state into which an event puts its run."""
    return STATES.get(event_type.lower(), "RUNNING")
