"""A backend that answers as Marquez 0.51.1 was seen to: what it refuses, and with which status.

It keeps each run's state by arrival, as the real one does: a START that comes after the end puts a
run back to running.
"""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

_NAMESPACE = re.compile(r"^[a-zA-Z:;=/0-9_\-.@+]{1,1024}$")
_REQUIRED: dict[str, tuple[str, ...]] = {
    "parent": ("run", "job"),
    "nominalTime": ("nominalStartTime",),
    "errorMessage": ("message", "programmingLanguage"),
    "documentation": ("description",),
    "sql": ("query",),
    "sourceCodeLocation": ("type", "url"),
    "jobType": ("processingType", "integration"),
    "schema": ("fields",),
    "dataSource": ("name", "uri"),
    "columnLineage": ("fields",),
    "lifecycleStateChange": ("lifecycleStateChange",),
    "symlinks": ("identifiers",),
    "version": ("datasetVersion",),
    "storage": ("storageLayer",),
}
_STATES = {"START": "RUNNING", "RUNNING": "RUNNING", "COMPLETE": "COMPLETED"}
_STATES |= {"FAIL": "FAILED", "ABORT": "ABORTED"}


@dataclass(slots=True)
class StrictBackend:
    """Takes events; remembers states, and which (run, output) made a dataset version."""

    states: dict[str, str] = field(default_factory=dict)
    versions: set[tuple[str, str, str]] = field(default_factory=set)

    def post(self, body: bytes) -> int:
        try:
            event = json.loads(body)
        except ValueError:
            return 500
        status = self._judge(event, body)
        if status == 201:
            run = event["run"]["runId"]
            self.states[run] = _STATES[event["eventType"]]
            for output in event.get("outputs", []):
                self.versions.add((run, output["namespace"], output["name"]))
        return status

    def _judge(self, event: dict[str, Any], body: bytes) -> int:
        if "eventType" not in event or event["eventType"] not in _STATES or b"\\u0000" in body:
            return 500
        try:
            datetime.fromisoformat(event["eventTime"])
            uuid.UUID(event["run"]["runId"])
            assert event["producer"] and event["job"]["namespace"] and event["job"]["name"]
        except (KeyError, ValueError, AssertionError):
            return 422
        holders = [event["run"].get("facets", {}), event["job"].get("facets", {})]
        for dataset in [*event.get("inputs", []), *event.get("outputs", [])]:
            if not dataset.get("name") or not dataset.get("namespace"):
                return 422
            if not _NAMESPACE.match(dataset["namespace"]):
                return 400
            holders += [dataset.get(key, {}) for key in ("facets", "inputFacets", "outputFacets")]
        for facets in holders:
            status = self._facets(facets)
            if status != 201:
                return status
        return 201

    @staticmethod
    def _facets(facets: dict[str, Any]) -> int:
        for name, facet in facets.items():
            if not facet.get("_producer") or not facet.get("_schemaURL"):
                return 422
            if any(key not in facet for key in _REQUIRED.get(name, ())):
                return 422
            if name == "schema" and any(
                not item.get("name") or not item.get("type") for item in facet["fields"]
            ):
                return 422
            if name == "columnLineage":
                edges = [edge for item in facet["fields"].values() for edge in item["inputFields"]]
                if any(not edge.get("field") for edge in edges):
                    return 500
        return 201
