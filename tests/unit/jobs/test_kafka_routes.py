"""Many topics in one job: how a plan is narrowed, and how small pieces are read together."""

from __future__ import annotations

import pytest

from jobs.formats.types import together, wider_of
from jobs.runner.kafka_job import KafkaJob, narrowed, table_of
from jobs.sources.base import Gap, Plan
from jobs.sources.kafka_read import SMALL_ROWS_MAX, TOGETHER_MAX, Piece, bunches
from jobs.spec import parse_spec
from odi_audit.errors import UsageError
from odi_audit.ids import BatchId
from odi_audit.ledger.port import Position
from odi_audit.model.offsets import kafka

SPEC = """
version: 1
job: shop/all
source: {type: kafka, servers: localhost:1, pattern: '.+', value: {format: json}}
target: {route: {by: topic, table: 'landing.{topic}', allow: ['landing.*'], tables_max: 3}}
"""


def plan(*topics: str, gaps: tuple[str, ...] = ()) -> Plan:
    ranges = {topic: {0: (0, 10), 1: (5, 10)} for topic in topics}
    lost = tuple(Gap(partition=f"{topic}-0", start=0, end=3) for topic in gaps)
    rows = 15 * len(topics)
    return Plan(offsets=kafka(ranges, bootstrap="b:1", cluster_id="c"), rows=rows, gaps=lost)


def at(partition: str, index: int) -> Position:
    return Position(
        partition=partition, start=0, end=5, identity=None, batch=BatchId("b-1"), index=index
    )


def piece(number: int, rows: int) -> Piece:
    return Piece(topic=f"t{number}", partition=0, start=0, end=rows)


def test_a_plan_over_too_many_topics_takes_those_served_longest_ago() -> None:
    whole = plan("a", "b", "c", "d", gaps=("d",))
    positions = {"a-0": at("a-0", 7), "a-1": at("a-1", 9), "b-0": at("b-0", 8)}
    made = narrowed(whole, positions, 2)
    assert {name.rpartition("-")[0] for name in made.offsets.ranges} == {"c", "d"}
    assert (made.rows, made.more) == (30, True)
    left = narrowed(plan("a", "b"), positions, 1)
    assert set(left.offsets.ranges) == {"b-0", "b-1"}
    assert narrowed(whole, positions, 4) is whole


def test_topics_that_would_share_a_table_or_are_too_many_are_told() -> None:
    assert table_of("landing.{topic}", "shop.public-orders") == "landing.shop_public_orders"
    job = KafkaJob(parse_spec(SPEC, {}))
    job._check_routes(["a-0", "a-1", "b-0", "c-0"])
    with pytest.raises(UsageError, match="would both go to table"):
        job._check_routes(["a.b-0", "a_b-0"])
    with pytest.raises(UsageError, match="tables_max: 3"):
        job._check_routes(["a-0", "b-0", "c-0", "d-0"])


def test_small_pieces_are_read_together_and_large_ones_alone_in_their_order() -> None:
    small, large = SMALL_ROWS_MAX, SMALL_ROWS_MAX + 1
    pieces = [piece(0, small), piece(1, 1), piece(2, large), piece(3, 1), piece(3, 1)]
    assert [[one.topic for one in bunch] for bunch in bunches(pieces)] == [
        ["t0", "t1"], ["t2"], ["t3"], ["t3"],
    ]  # fmt: skip
    many = [piece(number, 1) for number in range(TOGETHER_MAX + 1)]
    assert [len(bunch) for bunch in bunches(many)] == [TOGETHER_MAX, 1]


def test_samples_that_disagree_give_the_type_that_holds_them_all() -> None:
    assert together([{"n": "bigint", "s": "string"}, {"n": "double", "x": "boolean"}]) == {
        "n": "double", "s": "string", "x": "boolean",
    }  # fmt: skip
    assert wider_of("double", "bigint") == "double"
    assert wider_of("decimal(5,2)", "decimal(18,2)") == "decimal(18,2)"
    assert wider_of("string", "bigint") == "string", "neither holds the other: the first stays"
