"""Rows whose keys change keep the values that the source does not send again.

Judged by the source itself: a table in plain Python that remembers what it held, row by row.
"""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.functions import unix_micros

from jobs.formats.debezium_envelope import OLD_KEY, OP, UNAVAILABLE
from jobs.formats.debezium_moved import _as_text
from jobs.patterns.moved import LOST, old_rows
from odi_audit.errors import RuleBroken
from tests.spark.test_frame_job import Given, change, changes_of, clean, rows_of, run_all
from tests.support.moving import COLUMNS, SCHEMA, Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odi_audit.workspace import Workspace

SEED = 20260116
MARK = "__debezium_unavailable_value"
DEAD = {"dead_letter": {"table": "shop.dead"}}


def told(chance: Random) -> tuple[Source, list[list[dict[str, Any]]], list[Any]]:
    """Let a source live through two batches; return it, the deliveries, and what it held."""
    source = Source(chance, worlds=40)
    batches: list[list[dict[str, Any]]] = []
    held: list[Any] = []
    for number, steps in enumerate((150, 350)):
        for world in range(source.worlds if number == 0 else 0):
            source.create((world, 0), "r")
            source.create((world, 1), "r")
        for step in range(steps):
            if (number, step) == (1, 250):
                source.truncate()
            source.step()
        # What came last is delivered again with what is new, and some of it twice more.
        again = batches[-1][-60:] if batches else []
        batches.append(source.events)
        source.events = []
        sent = [*again, *batches[-1], *chance.sample(batches[-1], 30)]
        held.append((source.table(), sent))
    deliveries = [sent for _, sent in held]
    for sent in deliveries:
        # Rows of several partitions arrive in any order.
        chance.shuffle(sent)
    return source, deliveries, [table for table, _ in held]


@pytest.mark.parametrize("mode", ["mirror", "history"])
def test_rows_that_change_their_keys_end_as_they_are_in_the_source(
    mode: str, lake: Workspace
) -> None:
    source, deliveries, held = told(Random(SEED))
    assert source.moves > 200
    target = f'{{"table": "shop.rows", "mode": "{mode}", "key": ["world", "id"]}}'
    for number in range(2):
        feed = Given(deliveries[: number + 1], schema=SCHEMA, changes=True)
        ran = run_all(lake, changes_of(target, **DEAD), feed)
        assert (ran.batches, ran.rejects) == (1, 0)
        if mode == "mirror":
            assert sorted(rows_of(lake, "shop.rows", *COLUMNS)) == held[number]
    if mode == "history":
        names = (*COLUMNS, "valid_from", "valid_to", "is_current")
        assert sorted(rows_of(lake, "shop.rows", *names), key=str) == source.versions()
    assert clean(lake)


def moved(place: int, old: int | None, new: int, name: str = MARK) -> list[dict[str, Any]]:
    before = None if old is None else json.dumps({"id": old})
    create = change("c", place, new, name, **{UNAVAILABLE: ["name"], OLD_KEY: before})
    return [change("d", place, old or 0), create]


def test_a_row_whose_values_are_nowhere_is_put_aside_and_never_shows_a_mark(
    lake: Workspace,
) -> None:
    # Columns have other names in the table: old keys go through the transform as deletes do, and
    # a text that was not sent is known by its mark.
    target = '{"table": "shop.rows", "mode": "mirror", "key": ["number"]}'
    sql = "SELECT id AS number, name AS title, * EXCEPT (id, name, __odi_old_key) FROM batch"
    spec = changes_of(target, transform={"sql": sql}, **DEAD)
    hidden = {UNAVAILABLE: ["name"]}
    feed = Given(
        [
            [change("c", 1, 1, "one"), change("c", 2, 2, "two"), change("c", 3, 3, "three")],
            [
                *moved(10, 1, 11), *moved(11, 11, 12), *moved(12, 12, 13),  # a chain
                *moved(20, 77, 21),  # of a row that was never seen
                *moved(22, None, 23),  # of a connector that sends no header
                change("d", 30, 2), *moved(32, 2, 33),  # its row came between, and was not read
                *moved(40, 88, 41), change("u", 41, 41, MARK, **hidden),  # and what follows it
                *moved(50, 99, 51), change("u", 51, 51, "known"),  # or makes up for it
                *moved(52, 98, 53), change("d", 53, 53),
            ],
            [*moved(60, 3, 61), change("u", 61, 21, "known too")],
            # No key changes here: that the row was put aside shows only in the table.
            [change("u", 70, 41, MARK, **hidden), change("u", 71, 13, MARK, **hidden)],
        ],
        changes=True,
    )  # fmt: skip
    ran = run_all(lake, spec, feed)
    assert (ran.batches, ran.rejects) == (4, 6)
    assert sorted(rows_of(lake, "shop.rows", "number", "title")) == [
        (13, "one"), (21, "known too"), (51, "known"), (61, "three"),
    ]  # fmt: skip
    dead = rows_of(lake, "shop.dead", "offset", "reason", "value")
    told = sorted((json.loads(value)["number"], reason) for _, reason, value in dead)
    assert told == [(number, LOST) for number in (21, 23, 33, 41, 41, 41)]
    assert clean(lake)
    target = '{"table": "shop.alone", "mode": "history", "key": ["id"]}'
    alone = changes_of(target, job="shop/alone")
    with pytest.raises(RuleBroken) as refused:
        run_all(lake, alone, Given([moved(20, 77, 21)], changes=True))
    assert LOST in str(refused.value.facts)
    unknown = [change("c", 80, 1, "one"), change("u", 81, 2, MARK, **hidden)]
    with pytest.raises(RuleBroken) as refused:
        run_all(lake, alone, Given([unknown], changes=True))
    assert LOST in str(refused.value.facts)


def test_old_keys_of_every_type_reach_spark_as_the_table_holds_them(spark: SparkSession) -> None:
    key = {
        "n": Decimal("-12345678901234.50"), "day": date(2026, 2, 2), "tag": b"\x00\xff",
        "at": datetime(2026, 2, 2, 10, 0, 0, 1, tzinfo=UTC), "t": 'a "b"\\\n', "x": 0.1, "y": True,
        "local": datetime(1969, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001 - of no zone
    }  # fmt: skip
    types = "n decimal(20,2), day date, tag binary, at timestamp, t string, x double, y boolean"
    text = json.dumps(key, default=_as_text)
    row = {OP: "c", UNAVAILABLE: ["doc"], OLD_KEY: text, "doc": MARK}
    schema = f"{types}, local timestamp_ntz, doc string, {OP} string, {UNAVAILABLE} array<string>"
    frame = spark.createDataFrame([row], f"{schema}, {OLD_KEY} string")
    (found,) = old_rows(frame).withColumn("at", unix_micros("at")).collect()
    made = found.asDict()
    assert made["at"] == 1_770_026_400_000_001
    assert {name: made[name] for name in key if name != "at"} == {
        name: value for name, value in key.items() if name != "at"
    }
    assert (made["doc"], made[OP], made[UNAVAILABLE]) == (None, "d", None)
