"""Events as a function of the ledger: pinned by golden files, and true to the batch's story."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from lineage import leaving, runs
from lineage.context import LedgerContext
from lineage.events import Event, events_of
from odi_audit import redact
from odi_audit.canonical import encode
from odi_audit.committer import records
from odi_audit.errors import UsageError
from odi_audit.model.entries import Draft, Kind
from odi_audit.model.offsets import kafka
from tests.unit.lineage import story
from tests.unit.lineage.conftest import LINES, ORDERS, SCHEMA, History, Told, table_facts, work
from tests.unit.lineage.strict_backend import StrictBackend

GOLDEN = Path(__file__).parents[2] / "golden" / "lineage"


def body(event: Event) -> dict[str, Any]:
    found = json.loads(event.body)
    assert isinstance(found, dict)
    return found


def states(events: list[Event]) -> list[str]:
    return [event.state for event in events]


def test_the_story_has_every_kind_of_entry(told: Told) -> None:
    assert {entry.kind for entry in told.history.ledger.scan()} == set(Kind)


def test_events_are_those_of_the_golden_files(told: Told) -> None:
    made = {name: b"".join(event.body + b"\n" for event in told[name]) for name in told.chapters}
    if os.environ.get("GOLDEN_WRITE"):
        for name, lines in made.items():
            (GOLDEN / f"{name}.jsonl").write_bytes(lines)
    kept = {path.stem: path.read_bytes() for path in GOLDEN.glob("*.jsonl")}
    assert made == kept


def test_the_same_ledger_gives_the_same_bytes_whenever_they_are_made(told: Told) -> None:
    history = told.history
    fresh = LedgerContext(history.ledger)
    again = [event for entry in history.ledger.scan() for event in events_of(entry, fresh)]
    assert [event.body for event in again] == [event.body for event in history.events]
    backwards = {
        entry.index: [event.body for event in events_of(entry, LedgerContext(history.ledger))]
        for entry in reversed(list(history.ledger.scan()))
    }
    made = [item for index in sorted(backwards) for item in backwards[index]]
    assert made == [event.body for event in history.events]


def test_bytes_are_canonical_json(told: Told) -> None:
    for event in told.history.events:
        assert encode(json.loads(event.body)) == event.body


@pytest.mark.parametrize(
    ("chapter", "expected"),
    [
        ("table_created", ["START", "COMPLETE"]),
        ("kafka_append", ["START", "RUNNING", "COMPLETE"]),
        ("many_tables", ["START", "RUNNING", "RUNNING", "COMPLETE"]),
        ("refused", ["START", "FAIL"]),
        ("abandoned", ["START", "ABORT"]),
        ("unknown_then_reconciled", ["START", "RUNNING", "RUNNING", "COMPLETE"]),
        ("given_up_in_the_middle", ["START", "RUNNING", "RUNNING", "ABORT"]),
        ("published_after_all", ["START", "RUNNING", "ABORT", "COMPLETE"]),
        ("replay", ["START", "COMPLETE"]),
        ("reads", ["START", "COMPLETE", "START", "COMPLETE"]),
        ("seal", []),
        (
            "lives_of_runs",
            [
                *("START", "START", "COMPLETE", "COMPLETE", "START", "FAIL", "START", "ABORT"),
                *("START", "RUNNING", "ABORT", "COMPLETE", "START", "COMPLETE"),
            ],
        ),
    ],
)
def test_each_outcome_has_its_states(told: Told, chapter: str, expected: list[str]) -> None:
    assert states(told[chapter]) == expected


def test_only_what_is_in_a_table_is_an_output(told: Told) -> None:
    def written(event: Event) -> list[str]:
        return [item["name"] for item in body(event)["outputs"]]

    for event in told.history.events:
        if event.state in {"START", "RUNNING", "FAIL"}:
            assert written(event) == []
    orders, lines = "warehouse/sales/orders", "warehouse/sales/lines"
    assert written(told["many_tables"][-1]) == [orders, lines]
    assert written(told["given_up_in_the_middle"][-1]) == [orders]
    assert written(told["abandoned"][-1]) == []


def test_a_run_of_a_job_has_a_start_and_an_end_of_its_own_and_no_datasets(told: Told) -> None:
    events = [body(event) for event in told["lives_of_runs"]]
    start, batch, _, end = events[:4]
    assert (start["job"]["namespace"], start["job"]["name"]) == ("sales", "orders")
    assert start["run"]["runId"] == end["run"]["runId"]
    parent = batch["run"]["facets"]["parent"]
    assert parent["run"]["runId"] == start["run"]["runId"]
    assert parent["job"] == {"namespace": "sales", "name": "orders"}
    for event in (start, end):
        assert event["inputs"] == event["outputs"] == []
        # Marquez would take the run for one of a job named after the scheduler's.
        assert "parent" not in event["run"]["facets"]
        assert event["job"]["facets"]["ownership"]["owners"] == [{"name": "shop"}]
        assert event["job"]["facets"]["documentation"]["description"] == "orders, nightly"
        assert event["run"]["facets"]["odi_run"]["principal"] == "ana"
    assert "outcome" not in start["run"]["facets"]["odi_run"]
    assert end["run"]["facets"]["odi_run"]["outcome"] == "completed"
    failed = next(event for event in events if event["eventType"] == "FAIL")
    assert failed["run"]["facets"]["errorMessage"]["message"] == "ODI-C01: it kept moving"
    assert failed["run"]["facets"]["odi_run"]["errorCode"] == "ODI-C01"


def test_a_backend_knows_every_run_of_a_job_from_its_own_events_and_none_beside_them(
    told: Told,
) -> None:
    backend = StrictBackend()
    for event in told["lives_of_runs"]:
        assert backend.post(event.body) == 201
    assert set(backend.states) == set(backend.runs), "a run was made up from a parent's facet"
    assert sorted(backend.states.values()) == ["ABORTED", *["COMPLETED"] * 4, "FAILED"]


def test_a_stream_says_so_and_no_pulse_follows_the_end_of_a_run(told: Told) -> None:
    ends = [body(event) for event in told["lives_of_runs"]][8:12]
    assert [event["eventType"] for event in ends] == ["START", "RUNNING", "ABORT", "COMPLETE"]
    assert len({event["run"]["runId"] for event in ends}) == 1
    for event in ends:
        assert event["job"]["facets"]["jobType"]["processingType"] == "STREAMING"


def test_a_batch_is_a_child_of_its_run_and_the_schedulers_run_is_the_root(
    told: Told,
) -> None:
    scheduled, plain = body(told["kafka_append"][0]), body(told["many_tables"][0])
    assert plain["run"]["facets"]["parent"]["root"]["job"] == {
        "namespace": "sales",
        "name": "orders",
    }
    parent = scheduled["run"]["facets"]["parent"]
    assert (parent["job"]["namespace"], parent["job"]["name"]) == ("sales", "orders")
    assert parent["root"]["job"] == {"namespace": "airflow", "name": "daily.orders"}
    assert parent["root"]["run"]["runId"].endswith("0000000a")
    assert scheduled["job"]["name"] == "orders.append.sales.orders"
    assert plain["job"]["name"] == "orders.batch.sales.lines+sales.orders"


def test_a_table_is_named_by_its_place_with_a_symlink_to_its_name(
    told: Told,
) -> None:
    (output,) = body(told["kafka_append"][-1])["outputs"]
    assert (output["namespace"], output["name"]) == ("s3://lake", "warehouse/sales/orders")
    assert output["facets"]["symlinks"]["identifiers"] == [
        {
            "namespace": "postgres://db:5433",
            "name": "catalog.sales.orders",
            "type": "TABLE",
        }
    ]
    assert output["facets"]["version"]["datasetVersion"] == "5000000000000001001"
    assert output["outputFacets"]["icebergCommitReport"]["snapshotId"] == "5000000000000001001"


def test_nested_columns_are_in_the_schema(told: Told) -> None:
    (output,) = body(told["kafka_append"][-1])["outputs"]
    fields = {item["name"]: item for item in output["facets"]["schema"]["fields"]}
    assert [item["type"] for item in fields.values()] == [
        "long",
        "decimal(10,2)",
        "struct",
        "map",
        "timestamp",
    ]
    tags = fields["buyer"]["fields"][1]
    assert (tags["name"], tags["type"], tags["fields"]) == (
        "tags",
        "array",
        [{"name": "_element", "type": "string"}],
    )
    assert [item["name"] for item in fields["prices"]["fields"]] == ["key", "value"]


def test_column_lineage_has_its_inputs_with_schemas_and_says_what_is_unknown(
    told: Told,
) -> None:
    done = body(told["kafka_append"][-1])
    inputs = {(item["namespace"], item["name"]): item for item in done["inputs"]}
    facets = done["outputs"][0]["facets"]
    edges = facets["columnLineage"]["fields"]
    for column in edges.values():
        for edge in column["inputFields"]:
            held = inputs[edge["namespace"], edge["name"]]["facets"]["schema"]["fields"]
            assert edge["field"] in {item["name"] for item in held}
    assert edges["id"]["transformationType"] == "IDENTITY"
    assert edges["amount"]["transformationType"] == "TRANSFORMATION"
    assert "prices" not in edges
    assert {"key": "lineage", "value": "unknown", "field": "prices", "source": "ODI-AUDIT"} in (
        facets["tags"]["tags"]
    )
    # The part that was read stays with the topic, although the plan names the topic as well.
    assert "subset" in inputs["kafka://broker:9092", "orders"]["inputFacets"]


def test_what_the_gate_checked_is_told_for_landed_and_for_refused(
    told: Told,
) -> None:
    (output,) = body(told["kafka_append"][-1])["outputs"]
    checked = output["facets"]["dataQualityAssertions"]["assertions"]
    assert {(item["assertion"], item["success"]) for item in checked} == {
        ("not_null", True),
        ("unique", True),
        ("custom_sql", True),
        ("row_count", True),
    }
    failed = body(told["refused"][-1])
    (read,) = failed["inputs"]
    assert [
        (item["assertion"], item["success"])
        for item in read["inputFacets"]["dataQualityAssertions"]["assertions"]
    ] == [("custom_sql", False), ("not_null", False)]
    assert failed["run"]["facets"]["errorMessage"]["message"].startswith("ODI-G03: append on")
    assert "id=7" not in told["refused"][-1].body.decode()


def test_each_change_of_a_table_has_its_lifecycle(told: Told) -> None:
    found = [
        (event["job"]["name"].split(".")[1], facets.get("lifecycleStateChange"))
        for chapter in (
            *("table_created", "changes_in_place", "schema_change", "housekeeping", "dropped"),
        )
        for made in told[chapter]
        for event in [body(made)]
        for output in event["outputs"]
        for facets in [output["facets"]]
    ]
    assert [(word, (facet or {}).get("lifecycleStateChange")) for word, facet in found] == [
        ("create_table", "CREATE"),
        ("update", None),
        ("compact", None),
        ("overwrite", "OVERWRITE"),
        ("delete", "TRUNCATE"),
        ("evolve_schema", "ALTER"),
        ("append", None),
        ("rollback", "OVERWRITE"),
        ("sales", None),
        ("sales", None),
        ("expire", "ALTER"),
        ("undo", "OVERWRITE"),
        ("erasure", "OVERWRITE"),
        ("sales", None),
        ("drop_table", "DROP"),
        ("create_table", "CREATE"),
    ]


def test_a_rename_shows_at_the_first_change_under_the_new_name(told: Told) -> None:
    changes = [
        body(event)["outputs"][0]["facets"].get("lifecycleStateChange", {})
        for event in told["renamed"]
        if event.state == "COMPLETE"
    ]
    assert [
        (facet.get("lifecycleStateChange"), facet.get("previousIdentifier", {}).get("name"))
        for facet in changes
    ] == [
        ("RENAME", "catalog.sales.orders"),
        (None, None),
        ("RENAME", "catalog.sales.all_orders"),
    ]


def test_the_schema_is_that_of_the_snapshot_not_the_newest(told: Told) -> None:
    def columns(event: Event) -> list[str]:
        (output,) = body(event)["outputs"]
        return [item["name"] for item in output["facets"]["schema"]["fields"]]

    assert "note" not in columns(told["replay"][-1])
    assert "note" in columns(told["schema_change"][1])
    assert "note" in columns(told["schema_change"][-1])
    # The intents after it still knew the old one.
    assert "note" not in columns(told["housekeeping"][1])


def test_sources_are_inputs_with_the_part_that_was_read(told: Told) -> None:
    found = [
        [(item["namespace"], item["name"]) for item in body(event)["inputs"]]
        for event in told["other_sources"]
        if event.state == "COMPLETE"
    ]
    assert found == [
        [("file", "/in"), ("file", "/more")],
        [("postgres://db:5432", "shop.public.orders")],
        [("postgres://db:5432", "shop")],
        [("file", "/in/json"), ("kafka", "orders"), ("kafka", "returns")],
    ]
    files = body(told["other_sources"][1])["inputs"][0]["inputFacets"]
    assert files["subset"]["inputCondition"]["locations"] == ["/in/a.csv", "/in/b.csv"]
    assert files["inputStatistics"]["size"] == 30
    window = body(told["other_sources"][2])["run"]["facets"]["nominalTime"]
    assert window["nominalStartTime"] == "2026-10-31T00:00:00.000000Z"
    assert window["nominalEndTime"] == "2026-10-31T23:00:00.000000Z"
    streaming = body(told["other_sources"][-1])["job"]["facets"]["jobType"]
    assert streaming["processingType"] == "BATCH"


def test_a_change_in_place_reads_its_own_table_as_it_was(told: Told) -> None:
    event = body(told["changes_in_place"][1])
    (read,), (written,) = event["inputs"], event["outputs"]
    assert (read["namespace"], read["name"]) == (written["namespace"], written["name"])
    assert read["facets"]["version"] != written["facets"]["version"]
    assert event["job"]["facets"]["sql"]["query"] == (
        "UPDATE sales.orders SET amount = amount + 1 WHERE name = '?'"
    )


def test_a_read_is_a_run_of_its_consumer(told: Told) -> None:
    alone, in_a_job = body(told["reads"][1]), body(told["reads"][3])
    assert (alone["job"]["namespace"], alone["job"]["name"]) == ("consumers", "billing")
    assert alone["inputs"][0]["facets"]["version"]["datasetVersion"] == "5000000000000001002"
    assert alone["outputs"] == []
    assert body(told["reads"][0])["eventTime"] == "2026-11-01T00:00:01.000000Z"
    assert in_a_job["job"]["namespace"] == "finance/emea"
    assert in_a_job["job"]["name"] == "billing.read.sales.lines"
    assert in_a_job["run"]["facets"]["parent"]["job"]["name"] == "billing"


def test_a_foreign_snapshot_is_a_run_of_its_engine(told: Told) -> None:
    runs = [body(event) for event in told["housekeeping"] if "foreign" in event.body.decode()]
    names = [event["job"]["name"] for event in runs if event["job"]["namespace"] == "foreign"]
    assert names == ["flink.sales.orders"] * 2 + ["unknown.sales.orders"] * 2
    assert runs[1]["outputs"][0]["facets"]["version"]["datasetVersion"] == "77"
    assert runs[1]["outputs"][0]["name"] == "warehouse/sales/orders"


def test_an_older_ledger_still_names_its_tables(history: History) -> None:
    """Intents of before had no shape of their tables; the staged entry tells the place."""
    opened = history.intend(work("append"), tables=[], catalog={}, engine={})
    history.stage(opened, ORDERS)
    history.land(opened)
    (output,) = body(history.events[-1])["outputs"]
    assert output["name"] == "warehouse/sales/orders"
    assert output["facets"]["symlinks"]["identifiers"][0]["namespace"] == "iceberg"
    assert "schema" not in output["facets"]
    # What is known of a table from another entry holds for one that says nothing of it.
    known = history.intend(work("append"))
    history.land(known)
    history.land(history.intend(work("append"), tables=[], catalog={}, engine={}))
    (output,) = body(history.events[-1])["outputs"]
    assert [item["name"] for item in output["facets"]["schema"]["fields"]][:2] == ["id", "amount"]
    nameless = history.intend(work("append", LINES), tables=[], catalog={}, engine={})
    history.land(nameless, LINES)
    (output,) = body(history.events[-1])["outputs"]
    assert (output["namespace"], output["name"]) == ("odi", "sales.lines")


def test_no_secret_leaves_and_no_byte_that_a_backend_chokes_on(history: History) -> None:
    redact.register('pa"ss\\word')
    schema = {
        "schema-id": 0,
        "type": "struct",
        "fields": [{"id": 1, "name": "a\x00b", "type": "string", "doc": "token=abc123"}],
    }
    opened = history.intend(
        work("append", options={"s3.secret-key": "hush"}),
        offsets=kafka({"t": {0: (0, 1)}}, bootstrap="user:hunter2@broker:9092"),
        tables=[{**table_facts(ORDERS), "schema": schema}],
        catalog={"name": "c", "type": "jdbc", "uri": "jdbc:postgresql://u:hunter2@db/c"},
        environment={"GITHUB_WORKFLOW": "Bearer abcdef123456"},
    )
    history.land(opened)
    history.settle(
        records.abandoned(history.intend(work("append")), 'failed with pa"ss\\word, api_key=k1k1')
    )
    for event in history.events:
        text = event.body.decode()
        for secret in ("hunter2", "hush", "abcdef123456", "abc123", 'pa\\"ss', "k1k1", "\\u0000"):
            assert secret not in text, (secret, event.key)
    done = body(history.events[1])["outputs"][0]["facets"]["schema"]["fields"][0]
    assert done["name"] == "a�b"


def test_a_big_event_is_cut_to_size_with_digests_of_what_went(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = [
        {"id": place, "name": f"column_{place}", "required": False, "type": "string"}
        for place in range(3_000)
    ]
    topics = {f"topic_{place}": dict.fromkeys(range(30), (0, 10)) for place in range(150)}
    opened = history.intend(
        work("append"),
        offsets=kafka(topics, bootstrap="broker:9092"),
        tables=[{**table_facts(ORDERS), "schema": {**SCHEMA, "fields": fields}}],
    )
    landed = history.land(opened)
    cut = history.events[-1]
    assert len(cut.body) <= leaving.EVENT_BYTES_MAX
    gone = body(cut)["run"]["facets"]["odi_trimmed"]
    assert gone["index"] == landed.index
    assert gone["more"] > 0
    monkeypatch.setattr(leaving, "EVENT_BYTES_MAX", 1 << 30)
    (whole,) = events_of(landed, history.context)
    document = body(whole)
    for item in gone["facets"]:
        held: Any = document
        for step in item["path"].split("."):
            held = held[int(step)] if isinstance(held, list) else held[step]
        assert hashlib.sha256(encode(held)).hexdigest() == item["sha256"]
        assert len(encode(held)) == item["bytes"]
    assert "outputs.0.facets.schema" in {item["path"] for item in gone["facets"]}


def test_a_job_of_many_tables_has_a_name_of_bounded_length() -> None:
    job = runs.job_ref("sales/emea/orders")
    assert (job.namespace, job.name) == ("sales/emea", "orders")
    many = [("append", f"sales.t{place:03}") for place in range(100)]
    first, second = runs.child(job, many).name, runs.child(job, many[1:]).name
    assert first.startswith("orders.append.sales.t000+99-")
    assert len(first) < 50
    assert first != second
    assert runs.child(job, list(reversed(many))).name == first


def test_an_entry_with_nothing_known_still_gives_an_event(history: History) -> None:
    history.add(Draft(kind=Kind.MAINTENANCE, facts={}))
    history.add(Draft(kind=Kind.READ, facts={}))
    history.add(Draft(kind=Kind.REFUSED, table=ORDERS, facts={"code": "ODI-G01"}))
    assert states(history.events) == ["START", "COMPLETE", "START", "FAIL"]


def test_an_error_without_found_facts_makes_no_assertion(history: History) -> None:
    opened = history.intend(work("append", contract=story.CONTRACT))
    history.refuse(opened, UsageError("no"))
    (read,) = body(history.events[-1])["inputs"]
    assert "dataQualityAssertions" not in read["inputFacets"]


def test_a_topic_is_named_by_its_server_also_where_the_cluster_has_an_id(history: History) -> None:
    offsets = kafka({"orders": {0: (0, 5)}}, bootstrap="broker:9092,other:9092", cluster_id="c-1")
    history.land(history.intend(work("append"), offsets=offsets))
    told = json.loads(history.events[-1].body)
    assert [(item["namespace"], item["name"]) for item in told["inputs"]] == [
        ("kafka://broker:9092", "orders")
    ]
