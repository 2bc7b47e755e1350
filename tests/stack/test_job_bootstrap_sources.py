"""Bootstrap from a real PostgreSQL into a mirror, from another table, and by a time."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import odi_audit as odi
from jobs.formats.debezium_envelope import UNAVAILABLE_VALUE
from jobs.runner.bootstrap import FIRST
from jobs.runner.choose import worker_of
from jobs.runner.loop import Until, run_job
from jobs.runner.outcome import Done, Ran
from jobs.sources.base import Limits
from jobs.spec import parse_spec
from odi_audit.model.offsets import OffsetKind
from odi_audit.model.tables import parse
from odi_audit.query.offsets import continuity
from odi_audit.query.trace import trace
from odi_audit.query.verify import verify
from odi_audit.workspace import Workspace
from tests.support.independent import Eyes
from tests.support.killed import Killed
from tests.support.servers.debezium import Captured
from tests.support.servers.kafka import Kafka
from tests.support.servers.topics import Topics

if TYPE_CHECKING:
    from confluent_kafka import Message

WAIT_S_MAX = 60
BIG = "x" * 20_000
"""Long enough to be stored apart, and left out of changes that do not touch it."""
CLICKS = """
version: 1
job: shop/clicks
source:
  type: kafka
  servers: {servers}
  topics: [{topic}]
  value: {{format: json}}
bootstrap:
  from: {history}
  hand_over: {hand_over}
target: {{table: shop.clicks}}
"""
ORDERS = """
version: 1
job: shop/orders
source:
  type: kafka
  servers: {servers}
  topics: [{topic}]
  value:
    format: json
    columns: id int not null, name string, amount decimal(12,2), at timestamp, note string
  envelope: debezium
bootstrap:
  from:
    type: jdbc
    url: jdbc:postgresql://{host}:{port}/{database}
    user: postgres
    password: ${{PASSWORD}}
    table: orders
    watermark: {{column: at}}
  hand_over: {{offsets: {{{topic}: {{0: {offset}}}}}}}
target: {{table: shop.orders, mode: {mode}, key: [id]}}
dead_letter: {{table: shop.dead}}
"""


def run_once(
    lake: Workspace,
    text: str,
    folder: Path,
    *,
    rows: int = 10_000,
    tell: Callable[[Done], None] = lambda _done: None,
    **variables: str,
) -> Ran:
    spec = parse_spec(text, variables)
    with odi.run(spec.job, lake=lake) as run:
        return run_job(
            run, worker_of(spec, folder=folder), Limits(rows=rows), until=Until(drained=True),
            tell=tell,
        )  # fmt: skip


def kafka_lines(lake: Workspace, job: str) -> dict[str, tuple[object, object]]:
    """Return the first and the last offset of each partition; the whole story must be clean."""
    told = continuity(lake.ledger())
    assert not told.events
    assert not verify(lake.ledger(), lake.catalog())
    return {
        line.partition: (line.first, line.last)
        for source in told.lines
        if source.source.startswith("kafka://") and source.job == job
        for line in source.partitions
    }


# -- a database, then its changes ------------------------------------------------------------------


class Orders:
    """A table of a database that never rests, its changes in a topic, and the job over both."""

    def __init__(
        self,
        captured: Captured,
        kafka: Kafka,
        lake: Workspace,
        folder: Path,
        mode: str = "mirror",
    ) -> None:
        self.captured, self.lake, self.folder, self.mode = captured, lake, folder, mode
        self.name, self.topics = f"boot{secrets.token_hex(3)}", Topics(kafka.bootstrap)
        self.topic = f"{self.name}.public.orders"
        self.servers = kafka.bootstrap
        self.database = captured.server.new_database()
        self.sql = captured.server.admin(self.database)
        self.sql.execute(
            "CREATE TABLE orders (id int PRIMARY KEY, name text, amount numeric(12,2), "
            "at timestamptz NOT NULL DEFAULT clock_timestamp(), note text); "
            "ALTER TABLE orders ALTER COLUMN note SET STORAGE EXTERNAL"
        )
        self.offset = 0
        self._marks = 1_000

    def put(self, *numbers: int, name: str) -> None:
        """Insert or update rows, each with a newer watermark than all others."""
        for number in numbers:
            self.sql.execute(
                "INSERT INTO orders (id, name, amount, note) VALUES (%s, %s, %s, %s) "
                "ON CONFLICT (id) DO UPDATE SET name = excluded.name, at = clock_timestamp()",
                (number, name, number, BIG),
            )

    def delete(self, *numbers: int) -> None:
        self.sql.execute("DELETE FROM orders WHERE id = ANY(%s)", (list(numbers),))

    def events(self) -> list[Message]:
        """Return all of the topic, once it has whatever was changed so far."""
        self._marks += 1
        self.put(self._marks, name="mark")
        deadline = time.monotonic() + WAIT_S_MAX
        found: list[Message] = []
        while time.monotonic() < deadline:
            found = self.topics.read(self.topic, max(len(found) + 1, self.topics.count(self.topic)))
            if {"id": self._marks} in [json.loads(item.key() or b"{}") for item in found]:
                return found
        raise TimeoutError(f"no event of row {self._marks} in {self.topic}")

    def run(self, **more: Any) -> Ran:
        text = ORDERS.format(
            servers=self.servers, topic=self.topic, offset=self.offset, database=self.database,
            host=self.captured.server.host, port=self.captured.server.port, mode=self.mode,
        )  # fmt: skip
        secret = self.captured.server.password
        return run_once(self.lake, text, self.folder, PASSWORD=secret, **more)

    def there(self) -> list[tuple[Any, ...]]:
        return _plain(self.sql.execute("SELECT id, name, amount, at, note FROM orders"))

    def held(self) -> list[tuple[Any, ...]]:
        columns = ("id", "name", "amount", "at", "note")
        return _plain(Eyes.on(self.lake.root).rows("shop.orders", columns=columns))

    def orders(self) -> dict[Any, Any]:
        return dict(Eyes.on(self.lake.root).rows("shop.orders", columns=("id", "_source_order")))


def _plain(rows: Iterable[Any]) -> list[tuple[Any, ...]]:
    return sorted((*row[:3], row[3].timestamp(), row[4]) for row in rows)


def orders_behind(events: list[Message]) -> dict[int, str]:
    """Return where the last change of each row lies, by another way than the product's."""
    last: dict[int, str] = {}
    for message in events:
        event = json.loads(message.value() or b"null")
        if event is None:
            continue
        number = json.loads(message.key() or b"")["id"]
        last[number] = f"{event['source']['lsn']:016x}"
        if event["op"] == "d":
            del last[number]
    return last


