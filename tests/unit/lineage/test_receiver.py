"""The strict receiver answers as the real Marquez was seen to: each line of FACTS, proven.

- 201 for valid events, also twice; 422, 500, 400, 404:
  `test_an_event_is_answered_as_by_the_real_server`, `test_what_is_no_json_or_no_event_is_refused`
- a failed post is not atomic: `test_a_failed_post_leaves_what_came_before_the_fault`
- state follows arrival: `test_a_start_after_the_end_puts_a_run_back_to_running`
- duplicates double raw events only: `test_a_duplicate_doubles_the_raw_event_and_nothing_else`
- a parent renames the job: `test_a_parent_comes_before_the_name_of_its_child`
- one version for each output of a run, our version facet kept and not used, outputStatistics only
  under the run: `test_each_run_makes_one_version_of_each_output`
- column lineage needs both schemas, `transformations` only in the raw facet:
  `test_an_edge_between_columns_needs_the_schema_of_both`
- custom facets kept, nulls dropped, 20 MB taken: `test_custom_facets_are_kept_without_their_nulls`
- the raw events' path: `test_the_raw_events_are_where_the_server_has_them`

What FACTS does not say (pages, graphs, edges that come and go) is by the server's own source.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import requests
from marquez_client import MarquezClient
from marquez_client.errors import APIError

from tests.support.marquez import Receiver
from tests.unit.lineage.receiver_bench import BASE, RUN, dataset, event, get, marquez, post, run_of

__all__ = ["marquez"]

SPOILED: list[tuple[str, Callable[[dict[str, Any]], Any], int]] = [
    ("nothing", lambda body: None, 201),
    ("no run", lambda body: body.pop("run"), 422),
    ("no run id", lambda body: body["run"].pop("runId"), 422),
    ("no job", lambda body: body.pop("job"), 422),
    ("no name", lambda body: body["job"].pop("name"), 422),
    ("no namespace", lambda body: body["job"].pop("namespace"), 422),
    ("no producer", lambda body: body.pop("producer"), 422),
    ("no time", lambda body: body.pop("eventTime"), 422),
    ("a time of no zone", lambda body: body.update(eventTime="2026-11-01T10:00:00"), 422),
    ("a parent of no job", lambda body: body["run"]["facets"]["parent"].pop("job"), 422),
    ("a dataset of no name", lambda body: body["inputs"][0].pop("name"), 422),
    ("a schema of no fields", lambda body: body["inputs"][0]["facets"]["schema"].clear(), 422),
    ("no type", lambda body: body.pop("eventType"), 500),
    ("a NUL in a facet", lambda body: body["run"]["facets"].update(own={"a": "\x00"}), 500),
    ("a space in a namespace", lambda body: body["inputs"][0].update(namespace="a b"), 400),
    (
        "an edge of no field",
        lambda body: body["outputs"][0]["facets"]["columnLineage"]["fields"]["id"]["inputFields"][
            0
        ].pop("field"),
        500,
    ),
]


def whole_event(kind: str = "COMPLETE") -> dict[str, Any]:
    source = {"namespace": "s3://lake", "name": "in", "field": "a"}
    columns = {**BASE, "fields": {"id": {"inputFields": [source]}}}
    parent = {
        **BASE,
        "run": {"runId": RUN.format(9)},
        "job": {"namespace": "sales", "name": "all"},
    }
    return event(
        kind,
        run_facets={"parent": parent},
        inputs=[dataset("in", "a")],
        outputs=[dataset("out", "id", columnLineage=columns)],
    )


@pytest.mark.parametrize(("spoil", "status"), [(each[1], each[2]) for each in SPOILED],
                         ids=[each[0] for each in SPOILED])  # fmt: skip
def test_an_event_is_answered_as_by_the_real_server(
    marquez: Receiver, spoil: Callable[[dict[str, Any]], Any], status: int
) -> None:
    body = whole_event()
    spoil(body)
    assert post(marquez, body) == status
    assert [arrival.status for arrival in marquez.arrivals] == [status]


def test_what_is_no_json_or_no_event_is_refused(marquez: Receiver) -> None:
    assert post(marquez, b"{") == 500
    assert post(marquez, b"[]") == 500
    address = marquez.url + "/api/v1/lineage/batch"
    assert requests.post(address, json=[event()], timeout=5).status_code == 404
    assert post(marquez, event(), **{"Content-Type": "text/plain"}) == 415


def test_a_failed_post_leaves_what_came_before_the_fault(marquez: Receiver) -> None:
    body = whole_event()
    body["outputs"][0]["facets"]["columnLineage"]["fields"]["id"]["inputFields"][0].pop("field")
    assert post(marquez, body) == 500
    held = run_of(marquez)
    assert held["state"] == "COMPLETED"
    assert [item["datasetVersionId"]["name"] for item in held["inputDatasetVersions"]] == ["in"]
    assert get(marquez, "/events/lineage")["totalCount"] == 1
    # No version of the job: the fault came before.
    assert held["jobVersion"] is None


def test_an_event_refused_at_the_door_leaves_nothing(marquez: Receiver) -> None:
    body = event()
    del body["producer"]
    assert post(marquez, body) == 422
    assert get(marquez, "/namespaces")["namespaces"] == []


def test_a_start_after_the_end_puts_a_run_back_to_running(marquez: Receiver) -> None:
    post(marquez, event("START"), event("COMPLETE", minute=5))
    assert run_of(marquez)["state"] == "COMPLETED"
    assert run_of(marquez)["durationMs"] == 300_000
    post(marquez, event("START"))
    assert run_of(marquez)["state"] == "RUNNING"
    post(marquez, event("COMPLETE", minute=5))
    assert run_of(marquez)["state"] == "COMPLETED"


@pytest.mark.parametrize(
    ("kind", "state"),
    [("FAIL", "FAILED"), ("ABORT", "ABORTED"), ("RUNNING", "RUNNING"), ("OTHER", "RUNNING")],
)
def test_every_type_of_event_has_its_state(marquez: Receiver, kind: str, state: str) -> None:
    post(marquez, event("START"), event(kind))
    assert run_of(marquez)["state"] == state


def test_a_run_that_never_started_has_no_start_time(marquez: Receiver) -> None:
    post(marquez, event("RUNNING"))
    assert run_of(marquez)["startedAt"] is None


def test_a_duplicate_doubles_the_raw_event_and_nothing_else(marquez: Receiver) -> None:
    done = event("COMPLETE", outputs=[dataset("out", "id")])
    post(marquez, event("START"), done, done)
    assert get(marquez, "/events/lineage")["totalCount"] == 3
    assert get(marquez, "/namespaces/sales/jobs/orders/runs")["totalCount"] == 1
    lake = "/namespaces/s3%3A%2F%2Flake/datasets/out/versions"
    assert get(marquez, lake)["totalCount"] == 1


def test_a_parent_comes_before_the_name_of_its_child(marquez: Receiver) -> None:
    post(marquez, whole_event())
    jobs = {job["name"]: job for job in get(marquez, "/namespaces/sales/jobs")["jobs"]}
    assert set(jobs) == {"all", "all.orders"}
    assert jobs["all.orders"]["simpleName"] == "orders"
    assert jobs["all.orders"]["parentJobName"] == "all"
    # Nobody said how the parent does: it has the state of the first event that named it.
    assert jobs["all"]["latestRun"]["state"] == "COMPLETED"
    assert marquez.states == {RUN.format(1): "COMPLETED"}
    named = whole_event()
    named["job"]["name"] = "all.orders"
    post(marquez, named)
    assert len(get(marquez, "/namespaces/sales/jobs")["jobs"]) == 2


def test_a_parent_that_has_a_parent_itself_is_not_known_by_its_own_name(
    marquez: Receiver,
) -> None:
    child = whole_event()
    top = child["run"]["facets"]["parent"]["run"]["runId"]
    own = event("START", run=9)
    own["run"]["runId"] = top
    own["job"]["name"] = "all"
    facet = deepcopy(child["run"]["facets"]["parent"])
    facet["job"]["name"], facet["run"]["runId"] = "dag", RUN.format(77)
    own["run"]["facets"] = {"parent": facet}
    post(marquez, own, child)
    jobs = {job["name"]: job for job in get(marquez, "/namespaces/sales/jobs")["jobs"]}
    # The run that told of itself is under the scheduler's name; another one was made up beside it.
    assert set(jobs) == {"dag", "dag.all", "all", "all.orders"}
    assert jobs["dag.all"]["latestRun"]["id"] == top
    assert jobs["all"]["latestRun"]["id"] != top


def test_each_run_makes_one_version_of_each_output(marquez: Receiver) -> None:
    for run in (1, 2):
        told = dataset("out", "id", version={**BASE, "datasetVersion": "77"})
        told["outputFacets"] = {"outputStatistics": {**BASE, "rowCount": run}}
        post(marquez, event("START", run), event("COMPLETE", run, minute=run, outputs=[told]))
    client = MarquezClient(marquez.url)
    versions = client.list_dataset_versions("s3://lake", "out")["versions"]
    assert [version["createdByRun"]["id"] for version in versions] == [RUN.format(2), RUN.format(1)]
    assert len({version["version"] for version in versions}) == 2
    assert {version["facets"]["version"]["datasetVersion"] for version in versions} == {"77"}
    assert all("outputStatistics" not in version["facets"] for version in versions)
    held = run_of(marquez, 2)["outputDatasetVersions"][0]
    assert held["facets"]["outputStatistics"]["rowCount"] == 2
    shown = client.get_dataset("s3://lake", "out")
    assert shown["currentVersion"] == versions[0]["version"]
    assert [field["name"] for field in shown["fields"]] == ["id"]


@pytest.mark.parametrize("lacking", ["", "input", "output"])
def test_an_edge_between_columns_needs_the_schema_of_both(marquez: Receiver, lacking: str) -> None:
    body = whole_event()
    how = {"transformations": [{"type": "DIRECT", "subtype": "IDENTITY"}]}
    body["outputs"][0]["facets"]["columnLineage"]["fields"]["id"] |= {
        "transformationType": "IDENTITY"
    }
    body["outputs"][0]["facets"]["columnLineage"]["fields"]["id"]["inputFields"][0] |= how
    if lacking:
        del body[f"{lacking}s"][0]["facets"]["schema"]
    assert post(marquez, body) == 201
    client = MarquezClient(marquez.url)
    columns = client.get_dataset("s3://lake", "out")["columnLineage"]
    if lacking:
        assert columns is None
        return
    [source] = columns[0]["inputFields"]
    assert (source["dataset"], source["field"], source["transformationType"]) == (
        "in",
        "a",
        "IDENTITY",
    )
    assert "transformations" not in source
    graph = client.get_column_lineage_by_dataset("s3://lake", "out")["graph"]
    assert [node["id"] for node in graph] == [
        "datasetField:s3://lake:in:a",
        "datasetField:s3://lake:out:id",
    ]
    raw = get(marquez, "/events/lineage")["events"][0]["outputs"][0]["facets"]["columnLineage"]
    assert raw["fields"]["id"]["inputFields"][0]["transformations"] == how["transformations"]


def test_custom_facets_are_kept_without_their_nulls(marquez: Receiver) -> None:
    own = {"kept": 1, "gone": None, "long": "x" * 20_000_000}
    assert post(marquez, event(run_facets={"own": own})) == 201
    held = get(marquez, f"/jobs/runs/{RUN.format(1)}/facets", type="run")["facets"]["own"]
    assert (held["kept"], len(held["long"]), "gone" in held) == (1, 20_000_000, False)


def test_a_facet_is_shown_as_the_latest_event_had_it_whenever_it_arrives(
    marquez: Receiver,
) -> None:
    post(marquez, event("COMPLETE", minute=5, run_facets={"own": {"of": "end"}}))
    post(marquez, event("START", minute=0, run_facets={"own": {"of": "start"}}))
    assert run_of(marquez)["facets"]["own"] == {"of": "end"}


def test_the_raw_events_are_where_the_server_has_them(marquez: Receiver) -> None:
    post(marquez, *(event("RUNNING", minute=minute) for minute in range(7)))
    page = get(marquez, "/events/lineage", limit=3, offset=2)
    assert (len(page["events"]), page["totalCount"]) == (3, 7)
    times = [item["eventTime"] for item in page["events"]]
    assert times == sorted(times, reverse=True)
    with pytest.raises(APIError):
        MarquezClient(marquez.url).list_events()


def test_lists_come_in_pages_and_runs_of_one_moment_have_no_order(marquez: Receiver) -> None:
    for run in range(250):
        body = event("START")
        body["run"]["runId"] = f"018f3c5e-0000-7000-8000-{run:012}"
        marquez.backend.post(json.dumps(body).encode())
    client = MarquezClient(marquez.url)
    pages = [client.list_job_runs("sales", "orders", offset=at)["runs"] for at in (0, 100, 200)]
    assert [len(page) for page in pages] == [100, 100, 50]
    seen = {run["id"] for page in pages for run in page}
    assert len(seen) < 250, "some run is on two pages, and another on none"


def test_an_event_without_outputs_takes_a_job_s_edges_until_its_run_ends(
    marquez: Receiver,
) -> None:
    both: dict[str, Any] = {"inputs": [dataset("in", "a")], "outputs": [dataset("out", "id")]}

    def edges() -> tuple[int, int]:
        nodes = get(marquez, "/lineage", nodeId="job:sales:orders", depth=0)["graph"]
        [node] = [each for each in nodes if each["type"] == "JOB"]
        return len(node["inEdges"]), len(node["outEdges"])

    post(marquez, event("START"), event("COMPLETE", minute=1, **both))
    assert edges() == (1, 1)
    post(marquez, event("START", 2, 2, inputs=both["inputs"]))
    assert edges() == (1, 0)
    post(marquez, event("COMPLETE", 2, 3, **both))
    assert edges() == (1, 1)
    post(marquez, event("START", 3, 4, inputs=both["inputs"]), event("FAIL", 3, 5))
    assert edges() == (1, 0)


def test_of_a_stream_the_edges_do_not_come_back(marquez: Receiver) -> None:
    kind = {"processingType": "STREAMING", "integration": "X", "jobType": "JOB", **BASE}
    both: dict[str, Any] = {"inputs": [dataset("in", "a")], "outputs": [dataset("out", "id")]}
    for run in (1, 2):
        facets = {"jobType": kind}
        post(marquez, event("START", run, run, inputs=both["inputs"], job_facets=facets))
        post(marquez, event("COMPLETE", run, run, **both, job_facets=facets))
    nodes = get(marquez, "/lineage", nodeId="job:sales:orders", depth=0)["graph"]
    assert [node["outEdges"] for node in nodes if node["type"] == "JOB"] == [[]]
    job = MarquezClient(marquez.url).get_job("sales", "orders")
    assert [each["name"] for each in job["outputs"]] == ["out"]


def test_the_graph_goes_as_far_as_asked(marquez: Receiver) -> None:
    chain = [("a", "b"), ("b", "c"), ("c", "d")]
    for run, (source, target) in enumerate(chain):
        body = event("COMPLETE", run, inputs=[dataset(source)], outputs=[dataset(target)])
        body["job"]["name"] = f"{source}-{target}"
        post(marquez, body)
    jobs = {
        depth: sorted(
            node["id"]
            for node in get(marquez, "/lineage", nodeId="job:sales:a-b", depth=depth)["graph"]
            if node["type"] == "JOB"
        )
        for depth in (0, 1, 2)
    }
    assert jobs[0] == ["job:sales:a-b"]
    assert jobs[1] == ["job:sales:a-b", "job:sales:b-c"]
    assert len(jobs[2]) == 3
    of_dataset = get(marquez, "/lineage", nodeId="dataset:s3://lake:d", depth=0)["graph"]
    assert [node["id"] for node in of_dataset if node["type"] == "JOB"] == ["job:sales:c-d"]


def test_names_with_slashes_and_other_names_of_a_dataset_are_found(marquez: Receiver) -> None:
    other = {"namespace": "sqlite:/c.db", "name": "sales.orders", "type": "TABLE"}
    told = dataset("/x/y z", "id", symlinks={**BASE, "identifiers": [other]})
    post(marquez, event("COMPLETE", outputs=[told]))
    client = MarquezClient(marquez.url)
    assert client.get_dataset("s3://lake", "/x/y z")["name"] == "/x/y z"
    assert client.get_dataset("sqlite:/c.db", "sales.orders")["name"] == "/x/y z"
    found = get(marquez, "/search", q="Y Z")
    assert [item["nodeId"] for item in found["results"]] == ["dataset:s3://lake:/x/y z"]
    with pytest.raises(APIError):
        client.get_dataset("s3://lake", "nothing")
    with pytest.raises(APIError):
        client.get_job("nowhere", "orders")


def test_bodies_may_be_gzipped_and_keys_are_asked_for(marquez: Receiver) -> None:
    body = gzip.compress(json.dumps(event()).encode())
    assert post(marquez, body, **{"Content-Encoding": "gzip"}) == 201
    assert post(marquez, b"no gzip", **{"Content-Encoding": "gzip"}) == 400
    marquez.api_key = "open sesame"
    assert post(marquez, event()) == 401
    assert requests.get(marquez.url + "/api/v1/namespaces", timeout=5).status_code == 401
    assert post(marquez, event(), Authorization="Bearer open sesame") == 201
