"""Which part of a plan goes to which table, before any record is read."""

from __future__ import annotations

import pytest

from jobs.patterns.names import added
from jobs.runner.frame_legs import legs_of
from jobs.sources.base import Plan
from jobs.spec.model import Route, Target
from odi_audit.errors import UsageError
from odi_audit.model.offsets import kafka
from odi_audit.model.shares import Share


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
