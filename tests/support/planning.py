"""A cluster as a test says it is, and a ledger that has recorded what was planned."""

from __future__ import annotations

from collections.abc import Mapping

from jobs.sources.base import Plan
from jobs.sources.kafka_values import Cluster, Start, StartAt, Subscription, Topic, Watermarks
from odi_audit.committer import continuity
from odi_audit.ids import BatchId
from odi_audit.ledger.port import Position

ORDERS = Subscription(topics=("orders",))
LATEST = Start(at=StartAt.LATEST)


def topic(name: str, *marks: tuple[int, int], id: str | None = "T1") -> Topic:  # noqa: A002
    parts = {number: Watermarks(begin=b, end=e) for number, (b, e) in enumerate(marks)}
    return Topic(name=name, id=id, partitions=parts)


def cluster(*topics: Topic, id: str = "C1", bootstrap: str = "one:9092") -> Cluster:  # noqa: A002
    return Cluster(id=id, bootstrap=bootstrap, topics={item.name: item for item in topics})


def at(name: str, end: int, *, identity: str | None = "T1", index: int = 1) -> Position:
    return Position(
        partition=name, start=0, end=end, identity=identity, batch=BatchId("b-1"), index=index
    )


def placed(*positions: Position) -> dict[str, Position]:
    return {position.partition: position for position in positions}


def ranges(made: Plan | None) -> dict[str, tuple[object, object]]:
    assert made is not None
    return {name: (part.start, part.end) for name, part in made.offsets.ranges.items()}


def landed(
    made: Plan, positions: Mapping[str, Position], index: int = 2, *, table: str = "t"
) -> dict[str, Position]:
    """What the ledger would answer after the batch: judged by the committer's own rule first."""
    verdict = continuity.check(
        made.offsets,
        positions,
        replay=made.generation > 0,
        accept_gap=made.accept_gap is not None,
        where=table,
    )
    assert verdict.moves
    moved = dict(positions)
    for name, part in made.offsets.ranges.items():
        moved[name] = Position(
            partition=name, start=part.start, end=part.end, batch=BatchId(f"b-{index}"),
            identity=made.offsets.identity.get(name), index=index,
        )  # fmt: skip
    return moved
