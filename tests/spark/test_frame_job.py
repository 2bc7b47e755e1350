"""Jobs on Spark's path: each mode, transforms, dead letters, routes; all in one batch each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.functions import length

import odi_audit as odi
from jobs.formats.debezium_envelope import OLD_KEY, OP, ORDER, TIME, UNAVAILABLE
from jobs.runner.frame_job import FrameJob
from jobs.runner.loop import Until, run_job
from jobs.sources.base import Choices, Lag, Limits, Plan
from jobs.spec import parse_spec
from jobs.tasks.rows import NEWS, OFFSET, PARTITION, PASSED, REASON, VALUE
from odi_audit.errors import RuleBroken, UsageError
from odi_audit.model.offsets import kafka
from odi_audit.query.offsets import continuity
from odi_audit.query.verify import verify
from tests.support.independent import Eyes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from jobs.runner.outcome import Ran
    from odi_audit.committer.run import Run
    from odi_audit.ledger.port import Position
    from odi_audit.spark.live import LiveTable
    from odi_audit.workspace import Workspace

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ROW = "id bigint, name string, at timestamp"
CONTROL = (
    f"{OP} string, {ORDER} string, {TIME} timestamp, {UNAVAILABLE} array<string>, {OLD_KEY} string"
)


@dataclass
class Given:
    """A feed whose batches the test gives: each a list of records."""

    batches: list[list[dict[str, Any]]]
    schema: str = ROW
    changes: bool = False
    table: LiveTable | None = field(default=None, init=False)

    def prepare(self, run: Run) -> None:
        """Need nothing."""

    def identity(self) -> str:
        return "kafka://given"

    def plan(
        self,
        run: Run,
        positions: Mapping[str, Position],
        limits: Limits,
        *,
        choices: Choices,
        elsewhere: Sequence[str] = (),
        waited_s: float = 0,
    ) -> Plan | None:
        at = max((int(item.end) for item in positions.values()), default=0)
        if at >= len(self.batches):
            return None
        offsets = kafka({"given": {0: (at, at + 1)}}, bootstrap="h:1", cluster_id="given")
        return Plan(offsets=offsets, rows=1)

    def columns(self, run: Run, plan: Plan) -> dict[str, str]:
        return dict(item.strip().split(" ", 1) for item in self.schema.split(","))

    def frame(self, run: Run, plan: Plan, table: LiveTable | None) -> DataFrame:
        (part,) = plan.offsets.ranges.values()
        schema = self.schema + (f", {CONTROL}" if self.changes else "")
        schema += f", {PARTITION} string, {OFFSET} bigint, {REASON} string, {VALUE} binary"
        schema += f", {NEWS} string"
        assert isinstance(part.start, int)
        rows = [
            {PARTITION: "given-0", OFFSET: place, **row}
            for place, row in enumerate(self.batches[part.start])
        ]
        return run.spark.createDataFrame(rows, schema)

    def lag(self, run: Run, positions: Mapping[str, Position]) -> Lag:
        return Lag()


def spec_of(target: str, **more: Any) -> Any:
    document = {
        "version": 1,
        "job": "shop/rows",
        "source": {"type": "kafka", "servers": "h:1", "topics": ["given"], "value": "json"},
    }
    document["source"]["value"] = {"format": "json"}  # type: ignore[index]
    text = json.dumps({**document, **more})
    return parse_spec(f'{text[:-1]}, "target": {target}}}', {})


def changes_of(target: str, **more: Any) -> Any:
    source = {
        "type": "kafka", "servers": "h:1", "topics": ["given"], "value": {"format": "json"},
        "envelope": "debezium",
    }  # fmt: skip
    return spec_of(target, source=source, **more)


def run_all(lake: Workspace, spec: Any, feed: Given) -> Ran:
    with odi.run(spec.job, lake=lake) as run:
        return run_job(run, FrameJob(spec, feed), Limits(), until=Until(drained=True))


def row(number: int, name: str | None = "n", minute: int = 0) -> dict[str, Any]:
    return {"id": number, "name": name, "at": NOON + timedelta(minutes=minute)}


def change(op: str, place: int, number: int | None, name: str | None = None, **more: Any) -> Any:
    when = NOON + timedelta(minutes=place)
    return {"id": number, "name": name, OP: op, ORDER: f"{place:016x}", TIME: when, **more}


def rows_of(lake: Workspace, table: str, *columns: str) -> list[tuple[Any, ...]]:
    return Eyes.on(lake.root).rows(table, columns=columns or ("*",))


def clean(lake: Workspace) -> bool:
    return not verify(lake.ledger(), lake.catalog()) and not continuity(lake.ledger()).events


def test_an_upsert_keeps_the_newest_row_also_when_an_older_one_comes_late(lake: Workspace) -> None:
    target = """{"table": "shop.rows", "mode": "upsert", "key": ["id"], "order_by": ["at"],
                 "delete_when": "name = 'gone'"}"""
    feed = Given([
        [row(1, "a", 1), row(1, "b", 2), row(2, "c", 1)],
        [row(1, "late", 1), row(2, "gone", 2), row(3, "d", 1)],
    ])  # fmt: skip
    ran = run_all(lake, spec_of(target), feed)
    assert (ran.batches, ran.records) == (2, 6)
    assert rows_of(lake, "shop.rows", "id", "name") == [(1, "b"), (3, "d")]
    assert clean(lake)


def test_a_mirror_follows_the_log_and_not_the_arrival(lake: Workspace) -> None:
    hidden = {UNAVAILABLE: ["name"]}
    feed = Given([
        # Twice delivered, out of order, changed without its large value, key changed.
        [change("r", 1, 1, "a"), change("c", 2, 2, "b"), change("u", 4, 2, "b2"),
         change("u", 3, 2, "b1"), change("u", 4, 2, "b2"), change("c", 5, 3, "big"),
         change("u", 6, 3, "__debezium_unavailable_value", **hidden)],
        [change("u", 8, 1, "a2"), change("u", 3, 2, "b1"), change("d", 9, 3),
         change("c", 10, 4, "moved"), change("c", 11, 5, "five")],
        [change("u", 12, 1, "__debezium_unavailable_value", **hidden), change("d", 7, 5)],
        [change("c", 13, 6, "six"), change("t", 14, None), change("c", 15, 7, "seven")],
        [change("u", 14, 7, "stale"), change("c", 16, 8, "eight")],
    ], changes=True, schema="id bigint, name string")  # fmt: skip
    target = '{"table": "shop.rows", "mode": "mirror", "key": ["id"]}'
    spec = changes_of(
        target, contract={"required": ["name"], "rules": {"long": "length(name) > 0"}}
    )
    seen = []
    with odi.run(spec.job, lake=lake) as run:
        job = FrameJob(spec, feed)
        job.prepare(run)
        for _ in feed.batches:
            plan = job.plan(run, Limits(), choices=Choices(), waited_s=0)
            assert plan is not None
            job.carry_out(run, plan)
            seen.append(rows_of(lake, "shop.rows", "id", "name"))
    assert seen == [
        [(1, "a"), (2, "b2"), (3, "big")],
        [(1, "a2"), (2, "b2"), (4, "moved"), (5, "five")],
        [(1, "a2"), (2, "b2"), (4, "moved"), (5, "five")],
        [(7, "seven")],
        [(7, "seven"), (8, "eight")],
    ]
    assert clean(lake)


def test_a_truncate_alone_empties_a_mirror(lake: Workspace) -> None:
    target = '{"table": "shop.rows", "mode": "mirror", "key": ["id"]}'
    feed = Given([[change("c", 1, 1, "a")], [change("c", 2, 2, "b"), change("t", 3, None)]],
                 changes=True, schema="id bigint, name string")  # fmt: skip
    assert run_all(lake, changes_of(target), feed).batches == 2
    assert rows_of(lake, "shop.rows") == []
    assert clean(lake)


def test_a_history_has_every_version_once(lake: Workspace) -> None:
    target = '{"table": "shop.rows", "mode": "history", "key": ["id"]}'
    hidden = {UNAVAILABLE: ["name"]}
    feed = Given([
        [change("c", 1, 1, "a"), change("u", 2, 1, "b"), change("c", 2, 2, "x"),
         change("u", 3, 1, "__debezium_unavailable_value", **hidden)],
        [change("u", 2, 1, "b"), change("u", 4, 1, "c"), change("d", 5, 2), change("d", 5, 2)],
        [change("c", 6, 2, "y"), change("t", 7, None), change("c", 8, 2, "z")],
        [change("t", 9, None)],
    ], changes=True, schema="id bigint, name string")  # fmt: skip
    spec = changes_of(target, contract={"required": ["name"]})
    assert run_all(lake, spec, feed).batches == 4
    columns = ("id", "name", "valid_from", "valid_to", "is_current")
    minutes = [
        (
            number,
            name,
            int((begin - NOON).total_seconds() // 60),
            None if end is None else int((end - NOON).total_seconds() // 60),
            current,
        )
        for number, name, begin, end, current in rows_of(lake, "shop.rows", *columns)
    ]
    assert sorted(minutes) == [
        (1, "a", 1, 2, False),
        (1, "b", 2, 4, False),
        (1, "c", 4, 7, False),
        (2, "x", 2, 5, False),
        (2, "y", 6, 7, False),
        (2, "z", 8, 9, False),
    ]
    assert clean(lake)


def test_a_history_of_plain_rows_goes_by_their_own_order(lake: Workspace) -> None:
    target = """{"table": "shop.rows", "mode": "history", "key": ["id"], "order_by": ["at"]}"""
    feed = Given([[row(1, "a", 1), row(1, "b", 3)], [row(1, "late", 2), row(1, "c", 4)]])
    run_all(lake, spec_of(target), feed)
    found = rows_of(lake, "shop.rows", "name", "is_current")
    assert sorted(found) == [("a", False), ("b", False), ("c", True)]


def test_rows_that_break_the_contract_are_put_aside_with_their_bytes(lake: Workspace) -> None:
    more = {
        "contract": {
            "key": ["id"], "required": ["name"], "rules": {"small": "id < 100"},
            "on_violation": "dead_letter",
        },
        "dead_letter": {"table": "shop.dead"},
    }  # fmt: skip
    broken = {REASON: "no JSON", VALUE: b"{"}
    feed = Given([[row(1), row(1), row(2, None), row(300) | {VALUE: b"three"}, row(4), broken]])
    ran = run_all(lake, spec_of('{"table": "shop.rows"}', **more), feed)
    assert (ran.records, ran.rejects) == (6, 4)
    assert rows_of(lake, "shop.rows", "id") == [(1,), (4,)]
    found = rows_of(lake, "shop.dead", "offset", "reason", "value")
    dead = {offset: (reason, value) for offset, reason, value in found}
    assert b'"id":1' in dead[1][1]
    assert {place: (reason, place > 2 and value) for place, (reason, value) in dead.items()} == {
        1: ("another row of the batch has the same id", False),
        2: ("column name is required, and is null", False),
        3: ("rule small is broken: id < 100", b"three"),
        5: ("no JSON", b"{"),
    }
    assert clean(lake)


def test_without_a_table_for_dead_letters_a_bad_record_refuses_the_batch(lake: Workspace) -> None:
    feed = Given([[row(1), {REASON: "no JSON", VALUE: b"{"}]])
    with pytest.raises(RuleBroken, match="1 of 2 records"):
        run_all(lake, spec_of('{"table": "shop.rows"}'), feed)
    assert rows_of(lake, "shop.rows") == []


def test_a_transform_makes_the_table_and_lets_it_grow(lake: Workspace) -> None:
    feed = Given([[row(1, "a"), row(2, "b")]])
    spec = spec_of('{"table": "shop.rows"}', transform="SELECT id, upper(name) AS big FROM batch")
    run_all(lake, spec, feed)
    assert rows_of(lake, "shop.rows", "id", "big") == [(1, "A"), (2, "B")]
    feed.batches.append([row(3, "c")])
    run_all(lake, spec_of('{"table": "shop.rows"}', transform=f"{__name__}:with_length"), feed)
    assert rows_of(lake, "shop.rows", "id", "big", "long") == [
        (1, "A", None), (2, "B", None), (3, None, 1),
    ]  # fmt: skip
    feed.batches.append([row(4, "d")])
    for hook, told in (
        ("SELECT nothing FROM batch", "transform.sql"),
        (f"{__name__}:fails", "fails failed: ValueError: on purpose"),
        (f"{__name__}:absent", "has no function absent"),
    ):
        with pytest.raises(UsageError, match=told):
            run_all(lake, spec_of('{"table": "shop.rows"}', transform=hook), feed)
    assert clean(lake)


def with_length(frame: DataFrame) -> DataFrame:
    return frame.select("id", length("name").alias("long"))


def fails(frame: DataFrame) -> DataFrame:
    raise ValueError("on purpose")


def test_rows_go_to_the_table_that_a_field_names(lake: Workspace) -> None:
    route = """{"route": {"by": "field", "field": "name", "table": "shop.by_{field}",
                "allow": ["shop.by_*"], "tables_max": 3}}"""
    feed = Given([
        [row(1, "eu"), row(2, "us"), row(3, None)], [row(4, "eu")], [row(5, None)],
        [row(6, "asia"), row(7, "us")],
    ])  # fmt: skip
    spec = spec_of(route, dead_letter={"table": "shop.dead"})
    assert run_all(lake, spec, feed).batches == 4
    assert rows_of(lake, "shop.by_eu", "id") == [(1,), (4,)]
    assert rows_of(lake, "shop.by_us", "id") == [(2,), (7,)]
    assert rows_of(lake, "shop.by_asia", "id") == [(6,)]
    assert len(rows_of(lake, "shop.dead")) == 2
    assert clean(lake)
    feed.batches.append([row(number, f"n{number}") for number in range(4)])
    with pytest.raises(UsageError, match="tables_max: 3"):
        run_all(lake, spec, feed)


def test_partitions_are_replaced_by_the_rows_of_a_batch(lake: Workspace) -> None:
    target = """{"table": "shop.rows", "mode": "replace_partitions", "partition_by": ["name"]}"""
    feed = Given([[row(1, "a"), row(2, "a"), row(3, "b")], [row(4, "a")]])
    run_all(lake, spec_of(target), feed)
    assert rows_of(lake, "shop.rows", "id") == [(3,), (4,)]
    feed.batches.append([row(5, "b")])
    replace = """{"table": "shop.rows", "mode": "replace", "where": "name = 'b'"}"""
    run_all(lake, spec_of(replace), feed)
    assert rows_of(lake, "shop.rows", "id") == [(4,), (5,)]


def test_changes_can_be_kept_as_a_log(lake: Workspace) -> None:
    feed = Given([[change("c", 1, 1, "a"), {NEWS: PASSED}, change("d", 2, 1)]],
                 changes=True, schema="id bigint, name string")  # fmt: skip
    run_all(lake, changes_of('{"table": "shop.log"}'), feed)
    found = rows_of(lake, "shop.log", "id", "name", "_source_op")
    assert sorted(found, key=str) == [(1, "a", "c"), (1, None, "d")]
