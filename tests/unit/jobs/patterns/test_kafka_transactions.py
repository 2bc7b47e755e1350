"""Batches are cut where transactions of the source end, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest

from jobs.formats.debezium_transactions import FromAvro, Tell, Told, from_json
from jobs.runner.kafka_transactions import check
from jobs.runner.transaction_cut import SETTLE_MS
from jobs.runner.transaction_flow import marks_among, place_of
from jobs.runner.transaction_plan import Around, Shortened, shortened
from jobs.sources.base import Gap, Plan
from jobs.sources.kafka_read import Piece
from jobs.spec import parse_spec
from odi_audit.errors import UsageError
from odi_audit.model.offsets import kafka
from tests.support.connect_avro import avro_schema, on_the_wire
from tests.unit.jobs.formats.events import packed, sample
from tests.unit.jobs.formats.test_avro_debezium import Schemas

ORDERS, ITEMS, MARKS = "shop.public.orders", "shop.public.items", "shop.transaction"
NOW_MS = 1_794_787_826_000
LONG_AGO_MS = NOW_MS - 2 * SETTLE_MS


@dataclass(frozen=True, slots=True)
class Record:
    """A record with those methods of the client's own that a cut asks."""

    place: int
    given: bytes | None
    millis: int = NOW_MS

    def value(self) -> bytes | None:
        return self.given

    def offset(self) -> int:
        return self.place

    def timestamp(self) -> tuple[int, int]:
        return 1, self.millis


Events = Sequence[Any]


def change(
    one: int | None, number: int = 1, *, table: str = "orders", lsn: int | None = None
) -> Any:
    about = None
    if one is not None:
        lsn = 100 * one if lsn is None else lsn
        about = {"id": f"{one}:{lsn}", "total_order": number, "data_collection_order": number}
    source = {"schema": "public", "table": table, "lsn": lsn}
    return {"op": "c", "after": {"id": [1, "}"]}, "source": source, "transaction": about}


def began(one: int) -> Any:
    return {"status": "BEGIN", "id": f"{one}:{100 * one}", "data_collections": None}


def ended(one: int, **tables: int) -> Any:
    told = [{"data_collection": f"public.{name}", "event_count": n} for name, n in tables.items()]
    return {"status": "END", "id": f"{one}:{100 * one + 50}", "data_collections": told}


def marks(*transactions: tuple[int, dict[str, int]]) -> list[Any]:
    return [event for one, tables in transactions for event in (began(one), ended(one, **tables))]


def records(start: int, events: Events, millis: int = NOW_MS) -> list[Record]:
    return [
        Record(start + at, event if isinstance(event, bytes) else packed(event), millis)
        for at, event in enumerate(events)
    ]


def cut(
    topics: Mapping[str, Events],
    *,
    marks: Events = (),
    before: Events = (),
    since: Events = (),
    ages: Mapping[str, int] | None = None,
    follows: Iterable[str] = (),
    **more: Any,
) -> Shortened:
    """Cut a plan in which topics begin at offset 10, and marks at 50 behind those of ``before``.

    ``since`` are marks that came after the plan; ``follows`` topics that are not there yet.
    """
    ages = ages or {}
    ranges = {f"{name}": {0: (10, 10 + len(events))} for name, events in topics.items()}
    ranges[MARKS] = {0: (50, 50 + len(marks))}
    offsets = kafka(ranges, bootstrap="h:1", cluster_id="c")
    rows = sum(map(len, topics.values())) + len(marks)
    read = [
        (
            Piece(topic=name, partition=0, start=10, end=10 + len(events)),
            records(10, events, ages.get(name, NOW_MS)),
        )
        for name, events in topics.items()
    ]
    first = 50 - len(before)
    told = [*before, *marks, *since]
    piece = Piece(topic=MARKS, partition=0, start=first, end=first + len(told))
    read.append((piece, records(first, told, ages.get(MARKS, NOW_MS))))
    here = dict.fromkeys((*topics, MARKS), (0,))
    return shortened(
        Plan(offsets=offsets, rows=rows, gaps=more.pop("gaps", ())),
        cast("Any", read),
        tell=more.pop("tell", from_json),
        around=Around(
            topics=here, marks=frozenset({MARKS}), follows={*here, *follows}.__contains__
        ),
        now_ms=NOW_MS,
        **more,
    )


def ends(made: Shortened) -> dict[str, int]:
    """Return how far each topic goes, from where it began."""
    assert made.plan is not None
    assert made.plan.rows == sum(
        int(part.end) - int(part.start or 0) for part in made.plan.offsets.ranges.values()
    )
    return {
        name.removesuffix("-0"): int(part.end) - int(part.start or 0)
        for name, part in made.plan.offsets.ranges.items()
    }


