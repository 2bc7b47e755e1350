"""Questions to the graph: tables, columns, depth, circles, names that are gone."""

from __future__ import annotations

from itertools import pairwise

import pytest

from lineage.graph.answer import Lineage, Question, ask
from lineage.graph.lean import lean, newest_first, tables_of
from lineage.graph.select import Direction, Step
from odi_audit.errors import LedgerBroken, TableNotFound, UsageError
from odi_audit.ids import JobName
from odi_audit.ledger.port import StoredEntry
from odi_audit.model.entries import Draft, Kind
from odi_audit.model.offsets import (
    OffsetKind,
    Offsets,
    Range,
    kafka,
    mapping,
    once,
    table_state,
)
from odi_audit.model.tables import TableRef
from tests.unit.lineage.conftest import COLUMNS, LINES, ORDERS, History, work
from tests.unit.lineage.graph.many import columns, fill, table


def asked(told: History, text: str, **more: object) -> Lineage:
    question = Question(text=text, **more)  # type: ignore[arg-type]
    return ask(told.ledger, question, moment=lambda given: given)


def names(found: Lineage) -> set[str]:
    return {node.name for node in found.nodes.values()}


def chain(told: History, length: int) -> list[TableRef]:
    made = [table(number, "chain") for number in range(length)]
    told.land(told.intend(work("append", made[0]), job=JobName("in/raw")), made[0])
    for before, after in pairwise(made):
        job = JobName(f"step/{after.name}")
        opened = told.intend(
            work("append", after), job=job, offsets=once(after.name), columns=columns(before)
        )
        told.land(opened, after)
    return made


def tables(found: Lineage) -> set[str]:
    return {node.name for node in found.nodes.values() if node.uuid is not None}


def test_up_and_down_and_as_far_as_asked(history: History) -> None:
    made = chain(history, 6)
    middle = made[2].name
    every = {item.name for item in made}
    assert tables(asked(history, middle)) == every
    assert tables(asked(history, middle, direction=Direction.UP)) == {
        item.name for item in made[:3]
    }
    assert tables(asked(history, middle, direction=Direction.DOWN)) == {
        item.name for item in made[2:]
    }
    assert tables(asked(history, middle, depth=1)) == {item.name for item in made[1:4]}
    with pytest.raises(UsageError):
        asked(history, middle, depth=0)


def test_distance_tells_how_far_and_which_way(history: History) -> None:
    made = chain(history, 4)
    found = asked(history, made[1].name)
    far = {node.name: found.selection.distance[key] for key, node in found.nodes.items()}
    assert [far[item.name] for item in made] == [-1, 0, 1, 2]


def test_tables_that_feed_each_other_are_walked_once(history: History) -> None:
    one, other = table(1, "loop"), table(2, "loop")
    for source, target in ((one, other), (other, one)):
        opened = history.intend(
            work("append", target),
            job=JobName(f"to/{target.name}"),
            offsets=once(target.name),
            columns=columns(source),
        )
        history.land(opened, target)
    assert tables(asked(history, one.name)) == {one.name, other.name}
    assert len(asked(history, f"{one.name}.amount").selection.steps) == 8


def test_a_job_that_reads_what_it_writes_is_both_sides_of_its_table(history: History) -> None:
    history.land(history.intend(work("append")))
    state = table_state(ORDERS.name, None, {})
    history.land(
        history.intend(work("update", set={"amount": "1"}), offsets=state), operation="update"
    )
    found = asked(history, ORDERS.name)
    job = "job:sales orders.update.sales.orders"
    start = found.selection.start
    assert {(start, job), (job, start)} <= set(found.selection.edges)
    assert found.selection.edges[job, start].unknown == ("amount",)


def test_upkeep_is_shown_when_everything_is_asked_for(history: History) -> None:
    history.land(history.intend(work("append")))
    state = table_state(ORDERS.name, None, {})
    history.land(history.intend(work("compact"), offsets=state), operation="compact")
    assert "orders.compact.sales.orders" not in names(asked(history, ORDERS.name))
    assert "orders.compact.sales.orders" in names(asked(history, ORDERS.name, upkeep=True))