def test_a_database_that_is_changed_all_the_time_is_read_and_then_followed_by_its_changes(
    debezium_postgres: Captured, kafka: Kafka, lake: Workspace, tmp_path: Path
) -> None:
    shop = Orders(debezium_postgres, kafka, lake, tmp_path)
    shop.put(*range(1, 21), name="first")
    debezium_postgres.capture(shop.name, shop.database, "public.orders")
    # Changes before the hand-over: the database holds what became of them.
    shop.put(1, 2, 3, name="second")
    shop.delete(4)
    shop.offset = len(shop.events())
    # Changes behind it that history shows already: the topic has them once more.
    shop.put(5, name="passing")
    shop.put(5, 30, 31, name="third")
    shop.delete(6, 31)
    # One that lies in the log before all that is read, and shows only when that has been read.
    late = debezium_postgres.server.admin(shop.database)
    late.autocommit = False
    late.execute("UPDATE orders SET name = 'late', at = clock_timestamp() WHERE id = 12")

    batches: list[Done] = []

    def meanwhile(done: Done) -> None:
        """Change the database after each batch: what was read, what was not, and the newest."""
        assert done.plan.offsets.kind is OffsetKind.WATERMARK, "killed too late"
        batches.append(done)
        number = len(batches)
        shop.put(1 + number, 20 - number, 40, name=f"while {number}")
        shop.delete(7 + number)
        if number > 10:
            raise AssertionError("history has no end while the database is changed")
        if not done.plan.more:
            shop.sql.execute(
                "UPDATE orders SET at = at - interval '1 day' "
                "WHERE at >= (SELECT at FROM orders WHERE id = 30)"
            )
            raise Killed

    with pytest.raises(Killed):
        shop.run(rows=8, tell=meanwhile)
    assert len(batches) >= 3, "history came in one piece"
    late.commit()
    late.close()
    events = shop.events()
    assert any(UNAVAILABLE_VALUE.encode() in (item.value() or b"") for item in events)
    shop.run()
    assert shop.held() == shop.there()
    assert {row[0]: row[1] for row in shop.held()}[12] == "late"
    assert kafka_lines(lake, "shop/orders") == {f"{shop.topic}-0": (shop.offset, len(events))}
    orders, behind = shop.orders(), orders_behind(events[shop.offset :])
    assert {number: text[:16] for number, text in orders.items() if text != FIRST} == behind
    assert FIRST in orders.values()

    # A second start does nothing, though the database has rows that are newer than history.
    before = len(Eyes.on(lake.root).history("shop.orders"))
    assert shop.run().batches == 0
    assert len(Eyes.on(lake.root).history("shop.orders")) == before
    assert not Eyes.on(lake.root).rows("shop.dead")
    shop.captured.connect.drop(shop.name)


# -- a table of the lake, or files; then the topic -------------------------------------------------