def test_a_transaction_that_has_not_ended_waits() -> None:
    given = [change(None), change(1), change(1, 2), change(2)]
    made = cut({ORDERS: given}, marks=[*marks((1, {"orders": 2})), began(2)])
    assert ends(made) == {ORDERS: 3, MARKS: 2}


def test_a_transaction_whose_changes_are_not_all_there_waits_with_all_that_follow() -> None:
    told = marks((1, {"orders": 1}), (2, {"orders": 1, "items": 1}), (3, {"orders": 1}))
    made = cut({ORDERS: [change(1), change(2), change(3)], ITEMS: [change(None)]}, marks=told)
    assert ends(made) == {ORDERS: 1, ITEMS: 1, MARKS: 2}
    assert made.lacking is not None
    assert (made.lacking.table, made.lacking.there, made.lacking.wanted) == ("public.items", 0, 1)


def test_a_transaction_over_two_topics_goes_with_both() -> None:
    given = {
        ORDERS: [change(1), change(2), change(3)],
        ITEMS: [change(1, table="items"), change(1, 2, table="items"), change(3, table="items")],
    }
    told = marks((1, {"orders": 1, "items": 2}), (2, {"orders": 1}), (3, {"orders": 1, "items": 2}))
    assert ends(cut(given, marks=told)) == {ORDERS: 2, ITEMS: 2, MARKS: 4}


def test_a_topic_that_is_cut_to_nothing_is_not_in_the_batch() -> None:
    given = {ORDERS: [change(1)], ITEMS: [change(2, table="items")]}
    told = [*marks((1, {"orders": 1})), began(2)]
    assert ends(cut(given, marks=told)) == {ORDERS: 1, MARKS: 2}
    # What is to be written down stays: a gap that was accepted, a place where the job begins.
    gap = Gap(partition=f"{ITEMS}-0", start=1, end=10)
    assert ends(cut(given, marks=told, gaps=(gap,))) == {ORDERS: 1, ITEMS: 0, MARKS: 2}
    assert ends(cut({ORDERS: [change(1)], ITEMS: []}, marks=told)) == {
        ORDERS: 1,
        ITEMS: 0,
        MARKS: 2,
    }


def test_changes_of_tables_that_the_job_does_not_follow_are_not_waited_for() -> None:
    told = marks((1, {"orders": 1, "items": 7}))
    assert ends(cut({ORDERS: [change(1)]}, marks=told)) == {ORDERS: 1, MARKS: 2}


def test_a_table_whose_topic_is_not_there_yet_is_waited_for_if_it_would_be_followed() -> None:
    told = marks((1, {"orders": 1, "items": 7}))
    assert cut({ORDERS: [change(1)]}, marks=told, follows=[ITEMS]).plan is None


def test_changes_that_are_delivered_again_are_not_waited_for() -> None:
    known = marks((2, {"orders": 1}))
    given = [change(2), change(4), change(2)]
    told = marks((4, {"orders": 1}))
    assert ends(cut({ORDERS: given}, marks=told, before=known)) == {ORDERS: 3, MARKS: 2}
    # Transaction 3 is not known from before: it may still be under way.
    assert cut({ORDERS: [change(3)]}, before=known).plan is None
    # Nor is 1. Its place in the log is done with, but a long transaction begins before others end.
    old = {ORDERS: LONG_AGO_MS, MARKS: LONG_AGO_MS}
    assert cut({ORDERS: [change(1)]}, before=known, ages=old).plan is None
    # Only an end that lies there tells that it ended before.
    again = cut({ORDERS: [change(1)]}, before=known, marks=[ended(1, orders=2)])
    assert ends(again) == {ORDERS: 1, MARKS: 1}


def test_a_change_that_is_delivered_twice_does_not_count_for_another() -> None:
    told = marks((1, {"orders": 3}))
    assert cut({ORDERS: [change(1), change(1, 2), change(1, 2)]}, marks=told).plan is None
    given = [change(1), change(1, 2), change(1), change(1, 2), change(1, 3)]
    assert ends(cut({ORDERS: given}, marks=told)) == {ORDERS: 5, MARKS: 2}


def test_the_rest_of_a_transaction_that_is_delivered_again_is_not_waited_for_in_full() -> None:
    # Of the second delivery of transaction 1 the first change is in an earlier batch already.
    known = marks((1, {"orders": 3}))
    again = cut({ORDERS: [change(1, 2), change(1, 3)]}, marks=known, before=known)
    assert ends(again) == {ORDERS: 2, MARKS: 2}
    # The connector went on in the middle of it: only its end comes once more.
    assert ends(cut({ORDERS: [change(1, 3)]}, marks=known[1:], before=known)) == {
        ORDERS: 1,
        MARKS: 1,
    }


