"""Events and requests for the tests of the receiver."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from tests.support.marquez import Receiver, receiver

RUN = "018f3c5e-0000-7000-8000-00000000000{}"
BASE = {"_producer": "urn:x", "_schemaURL": "urn:y"}


def dataset(name: str, *fields: str, **facets: Any) -> dict[str, Any]:
    made: dict[str, Any] = dict(facets)
    if fields:
        listed = [{"name": field, "type": "long"} for field in fields]
        made["schema"] = {**BASE, "fields": listed}
    return {"namespace": "s3://lake", "name": name, "facets": made}


def event(kind: str | None = "START", run: int = 1, minute: int = 0, **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "eventType": kind,
        "eventTime": f"2026-11-01T10:{minute:02}:00.000000Z",
        "producer": "urn:x",
        "run": {"runId": RUN.format(run), "facets": more.pop("run_facets", {})},
        "job": {"namespace": "sales", "name": "orders", "facets": more.pop("job_facets", {})},
        **more,
    }
    if kind is None:
        del made["eventType"]
    return made


@pytest.fixture
def marquez() -> Iterator[Receiver]:
    with receiver() as made:
        yield made


def post(marquez: Receiver, *events: dict[str, Any] | bytes, **headers: str) -> int:
    status = 0
    for each in events:
        body = each if isinstance(each, bytes) else json.dumps(each).encode()
        answer = requests.post(
            marquez.url + "/api/v1/lineage",
            data=body,
            headers={"Content-Type": "application/json", **headers},
            timeout=5,
        )
        status = answer.status_code
    return status


def get(marquez: Receiver, path: str, **query: Any) -> Any:
    answer = requests.get(f"{marquez.url}/api/v1{path}", params=query, timeout=5)
    answer.raise_for_status()
    return answer.json()


def run_of(marquez: Receiver, run: int = 1) -> Any:
    return get(marquez, f"/jobs/runs/{RUN.format(run)}")
