"""Random histories: events never depend on what came later, and no run ends in a wrong state."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lineage.context import LedgerContext
from lineage.events import events_of
from odi_audit.committer import records
from odi_audit.errors import BadKeys
from odi_audit.model.entries import Draft, Entry, Kind
from tests.unit.lineage.conftest import (
    LINES,
    ORDERS,
    SCHEMA,
    WIDER,
    History,
    new_history,
    snapshot_facts,
    work,
)
from tests.unit.lineage.strict_backend import StrictBackend

ENDED = {"COMPLETE": "COMPLETED", "FAIL": "FAILED", "ABORT": "ABORTED"}


def open_one(told: History, waiting: list[Entry]) -> None:
    waiting.append(told.intend(work("append"), work("append", LINES)))


def open_old(told: History, waiting: list[Entry]) -> None:
    """An intent as older versions wrote it: nothing of the tables' shape."""
    waiting.append(told.intend(work("append"), work("append", LINES), tables=[]))


def step(act: Callable[[History, Entry], Entry | None]) -> Callable[[History, list[Entry]], None]:
    """Do something to the oldest attempt that is open."""

    def done(told: History, waiting: list[Entry]) -> None:
        if waiting:
            settled = act(told, waiting[0])
            if settled is not None and settled.settles:
                waiting.pop(0)

    return done


def landed(told: History, opened: Entry) -> Entry | None:
    done = [
        entry.table
        for entry in told.ledger.batch_entries(opened.batch)  # type: ignore[arg-type]
        if entry.kind is Kind.LANDED
    ]
    table = LINES if ORDERS in done else ORDERS
    return told.land(opened, table, settles=bool(done))


def refused(told: History, opened: Entry) -> Entry | None:
    if any(
        entry.kind is Kind.LANDED
        for entry in told.ledger.batch_entries(opened.batch)  # type: ignore[arg-type]
    ):
        return None
    return told.refuse(opened, BadKeys("bad keys", null_keys=1, duplicate_keys=0))


def change(told: History, _: list[Entry]) -> None:
    opened = told.intend(work("evolve_schema"))
    told.effect(opened, Kind.SCHEMA_CHANGE, before=SCHEMA, after=WIDER)


def read(told: History, _: list[Entry]) -> None:
    told.add(Draft(kind=Kind.READ, table=ORDERS, facts={"consumer": "c", "rows": 1}))


def foreign(told: History, _: list[Entry]) -> None:
    told.foreign([snapshot_facts("77")])


ACTIONS: list[Callable[[History, list[Entry]], None]] = [
    open_one,
    open_old,
    step(lambda told, opened: told.stage(opened, ORDERS, LINES)),
    step(landed),
    step(landed),
    step(refused),
    step(lambda told, opened: told.add(records.abandoned(opened, "gone"))),
    step(lambda told, opened: told.add(records.unknown(opened, ORDERS, "lost"))),
    change,
    read,
    foreign,
]


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(ACTIONS), min_size=1, max_size=14))
def test_events_do_not_change_with_time_and_no_run_ends_wrong(
    actions: list[Callable[[History, list[Entry]], None]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        told = new_history(Path(folder))
        waiting: list[Entry] = []
        for act in actions:
            act(told, waiting)
        check(told)
        told.ledger.close()


def check(told: History) -> None:
    again = LedgerContext(told.ledger)
    made = [event for entry in told.ledger.scan() for event in events_of(entry, again)]
    # Those of ``told`` were made when each entry was the last of the ledger.
    assert [event.body for event in made] == [event.body for event in told.events]
    backend, last = StrictBackend(), dict[str, str]()
    for event in made:
        assert backend.post(event.body) == 201
        if event.state == "START":
            assert event.run not in last, "a run starts once"
        else:
            assert event.run in last, "a run starts before anything else"
            assert last[event.run] not in ENDED, "nothing follows the end of a run"
        last[event.run] = event.state
    for entry in told.ledger.scan():
        if entry.kind is Kind.INTENT:
            settled = told.ledger.settled_by(entry.index)
            state = backend.states[str(entry.run)]
            assert (state == "RUNNING") == (settled is None)
    written = {(run, name.rpartition("orders")[1]) for run, _, name in backend.versions}
    intents = {entry.index: entry for entry in told.ledger.scan() if entry.kind is Kind.INTENT}
    expected = {
        (str(intents[entry.intent].run), entry.table.name.rpartition("orders")[1])
        for entry in told.ledger.scan()
        if entry.kind in {Kind.LANDED, Kind.SCHEMA_CHANGE}
        and entry.intent is not None
        and entry.table is not None
        and told.ledger.settled_by(entry.intent) is not None
    }
    ours = {str(entry.run) for entry in intents.values()}
    assert {item for item in written if item[0] in ours} == expected
