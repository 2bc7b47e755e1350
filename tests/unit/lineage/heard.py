"""Events as openlineage-spark 1.53.0 writes them, cut down to what matters; nothing is invented."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PRODUCER = "https://github.com/OpenLineage/OpenLineage/tree/1.53.0/integration/spark"
APPLICATION = "01a1e4bd-2d2a-74ae-b734-8abe40794fb5"
SECRET = "hunter2-in-a-conf"
Doc = dict[str, Any]


def run_id(number: int) -> str:
    return f"01a1e4bd-9e9e-7d53-8516-{number:012d}"


def facet(kind: str, /, **fields: Any) -> Doc:
    schema = f"https://openlineage.io/spec/facets/1-0-0/{kind}.json#/$defs/{kind}"
    return {"_producer": PRODUCER, "_schemaURL": schema, **fields}


def dataset(namespace: str, name: str, **facets: Any) -> Doc:
    about = {"dataSource": facet("DatasourceDatasetFacet", name=namespace, uri=namespace)}
    return {"namespace": namespace, "name": name, "facets": about | facets}


def event(
    number: int,
    state: str,
    *,
    second: int = 0,
    mark: str | None = None,
    inputs: list[Doc] | None = None,
    outputs: list[Doc] | None = None,
    kind: str = "SQL_JOB",
    processing: str = "BATCH",
    message: str | None = None,
    root: Doc | None = None,
    job: str = "spark.append_data.lake_sales_orders",
) -> Doc:
    own = {"run": {"runId": APPLICATION}, "job": {"namespace": "lake", "name": "spark"}}
    facets: Doc = {
        "parent": facet("ParentRunFacet", **own, root=root or own),
        "processing_engine": facet(
            "ProcessingEngineRunFacet",
            version="4.1.3",
            name="spark",
            openlineageAdapterVersion="1.53.0",
        ),
        "spark_properties": facet("RunFacet", properties={"spark.some.conf": SECRET}),
        "environment-properties": facet("RunFacet", **{"environment-properties": {"X": SECRET}}),
        "spark_applicationDetails": facet("RunFacet", userName="root", driverHost="127.0.0.1"),
    }
    if mark is not None:
        facets["spark_properties"]["properties"]["spark.odi.parent"] = mark
        facets["spark_jobDetails"] = facet("RunFacet", jobId=7, jobCallSite="collect at x.py:1")
    if message is not None:
        facets["spark.exception"] = facet("RunFacet", message=message, stackTrace="at x\n" * 50)
    return {
        "eventTime": f"2026-11-16T14:00:{second:02d}.250Z",
        "producer": PRODUCER,
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "eventType": state,
        "run": {"runId": run_id(number), "facets": facets},
        "job": {
            "namespace": "lake",
            "name": job,
            "facets": {
                "jobType": facet(
                    "JobTypeJobFacet", processingType=processing, integration="SPARK", jobType=kind
                ),
                "sql": facet("SQLJobFacet", query=f"select '{SECRET}'", dialect="spark"),
            },
        },
        "inputs": inputs or [],
        "outputs": outputs or [],
    }


def whole(number: int, *, mark: str | None = "run", **more: Any) -> list[Doc]:
    """A run as it is told: START, RUNNING with the job that carries the mark, the end."""
    told = None if mark is None else mark
    return [
        event(number, "START", second=1, **more),
        event(number, "RUNNING", second=2, mark=told, **more),
        event(number, "COMPLETE", second=3, **more),
    ]


def application(state: str) -> Doc:
    made = event(0, state, kind="APPLICATION", processing="NONE", job="spark")
    made["run"]["runId"] = APPLICATION
    return made


def text(*documents: Doc) -> str:
    return "".join(json.dumps(document) + "\n" for document in documents)


def write(path: Path, *documents: Doc) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(text(*documents))
    return path