def test_a_transaction_that_began_before_the_job_is_taken_as_it_is() -> None:
    given = [change(1, 3), change(2)]
    told = [ended(1, orders=3), *marks((2, {"orders": 1}))]
    assert ends(cut({ORDERS: given}, marks=told)) == {ORDERS: 2, MARKS: 3}


def test_a_mark_that_came_after_the_plan_keeps_its_transaction_out() -> None:
    told = marks((1, {"orders": 1}), (2, {"orders": 1}))
    made = cut({ORDERS: [change(1), change(2)]}, marks=told[:3], since=told[3:])
    assert ends(made) == {ORDERS: 1, MARKS: 2}


def test_while_nothing_has_ended_there_is_no_batch() -> None:
    assert cut({ORDERS: [change(1)]}).plan is None


def test_only_as_many_transactions_go_as_a_batch_has_room_for() -> None:
    given = {ORDERS: [change(1), change(1, 2), change(2), change(3)]}
    told = marks((1, {"orders": 2}), (2, {"orders": 1}), (3, {"orders": 1}))
    assert ends(cut(given, marks=told, rows_max=7)) == {ORDERS: 3, MARKS: 4}
    assert ends(cut(given, marks=told, rows_max=6)) == {ORDERS: 2, MARKS: 2}
    small = cut(given, marks=told, rows_max=3)
    assert (small.plan, small.is_large) == (None, True)


# -- what cannot be read ---------------------------------------------------------------------------


def test_a_change_that_cannot_be_read_counts_for_its_transaction_after_a_while() -> None:
    given = {ORDERS: [change(1), b'{"op": "c", "tran', change(2)]}
    told = marks((1, {"orders": 2}), (2, {"orders": 1, "items": 1}))
    early = cut(given, marks=told, follows=[ITEMS])
    assert early.plan is not None, "a change of a later transaction is there: nothing more comes"
    assert ends(early)[ORDERS] == 1
    alone = {ORDERS: given[ORDERS][:2]}
    assert cut(alone, marks=told[:2]).plan is None
    assert ends(cut(alone, marks=told[:2], ages={MARKS: LONG_AGO_MS})) == {ORDERS: 2, MARKS: 2}


def test_a_record_that_cannot_be_read_goes_with_the_transaction_that_it_may_belong_to() -> None:
    given = {ORDERS: [change(1), b"broken", change(2)]}
    told = [*marks((1, {"orders": 1})), began(2)]
    assert ends(cut(given, marks=told, ages={ORDERS: LONG_AGO_MS})) == {ORDERS: 1, MARKS: 2}
    # With it the next one is whole, and it counts once only.
    rest = {ORDERS: [b"broken", change(2), change(3)]}
    told = marks((2, {"orders": 2}), (3, {"orders": 2}))
    old = {ORDERS: LONG_AGO_MS, MARKS: LONG_AGO_MS}
    assert ends(cut(rest, marks=told, ages=old)) == {ORDERS: 2, MARKS: 2}


def test_a_record_that_cannot_be_read_at_the_end_of_a_topic_goes_after_a_while() -> None:
    given = {ORDERS: [change(1), b"broken"]}
    told = marks((1, {"orders": 1}))
    assert ends(cut(given, marks=told)) == {ORDERS: 1, MARKS: 2}
    assert ends(cut(given, marks=told, ages={ORDERS: LONG_AGO_MS})) == {ORDERS: 2, MARKS: 2}


def test_a_change_that_is_missing_for_good_is_not_waited_for_behind_a_later_one() -> None:
    told = marks((1, {"orders": 2}), (2, {"orders": 1}))
    assert cut({ORDERS: [change(1)]}, marks=told).plan is None
    assert ends(cut({ORDERS: [change(1), change(2)]}, marks=told)) == {ORDERS: 2, MARKS: 4}


def test_an_end_that_cannot_be_read_does_not_hold_its_transaction_for_ever() -> None:
    given = {ORDERS: [change(1), change(2)]}
    told = [began(1), b"broken", *marks((2, {"orders": 1}))]
    assert cut(given, marks=told).plan is None
    assert cut(given, marks=told[:2], ages={MARKS: LONG_AGO_MS}).plan is None
    assert ends(cut(given, marks=told, ages={MARKS: LONG_AGO_MS})) == {ORDERS: 2, MARKS: 4}
    # A begin that cannot be read must not let a transaction pass for one from before the job.
    assert cut({ORDERS: [change(1)]}, marks=[b"broken", ended(1, orders=2)]).plan is None


