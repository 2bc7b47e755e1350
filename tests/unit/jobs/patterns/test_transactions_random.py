"""Random transactions over many topics, delivered as Connect does: late, in part, and again.

An oracle that knows the source's own log looks at every batch.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from jobs.formats.debezium_transactions import from_json
from jobs.runner import kafka_transactions
from jobs.runner.kafka_transactions import WIDER_MAX, Cutter
from jobs.sources import kafka_plan
from jobs.sources.base import Limits, Plan
from jobs.sources.kafka_read import Piece
from jobs.sources.kafka_values import Cluster, Subscription, Topic, Watermarks
from odi_audit.errors import UsageError
from odi_audit.ids import BatchId
from odi_audit.ledger.port import Position
from tests.unit.jobs.patterns.test_kafka_transactions import MARKS, Record

FOLLOWED = {"orders": 1, "items": 3, "stock": 2}
"""Tables that the job follows, with the partitions of their topics."""
OTHER = ("users", "carts")
LATE_MS_MAX = 20_000
"""How long a record is on its way at most; a guess is made only after a minute."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A record on its way. ``change`` is what the oracle knows it by."""

    at: int
    value: bytes | None
    seen_ms: int
    sent_ms: int
    change: tuple[int, str, int] | None = None


@dataclass(slots=True)
class World:
    """The source's log, and what Kafka has of it."""

    chance: random.Random
    broken: bool
    now_ms: int = 1_000_000
    log: list[tuple[str, Any, tuple[int, str, int] | None]] = field(default_factory=list)
    """By partition: what is to be sent, in the order of the log."""
    kept: dict[str, list[Sent]] = field(default_factory=dict)
    truth: dict[int, set[tuple[int, str, int]]] = field(default_factory=dict)
    """Of each transaction the changes that a reader must see together."""

    def write(self, transactions: int) -> None:
        """Let the source's clients work: what they do comes into the log as it is committed."""
        for table, partitions in FOLLOWED.items():
            for number in range(self.chance.randrange(3)):
                event = {"op": "r", "source": self._source(table, 1), "transaction": None}
                self.log.append((f"shop.public.{table}-{number % partitions}", event, None))
        for one in range(1, transactions + 1):
            self._transact(one)

    def _transact(self, one: int) -> None:
        ended = 10_000 + 1_000 * one
        counts: dict[str, int] = {}
        self._mark("BEGIN", one, ended - 900)
        for _ in range(self.chance.choice((0, 1, 1, 2, 3, 8))):
            table = self.chance.choice([*FOLLOWED, *OTHER])
            counts[table] = counts.get(table, 0) + 1
            self._change(one, table, counts[table], ended)
        told = [{"data_collection": f"public.{t}", "event_count": n} for t, n in counts.items()]
        self._mark("END", one, ended, data_collections=told)

    def _change(self, one: int, table: str, number: int, ended: int) -> None:
        # A transaction that takes long lies in the log before others that end first.
        lsn = ended - self.chance.choice((100, 200, 5_000))
        about = {"id": f"{one}:{lsn}", "total_order": 1, "data_collection_order": number}
        event = {"op": "c", "source": self._source(table, lsn), "transaction": about}
        if table not in FOLLOWED:
            return
        change = (one, table, number)
        name = f"shop.public.{table}-{self.chance.randrange(FOLLOWED[table])}"
        if self.broken and self.chance.random() < 0.05:
            self.log.append((name, b'{"op": "c", "transac', None))
            return
        self.truth.setdefault(one, set()).add(change)
        self.log.append((name, event, change))
        if self.chance.random() < 0.1:
            self.log.append((name, None, None))

    def _mark(self, status: str, one: int, place: int, **more: Any) -> None:
        self.log.append((f"{MARKS}-0", {"status": status, "id": f"{one}:{place}", **more}, None))

    def _source(self, table: str, lsn: int) -> dict[str, Any]:
        return {"connector": "postgresql", "schema": "public", "table": table, "lsn": lsn}

    def deliver(self) -> Iterator[None]:
        """Send the log, with restarts; what was on its way then is lost, and sent again."""
        at, restarts = 0, 4
        while at < len(self.log):
            name, event, change = self.log[at]
            value = event if isinstance(event, bytes | None) else json.dumps(event).encode()
            line = self.kept.setdefault(name, [])
            late = self.chance.choice((0, 0, 10, LATE_MS_MAX))
            seen = max([self.now_ms + late, *(sent.seen_ms for sent in line[-1:])])
            line.append(Sent(at, value, seen, self.now_ms, change))
            self.now_ms += self.chance.choice((1, 5, 2_000))
            at += 1
            if restarts and self.chance.random() < 0.01:
                restarts -= 1
                at = self._restart(at)
            yield
        self.now_ms += LATE_MS_MAX
        yield

    def _restart(self, at: int) -> int:
        """Lose what has not arrived; return a place up to which everything had arrived."""
        if self.broken:
            self.now_ms += LATE_MS_MAX  # what cannot be read and what is lost are not told apart
        late = [s for line in self.kept.values() for s in line if s.seen_ms > self.now_ms]
        self.kept = {
            name: [sent for sent in line if sent.seen_ms <= self.now_ms]
            for name, line in self.kept.items()
        }
        # Connect keeps the place up to which all have arrived, and not at every moment.
        arrived = min([at, *(sent.at for sent in late)])
        return max(0, arrived - self.chance.randrange(40))

    def put(self, name: str, event: Any) -> None:
        """Have a record in a partition at once."""
        value = json.dumps(event).encode()
        self.kept.setdefault(name, []).append(Sent(0, value, self.now_ms, self.now_ms))

    # -- what a job sees -----------------------------------------------------------------------

    def held(self, name: str) -> list[Sent]:
        return [sent for sent in self.kept.get(name, []) if sent.seen_ms <= self.now_ms]

    def cluster(self) -> Cluster:
        topics: dict[str, dict[int, Watermarks]] = {}
        for name, line in self.kept.items():
            topic, _, number = name.rpartition("-")
            if line and line[0].seen_ms <= self.now_ms:
                end = len(self.held(name))
                topics.setdefault(topic, {})[int(number)] = Watermarks(begin=0, end=end)
        for topic, parts in topics.items():
            count = 1 if topic == MARKS else FOLLOWED[topic.rpartition(".")[2]]
            for number in range(count):
                parts.setdefault(number, Watermarks(begin=0, end=0))
        known = {t: Topic(name=t, id=None, partitions=p) for t, p in topics.items()}
        return Cluster(id="c", bootstrap="h:1", topics=known)


