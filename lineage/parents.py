"""Events of a job's own run, the parent of its batches: its start, its pulse, its end.

Owns which entry gives which of them. A run says nothing of datasets: its batches do. It has no
parent facet of its own, though a scheduler may have started it: Marquez would take it for a job of
another name than the one that its batches call their parent (docs/lineage-events.md). Must never
say that a run goes on after its end was told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openlineage.client.event_v2 import Run, RunEvent, RunState

from lineage import facts, runs
from lineage.context import Context
from lineage.facets import PRODUCER, OdiRunRunFacet
from lineage.leaving import Event, finished
from odi_audit.model.entries import Entry
from odi_audit.model.runs import Outcome

if TYPE_CHECKING:
    from openlineage.client.generated.base import RunFacet

_ENDS = {
    Outcome.COMPLETED.value: RunState.COMPLETE,
    Outcome.FAILED.value: RunState.FAIL,
    Outcome.STOPPED.value: RunState.ABORT,
    Outcome.DIED.value: RunState.ABORT,
}


def started(entry: Entry) -> list[Event]:
    """Return the START of a run."""
    return _events(entry, entry, [RunState.START])


def alive(entry: Entry, context: Context) -> list[Event]:
    """Return RUNNING of a run that has no batch under way: a stream without news, say."""
    index = facts.number(entry.facts, "started")
    about = None if index is None else context.entry(index)
    if about is not None and context.is_settled(about.index, before=entry.index):
        return []
    return _events(entry, about or entry, [RunState.RUNNING])


def ended(entry: Entry, context: Context) -> list[Event]:
    """Return the end of a run; with its start, where that is lost."""
    state = _ENDS.get(facts.text(entry.facts, "outcome") or "")
    if state is None:
        return []
    about = None if entry.intent is None else context.entry(entry.intent)
    return _events(entry, about or entry, [state] if about else [RunState.START, state])


def _events(entry: Entry, about: Entry, states: list[RunState]) -> list[Event]:
    if entry.job is None or not runs.is_run_id(entry.run):
        return []
    return [
        finished(_event(entry, about, state), index=entry.index, place=place)
        for place, state in enumerate(states)
    ]


def _event(entry: Entry, about: Entry, state: RunState) -> RunEvent:
    """Make one event; ``about`` is the entry that tells who runs what."""
    assert entry.job is not None and entry.run is not None
    told, said = about.facts, facts.obj(about.facts, "about")
    # An older pulse tells it of itself.
    streaming = facts.flag(told, "streaming") or facts.flag(entry.facts, "stream")
    run_facets: dict[str, RunFacet] = {"odi_ledger": runs.ledger_facet(entry)}
    if state is not RunState.RUNNING:
        run_facets["odi_run"] = OdiRunRunFacet(
            outcome=None if state is RunState.START else facts.text(entry.facts, "outcome"),
            errorCode=None if state is RunState.START else facts.text(entry.facts, "error_code"),
            principal=facts.text(told, "principal"),
            code=facts.text(told, "code"),
            host=facts.text(told, "host"),
            spec=facts.text(said, "spec"),
            producer=PRODUCER,
        )
        run_facets |= runs.environment_facets(told)
    reason = facts.text(entry.facts, "reason")
    if reason is not None and state in {RunState.FAIL, RunState.ABORT}:
        code = facts.text(entry.facts, "error_code")
        run_facets["errorMessage"] = runs.error_facet(f"{code}: {reason}" if code else reason)
    return RunEvent(
        eventType=state,
        eventTime=entry.time,
        run=Run(runId=entry.run, facets=run_facets),
        job=runs.job_of(
            runs.job_ref(entry.job),
            what="run",
            code=facts.text(told, "code"),
            description=facts.text(said, "description"),
            owner=facts.text(said, "owner"),
            streaming=streaming,
        ),
        inputs=[],
        outputs=[],
        producer=PRODUCER,
    )
