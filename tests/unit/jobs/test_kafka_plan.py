"""The next batch of Kafka topics: where a job begins and goes on, what stops it, how it is cut."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.sources.base import Choices, Limits, share
from jobs.sources.kafka_plan import behind, plan
from jobs.sources.kafka_values import Start, StartAt, Subscription
from odi_audit.errors import OffsetGap, SourceChanged, UsageError
from odi_audit.model.offsets import kafka, offsets_from_json
from tests.support.planning import LATEST, ORDERS, at, cluster, landed, placed, ranges, topic

SHOP = Subscription(pattern=r"shop\..+", exclude=("shop.noise",))


# -- the ordinary road -----------------------------------------------------------------------------


def test_a_job_goes_on_where_the_ledger_says() -> None:
    state = cluster(topic("orders", (0, 10), (5, 20)))
    made = plan(state, placed(at("orders-0", 4), at("orders-1", 20)), subscription=ORDERS)
    assert ranges(made) == {"orders-0": (4, 10)}
    assert made is not None
    assert (made.rows, made.more, made.generation, made.accept_gap) == (6, False, 0, None)


def test_nothing_new_is_no_batch() -> None:
    state = cluster(topic("orders", (0, 10)))
    assert plan(state, placed(at("orders-0", 10)), subscription=ORDERS) is None
    assert plan(cluster(topic("orders", (7, 7))), {}, subscription=ORDERS) is None


def test_the_batch_carries_the_cluster_the_topic_ids_and_the_server_for_its_name() -> None:
    state = cluster(topic("orders", (0, 3), id="T9"), bootstrap="SASL_SSL://one:9092,two:9092")
    made = plan(state, {}, subscription=ORDERS)
    assert made is not None
    assert made.offsets.source == "kafka://C1"
    assert made.offsets.identity == {"orders-0": "T9"}
    assert made.offsets.servers == "one:9092"
    assert offsets_from_json(made.offsets.to_json()) == made.offsets


def test_the_servers_are_no_part_of_what_a_batch_is() -> None:
    one = kafka({"t": {0: (0, 1)}}, bootstrap="one:9092", cluster_id="C")
    two = kafka({"t": {0: (0, 1)}}, bootstrap="u:pw@two:9092", cluster_id="C")
    assert (one.source, one.start(), one.end()) == (two.source, two.start(), two.end())
    assert two.servers == "two:9092"
    assert "servers" not in kafka({"t": {0: (0, 1)}}, bootstrap="one:9092").to_json()
    old = {"kind": "kafka", "source": "kafka://C", "ranges": {"t-0": [0, 1]}}
    assert offsets_from_json(old).servers is None


def test_the_same_input_gives_the_same_plan_in_whatever_order_it_comes() -> None:
    one, two = topic("shop.a", (0, 9), (0, 7)), topic("shop.b", (0, 5))
    known = placed(at("shop.a-0", 3), at("shop.a-1", 1), at("shop.b-0", 0))
    first = plan(cluster(one, two), known, subscription=SHOP, limits=Limits(rows=4))
    mixed = dict(reversed(list(known.items())))
    again = plan(cluster(two, one), mixed, subscription=SHOP, limits=Limits(rows=4))
    assert first == again
    assert first is not None
    assert list(first.offsets.ranges) == list(again.offsets.ranges if again else {})


# -- where a job begins ----------------------------------------------------------------------------


def test_a_topic_begins_at_the_earliest_and_all_of_its_partitions_are_written_down() -> None:
    state = cluster(topic("orders", (5, 9), (3, 3)))
    made = plan(state, {}, subscription=ORDERS, limits=Limits(rows=2))
    assert ranges(made) == {"orders-0": (5, 7), "orders-1": (3, 3)}
    assert made is not None
    assert made.more


def test_latest_is_decided_once_and_written_down_though_no_row_is_there() -> None:
    made = plan(cluster(topic("orders", (0, 8), (0, 0))), {}, subscription=ORDERS, start=LATEST)
    assert ranges(made) == {"orders-0": (8, 8), "orders-1": (0, 0)}
    assert made is not None
    known = landed(made, {})
    later = cluster(topic("orders", (0, 9), (0, 2)))
    then = plan(later, known, subscription=ORDERS, start=LATEST)
    assert ranges(then) == {"orders-0": (8, 9), "orders-1": (0, 2)}


def test_a_start_by_time_or_by_offsets_holds_for_partitions_that_the_first_batch_left_out() -> None:
    state = cluster(topic("orders", (0, 50), (0, 50)))
    for rule in (StartAt.TIMESTAMP, StartAt.OFFSETS):
        start = Start(at=rule, places={"orders-0": 40, "orders-1": 45})
        made = plan(state, {}, subscription=ORDERS, start=start, limits=Limits(rows=1))
        assert ranges(made) == {"orders-0": (40, 41), "orders-1": (45, 45)}
        assert made is not None
        then = plan(state, landed(made, {}), subscription=ORDERS, start=start)
        assert ranges(then) == {"orders-0": (41, 50), "orders-1": (45, 50)}


@pytest.mark.parametrize("place", [4, 51])
def test_a_given_offset_that_is_not_there_is_refused(place: int) -> None:
    start = Start(at=StartAt.OFFSETS, places={"orders-0": place})
    with pytest.raises(UsageError, match=rf"offset {place} for orders-0, which holds 5 to"):
        plan(cluster(topic("orders", (5, 50))), {}, subscription=ORDERS, start=start)


def test_a_given_offset_of_a_partition_that_is_not_there_is_refused() -> None:
    start = Start(at=StartAt.OFFSETS, places={"orders-7": 1})
    with pytest.raises(UsageError, match="orders-7"):
        plan(cluster(topic("orders", (0, 5))), {}, subscription=ORDERS, start=start)


def test_a_new_partition_is_read_from_zero_whatever_the_start_rule() -> None:
    state = cluster(topic("orders", (0, 8), (0, 3)))
    made = plan(state, placed(at("orders-0", 8)), subscription=ORDERS, start=LATEST)
    assert ranges(made) == {"orders-1": (0, 3)}
    assert made is not None
    assert made.news == ("topic orders has new partitions: orders-1",)


def test_a_new_partition_whose_first_records_expired_unread_is_a_gap() -> None:
    state = cluster(topic("orders", (0, 8), (2, 3)))
    known = placed(at("orders-0", 8))
    with pytest.raises(OffsetGap, match="orders-1: read up to 0, begins at 2"):
        plan(state, known, subscription=ORDERS)
    made = plan(state, known, subscription=ORDERS, choices=Choices(accept_gap="lost"))
    assert ranges(made) == {"orders-1": (2, 3)}


def test_a_topic_that_appears_later_is_read_from_its_beginning_whatever_the_start_rule() -> None:
    state = cluster(topic("shop.a", (0, 8)), topic("shop.new", (0, 2), id="T2"))
    made = plan(state, placed(at("shop.a-0", 8)), subscription=SHOP, start=LATEST)
    assert ranges(made) == {"shop.new-0": (0, 2)}
    assert made is not None
    assert made.news == ("topic shop.new is new, with 1 partitions",)
    only = cluster(topic("shop.new", (0, 2), id="T2"))
    assert ranges(plan(only, {}, subscription=SHOP, start=LATEST, begun=True)) == {
        "shop.new-0": (0, 2)
    }


def test_topics_that_do_not_fit_the_pattern_or_are_excluded_are_left_alone() -> None:
    state = cluster(topic("shop.a", (0, 1)), topic("shop.noise", (0, 9)), topic("xshop.a", (0, 9)))
    assert set(ranges(plan(state, {}, subscription=SHOP))) == {"shop.a-0"}


def test_a_subscription_names_topics_or_a_pattern_that_can_be_read() -> None:
    for wrong in ({}, {"topics": ("a",), "pattern": "b"}, {"pattern": "("}):
        with pytest.raises(UsageError):
            Subscription(**wrong)  # type: ignore[arg-type]


# -- what stops the job ----------------------------------------------------------------------------


def test_expired_records_stop_the_job_until_the_gap_is_accepted_and_then_only_once() -> None:
    state, known = cluster(topic("orders", (30, 40), (0, 5))), placed(
        at("orders-0", 10), at("orders-1", 5)
    )  # fmt: skip
    with pytest.raises(
        OffsetGap, match=r"up to 20 records expired.*read up to 10, begins at 30"
    ) as e:
        plan(state, known, subscription=ORDERS)
    assert "--accept-gap" in str(e.value.hint)
    allowed = Choices(accept_gap="retention was too short", generation=3)
    made = plan(state, known, subscription=ORDERS, choices=allowed)
    assert ranges(made) == {"orders-0": (30, 40)}
    assert made is not None
    assert made.accept_gap == "retention was too short"
    assert made.generation == 0
    assert [(gap.start, gap.end) for gap in made.gaps] == [(10, 30)]
    more = cluster(topic("orders", (30, 41), (0, 5)))
    then = plan(more, landed(made, known), subscription=ORDERS, choices=allowed)
    assert then is not None
    assert (then.accept_gap, then.gaps) == (None, ())


def test_a_gap_up_to_the_end_is_written_down_though_no_row_is_left() -> None:
    state, known = cluster(topic("orders", (30, 30))), placed(at("orders-0", 10))
    made = plan(state, known, subscription=ORDERS, choices=Choices(accept_gap="gone"))
    assert ranges(made) == {"orders-0": (30, 30)}
    assert made is not None
    assert plan(state, landed(made, known), subscription=ORDERS) is None


def test_a_topic_made_again_stops_the_job_until_a_generation_is_given_and_then_only_once() -> None:
    state = cluster(topic("orders", (0, 3), (0, 0), id="T2"))
    known = placed(*(at(f"orders-{number}", 2) for number in range(4)))
    with pytest.raises(SourceChanged, match=r"was T1 in batch b-1 and is T2") as caught:
        plan(state, known, subscription=ORDERS, choices=Choices(accept_gap="no help"))
    assert "--replay" in str(caught.value.hint)
    made = plan(state, known, subscription=ORDERS, choices=Choices(generation=1))
    assert ranges(made) == {"orders-0": (0, 3), "orders-1": (0, 0)}
    assert made is not None
    assert made.generation == 1
    after = landed(made, known)
    assert plan(state, after, subscription=ORDERS) is None
    more = plan(cluster(topic("orders", (0, 4), (0, 1), id="T2")), after, subscription=ORDERS)
    assert ranges(more) == {"orders-0": (3, 4), "orders-1": (0, 1)}
    assert more is not None
    assert more.generation == 0


def test_a_topic_made_again_with_other_partitions_only_is_noticed() -> None:
    state = cluster(topic("orders", (0, 3), id="T2"))
    with pytest.raises(SourceChanged, match="made again"):
        plan(state, placed(at("orders-1", 5)), subscription=ORDERS)


def test_a_partition_number_of_the_topic_before_does_not_pass_for_a_known_one() -> None:
    known = placed(at("orders-0", 3, identity="T2"), at("orders-1", 5))
    widened = cluster(topic("orders", (0, 3), (0, 9), id="T2"))
    with pytest.raises(SourceChanged, match="partitions 1"):
        plan(widened, known, subscription=ORDERS)
    made = plan(widened, known, subscription=ORDERS, choices=Choices(generation=2))
    assert ranges(made) == {"orders-1": (0, 9)}


def test_another_cluster_behind_the_same_name_stops_the_job() -> None:
    state = cluster(topic("orders", (0, 3)), id="C2")
    with pytest.raises(SourceChanged, match=r"one:9092 is kafka://C2 now.*kafka://C1"):
        plan(state, {}, subscription=ORDERS, elsewhere=["kafka://C1"])
    made = plan(
        state, {}, subscription=ORDERS, elsewhere=["kafka://C1"], choices=Choices(generation=1)
    )
    assert made is not None
    assert made.generation == 1
    then = plan(
        cluster(topic("orders", (0, 5)), id="C2"), landed(made, {}), subscription=ORDERS,
        elsewhere=["kafka://C1"],
    )  # fmt: skip
    assert ranges(then) == {"orders-0": (3, 5)}


@pytest.mark.parametrize("choices", [Choices(), Choices(accept_gap="x", generation=9)])
def test_a_position_beyond_the_end_stops_the_job_whatever_was_allowed(choices: Choices) -> None:
    state = cluster(topic("orders", (0, 7)))
    with pytest.raises(SourceChanged, match="read up to 9, ends at 7"):
        plan(state, placed(at("orders-0", 9)), subscription=ORDERS, choices=choices)


@pytest.mark.parametrize("identity", ["T1", None])
def test_a_partition_that_is_gone_stops_the_job(identity: str | None) -> None:
    known = placed(at("orders-0", 3, identity=identity), at("orders-1", 3, identity=identity))
    with pytest.raises(SourceChanged, match="orders-1 had been read"):
        plan(cluster(topic("orders", (0, 5))), known, subscription=ORDERS)


def test_a_topic_that_is_gone_stops_the_job_until_it_is_taken_out() -> None:
    known = placed(at("shop.a-0", 3), at("shop.gone-0", 3))
    state = cluster(topic("shop.a", (0, 5)))
    with pytest.raises(SourceChanged, match=r"shop\.gone"):
        plan(state, known, subscription=SHOP)
    without = replace(SHOP, exclude=("shop.gone",))
    assert ranges(plan(state, known, subscription=without)) == {"shop.a-0": (3, 5)}


def test_a_broker_without_topic_ids_is_followed_by_offsets_alone() -> None:
    state = cluster(topic("orders", (0, 5), id=None))
    assert ranges(plan(state, placed(at("orders-0", 3)), subscription=ORDERS)) == {
        "orders-0": (3, 5)
    }


def test_choices_are_refused_where_they_say_nothing() -> None:
    for wrong in ({"accept_gap": " "}, {"generation": -1}):
        with pytest.raises(UsageError):
            Choices(**wrong)  # type: ignore[arg-type]


# -- limits ----------------------------------------------------------------------------------------


def test_a_batch_waits_until_it_is_full_or_its_time_has_come() -> None:
    state, known = cluster(topic("orders", (0, 10))), placed(at("orders-0", 0))
    limits = Limits(rows=11, seconds=60)
    assert plan(state, known, subscription=ORDERS, limits=limits, waited_s=59) is None
    assert plan(state, known, subscription=ORDERS, limits=limits, waited_s=60) is not None
    full = Limits(rows=10, seconds=60)
    assert plan(state, known, subscription=ORDERS, limits=full, waited_s=0) is not None


def test_a_limit_in_bytes_is_kept_by_the_length_of_rows_so_far() -> None:
    state, known = cluster(topic("orders", (0, 10))), placed(at("orders-0", 0))
    made = plan(state, known, subscription=ORDERS, limits=Limits(bytes=350), row_bytes=100.0)
    assert ranges(made) == {"orders-0": (0, 3)}
    tiny = plan(state, known, subscription=ORDERS, limits=Limits(bytes=1), row_bytes=100.0)
    assert ranges(tiny) == {"orders-0": (0, 1)}
    unknown = plan(state, known, subscription=ORDERS, limits=Limits(bytes=1))
    assert ranges(unknown) == {"orders-0": (0, 10)}


def test_rows_are_split_evenly_and_what_one_does_not_need_goes_to_the_others() -> None:
    assert share({"a": 100, "b": 1, "c": 100}, 21, {}) == {"a": 10, "b": 1, "c": 10}
    assert share({"a": 0, "b": 5}, 100, {}) == {"a": 0, "b": 5}


def test_where_rows_do_not_reach_for_all_the_one_served_longest_ago_comes_first() -> None:
    assert share({"a": 1000, "b": 1}, 1, {"a": 4, "b": 9}) == {"a": 1, "b": 0}
    assert share({"a": 1000, "b": 1}, 1, {"a": 10, "b": 9}) == {"a": 0, "b": 1}


@given(
    backlog=st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 50)),
    rows=st.integers(1, 200),
)
def test_a_share_uses_every_row_and_leaves_nobody_below_an_even_part(
    backlog: dict[str, int], rows: int
) -> None:
    granted = share(backlog, rows, {})
    assert sum(granted.values()) == min(rows, sum(backlog.values()))
    waiting = [name for name, count in backlog.items() if count]
    for name in waiting:
        assert granted[name] <= backlog[name]
        assert granted[name] >= min(backlog[name], rows // len(waiting))


def test_the_lag_counts_what_is_there_and_not_what_expired() -> None:
    state = cluster(topic("orders", (30, 40), (0, 5), (0, 0)))
    assert behind(state, placed(at("orders-0", 10), at("orders-1", 4))) == {
        "orders-0": 10, "orders-1": 1, "orders-2": 0,
    }  # fmt: skip