def test_a_renamed_table_is_one_node_and_is_found_under_both_names(history: History) -> None:
    history.land(history.intend(work("append")))
    renamed = TableRef(uuid=ORDERS.uuid, name="sales.all_orders")
    history.land(history.intend(work("append", renamed)), renamed)
    for text in ("sales.orders", "sales.all_orders"):
        found = asked(history, text)
        assert tables(found) == {"sales.all_orders"}
        about = found.start.about
        assert about is not None and about.earlier_names == ("sales.orders",)


def test_an_unknown_table_is_answered_with_near_ones(history: History) -> None:
    history.land(history.intend(work("append")))
    with pytest.raises(TableNotFound, match=r"did you mean sales\.orders"):
        asked(history, "sales.order")


def test_a_source_that_lies_where_a_table_lies_is_that_table(history: History) -> None:
    history.land(history.intend(work("append", LINES)), LINES)
    plan = columns(LINES)
    del plan["inputs"][0]["table_uuid"]  # type: ignore[index, call-overload, union-attr]
    opened = history.intend(work("append"), offsets=once("x"), columns=plan)
    history.land(opened)
    assert tables(asked(history, ORDERS.name)) == {ORDERS.name, LINES.name}


def test_a_folder_for_each_shop_is_one_node_unless_everything_is_asked_for(
    history: History,
) -> None:
    # Folders by date are one name already (docs/lineage-events.md): these are not.
    for shop in range(10, 20):
        files = Offsets(
            kind=OffsetKind.FILES,
            source="file:///in",
            ranges={f"/in/shop-{shop}/a.csv": Range(None, "1:a")},
        )
        history.land(history.intend(work("append"), offsets=files))
    other = Offsets(
        kind=OffsetKind.FILES,
        source="file:///in",
        ranges={"/in/shop-77/a.csv": Range(None, "1:a")},
    )
    history.land(history.intend(work("append"), job=JobName("sales/other"), offsets=other))
    found = asked(history, ORDERS.name)
    [group] = [node for node in found.nodes.values() if node.members > 1]
    assert (group.name, group.members, group.share.batches) == ("/in/shop-*", 10, 10)
    # Another job's folder looks alike and is told apart by its edge.
    assert "/in/shop-77" in names(found)
    edge = found.selection.edges[group.id, "job:sales orders.append.sales.orders"]
    assert edge.share.rows == 100 and edge.source == group.id
    assert set(found.selection.distance) == set(found.nodes)
    every = asked(history, ORDERS.name, upkeep=True)
    assert len([node for node in every.nodes.values() if node.kind == "files"]) == 11


# -- columns ---------------------------------------------------------------------------------------


def step_texts(found: Lineage) -> list[tuple[int, str, str | None, str, str | None]]:
    def told(step: Step) -> tuple[int, str, str | None, str, str | None]:
        source = None if step.input is None else f"{found.nodes[step.input].name}.{step.field}"
        return step.depth, step.column, source, step.type, step.subtype

    return sorted(told(step) for step in found.selection.steps)


def test_a_column_is_followed_up_to_its_sources(history: History) -> None:
    part = kafka({"orders": {0: (1, 2)}}, bootstrap="broker:9092")
    history.land(history.intend(work("append"), offsets=part, columns=COLUMNS))
    assert step_texts(asked(history, "sales.orders.amount")) == [
        (-1, "*", "sales.lines.order_id", "INDIRECT", "FILTER"),
        (-1, "amount", "orders.value", "DIRECT", "TRANSFORMATION"),
        (-1, "amount", "sales.lines.order_id", "INDIRECT", "JOIN"),
        (-1, "amount", "sales.lines.price", "DIRECT", "AGGREGATION"),
    ]


def test_a_column_of_unknown_origin_says_so(history: History) -> None:
    history.land(history.intend(work("append"), offsets=once("x"), columns=COLUMNS))
    found = asked(history, "sales.orders.prices", direction=Direction.UP)
    unknown = [step for step in found.selection.steps if step.type == "UNKNOWN"]
    assert {step.field for step in unknown} == {None}
    assert {step.reason for step in unknown} == {"the plan does not tell"}


