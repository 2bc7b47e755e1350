"""A rename as lineage tells it: once, with the former name, on one and the same dataset."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lineage.graph.answer import Question, ask
from lineage.graph.build import whole_graph
from lineage.graph.model import table_id
from odi_audit.committer import records
from odi_audit.ids import TableUuid
from odi_audit.model.entries import Draft, Entry, Kind
from odi_audit.model.offsets import OffsetKind, Offsets, Range, once, table_state
from odi_audit.model.tables import TableRef
from tests.unit.lineage.conftest import LINES, NOWHERE, ORDERS, History, table_facts, work

if TYPE_CHECKING:
    from lineage.graph.answer import Lineage
    from tests.unit.lineage.conftest import Told

MOVED = replace(ORDERS, name="archive.orders_2026")


def outputs(told: Told) -> list[dict[str, Any]]:
    bodies = [json.loads(event.body) for event in told["renamed_here"]]
    return [output for body in bodies for output in body["outputs"]]


def test_a_rename_is_told_when_it_happens_and_never_again(told: Told) -> None:
    assert [event.state for event in told["renamed_here"]] == [
        "START", "ABORT", "START", "COMPLETE", "START", "COMPLETE", "START", "COMPLETE",
        "START", "COMPLETE",
    ]  # fmt: skip
    facets = [output["facets"].get("lifecycleStateChange", {}) for output in outputs(told)]
    assert [
        (facet.get("lifecycleStateChange"), facet.get("previousIdentifier", {}).get("name"))
        for facet in facets
    ] == [
        ("RENAME", "catalog.sales.lines"),
        (None, None),
        ("RENAME", "catalog.archive.order_lines"),
        ("RENAME", "catalog.sales.lines_past_us"),
    ]
    assert facets[0]["previousIdentifier"]["namespace"] == "postgres://db:5433"


def test_a_renamed_table_is_the_same_dataset_with_the_new_name_for_its_symlink(told: Told) -> None:
    found = outputs(told)
    assert {(item["namespace"], item["name"]) for item in found} == {
        ("s3://lake", "warehouse/sales/lines")
    }
    links = [item["facets"]["symlinks"]["identifiers"][0]["name"] for item in found]
    assert links == [
        "catalog.archive.order_lines", "catalog.archive.order_lines", "catalog.sales.lines_again",
        "catalog.sales.lines",
    ]  # fmt: skip
    # A rename leaves the rows as they were: the version is that of before.
    assert found[0]["facets"]["version"]["datasetVersion"] == "5000000000000001004"


def test_a_rename_whose_intent_is_lost_still_tells_the_former_name(history: History) -> None:
    history.land(history.intend(work("append")))
    lost = history.add(
        Draft(
            kind=Kind.TABLE_RENAMED,
            table=MOVED,
            facts={"operation": "rename_table", "from_name": "sales.x", "to_name": MOVED.name},
        )
    )
    (output,) = json.loads(history.events[-1].body)["outputs"]
    change = output["facets"]["lifecycleStateChange"]
    assert (change["lifecycleStateChange"], change["previousIdentifier"]["name"]) == (
        "RENAME", "catalog.sales.x",
    )  # fmt: skip
    assert lost.intent is None


def renames(told: History, ref: TableRef = ORDERS, to: TableRef = MOVED) -> Entry:
    opened = told.intend(
        work("rename_table", ref, to=to.name),
        offsets=table_state(ref.name, None, {"to": to.name}),
        tables=[table_facts(ORDERS)],
    )
    return told.settle(records.renamed(opened, to))


def created(told: History, ref: TableRef) -> Entry:
    opened = told.intend(work("create_table", NOWHERE), offsets=once(ref.uuid))
    return told.effect(opened, Kind.TABLE_CREATED, ref, operation="create_table")


def asked(told: History, text: str, as_of: str | None = None) -> Lineage:
    return ask(told.ledger, Question(text=text, as_of=as_of), moment=lambda given: given)


def test_a_table_is_one_node_under_both_names_also_where_only_the_rename_is_on_record(
    history: History,
) -> None:
    renames(history)
    for text in (ORDERS.name, MOVED.name):
        found = asked(history, text)
        assert found.start.name == MOVED.name
        assert found.start.about is not None
        assert found.start.about.earlier_names == (ORDERS.name,)
        assert [node.id for node in found.nodes.values()] == [table_id(ORDERS.uuid)], "no upkeep"
    assert {node.uuid for node in whole_graph(history.ledger).nodes.values()} == {
        None, ORDERS.uuid,
    }  # fmt: skip


def test_what_fed_a_table_feeds_it_under_its_new_name(history: History) -> None:
    created(history, ORDERS)
    history.land(history.intend(work("append")))
    moved = renames(history)
    history.land(history.intend(work("append", MOVED), tables=[table_facts(ORDERS)]), MOVED)
    for text, as_of in ((MOVED.name, None), (ORDERS.name, None), (ORDERS.name, moved.time)):
        jobs = {
            node.name for node in asked(history, text, as_of).nodes.values() if node.job is not None
        }
        assert "orders.append.sales.orders" in jobs, (text, as_of)
        assert ("orders.append.archive.orders_2026" in jobs) == (as_of is None)


def test_a_name_that_was_taken_again_is_told_by_the_moment(history: History) -> None:
    other = replace(ORDERS, uuid=TableUuid("0d1e2f3a-0000-4000-8000-000000000009"))
    created(history, ORDERS)
    first = history.land(history.intend(work("append")))
    moved = renames(history)
    history.land(history.intend(work("append", LINES)), LINES)
    created(history, other)
    last = history.land(history.intend(work("append", other), tables=[]), other)
    assert asked(history, ORDERS.name).start.uuid == other.uuid
    assert asked(history, MOVED.name).start.uuid == ORDERS.uuid
    assert asked(history, ORDERS.name, last.time).start.uuid == other.uuid
    for entry in (first, moved):
        assert asked(history, ORDERS.name, entry.time).start.uuid == ORDERS.uuid
        assert asked(history, MOVED.name, entry.time).start.uuid == ORDERS.uuid


def test_of_a_table_that_was_made_past_us_the_rename_alone_tells_until_when_it_had_the_name(
    history: History,
) -> None:
    other = replace(ORDERS, uuid=TableUuid("0d1e2f3a-0000-4000-8000-000000000009"))
    first = history.land(history.intend(work("append")))
    renames(history)
    created(history, other)
    last = history.land(history.intend(work("append", other), tables=[]), other)
    assert asked(history, ORDERS.name, first.time).start.uuid == ORDERS.uuid
    assert asked(history, ORDERS.name, last.time).start.uuid == other.uuid


def test_a_batch_that_names_its_source_by_the_first_name_does_not_give_it_that_back(
    history: History,
) -> None:
    created(history, ORDERS)
    renames(history)
    part = Offsets(
        kind=OffsetKind.TABLE,
        source=f"table:{ORDERS.name}",
        ranges={ORDERS.uuid: Range(None, "5000000000000001001")},
    )
    history.land(history.intend(work("append", LINES), offsets=part), LINES)
    names = {node.uuid: node.name for node in asked(history, LINES.name).nodes.values()}
    assert names[ORDERS.uuid] == MOVED.name
    assert asked(history, MOVED.name).start.name == MOVED.name


def test_a_renamed_and_then_dropped_table_is_found_under_both_names(history: History) -> None:
    created(history, ORDERS)
    renames(history)
    end = {"head": None, "metadata_location": "m", "totals": {}}
    opened = history.intend(
        work("drop_table", MOVED, purge=False), tables=[table_facts(ORDERS)], **end
    )
    history.settle(records.dropped(opened, MOVED))
    for text in (ORDERS.name, MOVED.name):
        about = asked(history, text).start.about
        assert about is not None and about.dropped is not None