class Clicks:
    """A topic with records that are told apart by where they lie, and jobs over it."""

    def __init__(self, kafka: Kafka, lake: Workspace, folder: Path, partitions: int) -> None:
        self.lake, self.folder, self.servers = lake, folder, kafka.bootstrap
        self.topic, self.topics = f"clicks-{secrets.token_hex(3)}", Topics(kafka.bootstrap)
        self.topics.create(self.topic, partitions)
        self.names: list[str] = []

    def fill(self, partition: int, count: int) -> None:
        first = sum(1 for name in self.names if name.startswith(f"{partition}-"))
        names = [f"{partition}-{first + number}" for number in range(count)]
        values = [json.dumps({"id": name}).encode() for name in names]
        self.topics.fill(self.topic, values, partition=partition)
        self.names += names

    def run(self, *, history: str, hand_over: str, **more: Any) -> Ran:
        text = CLICKS.format(
            servers=self.servers, topic=self.topic, history=history, hand_over=hand_over
        )
        return run_once(self.lake, text, self.folder, **more)

    def held(self) -> list[str]:
        return sorted(str(row[0]) for row in Eyes.on(self.lake.root).rows("shop.clicks"))


def test_rows_of_another_table_come_first_and_each_record_is_in_one_of_both(
    kafka: Kafka, lake: Workspace, tmp_path: Path
) -> None:
    clicks = Clicks(kafka, lake, tmp_path, 2)
    old = (
        f"{{version: 1, job: shop/old, source: {{type: kafka, servers: '{kafka.bootstrap}', "
        f"topics: [{clicks.topic}], value: {{format: json}}}}, target: {{table: shop.old}}}}"
    )
    clicks.fill(0, 30)
    run_once(lake, old, tmp_path)
    clicks.fill(0, 10)
    clicks.fill(1, 25)
    run_once(lake, old, tmp_path)
    clicks.fill(0, 7)
    given = {
        "history": "{type: iceberg, table: shop.old}",
        "hand_over": f"{{offsets: {{{clicks.topic}: {{0: 40, 1: 25}}}}}}",
    }

    def die(_done: Done) -> None:
        raise Killed

    with pytest.raises(Killed):
        clicks.run(**given, tell=die)
    assert clicks.held() == sorted(clicks.names[:65]), "killed when history had landed"
    assert clicks.run(**given).records == 7
    assert clicks.held() == sorted(clicks.names)
    before = len(Eyes.on(lake.root).history("shop.clicks"))
    assert clicks.run(**given).batches == 0
    # The old table goes on; what comes to it now is the topic's already.
    clicks.fill(1, 5)
    run_once(lake, old, tmp_path)
    assert clicks.run(**given).records == 5
    assert len(Eyes.on(lake.root).history("shop.clicks")) == before + 1
    assert clicks.held() == sorted(clicks.names)
    lines = kafka_lines(lake, "shop/clicks")
    assert lines == {f"{clicks.topic}-0": (40, 47), f"{clicks.topic}-1": (25, 30)}
    for name, source in (("1-24", "table:shop.old"), ("1-25", "kafka://")):
        (row,) = trace(lake.ledger(), lake.catalog(), parse("shop.clicks"), f"id = '{name}'")
        assert row.birth.batch is not None
        facts: Any = lake.ledger().batch_entries(row.birth.batch)[0].facts
        assert facts["offsets"]["source"].startswith(source)


def test_a_hand_over_by_time_is_written_down_as_the_offsets_that_it_came_to(
    kafka: Kafka, lake: Workspace, tmp_path: Path
) -> None:
    clicks = Clicks(kafka, lake, tmp_path, 3)
    for partition, count in enumerate((12, 8, 5)):
        clicks.fill(partition, count)
    (tmp_path / "history").mkdir()
    body = "".join(json.dumps({"id": name}) + "\n" for name in clicks.names)
    (tmp_path / "history" / "all.json").write_text(body)
    time.sleep(0.1)
    moment = datetime.now(UTC).isoformat()
    time.sleep(0.1)
    clicks.fill(0, 3)
    clicks.fill(1, 4)
    # Some of what lies before has expired, but not the last record before the hand-over.
    clicks.topics.cut(clicks.topic, 0, 10)
    given = {
        "history": "{type: files, path: history, format: json, settle: 0s}",
        "hand_over": f'{{timestamp: "{moment}"}}',
    }
    done: list[Done] = []
    assert clicks.run(**given, tell=done.append).records == 25 + 7
    assert clicks.held() == sorted(clicks.names)
    begun = {f"{clicks.topic}-{number}": place for number, place in enumerate((12, 8, 5))}
    (entry, *_) = lake.ledger().batch_entries(done[1].receipt.batch)
    ranges: Any = entry.facts["offsets"]["ranges"]  # type: ignore[index,call-overload]
    assert {name: part[0] for name, part in ranges.items()} == begun
    # From here on it is the offsets that count: the time is not looked up again.
    assert clicks.run(**given).batches == 0
    clicks.topics.cut(clicks.topic, 0, 15)
    clicks.fill(2, 6)
    assert clicks.run(**given).records == 6
    assert clicks.held() == sorted(clicks.names)
    ends = dict(zip(begun, (15, 12, 11), strict=True))
    lines = kafka_lines(lake, "shop/clicks")
    assert lines == {name: (begun[name], ends[name]) for name in begun}
