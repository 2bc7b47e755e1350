"""``offsets``: every break in the reading of a source is found, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odi_audit.committer.continuity import check
from odi_audit.errors import EntryNotFound, OffsetGap, OffsetOverlap, SourceChanged
from odi_audit.ids import BatchId, JobName
from odi_audit.ledger.port import Position
from odi_audit.model.entries import Draft, Entry, Kind
from odi_audit.model.offsets import (
    OffsetKind,
    Offsets,
    Range,
    files,
    kafka,
    lsn,
    mapping,
    once,
    watermark,
)
from odi_audit.query.offset_cover import Cover, Point
from odi_audit.query.offset_events import Continuity, EventKind, Standing
from odi_audit.query.offset_story import _judged, _Stand
from odi_audit.query.offsets import continuity

if TYPE_CHECKING:
    from conftest import Bench


def land(bench: Bench, offsets: Offsets, generation: int = 0, **facts: object) -> BatchId:
    """Record a landed batch; continuity asks the ledger only."""
    intent = bench.intend(offsets=offsets, generation=generation)
    landed(bench, intent, generation=generation, **facts)
    assert intent.batch is not None
    return intent.batch


def landed(bench: Bench, intent: Entry, **facts: object) -> None:
    bench.ledger.append(
        Draft(
            kind=Kind.LANDED, job=intent.job, run=intent.run, batch=intent.batch,
            table=bench.state().ref, intent=intent.index, settles=True,
            facts={"offsets": intent.facts["offsets"], "operation": "append", **facts},  # type: ignore[dict-item]
        )
    )  # fmt: skip


def part(start: int, end: int, name: str = "p0") -> Offsets:
    return mapping("topic", {name: (start, end)})


def shape(found: Continuity) -> list[tuple[str, str, object, object]]:
    return [(e.kind.value, e.standing.value, e.start, e.end) for e in found.events]


def test_an_unbroken_line_has_no_events(bench: Bench) -> None:
    batches = [land(bench, part(start, start + 10)) for start in range(0, 50, 10)]
    found = continuity(bench.ledger)
    assert found.events == ()
    (line,) = found.lines
    (p0,) = line.partitions
    assert (p0.first, p0.last, p0.batches_count, p0.last_batch) == (0, 50, 5, batches[-1])


def test_a_gap_nobody_accepted_is_a_finding_with_the_batches_at_its_edges(bench: Bench) -> None:
    before = land(bench, part(0, 10))
    after = land(bench, part(15, 20))
    found = continuity(bench.ledger)
    (gap,) = found.findings()
    assert shape(found) == [("gap", "open", 10, 15)]
    assert (gap.before, gap.after) == (before, after)


def test_an_accepted_gap_is_shown_with_its_reason_and_found_under_strict_only(
    bench: Bench,
) -> None:
    land(bench, part(0, 10))
    intent = bench.intend(offsets=part(15, 20))
    bench.ledger.append(
        Draft(
            kind=Kind.GAP_ACCEPTED, job=intent.job, batch=intent.batch, table=bench.state().ref,
            intent=intent.index, facts={"reason": "lost upstream", "gap": "10 to 15"},
        )
    )  # fmt: skip
    landed(bench, intent)
    found = continuity(bench.ledger)
    assert shape(found) == [("gap", "accepted", 10, 15)]
    assert found.events[0].reason == "lost upstream"
    assert found.findings() == ()
    assert found.findings(strict=True) == found.events


def test_a_gap_that_was_read_later_is_filled(bench: Bench) -> None:
    land(bench, part(0, 10))
    land(bench, part(20, 30))
    filling = land(bench, part(10, 20), generation=1, moves_position=False)
    land(bench, part(30, 40))
    found = continuity(bench.ledger)
    assert shape(found) == [("gap", "filled", 10, 20), ("replay", "recorded", 10, 20)]
    assert found.events[0].filled_by == filling
    assert found.findings() == ()


def test_a_gap_that_was_half_filled_stays_a_finding(bench: Bench) -> None:
    land(bench, part(0, 10))
    land(bench, part(20, 30))
    land(bench, part(10, 15), generation=1, moves_position=False)
    assert continuity(bench.ledger).findings()[0].kind is EventKind.GAP


def test_an_overlap_is_a_finding_and_a_replay_is_not(bench: Bench) -> None:
    land(bench, part(0, 10))
    land(bench, part(5, 20))
    land(bench, part(0, 30), generation=1)
    found = continuity(bench.ledger)
    assert shape(found) == [("overlap", "open", 5, 10), ("replay", "recorded", 0, 20)]
    assert [event.kind for event in found.findings()] == [EventKind.OVERLAP]
    assert len(found.findings(strict=True)) == 2


def test_a_batch_that_turns_the_position_back_is_a_rewind(bench: Bench) -> None:
    land(bench, part(0, 30))
    land(bench, part(0, 10))
    land(bench, part(10, 20))
    assert shape(continuity(bench.ledger)) == [("rewind", "open", 0, 10)]


def test_after_a_rollback_the_line_goes_on_from_where_it_went_back_to(bench: Bench) -> None:
    kept = land(bench, part(0, 10))
    gone = [land(bench, part(10, 20)), land(bench, part(20, 30))]
    bench.note(Kind.ROLLBACK, operation="rollback", undone=gone)
    again = land(bench, part(10, 25))
    found = continuity(bench.ledger)
    assert shape(found) == [("rewind", "recorded", 10, 30)]
    assert (found.events[0].before, found.events[0].after) == (kept, gone[1])
    assert found.lines[0].partitions[0].last_batch == again
    assert found.findings() == ()


def test_a_first_batch_that_was_rolled_back_leaves_no_position(bench: Bench) -> None:
    gone = land(bench, part(0, 10))
    bench.note(Kind.ROLLBACK, operation="rollback", undone=[gone])
    found = continuity(bench.ledger)
    assert shape(found) == [("rewind", "recorded", 0, 10)]
    assert found.lines[0].partitions[0].last is None
    land(bench, part(0, 10), generation=1)
    assert continuity(bench.ledger).findings() == ()


def test_a_batch_undone_in_the_middle_leaves_a_gap_until_it_is_read_again(bench: Bench) -> None:
    land(bench, part(0, 10))
    gone = land(bench, part(10, 20))
    land(bench, part(20, 30))
    bench.note(Kind.UNDO, operation="undo", undone=[gone])
    (gap,) = continuity(bench.ledger).findings()
    assert (gap.kind, gap.start, gap.end, gap.before) == (EventKind.GAP, 10, 20, gone)
    land(bench, part(10, 20), generation=1, moves_position=False)
    assert continuity(bench.ledger).findings() == ()


def test_a_recreated_topic_is_a_changed_source(bench: Bench) -> None:
    def topic(start: int, end: int, identity: str) -> Offsets:
        return kafka({"t": {0: (start, end)}}, bootstrap="b", topic_ids={"t": identity})

    land(bench, topic(0, 10, "one"))
    land(bench, topic(0, 5, "two"))
    found = continuity(bench.ledger)
    assert shape(found) == [("changed", "open", 0, 5)]
    assert found.lines[0].partitions[0].partition == "t-0"


def test_lsn_and_watermarks_are_ordered_as_the_committer_orders_them(bench: Bench) -> None:
    land(bench, lsn("db", None, "0/A"))
    land(bench, lsn("db", "0/A", "0/10"))  # 0x10 comes after 0xA
    land(bench, lsn("db", "0/20", "0/30"))
    land(bench, watermark("src", "at", "2026-01-01", "2026-01-02"))
    land(bench, watermark("src", "at", "2026-01-01", "2026-01-03"))
    assert shape(continuity(bench.ledger)) == [
        ("gap", "open", "0/10", "0/20"),
        ("overlap", "open", "2026-01-01", "2026-01-02"),
    ]


def test_files_and_keys_are_sets_and_a_second_reading_is_an_overlap(
    bench: Bench, tmp_path: Path
) -> None:
    a, b = tmp_path / "a.csv", tmp_path / "b.csv"
    a.write_text("1")
    b.write_text("2")
    land(bench, files([a], source="in"))
    land(bench, files([b], source="in"))
    assert continuity(bench.ledger).events == ()
    land(bench, files([a, b], source="in"))
    a.write_text("changed")
    land(bench, files([a], source="in"))
    land(bench, once("k"))
    land(bench, once("k"), generation=1)
    found = continuity(bench.ledger)
    kinds = [(event.kind.value, Path(event.partition).name) for event in found.events]
    assert kinds == [
        ("overlap", "a.csv"), ("overlap", "b.csv"), ("changed", "a.csv"), ("replay", "k"),
    ]  # fmt: skip
    assert [line.partitions_count for line in found.lines] == [1, 2]
    assert all(line.partitions == () for line in found.lines)


def test_jobs_tables_sources_and_partitions_are_told_apart(bench: Bench) -> None:
    land(bench, mapping("one", {"p0": (0, 10), "p1": (5, 6)}))
    land(bench, mapping("two", {"p0": (50, 60)}))
    intent = bench.intend(offsets=part(100, 110), job=JobName("sales/other"))
    landed(bench, intent)
    land(bench, mapping("one", {"p1": (8, 9)}))
    found = continuity(bench.ledger)
    assert shape(found) == [("gap", "open", 6, 8)]
    assert len(found.lines) == 3
    assert len(continuity(bench.ledger, job=JobName("sales/other")).lines) == 1
    uuid = bench.state().ref.uuid
    assert continuity(bench.ledger, table=uuid).to_json() == found.to_json()


def test_a_rollback_by_another_job_counts_for_the_job_that_is_asked_about(bench: Bench) -> None:
    land(bench, part(0, 10))
    gone = land(bench, part(10, 20))
    bench.note(Kind.ROLLBACK, operation="rollback", undone=[gone])  # by upkeep/care
    found = continuity(bench.ledger, job=JobName("sales/orders"))
    assert shape(found) == [("rewind", "recorded", 10, 20)]


def test_entries_beyond_the_stop_do_not_count(bench: Bench) -> None:
    land(bench, part(0, 10))
    size = bench.ledger.head().size
    land(bench, part(50, 60))
    assert continuity(bench.ledger, stop=size).events == ()


def test_ranges_that_were_not_recorded_are_counted_and_not_guessed(bench: Bench) -> None:
    intent = bench.intend()
    landed(bench, intent, offsets={"kind": "kafka", "source": "s", "partitions": 9},
           moves_position=False)  # fmt: skip
    found = continuity(bench.ledger)
    assert (found.unreadable_count, found.lines) == (1, ())


def test_an_unknown_job_is_not_found_with_near_matches(bench: Bench) -> None:
    land(bench, part(0, 10))
    with pytest.raises(EntryNotFound, match="did you mean sales/orders"):
        continuity(bench.ledger, job=JobName("sales/ordrs"))


def test_the_answer_is_plain_json(bench: Bench) -> None:
    land(bench, part(0, 10))
    land(bench, part(15, 20))
    body = json.loads(json.dumps(continuity(bench.ledger).to_json()))
    assert body["continuous"] is False
    assert body["findings_count"] == 1
    assert body["events"][0]["standing"] == Standing.OPEN


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 15)), max_size=25))
def test_merged_ranges_hold_what_a_set_of_numbers_holds(ranges: list[tuple[int, int]]) -> None:
    cover, numbers = Cover(), set()
    for start, length in ranges:
        cover.add(Point(start), Point(start + length))
        numbers |= set(range(start, start + length))
    for start in range(0, 75, 3):
        for length in (1, 2, 7):
            expected = set(range(start, start + length)) <= numbers
            assert cover.holds(Point(start), Point(start + length)) == expected


PLACES = st.one_of(
    st.integers(0, 30),
    st.builds(lambda high, low: f"{high:X}/{low:X}", st.integers(0, 2), st.integers(0, 40)),
    st.sampled_from(["2026-01-01", "2026-01-02", "2026-02-01", "9", "10"]),
)


def same_kind(places: list[str | int]) -> bool:
    return len({(type(place), "/" in str(place)) for place in places}) == 1


@settings(max_examples=300, deadline=None)
@given(
    st.tuples(PLACES, PLACES, PLACES).filter(lambda places: same_kind(list(places))),
    st.booleans(),
    st.sampled_from([None, "one", "two"]),
)
def test_the_judgement_is_the_committers(
    places: tuple[str | int, str | int, str | int], from_start: bool, identity: str | None
) -> None:
    last_end, start, end = places
    if isinstance(start, int) and isinstance(end, int) and end < start:
        start, end = end, start
    begin = None if from_start else start
    offsets = Offsets(
        kind=OffsetKind.KAFKA,
        source="s",
        ranges={"p": Range(begin, end)},
        identity={} if identity is None else {"p": identity},
    )
    before = Position(
        partition="p", start=None, end=last_end, identity="one", batch=BatchId("b-1"), index=1
    )
    try:
        check(offsets, {"p": before}, replay=False, accept_gap=False, where="t")
        verdict = set()
    except SourceChanged:
        verdict = {EventKind.CHANGED}
    except OffsetGap:
        verdict = {EventKind.GAP}
    except OffsetOverlap:
        verdict = {EventKind.OVERLAP, EventKind.REWIND}
    last = _Stand(start=None, end=last_end, identity="one", batch=BatchId("b-1"), index=1)
    stand = _Stand(start=begin, end=end, identity=identity, batch=BatchId("b-2"), index=2)
    kind, _, _ = _judged(OffsetKind.KAFKA, last, stand)
    assert ({kind} if kind else set()) <= verdict
    assert (kind is None) == (not verdict)