class Source:
    """Stands for the job's source: what it answers is the world's."""

    bootstrap, options, uncommitted = "h:1", dict[str, str](), False
    subscription = Subscription(pattern=r"shop\.(public\.(orders|items|stock)|transaction)")

    def __init__(self, world: World) -> None:
        self.world = world

    def look(self, _: object) -> Cluster:
        return self.world.cluster()

    def read(self, *_: Any, **__: Any) -> Iterator[Any]:
        pieces: list[Piece] = _[2]
        for piece in pieces:
            line = self.world.held(piece.name)
            assert piece.end <= len(line)
            yield (
                piece,
                [
                    Record(at, line[at].value, line[at].sent_ms)
                    for at in range(piece.start, piece.end)
                ],
            )


class Job:
    """Plans, cuts, and keeps positions, as a run does with the ledger."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._source = Source(world)
        self.cutter = self._new()
        self.positions: dict[str, Position] = {}
        self.seen: set[tuple[int, str, int]] = set()
        self.batches = 0

    def _new(self) -> Cutter:
        return Cutter(cast("Any", self._source), from_json)

    def restart(self) -> None:
        self.cutter = self._new()

    def _plan(self, limits: Limits) -> Plan | None:
        return kafka_plan.plan(
            self._world.cluster(),
            self.positions,
            subscription=self._source.subscription,
            limits=limits,
        )

    def run(self, rows: int) -> bool:
        """Take the next batch; say whether there was one."""
        limits, now = Limits(rows=rows), self._world.now_ms
        made = self._plan(limits)
        cut = None if made is None else self.cutter.cut(made, self.positions, now_ms=now)
        if made is not None and cut is None and made.more:
            wider = self._plan(limits.times(WIDER_MAX))
            assert wider is not None
            try:
                cut = self.cutter.cut(wider, self.positions, now_ms=now, rows_max=made.rows)
            except UsageError:
                return rows < 10_000 and self.run(rows * 10)
        if cut is None:
            return False
        assert cut.rows <= rows
        self._land(cut)
        return True

    def _land(self, plan: Plan) -> None:
        self.batches += 1
        for name, part in plan.offsets.ranges.items():
            start, end = int(part.start or 0), int(part.end)
            last = self.positions.get(name)
            assert last is None or last.end == start
            self.positions[name] = Position(
                partition=name, start=start, end=end, identity=None,
                batch=BatchId(f"b-{self.batches}"), index=self.batches,
            )  # fmt: skip
            line = self._world.held(name)[start:end]
            self.seen |= {sent.change for sent in line if sent.change is not None}
        self.look_at_it()

    def look_at_it(self) -> None:
        """Ask the oracle: of each transaction all is there, or nothing."""
        for one, changes in self._world.truth.items():
            there = changes & self.seen
            assert not there or there == changes, f"transaction {one} is there in part"


@pytest.mark.parametrize("seed", range(40))
def test_every_batch_holds_whole_transactions_and_in_the_end_all_are_there(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    world = World(chance=chance, broken=seed % 3 == 0)
    job = Job(world)
    monkeypatch.setattr(kafka_transactions, "read", job._source.read)
    world.write(60)
    for _ in world.deliver():
        if chance.random() < 0.15:
            job.run(chance.choice((3, 10, 40, 1_000)))
        if chance.random() < 0.01:
            job.restart()
    # Whatever rests on a guess is done after a while.
    for _ in range(30):
        world.now_ms += 30_000
        while job.run(chance.choice((10, 40, 1_000))):
            pass
    assert job.seen == set().union(*world.truth.values())
    ends = {name: len(line) for name, line in world.kept.items() if line}
    assert {name: job.positions[name].end for name in ends} == ends
    assert job.batches > 5


# -- the reading around a cut ----------------------------------------------------------------------


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A transaction with 20 changes, of which the end has not come."""
    made = World(chance=random.Random(1), broken=False)
    made.put(f"{MARKS}-0", {"status": "BEGIN", "id": "7:100"})
    for number in range(1, 21):
        about = {"id": "7:100", "data_collection_order": number}
        source = {"schema": "public", "table": "orders", "lsn": 100}
        event = {"op": "c", "source": source, "transaction": about}
        made.put("shop.public.orders-0", event)
    monkeypatch.setattr(kafka_transactions, "read", Source(made).read)
    return made


