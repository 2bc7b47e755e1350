"""Bootstrap of a history (SCD2) from a real PostgreSQL, and its changes behind the hand-over."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from confluent_kafka import Message

from jobs.formats.debezium_envelope import UNAVAILABLE_VALUE
from jobs.runner.bootstrap import FIRST
from jobs.runner.outcome import Done
from odi_audit.model.offsets import OffsetKind
from odi_audit.workspace import Workspace
from tests.stack.test_job_bootstrap_sources import Orders, kafka_lines
from tests.support.independent import Eyes
from tests.support.servers.debezium import Captured
from tests.support.servers.kafka import Kafka

Values = tuple[Any, ...]
"""What a row says: name, amount, time, and how long its note is."""
Version = tuple[Any, ...]
"""Number, values, from and until when, whether it holds, and which changes began and ended it."""
LOG = 16
"""Digits of a place in the log, with which an order begins."""


def there(shop: Orders) -> dict[int, Values]:
    """Return the database's rows, by their numbers."""
    return {row[0]: (*row[1:4], len(row[4])) for row in shop.there()}


def kept(shop: Orders) -> list[Version]:
    """Return the versions that the table has."""
    found = Eyes.on(shop.lake.root).table("shop.orders").scan().to_arrow().to_pylist()
    return sorted(
        (
            (
                row["id"],
                (row["name"], row["amount"], row["at"].timestamp(), len(row["note"])),
                _micros(row["valid_from"]),
                _micros(row["valid_to"]),
                row["is_current"],
                row["_source_order"][:LOG],
                row["_source_end"] and row["_source_end"][:LOG],
            )
            for row in found
        ),
        key=str,
    )


def expected(first: dict[int, Values], events: list[Message]) -> list[Version]:
    """Compute every version from the rows of the past and the events behind the hand-over."""
    open_: dict[int, tuple[Values, int | None, str]] = {
        number: (values, None, FIRST[:LOG]) for number, values in first.items()
    }
    done: list[Version] = []
    told = [json.loads(item.value()) for item in events if item.value() is not None]
    for event in sorted(told, key=lambda event: event["source"]["lsn"]):
        number = (event["after"] or event["before"])["id"]
        place, now = f"{event['source']['lsn']:016x}", event["source"]["ts_us"]
        before = open_.get(number)
        after = None if event["op"] == "d" else _values(event["after"], before and before[0])
        if before is not None and before[0] == after:
            continue
        if before is not None:
            values, since, began = open_.pop(number)
            done.append((number, values, since, now, False, began, place))
        if after is not None:
            open_[number] = (after, now, place)
    done += [(n, values, since, None, True, o, None) for n, (values, since, o) in open_.items()]
    return sorted(done, key=str)


def _values(row: dict[str, Any], before: Values | None) -> Values:
    note = len(row["note"])
    if row["note"] == UNAVAILABLE_VALUE:
        assert before is not None, "the test left a value out that nothing shows"
        note = before[3]
    return row["name"], Decimal(row["amount"]), datetime.fromisoformat(row["at"]).timestamp(), note


def _micros(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1_000_000)


def test_a_history_begins_with_the_rows_of_a_database_and_goes_on_with_its_changes(
    debezium_postgres: Captured, kafka: Kafka, lake: Workspace, tmp_path: Path
) -> None:
    shop = Orders(debezium_postgres, kafka, lake, tmp_path, mode="history")
    shop.put(*range(1, 13), name="first")
    debezium_postgres.capture(shop.name, shop.database, "public.orders")
    shop.put(1, 2, name="before")
    shop.delete(3)
    shop.offset = len(shop.events())
    # Behind the hand-over, and read by history too: the topic has it once more.
    shop.put(4, name="passing")
    shop.put(4, 30, 31, name="shown")
    shop.delete(5, 31)
    # Before all that is read in the log, and not shown by it.
    late = debezium_postgres.server.admin(shop.database)
    late.autocommit = False
    late.execute("UPDATE orders SET name = 'late', at = clock_timestamp() WHERE id = 12")

    state, first, batches, events = there(shop), dict[int, Values](), 0, list[Message]()

    def meanwhile(done: Done) -> None:
        """See that a batch took what the database said then, once; then change the database."""
        nonlocal state, batches, events
        if done.plan.offsets.kind is not OffsetKind.WATERMARK:
            assert events, "the topic took over before history was complete"
            return
        batches += 1
        versions = kept(shop)
        held = {version[0]: version[1] for version in versions}
        assert len(held) == len(versions), "a row of the past has two versions"
        assert {version[2:] for version in versions} == {(None, None, True, FIRST[:LOG], None)}
        assert {number: held[number] for number in first} == first
        first.update({n: state[n] for n in held if n not in first})
        assert held == first
        assert batches < 10, "history has no end while the database is changed"
        shop.put(6, 7 + batches, 40, name=f"while {batches}")
        shop.delete(12 - batches)
        state = there(shop)
        if not done.plan.more:
            late.commit()
            shop.put(5, 31, name="again")
            shop.put(8, name="last")
            shop.delete(30)
            events = shop.events()

    shop.run(rows=9, tell=meanwhile)
    late.close()
    assert batches >= 2, "history came in one piece"
    assert any(UNAVAILABLE_VALUE.encode() in (item.value() or b"") for item in events)

    made = kept(shop)
    assert made == expected(first, events[shop.offset :])
    assert {version[0]: version[1] for version in made if version[4]} == there(shop)
    assert [version[1][0] for version in made if version[0] == 12][-1] == "late"
    assert [version[4:] for version in made if version[0] == 30][-1][0] is False
    assert kafka_lines(lake, "shop/orders") == {f"{shop.topic}-0": (shop.offset, len(events))}
    before = len(Eyes.on(lake.root).history("shop.orders"))
    assert shop.run().batches == 0
    assert len(Eyes.on(lake.root).history("shop.orders")) == before
    assert not Eyes.on(lake.root).rows("shop.dead")
    shop.captured.connect.drop(shop.name)
