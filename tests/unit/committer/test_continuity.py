"""Continuity: for every kind of source, what goes on, what is a gap, what was read already."""

from __future__ import annotations

import pytest

from odi_audit.committer import continuity
from odi_audit.committer.continuity import SHOWN_MAX, Verdict
from odi_audit.errors import OffsetGap, OffsetOverlap, Refused, SourceChanged
from odi_audit.ids import BatchId
from odi_audit.ledger.port import Position
from odi_audit.model.offsets import (
    OffsetKind,
    Offsets,
    Place,
    Range,
    kafka,
    lsn,
    mapping,
    once,
    stream,
    table_state,
    watermark,
)


def after(
    offsets: Offsets, *, end: Place | None = None, identity: str | None = None
) -> dict[str, Position]:
    """The positions that a batch leaves behind."""
    return {
        name: Position(
            partition=name,
            start=part.start,
            end=part.end if end is None else end,
            identity=identity or offsets.identity.get(name),
            batch=BatchId("b-1"),
            index=1,
        )
        for name, part in offsets.ranges.items()
    }


def check(
    offsets: Offsets,
    positions: dict[str, Position],
    *,
    replay: bool = False,
    accept_gap: bool = False,
) -> Verdict:
    return continuity.check(
        offsets, positions, replay=replay, accept_gap=accept_gap, where="sales.orders"
    )


def numbers(start: int | None, end: int) -> Offsets:
    return mapping("s", {"p": (start, end)})


def days(start: str | None, end: str) -> Offsets:
    return watermark("table", "day", start, end)


def query(start: str | None, end: str) -> Offsets:
    return stream("query", {"0": (start, end)})


def test_a_partition_that_was_never_read_may_begin_anywhere() -> None:
    assert check(numbers(500, 600), {}) == Verdict(moves=True)
    assert check(numbers(None, 600), {}) == Verdict(moves=True)


@pytest.mark.parametrize(
    ("last", "then", "fault"),
    [
        (numbers(0, 10), numbers(10, 20), None),
        (numbers(0, 10), numbers(10, 10), None),
        (numbers(0, 10), numbers(11, 20), OffsetGap),
        (numbers(0, 10), numbers(9, 20), OffsetOverlap),
        (numbers(0, 10), numbers(0, 10), OffsetOverlap),
        (numbers(0, 10), numbers(None, 20), OffsetOverlap),
        (lsn("db", None, "0/FF"), lsn("db", "0/FF", "1/0"), None),
        (lsn("db", None, "0/FF"), lsn("db", "0/100", "1/0"), OffsetGap),
        (lsn("db", None, "1/0"), lsn("db", "0/FFFFFFFF", "2/0"), OffsetOverlap),
        (lsn("db", None, "A/0"), lsn("db", "9/0", "B/0"), OffsetOverlap),
        (days(None, "01-02"), days("01-03", "01-04"), OffsetGap),
        (days(None, "01-02"), days("01-02", "01-04"), None),
        (query(None, '{"o":1}'), query('{"o":1}', '{"o":2}'), None),
        (query(None, '{"o":1}'), query(None, '{"o":2}'), OffsetOverlap),
        (once("a"), once("a"), None),
        (table_state("t", "1", {}), table_state("t", "1", {}), None),
    ],
)  # fmt: skip
def test_a_batch_starts_where_the_last_one_ended(
    last: Offsets, then: Offsets, fault: type[Refused] | None
) -> None:
    if fault is None:
        assert check(then, after(last)) == Verdict(moves=True)
        return
    with pytest.raises(fault) as caught:
        check(then, after(last))
    assert type(caught.value) is fault
    assert "sales.orders" in caught.value.message
    assert caught.value.hint


def test_a_gap_that_is_accepted_is_still_told() -> None:
    verdict = check(numbers(15, 20), after(numbers(0, 10)), accept_gap=True)
    assert verdict.moves
    assert isinstance(verdict.gap, OffsetGap)
    assert check(numbers(10, 20), after(numbers(0, 10)), accept_gap=True).gap is None


def test_an_overlap_is_not_a_gap_to_be_accepted() -> None:
    with pytest.raises(OffsetOverlap):
        check(numbers(5, 20), after(numbers(0, 10)), accept_gap=True)


@pytest.mark.parametrize(
    ("part", "moves"),
    [((0, 5), False), ((0, 10), True), ((5, 15), True), ((10, 20), True), ((None, 3), False)],
)
def test_a_replay_moves_the_position_forward_or_not_at_all(
    part: tuple[int | None, int], moves: bool
) -> None:
    assert check(numbers(*part), after(numbers(0, 10)), replay=True) == Verdict(moves=moves)


def test_a_replay_does_not_skip_what_was_never_read() -> None:
    with pytest.raises(OffsetGap):
        check(numbers(11, 20), after(numbers(0, 10)), replay=True)
    assert check(numbers(11, 20), after(numbers(0, 10)), replay=True, accept_gap=True).gap


def test_a_recreated_topic_is_another_source_wherever_its_offsets_stand() -> None:
    def orders(start: int, end: int, topic_id: str | None) -> Offsets:
        ids = None if topic_id is None else {"t": topic_id}
        return kafka({"t": {0: (start, end)}}, bootstrap="b:1", topic_ids=ids)

    for start in (0, 10, 20):
        with pytest.raises(SourceChanged) as caught:
            check(orders(start, 30, "new"), after(orders(0, 10, "old")))
        assert "was old" in caught.value.message
    assert check(orders(0, 5, "new"), after(orders(0, 10, "old")), replay=True).moves
    # Who does not know the topic's id cannot notice.
    assert check(orders(10, 30, None), after(orders(0, 10, "old"))).moves
    assert check(orders(10, 30, "new"), after(orders(0, 10, None))).moves


def test_a_file_is_read_once_as_long_as_it_is_the_same() -> None:
    def one(content: str) -> Offsets:
        return Offsets(kind=OffsetKind.FILES, source="f", ranges={"/a": Range(None, content)})

    with pytest.raises(OffsetOverlap):
        check(one("3:abc"), after(one("3:abc")))
    with pytest.raises(SourceChanged) as caught:
        check(one("4:abcd"), after(one("3:abc")))
    assert "new file name" in str(caught.value.hint)
    assert check(one("4:abcd"), after(one("3:abc")), replay=True).moves


def test_the_worst_is_told_first_and_a_long_list_is_cut() -> None:
    many = {f"p{number:02}": (5, 9) for number in range(SHOWN_MAX + 3)}
    last = after(mapping("s", dict.fromkeys(many, (0, 7))))
    last["p00"] = after(mapping("s", {"p00": (0, 1)}))["p00"]
    with pytest.raises(OffsetOverlap) as caught:
        check(mapping("s", many), last)
    assert "and 2 more" in caught.value.message
    assert caught.value.message.count("batch starts at") == SHOWN_MAX
