"""A table of a real PostgreSQL, mirrored and kept as a history, by way of Debezium and Kafka."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

import odi_audit as odi
from jobs.runner.frame_job import FrameJob
from jobs.runner.kafka_feed import KafkaFeed
from jobs.runner.loop import Until, run_job
from jobs.sources.base import Limits
from jobs.spec import parse_spec
from odi_audit.model.tables import parse
from odi_audit.query.offsets import continuity
from odi_audit.query.trace import trace
from odi_audit.query.verify import verify
from odi_audit.workspace import Workspace
from tests.support.independent import Eyes
from tests.support.killed import Killed
from tests.support.servers.topics import QUIET, Topics

if TYPE_CHECKING:
    import psycopg
    from confluent_kafka import Message

    from jobs.runner.outcome import Ran
    from tests.support.servers.debezium import Captured
    from tests.support.servers.kafka import Kafka

WAIT_S_MAX = 60
BIG = "x" * 20_000
"""Long enough to be stored apart, and left out of changes that do not touch it."""
SPEC = r"""
version: 1
job: shop/{mode}
source:
  type: kafka
  servers: {servers}
  pattern: '{name}\.(public\.orders|transaction)'
  value:
    format: json
    columns: id int not null, customer string, amount decimal(12,2), note string
  envelope: debezium
batch: {{cut_at_transactions: true}}
target:
  table: shop.{mode}
  mode: {mode}
  key: {key}
dead_letter: {{table: shop.dead_{mode}}}
"""


def run_once(lake: Workspace, text: str, *, rows: int = 10_000, die_at: str = "") -> Ran | None:
    spec = parse_spec(text, {})

    passed: list[str] = []

    def reach(place: str) -> None:
        passed.append(place)
        # Tables are made on the way to a batch, but only a batch has a gate.
        if place == die_at and "gated" in passed:
            raise Killed(place)

    try:
        with odi.run(spec.job, lake=lake, reach=reach) as run:
            job = FrameJob(spec, KafkaFeed(spec))
            return run_job(run, job, Limits(rows=rows), until=Until(drained=True))
    except Killed:
        return None


def until_seen(topics: Topics, name: str, number: int) -> list[Message]:
    """Wait until the topic has an event of a row, then return all of it."""
    deadline = time.monotonic() + WAIT_S_MAX
    count = 1
    while time.monotonic() < deadline:
        found = topics.read(name, count)
        keys = [json.loads(message.key() or b"{}") for message in found]
        if {"id": number} in keys:
            return found
        count = len(found) + 1
    raise TimeoutError(f"no event of row {number} in {name}")


def again(bootstrap: str, events: Sequence[Message]) -> None:
    """Deliver events once more, as a connector does that lost its place."""
    producer = Producer({**QUIET, "bootstrap.servers": bootstrap, "enable.idempotence": True})
    for event in events:
        producer.produce(
            event.topic() or "", event.value(), event.key(), partition=0, headers=event.headers()
        )
    assert producer.flush(WAIT_S_MAX) == 0


def source_rows(connection: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    found = connection.execute("SELECT id, customer, amount, note, priority FROM orders")
    return sorted(found.fetchall())


def versions(events: Sequence[Message]) -> list[tuple[Any, ...]]:
    """Compute the history of every row from the events, by another way than the product's."""
    told: dict[tuple[Any, ...], tuple[dict[str, Any], dict[str, Any]]] = {}
    for message in events:
        event = json.loads(message.value() or b"null")
        if event is None or "op" not in event:
            continue
        number = (event["transaction"] or {}).get("total_order", 0)
        key = None if message.key() is None else json.loads(message.key() or b"")["id"]
        place = (event["source"]["lsn"], event["op"] != "r", number, key)
        told[place] = event, dict(message.headers() or [])
    last: dict[int, dict[str, Any]] = {}
    held: dict[int, list[Any]] = {}
    done: list[tuple[Any, ...]] = []
    for (_, _, _, key), (event, headers) in sorted(told.items(), key=lambda item: item[0][:3]):
        now = event["source"]["ts_us"]
        after = event["after"]
        closing = list(held) if event["op"] == "t" else [key]
        for number in closing:
            current = held.get(number)
            row = None
            if after is not None:
                # Of a row whose key was changed: what it was under the other key.
                old = headers.get("__debezium.oldkey")
                before = (
                    last[number if old is None else json.loads(old)["id"]] if current or old else {}
                )
                row = {
                    name: before.get(name) if value == "__debezium_unavailable_value" else value
                    for name, value in after.items()
                }
                row.setdefault("priority", None)
            if current is not None and row == current[0]:
                continue
            if current is not None:
                done.append((number, *_values(current[0]), current[1], now, False))
                del held[number]
            if row is not None:
                held[number] = [row, now]
                last[number] = row
    done += [(number, *_values(row), since, None, True) for number, (row, since) in held.items()]
    return sorted(done, key=str)


