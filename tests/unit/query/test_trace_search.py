"""Finding a write in a long record: by halves, in any order in which writers recorded."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from odi_audit.ids import BatchId, SnapshotId
from odi_audit.model.entries import Draft, Kind
from odi_audit.model.tables import TableRef
from odi_audit.query import writes
from odi_audit.query.writes import Writes

if TYPE_CHECKING:
    from conftest import Bench

    from odi_audit.ledger.port import Ledger

ROWS = 7
AT_ONCE = 10
"""Entries recorded in one transaction have one time."""


def fill(bench: Bench, numbers: list[int], *, between: int = 0) -> TableRef:
    """Record a write for each sequence number, in this order, with others in between."""
    ref = bench.state().ref
    other = TableRef(uuid=ref.uuid[:-1] + "x", name="sales.other")  # type: ignore[arg-type]
    drafts = []
    for number in numbers:
        drafts.extend(draft(other, number, f"o-{number}-{n}") for n in range(between))
        drafts.append(draft(ref, number, f"b-{number}"))
    for place in range(0, len(drafts), AT_ONCE):
        bench.ledger.append(*drafts[place : place + AT_ONCE])
    return ref


def draft(ref: TableRef, number: int, batch: str) -> Draft:
    return Draft(
        kind=Kind.LANDED,
        batch=BatchId(batch),
        table=ref,
        facts={
            "operation": "append",
            "snapshot": str(1000 + number),
            "sequence_number": number,
            "first_row_id": number * ROWS,
            "added_rows": ROWS,
        },
    )


def shuffled(count: int, reach: int, seed: int) -> list[int]:
    """Return numbers about in order: none is more than ``reach`` from its place, or so."""
    chance = random.Random(seed)
    return sorted(range(1, count + 1), key=lambda number: number + chance.uniform(0, reach))


@pytest.mark.parametrize("whole_max", [writes.WHOLE_MAX, 3])
@pytest.mark.parametrize("reach", [0, 5, 400])
def test_every_write_is_found_however_long_the_record_and_whatever_its_order(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, whole_max: int, reach: int
) -> None:
    monkeypatch.setattr(writes, "WHOLE_MAX", whole_max)
    ref = fill(bench, shuffled(200, reach, seed=reach), between=1)
    bench.note(
        Kind.FOREIGN, snapshot="9", operation="append", sequence_number=300, first_row_id=9000,
        added_rows=1,
    )  # fmt: skip
    for number in (1, 2, 3, 77, 100, 199, 200):
        # A new search each time: nothing is known from the one before.
        found = Writes(bench.ledger, ref.uuid).by_sequence(number)
        assert found is not None
        assert found.batch == f"b-{number}"
        found = Writes(bench.ledger, ref.uuid).by_row_id(number * ROWS + 3)
        assert found is not None
        assert found.batch == f"b-{number}"
        found = Writes(bench.ledger, ref.uuid).by_snapshot(SnapshotId(str(1000 + number)))
        assert found is not None
        assert found.batch == f"b-{number}"
    search = Writes(bench.ledger, ref.uuid)
    foreign = search.by_sequence(300)
    assert foreign is not None
    assert foreign.kind is Kind.FOREIGN
    assert search.by_row_id(9000) == foreign
    assert search.by_sequence(0) is None
    assert search.by_sequence(201) is None
    assert search.by_row_id(ROWS - 1) is None


def test_a_long_record_is_not_read_whole(bench: Bench) -> None:
    ref = fill(bench, list(range(1, 3001)))
    counting = Counting(bench.ledger)
    found = Writes(counting, ref.uuid).by_sequence(1234)  # type: ignore[arg-type]
    assert found is not None
    assert found.batch == "b-1234"
    assert counting.entries < writes.WHOLE_MAX + 250


def test_writes_before_a_number_come_newest_first(bench: Bench) -> None:
    ref = fill(bench, list(range(1, 1200)))
    found = [entry.batch for entry in Writes(bench.ledger, ref.uuid).before(1100)]
    assert found == [f"b-{number}" for number in range(1099, 0, -1)]


class Counting:
    """A ledger that counts the entries that it hands out."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.entries = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._ledger, name)

    def find(self, *args: object, **kwargs: object) -> object:
        found = self._ledger.find(*args, **kwargs)  # type: ignore[arg-type]
        self.entries += len(found)
        return found

    def get(self, index: int) -> object:
        self.entries += 1
        return self._ledger.get(index)
