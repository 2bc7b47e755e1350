"""The doctor's clock: a machine whose time went back is found."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from odi_audit.doctor import Check, State, examine
from odi_audit.model.entries import Draft, Kind
from odi_audit.workspace import Workspace

Make = Callable[..., Workspace]


class At:
    def __init__(self, moment: datetime) -> None:
        self.moment = moment

    def now(self) -> datetime:
        return self.moment


def clock_check(lake: Workspace, moment: datetime) -> Check:
    return next(
        check for check in examine(lake, clock=At(moment), spark=False) if check.name == "clock"
    )


def test_a_clock_before_the_last_ledger_entry_fails(make_lake: Make) -> None:
    lake = make_lake()
    lake.ledger().append(Draft(kind=Kind.READ))
    entry_year = datetime.now(UTC).year
    os.utime(lake.root / "catalog.db", (0, 0))
    found = clock_check(lake, datetime(entry_year - 1, 12, 31, tzinfo=UTC))
    assert found.state is State.FAIL
    assert found.remedy


def test_a_clock_before_the_catalogs_last_change_fails(make_lake: Make) -> None:
    lake = make_lake()
    future = datetime(2030, 1, 1, tzinfo=UTC)
    os.utime(lake.root / "catalog.db", (future.timestamp(), future.timestamp()))
    found = clock_check(lake, datetime(2029, 1, 1, tzinfo=UTC))
    assert found.state is State.FAIL
    assert "catalog" in found.message


@pytest.mark.parametrize("year", [1970, 2000])
def test_a_clock_that_lost_its_time_fails(make_lake: Make, year: int) -> None:
    assert clock_check(make_lake(), datetime(year, 1, 1, tzinfo=UTC)).state is State.FAIL


def test_a_right_clock_is_fine(make_lake: Make) -> None:
    assert clock_check(make_lake(), datetime.now(UTC)).state is State.OK
