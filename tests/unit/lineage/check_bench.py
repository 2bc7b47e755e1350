"""A small ledger, a receiver, and a check between the two."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lineage.leaving import Event
from lineage.marquez.check import Question, Report, check
from lineage.marquez.server import Marquez
from odi_audit.errors import UsageError
from tests.support.marquez import Receiver, receiver
from tests.unit.lineage.conftest import COLUMNS, LINES, ORDERS, History, work

ENDS = {"COMPLETE", "FAIL", "ABORT"}


@pytest.fixture
def marquez() -> Iterator[Receiver]:
    with receiver() as made:
        yield made


@pytest.fixture
def ask(marquez: Receiver) -> Iterator[Callable[..., Report]]:
    made = Marquez(marquez.url)

    def asked(history: History, *, repair: bool = False, **question: Any) -> Report:
        return check(history.ledger, made, Question(**question), repair=repair)

    yield asked
    made.close()


def small(history: History) -> History:
    """Three batches with column lineage, one refused, one table more, one still open."""
    for _ in range(3):
        opened = history.intend(work("append"), columns=COLUMNS)
        history.stage(opened, ORDERS)
        history.land(opened)
    history.refuse(history.intend(work("overwrite")), UsageError("no"))
    history.land(history.intend(work("append", LINES)), LINES)
    history.stage(history.intend(work("delete")), ORDERS)
    return history


def give(marquez: Receiver, events: list[Event]) -> None:
    for event in events:
        assert marquez.backend.post(event.body) == 201


def runs(history: History) -> list[str]:
    return list(dict.fromkeys(str(event.run) for event in history.events))


def codes(report: Report) -> dict[str, int]:
    return dict(report.counts)


def sent(marquez: Receiver) -> list[tuple[str, str]]:
    return [(arrival.run, arrival.state) for arrival in marquez.arrivals]


def assert_no_start_after_an_end(marquez: Receiver, before: list[Event]) -> None:
    ended: set[str] = {str(event.run) for event in before if event.state in ENDS}
    for run, state in sent(marquez):
        assert state != "START" or run not in ended, "a START after the end of its run"
        if state in ENDS:
            ended.add(run)
