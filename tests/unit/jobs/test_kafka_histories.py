"""Over any history of a topic nothing is skipped and nothing is read twice."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.sources.base import Choices, Limits
from jobs.sources.kafka_plan import plan
from jobs.sources.kafka_values import Cluster, Start, StartAt
from odi_audit.errors import OffsetGap
from odi_audit.ledger.port import Position
from tests.support.planning import LATEST, ORDERS, cluster, landed, topic

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 3), st.integers(1, 30)),
        st.tuples(st.just("expire"), st.integers(0, 3), st.integers(1, 30)),
        st.tuples(st.just("widen"), st.just(0), st.just(1)),
        st.tuples(st.just("remake"), st.just(0), st.just(1)),
        st.tuples(st.just("read"), st.just(0), st.integers(1, 20)),
        st.tuples(st.just("read"), st.just(0), st.just(1000)),
    ),
    max_size=60,
)


class World:
    """A topic whose records are numbered over all its lives, and a job that reads it."""

    def __init__(self, rule: Start) -> None:
        self.life, self.rule = 1, rule
        self.marks: list[list[int]] = [[0, 0]]
        self.read: list[tuple[int, int, int]] = []
        self.gone: set[tuple[int, int, int]] = set()
        self.before: set[tuple[int, int, int]] = set()
        self.positions: dict[str, Position] = {}
        self.begun = False
        self.index = 1

    def cluster(self) -> Cluster:
        return cluster(topic("orders", *map(tuple, self.marks), id=f"T{self.life}"))  # type: ignore[arg-type]

    def records(self) -> set[tuple[int, int, int]]:
        return {
            (self.life, number, offset)
            for number, (_, end) in enumerate(self.marks)
            for offset in range(end)
        }

    def step(self, what: str, number: int, count: int) -> None:
        marks = self.marks[number % len(self.marks)]
        match what:
            case "write":
                marks[1] += count
            case "expire":
                stop = min(marks[1], marks[0] + count)
                place = number % len(self.marks)
                self.gone |= {(self.life, place, o) for o in range(marks[0], stop)}
                marks[0] = stop
            case "widen" if len(self.marks) < 4:
                self.marks.append([0, 0])
            case "remake":
                self.gone |= self.records()
                self.life, self.marks = self.life + 1, [[0, 0], [0, 0]]
            case "read":
                self.batch(count)

    def batch(self, rows: int) -> None:
        if not self.begun and self.rule.at is StartAt.LATEST:
            self.before = self.records()  # what was there when the job began is not asked for
        self.begun = True
        made = plan(
            self.cluster(), self.positions, subscription=ORDERS, start=self.rule,
            limits=Limits(rows=rows), choices=Choices(accept_gap="test", generation=1),
        )  # fmt: skip
        if made is None:
            return
        assert made.rows <= rows
        again = plan(
            self.cluster(), self.positions, subscription=ORDERS, start=self.rule,
            limits=Limits(rows=rows), choices=Choices(accept_gap="test", generation=1),
        )  # fmt: skip
        assert again == made
        for name, part in made.offsets.ranges.items():
            number = int(name.rpartition("-")[2])
            begin, end = self.marks[number]
            assert begin <= int(part.start or 0) <= int(part.end) <= end
            self.read += [
                (self.life, number, o) for o in range(int(part.start or 0), int(part.end))
            ]
        self.index += 1
        self.positions = landed(made, self.positions, self.index)


@settings(max_examples=300, deadline=None)
@given(steps=STEPS, latest=st.booleans())
def test_over_any_history_every_record_is_read_once_or_is_gone_from_the_topic(
    steps: list[tuple[str, int, int]], latest: bool
) -> None:
    world = World(LATEST if latest else Start())
    for step in steps:
        world.step(*step)
    for _ in range(300):  # however small the batches are, the end is reached
        world.batch(7)
    assert len(world.read) == len(set(world.read))
    missing = world.records() - set(world.read) - world.gone - world.before
    assert missing == set()


@settings(max_examples=200, deadline=None)
@given(steps=STEPS)
def test_without_any_choice_no_record_is_skipped_that_the_job_did_not_stop_for(
    steps: list[tuple[str, int, int]],
) -> None:
    """Reads as long as nothing stops it; then everything up to there was read, in order."""
    marks, positions, read, index = [[0, 0]], dict[str, Position](), dict[int, int](), 1
    for what, number, count in steps:
        place = number % len(marks)
        if what == "write":
            marks[place][1] += count
        elif what == "expire":
            marks[place][0] = min(marks[place][1], marks[place][0] + count)
        elif what == "widen" and len(marks) < 4:
            marks.append([0, 0])
        elif what == "read":
            state = cluster(topic("orders", *map(tuple, marks)))  # type: ignore[arg-type]
            lost = [n for n, (begin, _) in enumerate(marks) if begin > read.get(n, 0)]
            try:
                made = plan(state, positions, subscription=ORDERS, limits=Limits(rows=count))
            except OffsetGap:
                assert lost
                return
            # Before its first batch a job takes a topic as it is: that is what "earliest" means.
            assert not lost or not positions
            if made is None:
                continue
            for name, part in made.offsets.ranges.items():
                held = int(name.rpartition("-")[2])
                assert positions == {} or part.start == read.get(held, 0)
                read[held] = int(part.end)
            index += 1
            positions = landed(made, positions, index)