def _values(row: dict[str, Any]) -> tuple[Any, ...]:
    amount = None if row["amount"] is None else Decimal(row["amount"]).quantize(Decimal("0.01"))
    return row["customer"], amount, row["note"], row["priority"]


def kept_versions(lake: Workspace) -> list[tuple[Any, ...]]:
    columns = ("id", "customer", "amount", "note", "priority")
    times = ("valid_from", "valid_to")
    found = Eyes.on(lake.root).table("shop.history").scan().to_arrow().to_pylist()

    def micros(moment: Any) -> int | None:
        return None if moment is None else round(moment.timestamp() * 1_000_000)

    made = [
        (
            *(row[name] for name in columns),
            *(micros(row[name]) for name in times),
            row["is_current"],
        )
        for row in found
    ]
    return sorted(made, key=str)


def test_a_mirror_and_a_history_follow_a_real_database(
    debezium_postgres: Captured, kafka: Kafka, lake: Workspace
) -> None:
    name, topics = f"cdc{secrets.token_hex(3)}", Topics(kafka.bootstrap)
    server, connect = debezium_postgres.server, debezium_postgres.connect
    topic, database = f"{name}.public.orders", server.new_database()
    mirror = SPEC.format(mode="mirror", key="from_event", servers=kafka.bootstrap, name=name)
    history = SPEC.format(mode="history", key="[id]", servers=kafka.bootstrap, name=name)
    with server.admin(database) as connection:
        connection.execute(
            "CREATE TABLE orders (id int PRIMARY KEY, customer text, amount numeric(12,2), "
            "note text); ALTER TABLE orders ALTER COLUMN note SET STORAGE EXTERNAL"
        )
        connection.execute(
            "INSERT INTO orders SELECT n, 'c' || n, n * 1.5, "
            "CASE WHEN n = 4 THEN 'short' ELSE %s END FROM generate_series(1, 6) n",
            [BIG],
        )
        debezium_postgres.capture(name, database, "public.orders")
        until_seen(topics, topic, 6)
        # Killed before the publish; the next one is killed after it: both land once.
        assert run_once(lake, mirror, die_at="gated") is None

        connection.execute("UPDATE orders SET amount = amount + 1 WHERE id <= 3")
        connection.execute("DELETE FROM orders WHERE id = 2")
        connection.execute("UPDATE orders SET id = 40 WHERE id = 4")
        # A large value that is not sent with the new key, and not with the next one.
        connection.execute("UPDATE orders SET id = 60 WHERE id = 6")
        connection.execute("UPDATE orders SET id = 61, customer = 'moved' WHERE id = 60")
        with connection.transaction():
            connection.execute("INSERT INTO orders VALUES (10, 'ten', 10, %s)", [BIG])
            connection.execute("UPDATE orders SET customer = 'TEN' WHERE id = 10")
            connection.execute("UPDATE orders SET note = 'short' WHERE id = 1")
        events = until_seen(topics, topic, 10)
        moves = [item for item in events if b'"op":"c"' in (item.value() or b"")]
        assert sum(b"__debezium_unavailable_value" in (item.value() or b"") for item in moves) == 2
        run_once(lake, history)
        assert run_once(lake, mirror, die_at="published:0") is None

        connect.wait_flushed()
        connect.kill()
        connection.execute("ALTER TABLE orders ADD COLUMN priority int")
        connection.execute("INSERT INTO orders VALUES (11, 'eleven', 11, 'n', 1)")
        connection.execute("UPDATE orders SET priority = 3 WHERE id = 5")
        connection.execute("UPDATE orders SET id = 62 WHERE id = 61")
        connect.start()
        connect.wait_running(name)
        again(kafka.bootstrap, until_seen(topics, topic, 62)[-8:])
        ran = run_once(lake, mirror)
        assert ran is not None
        assert ran.rejects == 0
        assert mirrored(lake) == source_rows(connection)

        connection.execute("TRUNCATE orders")
        connection.execute("INSERT INTO orders VALUES (1, 'new', 1, 'n', 1), (12, 'z', 2, 'n', 2)")
        events = until_seen(topics, topic, 12)
        again(kafka.bootstrap, events[-6:])
        run_once(lake, mirror)
        run_once(lake, history)
        assert mirrored(lake) == source_rows(connection)
    assert kept_versions(lake) == versions(events)
    assert not verify(lake.ledger(), lake.catalog())
    assert not continuity(lake.ledger()).events
    (row,) = trace(lake.ledger(), lake.catalog(), parse("shop.mirror"), "id = 12")
    (entry,) = lake.ledger().batch_entries(row.birth.batch)[:1]  # type: ignore[arg-type]
    assert f"{topic}-0" in entry.facts["offsets"]["ranges"]  # type: ignore[index,operator,call-overload]
    connect.drop(name)


def mirrored(lake: Workspace) -> list[tuple[Any, ...]]:
    columns = ("id", "customer", "amount", "note", "priority")
    return sorted(Eyes.on(lake.root).rows("shop.mirror", columns=columns))
