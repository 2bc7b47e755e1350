"""Which part of a plan goes to which table, before any record is read."""

from __future__ import annotations

import pytest

from jobs.patterns.names import added
from jobs.runner.frame_legs import legs_of
from jobs.sources.base import Gap, Plan
from jobs.spec.model import Route, Target
from odi_audit.errors import UsageError
from odi_audit.model.offsets import kafka
from odi_audit.model.shares import Follows, Share


def plan(*topics: str) -> Plan:
    ranges = {topic: {0: (0, 5), 1: (0, 5)} for topic in topics}
    return Plan(offsets=kafka(ranges, bootstrap="h:1", cluster_id="c"), rows=10)


def routed(**more: object) -> Target:
    route = {"by": "topic", "table": "shop.{topic}", "allow": ["shop.*"], **more}
    return Target(route=Route.model_validate(route))


def test_one_table_gets_the_whole_plan() -> None:
    (leg,) = legs_of(plan("a", "b"), Target(table="shop.rows"))
    assert (leg.table, leg.share) == ("shop.rows", Share())


def test_each_topic_has_a_table_with_its_own_share() -> None:
    found = legs_of(plan("eu.orders", "us"), routed())
    assert [(leg.table, leg.share.partitions, set(leg.plan.offsets.ranges)) for leg in found] == [
        ("shop.eu_orders", ("eu.orders-0", "eu.orders-1"), {"eu.orders-0", "eu.orders-1"}),
        ("shop.us", ("us-0", "us-1"), {"us-0", "us-1"}),
    ]


def test_marks_go_along_with_every_table_and_are_read_once() -> None:
    marks = "shop.transaction"
    found = legs_of(plan("shop.a", "shop.b", marks), routed(), {marks})
    along = (f"{marks}-0", f"{marks}-1")
    assert [(leg.table, leg.share) for leg in found] == [
        (
            f"shop.shop_{name}",
            Share(partitions=(f"shop.{name}-0", f"shop.{name}-1", *along), follows=Follows.JOB),
        )
        for name in "ab"
    ]
    read = [set(leg.plan.offsets.ranges) for leg in found]
    assert read == [{"shop.a-0", "shop.a-1", *along}, {"shop.b-0", "shop.b-1"}]
    assert legs_of(plan(marks), routed(), {marks}) == []


def test_a_topic_with_nothing_in_the_batch_gets_no_table() -> None:
    ranges = {"a": {0: (3, 5)}, "b": {0: (7, 7)}, "c": {0: (9, 9)}}
    gap = Gap(partition="c-0", start=2, end=9)
    given = Plan(offsets=kafka(ranges, bootstrap="h:1", cluster_id="c"), rows=2, gaps=(gap,))
    found = legs_of(given, routed())
    # Where it begins is written down all the same; a gap is its own table's.
    assert [(leg.table, leg.share.partitions) for leg in found] == [
        ("shop.a", ("a-0", "b-0")),
        ("shop.c", ("c-0", "b-0")),
    ]


@pytest.mark.parametrize(
    ("topics", "more", "told"),
    [
        (("a", "b"), {"tables_max": 1}, "tables_max: 1"),
        (("a",), {"allow": ["other.*"]}, "not on the list"),
        (("shop.transaction",), {}, "marks of transactions"),
    ],
)
def test_what_the_spec_does_not_allow_stops_the_job(
    topics: tuple[str, ...], more: dict[str, object], told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        legs_of(plan(*topics), routed(**more))


def test_only_changes_bring_their_order_into_a_table() -> None:
    mirror, history = Target(mode="mirror"), Target(mode="history")
    assert added(mirror, changes=True) == {"_source_order": "string"}
    assert added(Target(), changes=False) == {}
    assert list(added(history, changes=False)) == ["valid_from", "valid_to", "is_current"]
    assert {"_source_order", "_source_end"} < set(added(history, changes=True))
