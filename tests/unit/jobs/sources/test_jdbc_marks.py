"""Watermarks: their texts have the order of their values, and no digit is lost."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.sources.jdbc_marks import MarkKind, Marks, kind_of
from odi_audit.errors import NotSupported, UsageError
from odi_audit.model.offsets import is_after

MICROS = st.integers(-(10**15), 10**17)
DAYS = st.integers(-100_000, 2_000_000)


@given(kind=st.sampled_from(list(MarkKind)), data=st.data())
def test_places_have_the_order_of_values_and_give_them_back(
    kind: MarkKind, data: st.DataObject
) -> None:
    marks = Marks(kind=kind, dialect="postgresql")
    values = DAYS if kind is MarkKind.DATE else MICROS
    one, other = data.draw(values), data.draw(values)
    places = marks.place(one), marks.place(other)
    assert (marks.mark(places[0]), marks.mark(places[1])) == (one, other)
    assert is_after(*places) == (one > other)


def test_values_are_written_so_that_no_time_zone_can_shift_them() -> None:
    micros = Marks(kind=MarkKind.TIME, dialect="postgresql").mark("2026-11-01T10:00:00+02:00")
    for kind, dialect, text in (
        (
            MarkKind.TIME,
            "postgresql",
            "TIMESTAMP WITH TIME ZONE '2026-11-01 08:00:00.000000+00:00'",
        ),
        (MarkKind.TIME, "mysql", "TIMESTAMP '2026-11-01 08:00:00.000000+00:00'"),
        (MarkKind.LOCAL_TIME, "postgresql", "TIMESTAMP '2026-11-01 08:00:00.000000'"),
    ):
        assert Marks(kind=kind, dialect=dialect).sql(micros) == text
    day = Marks(kind=MarkKind.DATE, dialect="postgresql")
    assert day.sql(day.mark("2026-11-01")) == "DATE '2026-11-01'"
    assert day.back(10, timedelta(hours=25)) == 8, "an overlap is never shorter than was asked for"


def test_what_has_no_common_order_is_refused() -> None:
    assert kind_of("decimal(20,0)", "n") is MarkKind.NUMBER
    for wrong in ("string", "double", "decimal(10,2)"):
        with pytest.raises(NotSupported, match=r"is of type"):
            kind_of(wrong, "n")
    number = Marks(kind=MarkKind.NUMBER, dialect="postgresql")
    with pytest.raises(NotSupported, match="overlap is a time"):
        number.back(5, timedelta(hours=1))
    with pytest.raises(UsageError, match="is no number"):
        number.mark("yesterday")