def end_it(world: World) -> None:
    told = [{"data_collection": "public.orders", "event_count": 20}]
    world.put(f"{MARKS}-0", {"status": "END", "id": "7:200", "data_collections": told})


def test_a_transaction_that_is_larger_than_a_batch_stops_the_job(world: World) -> None:
    job = Job(world)
    assert not job.run(40)
    end_it(world)
    small = job._plan(Limits(rows=10))
    assert small is not None
    assert job.cutter.cut(small, {}, now_ms=world.now_ms) is None
    wider = job._plan(Limits(rows=160))
    assert wider is not None
    with pytest.raises(UsageError, match="more changes than the 10 of a batch"):
        job.cutter.cut(wider, {}, now_ms=world.now_ms, rows_max=10)
    assert job.run(40)


def test_what_waits_is_not_read_again_while_nothing_new_comes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, asked = Job(world), list[int]()

    def counted(*given: Any, **more: Any) -> Iterator[Any]:
        asked.append(world.now_ms)
        return job._source.read(*given, **more)

    monkeypatch.setattr(kafka_transactions, "read", counted)
    for _ in range(5):
        assert not job.run(1_000)
    assert len(asked) == 1
    end_it(world)
    assert job.run(1_000)
    assert len(asked) == 2


def test_the_first_batch_is_not_one_of_marks_alone(world: World) -> None:
    job = Job(world)
    del world.kept["shop.public.orders-0"]
    world.put(f"{MARKS}-0", {"status": "END", "id": "7:200", "data_collections": []})
    assert not job.run(1_000)
    world.put("shop.public.orders-0", {"op": "r", "source": {}, "transaction": None})
    assert job.run(1_000)
    world.put(f"{MARKS}-0", {"status": "END", "id": "8:300", "data_collections": []})
    assert job.run(1_000)


def test_marks_in_several_partitions_are_refused(world: World) -> None:
    world.put(f"{MARKS}-1", {"status": "BEGIN", "id": "8:300"})
    with pytest.raises(UsageError, match="has 2 partitions"):
        Job(world).run(1_000)
