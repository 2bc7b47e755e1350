"""The listener's runs beside ours: linked, not doubled, and nothing in them that may not leave."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lineage.leaving import EVENT_BYTES_MAX, Event
from lineage.listener import events_of_run
from lineage.listener_run import ListenerRun, of_document
from lineage.naming import of_location
from odi_audit.model.entries import Entry
from tests.support.marquez import Backend
from tests.unit.lineage.conftest import LINES, ORDERS, RUN, History, location, work
from tests.unit.lineage.heard import SECRET, Doc, dataset, event, facet, run_id, whole

FILES = [dataset("file", "/in")]
ORDERS_NAME = of_location(location(ORDERS))
SCHEMA = facet("SchemaDatasetFacet", fields=[{"name": "id", "type": "long"}])
SCHEDULER = {
    "run": {"runId": "0b6a3b1e-0000-4000-8000-00000000000a"},
    "job": {"namespace": "airflow", "name": "daily.orders"},
}


def heard(*documents: Doc) -> ListenerRun:
    run = of_document(documents[0], begins=0)
    for document in documents[1:]:
        run = run.joined(document)
    return run


def bodies(events: list[Event]) -> list[Any]:
    return [json.loads(event.body) for event in events]


def table(name: str = ORDERS_NAME.name, **facets: Any) -> Doc:
    return dataset(ORDERS_NAME.namespace, name, schema=SCHEMA, **facets)


def batch(history: History, **more: Any) -> Entry:
    return history.intend(work("append"), **more)


def test_a_marked_run_is_a_child_of_the_batchs_own_run(history: History) -> None:
    opened = batch(history)
    ours = bodies(history.events)[-1]
    made = bodies(
        events_of_run(
            heard(*whole(1, mark=f"intent:{opened.index}", inputs=FILES)), history.context
        )
    )
    for document in made:
        parent = document["run"]["facets"]["parent"]
        assert parent["run"]["runId"] == ours["run"]["runId"]
        assert parent["job"] == {key: ours["job"][key] for key in ("namespace", "name")}
        assert parent["root"] == ours["run"]["facets"]["parent"]["root"]
        assert document["job"]["namespace"] == ours["job"]["namespace"]
        assert document["job"]["name"].startswith(ours["job"]["name"] + ".")
        assert [read["name"] for read in document["inputs"]] == ["/in"]


def test_the_schedulers_run_is_the_root_of_both(history: History) -> None:
    opened = batch(history, environment={"OPENLINEAGE_PARENT_ID": f"airflow/daily.orders/{RUN}"})
    ours = bodies(history.events)[-1]["run"]["facets"]["parent"]["root"]
    run = heard(*whole(1, mark=f"intent:{opened.index}", inputs=FILES))
    made = bodies(events_of_run(run, history.context))
    assert made[0]["run"]["facets"]["parent"]["root"] == ours
    assert ours["job"]["namespace"] == "airflow"


def test_the_batchs_own_tables_are_taken_out_and_others_stay(history: History) -> None:
    """Its version facet names the snapshot before ours: the staged one is not visible to it."""
    opened = batch(history)
    stale = facet("DatasetVersionDatasetFacet", datasetVersion="1")
    outputs = [table(version=stale), dataset("file", "/side")]
    run = heard(*whole(1, mark=f"intent:{opened.index}", inputs=FILES, outputs=outputs))
    start, end = bodies(events_of_run(run, history.context))
    assert start["outputs"] == []
    assert [written["name"] for written in end["outputs"]] == ["/side"]


def test_a_table_that_another_batch_writes_is_no_reason_to_take_it_out(history: History) -> None:
    batch(history)
    other = history.intend(work("append", LINES))
    run = heard(*whole(1, mark=f"intent:{other.index}", outputs=[table()]))
    assert [item["name"] for item in bodies(events_of_run(run, history.context))[1]["outputs"]] == [
        ORDERS_NAME.name
    ]


def test_work_in_a_run_outside_of_its_batches_is_a_child_of_the_run(history: History) -> None:
    mark = f"run:{RUN}:sales/emea/orders"
    run = heard(*whole(1, mark=mark, inputs=FILES, outputs=[dataset("file", "/side")]))
    end = bodies(events_of_run(run, history.context))[1]
    parent = end["run"]["facets"]["parent"]
    assert parent["run"]["runId"] == RUN
    assert parent["job"] == {"namespace": "sales/emea", "name": "orders"}
    assert parent["root"] == {"run": parent["run"], "job": parent["job"]}
    side = [dataset("file", "/side")]
    scheduled = heard(*whole(2, mark=mark, outputs=side, root=SCHEDULER))
    parent = bodies(events_of_run(scheduled, history.context))[1]["run"]["facets"]["parent"]
    assert parent["root"] == SCHEDULER


@pytest.mark.parametrize("mark", [None, "intent:999999", "intent:x", "run:x:y", "nonsense"])
def test_a_run_that_is_nobodys_keeps_the_listeners_own_parent(
    history: History, mark: str | None
) -> None:
    run = heard(*whole(1, mark=mark, inputs=FILES))
    end = bodies(events_of_run(run, history.context))[1]
    assert end["job"]["namespace"] == "lake"
    assert end["run"]["facets"]["parent"]["job"]["name"] == "spark"


def test_runs_that_say_nothing_are_left_out(history: History) -> None:
    opened = batch(history)
    created = [
        dataset("file", "/t", lifecycleStateChange=facet("X", lifecycleStateChange="CREATE"))
    ]
    mute = [
        whole(1, mark=None),
        whole(2, mark=f"intent:{opened.index}", outputs=[table()]),
        whole(3, mark=None, outputs=created),
        whole(4, mark=None, inputs=FILES, kind="RDD_JOB"),
        whole(5, mark=None, inputs=FILES, processing="STREAMING"),
        whole(9, mark=f"run:{RUN}:sales/orders", inputs=FILES),
    ]
    for documents in mute:
        assert events_of_run(heard(*documents), history.context) == []
    telling = [
        whole(6, mark="x", outputs=created),
        whole(7, mark=None, inputs=FILES),
        whole(8, mark=None, inputs=FILES, outputs=created, processing="STREAMING"),
    ]
    for documents in telling:
        assert len(events_of_run(heard(*documents), history.context)) == 2


def test_a_failure_is_told_by_sparks_name_for_it_and_writes_nothing(history: History) -> None:
    message = f"[CAST_INVALID_INPUT] The value '{SECRET}' of the type STRING cannot be cast"
    failed = event(1, "FAIL", inputs=FILES, outputs=[dataset("file", "/side")], message=message)
    start, end = bodies(events_of_run(heard(event(1, "START"), failed), history.context))
    assert (start["eventType"], end["eventType"]) == ("START", "FAIL")
    assert end["run"]["facets"]["errorMessage"]["message"] == "Spark: CAST_INVALID_INPUT"
    assert end["outputs"] == []
    unnamed = event(2, "FAIL", message=f"java.io.IOException: {SECRET}")
    end = bodies(events_of_run(heard(event(2, "START"), unnamed), history.context))[1]
    assert SECRET not in json.dumps(end)


def test_nothing_passes_that_is_not_on_the_list(history: History) -> None:
    lineage = facet(
        "ColumnLineageDatasetFacet",
        fields={
            "id": {
                "inputFields": [
                    {
                        "namespace": "file",
                        "name": "/in",
                        "field": "id",
                        "transformations": [
                            {
                                "type": "DIRECT",
                                "subtype": "TRANSFORMATION",
                                "description": f"concat(id, '{SECRET}')",
                                "masking": False,
                            }
                        ],
                    }
                ],
                "transformationDescription": SECRET,
            }
        },
    )
    catalog = facet(
        "CatalogDatasetFacet",
        framework="iceberg",
        type="rest",
        name="lake",
        metadataUri=f"https://ana:{SECRET}@catalog.example.org/v1",
        catalogProperties={"credential": SECRET},
    )
    report = facet("X", snapshotId=2.174684352972673e16, metadata={"token": SECRET})
    written = dataset(
        "file", "/side", schema=SCHEMA, columnLineage=lineage, catalog=catalog, odd={"x": SECRET}
    )
    written["outputFacets"] = {
        "outputStatistics": facet("OutputStatisticsOutputDatasetFacet", rowCount=7, size=70),
        "icebergCommitReport": report,
    }
    documents = whole(1, mark="x", inputs=FILES, outputs=[written])
    events = events_of_run(heard(*documents), history.context)
    assert SECRET in json.dumps(documents)
    assert all(SECRET not in event.body.decode() for event in events)
    end = bodies(events)[1]
    assert set(end["run"]["facets"]) == {"parent", "processing_engine"}
    assert set(end["job"]["facets"]) == {"jobType"}
    out = end["outputs"][0]
    assert set(out["facets"]) == {"catalog", "columnLineage", "dataSource", "schema"}
    assert set(out["outputFacets"]) == {"outputStatistics"}
    edge = out["facets"]["columnLineage"]["fields"]["id"]["inputFields"][0]
    assert (edge["field"], edge["transformations"][0]["subtype"]) == ("id", "TRANSFORMATION")
    assert out["facets"]["schema"]["_producer"] == documents[0]["producer"]


def test_a_facet_that_does_not_fit_its_class_is_left_out_alone(history: History) -> None:
    odd = dataset("file", "/in", schema=facet("X", fields="none"), version=facet("X", other=1))
    made = bodies(events_of_run(heard(*whole(1, inputs=[odd])), history.context))[1]
    assert set(made["inputs"][0]["facets"]) == {"dataSource"}


def test_an_event_is_cut_to_size_and_says_so(history: History) -> None:
    columns = [{"name": f"column_{number}", "type": "string" * 20} for number in range(3_000)]
    wide = dataset("file", "/in", schema=facet("SchemaDatasetFacet", fields=columns))
    events = events_of_run(heard(*whole(1, inputs=[wide])), history.context)
    for made, body in zip(events, bodies(events), strict=True):
        assert len(made.body) < EVENT_BYTES_MAX
        assert body["run"]["facets"]["tags"]["tags"][0]["key"] == "trimmed"
        assert [read["name"] for read in body["inputs"]] == ["/in"]


def test_a_backend_as_strict_as_marquez_takes_them_after_ours(history: History) -> None:
    opened = batch(history)
    history.stage(opened, ORDERS)
    history.land(opened)
    backend = Backend()
    theirs = events_of_run(
        heard(*whole(1, mark=f"intent:{opened.index}", inputs=FILES, outputs=[table()])),
        history.context,
    )
    for sent in [*history.events, *theirs]:
        assert backend.post(sent.body) == 201
    states = backend.states
    assert states[run_id(1)] == "COMPLETED"
    assert states[history.events[-1].run] == "COMPLETED"
    written = [name for name in backend.versions if ORDERS_NAME.name in name]
    assert len(written) == 1, "one version of the table, ours"
