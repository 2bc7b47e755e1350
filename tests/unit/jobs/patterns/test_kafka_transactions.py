"""Batches are cut where transactions of the source end, and nowhere else."""

from __future__ import annotations

from typing import Any, cast

import pytest

from jobs.runner.kafka_transactions import check, shortened
from jobs.sources.base import Plan
from jobs.sources.kafka_read import Piece
from jobs.spec import parse_spec
from odi_audit.errors import UsageError
from odi_audit.model.offsets import kafka
from tests.unit.jobs.formats.events import Event, packed

DATA, MARKS = "shop.public.orders", "shop.transaction"


def change(place: int, one: int | None) -> Event:
    about = None if one is None else {"id": f"{one}:{place}", "total_order": 1}
    source = {"schema": "public", "table": "orders", "lsn": 100 * (one or 0)}
    value = {"op": "c", "source": source, "transaction": about}
    return Event(b"{}", packed(value), place)


def ended(place: int, one: int, count: int, **more: int) -> Event:
    tables = {"public.orders": count} | {f"public.{name}": other for name, other in more.items()}
    told = [{"data_collection": name, "event_count": number} for name, number in tables.items()]
    value = {"status": "END", "id": f"{one}:{100 * one + 50}", "data_collections": told}
    return Event(b"{}", packed(value), place)


def cut(
    changes: list[Event], marks: list[Event], *, more: bool = False, end: int | None = None
) -> dict[str, int] | None:
    end = 5 + len(marks) if end is None else end
    offsets = kafka(
        {DATA: {0: (10, 10 + len(changes))}, MARKS: {0: (5, end)}},
        bootstrap="h:1",
        cluster_id="c",
    )
    records = [
        (Piece(topic=DATA, partition=0, start=10, end=10 + len(changes)), changes),
        (Piece(topic=MARKS, partition=0, start=5, end=end), marks),
    ]
    made = shortened(Plan(offsets=offsets, rows=9, more=more), cast("Any", records))
    if made is None:
        return None
    return {name: int(part.end) for name, part in made.offsets.ranges.items()}


def test_a_transaction_that_has_not_ended_waits() -> None:
    changes = [change(10, None), change(11, 1), change(12, 1), change(13, 2)]
    found = cut(changes, [ended(5, 1, 2)])
    assert found == {f"{DATA}-0": 13, f"{MARKS}-0": 6}


def test_a_transaction_whose_changes_are_not_all_there_waits_with_all_that_follow() -> None:
    changes = [change(10, 1), change(11, 2), change(12, 3)]
    marks = [ended(5, 1, 1), ended(6, 2, 2), ended(7, 3, 1)]
    assert cut(changes, marks) == {f"{DATA}-0": 11, f"{MARKS}-0": 6}


def test_changes_of_tables_that_the_job_does_not_follow_are_not_waited_for() -> None:
    marks = [ended(5, 1, 1, items=7)]
    assert cut([change(10, 1)], marks) == {f"{DATA}-0": 11, f"{MARKS}-0": 6}


def test_changes_that_are_delivered_again_are_not_waited_for() -> None:
    changes = [change(10, 1), change(11, 4), change(12, 2)]
    marks = [ended(3, 2, 1), ended(5, 4, 1)]
    assert cut(changes, marks, end=6) == {f"{DATA}-0": 13, f"{MARKS}-0": 6}
    # Transaction 3 is not known from before: it may still be under way.
    assert cut([change(10, 3)], [ended(3, 2, 1)], end=5) is None


def test_a_mark_that_came_after_the_plan_keeps_its_transaction_out() -> None:
    marks = [ended(3, 9, 1), ended(5, 1, 1), ended(6, 2, 1)]
    found = cut([change(10, 1), change(11, 2)], marks, end=6)
    assert found == {f"{DATA}-0": 11, f"{MARKS}-0": 6}


def test_while_nothing_has_ended_there_is_no_batch() -> None:
    assert cut([change(10, 1)], []) is None
    with pytest.raises(UsageError, match="more changes than the 9 of a batch"):
        cut([change(10, 1)], [], more=True)


def test_the_topic_of_marks_must_be_followed() -> None:
    text = """
        version: 1
        job: shop/orders
        source:
          type: kafka
          servers: h:1
          topics: [shop.public.orders]
          value: {format: json}
          envelope: debezium
        batch: {cut_at_transactions: true}
        target: {table: shop.orders, mode: mirror, key: from_event}
    """
    with pytest.raises(UsageError, match="ends of transactions"):
        check(parse_spec(text, {}))
