"""Random sequences of batches against a naive model: no offset lands twice or is skipped unseen."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from odi_audit.committer import continuity
from odi_audit.errors import OffsetGap, OffsetOverlap, SourceChanged
from odi_audit.ids import BatchId
from odi_audit.ledger.port import Position
from odi_audit.model.offsets import OffsetKind, Offsets, Range

LAST = 12
PARTITIONS = ("p0", "p1")


@dataclass(slots=True)
class Model:
    """Every offset that was ever read, one by one, and the topic that it was read from."""

    read: dict[str, set[int]] = field(default_factory=dict)
    topic: dict[str, str] = field(default_factory=dict)

    def fault(self, offsets: Offsets) -> type[Exception] | None:
        """Say, offset by offset, what is wrong with a batch; the worst first."""
        known = [name for name in offsets.ranges if name in self.read]
        if any(self.topic[name] != offsets.identity[name] for name in known):
            return SourceChanged
        found: set[type[Exception]] = set()
        for name in known:
            next_one = max(self.read[name]) + 1
            start = int(offsets.ranges[name].start or 0)
            if start < next_one:
                found.add(OffsetOverlap)
            if any(number not in self.read[name] for number in range(next_one, start)):
                found.add(OffsetGap)
        return next((kind for kind in (OffsetOverlap, OffsetGap) if kind in found), None)

    def add(self, offsets: Offsets) -> None:
        for name, part in offsets.ranges.items():
            numbers = set(range(int(part.start or 0), int(part.end)))
            if self.topic.get(name) != offsets.identity[name]:
                self.read[name] = set()
            self.read.setdefault(name, set()).update(numbers)
            self.topic[name] = offsets.identity[name]


@st.composite
def batches(draw: st.DrawFn) -> Offsets:
    names = draw(st.sets(st.sampled_from(PARTITIONS), min_size=1))
    ranges: dict[str, Range] = {}
    for name in sorted(names):
        start = draw(st.integers(0, LAST - 1))
        ranges[name] = Range(start, draw(st.integers(start + 1, LAST)))
    topic = draw(st.sampled_from(["t1", "t1", "t1", "t2"]))
    return Offsets(
        kind=OffsetKind.KAFKA, source="k", ranges=ranges, identity=dict.fromkeys(names, topic)
    )


def judged(offsets: Offsets, positions: dict[str, Position]) -> type[Exception] | None:
    try:
        verdict = continuity.check(
            offsets, positions, replay=False, accept_gap=False, where="sales.orders"
        )
    except (SourceChanged, OffsetOverlap, OffsetGap) as fault:
        return type(fault)
    assert verdict.moves
    return None


def left_by(offsets: Offsets, number: int) -> dict[str, Position]:
    return {
        name: Position(
            partition=name,
            start=part.start,
            end=part.end,
            identity=offsets.identity[name],
            batch=BatchId(f"b-{number}"),
            index=number,
        )
        for name, part in offsets.ranges.items()
    }


@given(st.lists(batches(), max_size=30))
@settings(max_examples=300, deadline=None)
def test_the_judgement_is_that_of_a_model_that_remembers_every_offset(
    sequence: list[Offsets],
) -> None:
    model, positions = Model(), dict[str, Position]()
    for number, offsets in enumerate(sequence):
        fault = judged(offsets, positions)
        assert fault is model.fault(offsets)
        if fault is None:
            model.add(offsets)
            positions |= left_by(offsets, number)
    for numbers in model.read.values():
        assert numbers == set(range(min(numbers), max(numbers) + 1)), "no hole, whatever came"


@given(st.lists(st.tuples(batches(), st.booleans(), st.booleans()), max_size=20))
@settings(max_examples=300, deadline=None)
def test_whatever_is_replayed_or_accepted_the_position_never_goes_back(
    sequence: list[tuple[Offsets, bool, bool]],
) -> None:
    positions: dict[str, Position] = {}
    for number, (offsets, replay, accept) in enumerate(sequence):
        try:
            verdict = continuity.check(
                offsets, positions, replay=replay, accept_gap=accept, where="sales.orders"
            )
        except (SourceChanged, OffsetOverlap, OffsetGap):
            continue
        assert verdict.gap is None or accept
        if not verdict.moves:
            assert replay
            continue
        moved = left_by(offsets, number)
        for name in moved.keys() & positions.keys():
            same_topic = moved[name].identity == positions[name].identity
            assert not same_topic or int(moved[name].end) >= int(positions[name].end)
        positions |= moved
