from __future__ import annotations

from dataclasses import replace

import pytest

from odi_audit.catalog import LogEntry, RefInfo, SnapshotInfo, TableState
from odi_audit.catalog.moments import resolve
from odi_audit.errors import EntryNotFound
from odi_audit.ids import SnapshotId
from tests.unit.catalog.test_state import snapshot, table


def rolled_back() -> TableState:
    """Main stood at 1, 2, 3, went back to 1, and then to 4."""
    made = table(
        snapshot(1, None), snapshot(2, 1), snapshot(3, 2), snapshot(4, 1), current=4, main=4
    )
    moves = [("01", 1), ("02", 2), ("03", 3), ("04", 1), ("05", 4)]
    return replace(
        made,
        refs={
            **made.refs,
            "closing-2026": RefInfo(snapshot=SnapshotId("2"), kind="tag"),
            "odi_b-9": RefInfo(snapshot=SnapshotId("3"), kind="branch"),
        },
        snapshot_log=tuple(
            LogEntry(time=f"2026-11-{day}T12:00:00.500000Z", snapshot=SnapshotId(str(number)))
            for day, number in moves
        ),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3", "3"),
        (" 3 ", "3"),
        ("main", "4"),
        ("closing-2026", "2"),
        ("odi_b-9", "3"),
        ("2026-11-02", "1"),
        ("2026-11-03", "2"),
        ("2026-11-03T12:00:00", "2"),
        ("2026-11-03T12:00:00.5", "3"),
        ("2026-11-03 12:00:01Z", "3"),
        ("2026-11-03T13:00:00.500+01:00", "3"),
        ("2026-11-03T13:00:00.499+01:00", "2"),
        ("2026-11-04T12:00:01", "1"),
        ("2026-11-05", "1"),
        ("2026-11-06", "4"),
    ],
)
def test_a_moment_is_the_snapshot_that_main_stood_at(text: str, expected: str) -> None:
    assert resolve(rolled_back(), text).id == expected


def test_a_time_before_the_log_says_where_the_log_starts() -> None:
    with pytest.raises(EntryNotFound, match=r"starts at 2026-11-01T12:00:00\.500000Z") as caught:
        resolve(rolled_back(), "2026-11-01T12:00:00")
    assert caught.value.facts["oldest"] == "2026-11-01T12:00:00.500000Z"


@pytest.mark.parametrize("text", ["closing-2025", "2026-13-45", "yesterday", "2026", "²", ""])
def test_what_is_no_moment_is_told_with_what_there_is(text: str) -> None:
    with pytest.raises(EntryNotFound, match="its tags are closing-2026"):
        resolve(rolled_back(), text)


def test_a_name_that_is_nearly_right_names_the_near_one() -> None:
    with pytest.raises(EntryNotFound, match=r"did you mean closing-2026\?"):
        resolve(rolled_back(), "closing-2025")


def test_a_snapshot_that_the_log_names_and_that_has_expired_is_not_replaced_by_another() -> None:
    state = rolled_back()
    kept: tuple[SnapshotInfo, ...] = tuple(info for info in state.snapshots if info.id != "3")
    with pytest.raises(EntryNotFound, match="no snapshot 3"):
        resolve(replace(state, snapshots=kept), "2026-11-04")


def test_a_table_without_snapshots_has_no_main() -> None:
    with pytest.raises(EntryNotFound, match="no snapshot yet"):
        resolve(table(), "main")