# -- the same in Avro ------------------------------------------------------------------------------


def in_avro(schemas: Schemas, name: str, **values: Any) -> bytes:
    """A sample of Debezium's in Avro, with other values in its envelope."""
    found = sample(name)["value"]
    payload = {**found["payload"]}
    for key, value in values.items():
        payload[key] = {**payload[key], **value} if isinstance(value, dict) else value
    return on_the_wire(schemas.number(avro_schema(found["schema"])), found["schema"], payload)


def said(told: Told | None) -> tuple[Any, ...]:
    assert told is not None
    return told.transaction, told.source, told.status, told.id, told.data_collections


def test_envelopes_and_marks_in_avro_say_the_same_as_in_json() -> None:
    schemas = Schemas()
    names = ["schema-c", "schema-u", "schema-d", "schema-r", "schema-t", "schema-u-after-ddl",
             "schema-txn-begin", "schema-txn-end"]  # fmt: skip
    given = [in_avro(schemas, name) for name in names]
    tell: Tell = FromAvro(schemas)
    in_json = from_json([packed(sample(name)["value"]) for name in names])
    plain = from_json([packed(sample(name)["value"]["payload"]) for name in names])
    assert tell(given) == in_json
    assert list(map(said, in_json)) == list(map(said, plain))
    assert [item.transaction and item.transaction.id for item in plain if item][:2] == [
        "732:26392968",
        "733:26393224",
    ]
    unknown = b"\0\0\0\1\0" + given[0][5:]
    broken = tell([None, given[0][:-2], b"{}", unknown, b"", given[-1]])
    assert [item is None for item in broken] == [False, True, True, True, True, False]
    assert from_json([None, b"{", b"5", b"\xff", b'{"schema":1,"payload":null}'])[1:] == [None] * 4


def test_a_plan_in_avro_is_cut_as_in_json() -> None:
    schemas = Schemas()

    def row(one: int, number: int) -> bytes:
        about = {"id": f"{one}:{100 * one}", "data_collection_order": number}
        return in_avro(schemas, "schema-u", transaction=about)

    def mark(event: Any) -> bytes:
        known = {"event_count": None, "ts_ms": 1}
        return in_avro(schemas, "schema-txn-end", **known, **event)

    told = [mark(event) for event in marks((1, {"orders": 2}), (2, {"orders": 2}))]
    given = [in_avro(schemas, "schema-r"), row(1, 1), row(1, 2), row(2, 1)]
    made = cut({ORDERS: given}, marks=told, tell=FromAvro(schemas))
    assert ends(made) == {ORDERS: 3, MARKS: 2}


# -- names -----------------------------------------------------------------------------------------


def test_a_table_may_have_the_name_of_the_topic_of_marks() -> None:
    assert marks_among([ORDERS, MARKS, "shop.public.transaction"]) == {MARKS}
    assert marks_among(["a.transaction", "b.transaction"]) == {"a.transaction", "b.transaction"}
    assert marks_among(["a.b.transaction", "a.b.public.t"]) == {"a.b.transaction"}


def test_two_connectors_with_the_same_numbers_are_cut_by_themselves() -> None:
    topics = {f"{name}.{end}": (0,) for name in "ab" for end in ("public.orders", "transaction")}
    here = frozenset({"a.transaction", "b.transaction"})
    ranges = {name: {0: (0, 2)} for name in topics}
    given = {
        "a.public.orders": [change(1), change(2)],
        "b.public.orders": [change(1), change(1, 2)],
        "a.transaction": marks((1, {"orders": 1})),
        "b.transaction": marks((1, {"orders": 2})),
    }
    read = [
        (Piece(topic=name, partition=0, start=0, end=2), records(0, events))
        for name, events in given.items()
    ]
    plan = Plan(offsets=kafka(ranges, bootstrap="h:1", cluster_id="c"), rows=8)
    around = Around(topics=topics, marks=here, follows=topics.__contains__)
    made = shortened(plan, cast("Any", read), tell=from_json, around=around, now_ms=NOW_MS)
    found = ends(made)
    assert (found["a.public.orders"], found["b.public.orders"]) == (1, 2)


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("732:26392968", "700:26393224"),
        ("file=binlog.000009,pos=500", "file=binlog.000010,pos=4"),
        ("3e11fa47-71ca-11e1-9e33-c80aa9429562:9", "3e11fa47-71ca-11e1-9e33-c80aa9429562:10"),
    ],
)
def test_the_names_of_transactions_tell_their_place_in_the_log(earlier: str, later: str) -> None:
    one, other = place_of(earlier), place_of(later)
    assert one is not None
    assert other is not None
    assert one[0] == other[0]
    assert one < other


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