def test_a_batch_without_recorded_columns_leaves_every_column_unknown(history: History) -> None:
    history.land(history.intend(work("append"), offsets=mapping("queue", {"p": (0, 1)})))
    [step] = asked(history, "sales.orders.amount").selection.steps
    assert (step.type, step.field, step.reason) == ("UNKNOWN", None, "no columns were recorded")
    assert step.input is not None


def test_a_column_is_followed_down_over_values_and_over_rows(history: History) -> None:
    made = chain(history, 3)
    amount = asked(history, f"{made[0].name}.amount", direction=Direction.DOWN)
    assert [
        (step.depth, step.column) for step in amount.selection.steps if step.type == "DIRECT"
    ] == [
        (1, "amount"),
        (2, "amount"),
    ]
    key = asked(history, f"{made[0].name}.id", direction=Direction.DOWN)
    assert {(step.depth, step.column, step.subtype) for step in key.selection.steps} >= {
        (1, "*", "FILTER"),
        (1, "id", "IDENTITY"),
        (2, "id", "IDENTITY"),
    }


def test_a_column_that_is_not_there_is_answered_with_near_ones(history: History) -> None:
    history.land(history.intend(work("append")))
    with pytest.raises(UsageError, match="did you mean amount"):
        asked(history, "sales.orders.amout")


def test_the_same_plan_kept_once_counts_for_every_batch(history: History) -> None:
    first = history.intend(work("append"), offsets=once("1"), columns=COLUMNS)
    history.land(first)
    second = history.intend(work("append"), offsets=once("2"))
    facts = dict(second.facts)
    operation = {**facts["operations"][0], "column_lineage_at": first.index}  # type: ignore[index, dict-item]
    third = history.add(
        Draft(
            kind=Kind.INTENT,
            job=second.job,
            batch=second.batch,
            table=ORDERS,
            facts={**facts, "operations": [operation]},
        )
    )
    history.land(third)
    found = asked(history, ORDERS.name)
    [write] = [edge for edge in found.selection.edges.values() if edge.kind == "write"]
    assert write.blind == 0 and write.share.batches == 2
    assert {edge.column for edge in write.columns} == {None, "id", "amount"}


# -- reading ---------------------------------------------------------------------------------------


def test_a_fact_of_another_form_is_absent_and_the_entry_still_counts(history: History) -> None:
    opened = history.intend(work("append"), offsets=mapping("queue", {"p": (0, 1)}))
    odd = {**opened.facts, "tables": "none", "parent_run": 7, "stream": None}
    entry = history.ledger.append(
        Draft(kind=Kind.INTENT, job=opened.job, batch=opened.batch, table=ORDERS, facts=odd)
    )[0]
    history.land(entry)
    found = asked(history, ORDERS.name)
    assert "queue" in names(found)
    [read] = [lean(item) for item in history.ledger.stored(entry.index, entry.index + 1)]
    assert tables_of(read) == [] and read.facts.parent_run is None
    assert read.facts.operations[0].op == "append"


def test_an_entry_at_another_place_than_it_says_is_refused(history: History) -> None:
    history.intend(work("append"))
    [stored] = history.ledger.stored(0, 1)
    with pytest.raises(LedgerBroken):
        lean(StoredEntry(index=5, body=stored.body, leaf=stored.leaf))
    with pytest.raises(LedgerBroken):
        lean(StoredEntry(index=0, body=b"{", leaf=stored.leaf))


def test_entries_come_newest_first_and_progress_is_told(history: History) -> None:
    fill(history, 12)
    size = history.ledger.head().size
    told: list[tuple[int, int]] = []
    found = list(newest_first(history.ledger, size, lambda done, total: told.append((done, total))))
    assert [entry.index for entry in found] == list(range(size - 1, -1, -1))
    assert told[-1] == (size, size)


def test_what_is_held_does_not_grow_with_the_number_of_batches(history: History) -> None:
    for _ in range(30):
        history.land(history.intend(work("append")))
    [write] = [
        edge
        for edge in asked(history, ORDERS.name).selection.edges.values()
        if edge.kind == "write"
    ]
    assert write.share.batches == 30 and write.share.rows == 300
    assert len(write.share.recent) == 10
    assert write.share.first is not None and write.share.last is not None
    assert write.share.first.entry < write.share.recent[-1].entry < write.share.last.entry
