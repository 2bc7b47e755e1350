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
from odi_audit.ledger.port import EntryFilter
from odi_audit.model.entries import Draft, Entry, Kind
from odi_audit.model.runs import Outcome
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

STATES = {
    "completed": "COMPLETED", "failed": "FAILED", "stopped": "ABORTED", "died": "ABORTED",
}  # fmt: skip
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


def begin(told: History, _: list[Entry]) -> None:
    told.begin(len(told.events), streaming=len(told.events) % 2 == 0)


def living(act: Callable[[Entry], Draft]) -> Callable[[History, list[Entry]], None]:
    """Tell something of the oldest run that has no end yet."""

    def done(told: History, _: list[Entry]) -> None:
        for started in told.ledger.open_runs()[:1]:
            told.add(act(started))

    return done


def pulse(told: History, _: list[Entry]) -> None:
    """A pulse of every run, also of those that have ended: it may come late."""
    for entry in told.ledger.find(EntryFilter(kinds=(Kind.RUN_STARTED,))):
        facts = {"after_s": 9, "started": entry.index}
        told.add(Draft(kind=Kind.ALIVE, job=entry.job, run=entry.run, facts=facts))


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
    begin,
    begin,
    pulse,
    *(
        living(lambda started, how=outcome: records.run_ended(started, how, reason="so"))  # type: ignore[misc]
        for outcome in Outcome
    ),
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
        if entry.kind is Kind.RUN_STARTED:
            ended = told.ledger.settled_by(entry.index)
            expected_state = "RUNNING" if ended is None else STATES[str(ended.facts["outcome"])]
            assert backend.states[str(entry.run)] == expected_state
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
