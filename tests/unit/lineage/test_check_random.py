"""However events were lost, doubled and mixed up on the way: a repair leaves Marquez right."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lineage.marquez.check import check
from lineage.marquez.server import Marquez
from odi_audit.committer import records
from odi_audit.errors import UsageError
from odi_audit.model.runs import Outcome
from tests.support.marquez import Backend, receiver
from tests.unit.lineage.conftest import COLUMNS, LINES, ORDERS, History, new_history, work

STATES = {"COMPLETE": "COMPLETED", "FAIL": "FAILED", "ABORT": "ABORTED"}


class Story:
    """A ledger that tests only read; without the long text that a History shows itself by."""

    def __init__(self, history: History) -> None:
        self.history = history


@pytest.fixture(scope="module")
def story() -> Iterator[Story]:
    with tempfile.TemporaryDirectory() as folder:
        made = new_history(Path(folder))
        begun, open_run = made.begin(1), made.begin(2, streaming=True)
        for _ in range(2):
            opened = made.intend(work("append"), columns=COLUMNS, parent_run=begun.run)
            made.stage(opened, ORDERS)
            made.land(opened)
        made.add(records.run_ended(begun, Outcome.COMPLETED))
        made.refuse(made.intend(work("append"), parent_run=open_run.run), UsageError("no"))
        made.land(made.intend(work("overwrite", LINES)), LINES, "overwrite")
        both = made.intend(work("append"), work("append", LINES))
        made.land(both, settles=False)
        made.land(both, LINES)
        made.stage(made.intend(work("append", LINES)), LINES)
        yield Story(made)
        made.ledger.close()


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_repair_mends_any_loss_and_any_order(story: Story, data: st.DataObject) -> None:
    history, events = story.history, story.history.events
    arrived = data.draw(st.lists(st.sampled_from(range(len(events))), max_size=2 * len(events)))
    right = Backend()
    for event in events:
        right.post(event.body)
    with receiver() as marquez:
        for place in arrived:
            assert marquez.backend.post(events[place].body) == 201
        ended = {events[place].run for place in arrived if events[place].state in STATES}
        report = check(history.ledger, Marquez(marquez.url), repair=True)
        assert report.counts == {}
        assert marquez.states == right.states
        assert marquez.backend.versions == right.versions
        assert marquez.backend.columns == right.columns
        for name, job in right.jobs.items():
            held = marquez.backend.jobs[name]
            runs = [right.runs[run] for run in job.runs]
            if all(run.state != "RUNNING" for run in runs):
                # At least those of the last run; what an earlier one had may be drawn still.
                ever = {right.made[at].dataset for run in runs for at in run.inputs | run.outputs}
                assert job.inputs <= held.inputs <= ever, name
                assert job.outputs <= held.outputs <= ever, name
        for arrival in marquez.arrivals:
            assert arrival.state != "START" or arrival.run not in ended
            if arrival.state in STATES:
                ended.add(arrival.run)  # type: ignore[arg-type]
