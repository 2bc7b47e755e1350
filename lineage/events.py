"""OpenLineage events as a pure function of ledger entries.

Owns which entry gives which event: START at the intent, RUNNING on the way, COMPLETE, FAIL or ABORT
at the entry that settles it. A job's own run has events too (``parents``); a read and a foreign
snapshot are runs of their own. Only what is in a table is an output: a batch that was refused made
no version of anything. Must never look at anything but the entry and earlier entries, nor at a
clock (docs/lineage-events.md).
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING

from openlineage.client.event_v2 import InputDataset, OutputDataset, Run, RunEvent, RunState

from lineage import facts, parents, runs
from lineage.attempts import Attempt, attempt_of
from lineage.context import Context
from lineage.facets import PRODUCER, OdiReadRunFacet
from lineage.leaving import Event, finished
from lineage.outputs import output, read_input
from lineage.runs import JobRef, RunRef
from lineage.tables import view
from odi_audit.ids import RunId
from odi_audit.model.entries import EFFECTS, Entry, Kind

if TYPE_CHECKING:
    from openlineage.client.generated.base import RunFacet

__all__ = ["Event", "events_of"]

_ENDS = {Kind.REFUSED: RunState.FAIL, Kind.ABANDONED: RunState.ABORT}
_NO_JOB = "odi/unknown"


def events_of(entry: Entry, context: Context) -> list[Event]:
    """Return the events of one entry, in the order in which they must be sent.

    A seal, an accepted gap and the note that a batch is a replay give none: the last two show in
    the events of their batch.
    """
    match entry.kind:
        case Kind.READ:
            return _read(entry, context)
        case Kind.FOREIGN:
            return _foreign(entry, context)
        case Kind.RUN_STARTED:
            return parents.started(entry)
        case Kind.RUN_ENDED:
            return parents.ended(entry, context)
        case Kind.ALIVE if entry.intent is None:
            return parents.alive(entry, context)
        case Kind.SEAL | Kind.REPLAY | Kind.GAP_ACCEPTED:
            return []
        case _:
            return _of_batch(entry, context)


def _of_batch(entry: Entry, context: Context) -> list[Event]:
    attempt = attempt_of(entry, context)
    if entry.kind is Kind.ALIVE and attempt.settled_before:
        # Told by a thread that had not seen the end yet: said now, it would take it back.
        return []
    states = _states(entry, attempt)
    return [
        finished(_batch_event(entry, attempt, state, context), index=entry.index, place=place)
        for place, state in enumerate(states)
    ]


def _states(entry: Entry, attempt: Attempt) -> list[RunState]:
    if entry.kind is Kind.INTENT:
        return [RunState.START]
    ended = _ENDS.get(entry.kind)
    if ended is None:
        # Reconcile may have given an attempt up that published after all: it did complete.
        whole = entry.kind in EFFECTS and (entry.settles or attempt.settled_before)
        ended = RunState.COMPLETE if whole else RunState.RUNNING
        if entry.kind in EFFECTS and attempt.intent is None:
            ended = RunState.COMPLETE
    return [ended] if attempt.intent is not None else [RunState.START, ended]


def _batch_event(entry: Entry, attempt: Attempt, state: RunState, context: Context) -> RunEvent:
    job = runs.job_ref(entry.job or attempt.job or _NO_JOB)
    operations = attempt.operations
    named = runs.child(job, [(item.operation, item.table) for item in operations])
    about = attempt.intent or entry
    single = attempt.described[0] if len(attempt.described) == 1 else facts.NOTHING
    run_facets: dict[str, RunFacet] = {
        "odi_ledger": runs.ledger_facet(entry, attempt.intent),
        "odi_batch": attempt.facet(entry, state.value),
    }
    parent = facts.text(about.facts, "parent_run")
    if runs.is_run_id(parent):
        assert parent is not None
        run_facets["parent"] = runs.parent_facet(RunRef(job=job, run=RunId(parent)), attempt.intent)
    inputs: list[InputDataset] = []
    outputs: list[OutputDataset] = []
    if state is not RunState.RUNNING:
        run_facets |= attempt.run_facets(entry)
        inputs = attempt.inputs(entry, context)
    if state in {RunState.COMPLETE, RunState.ABORT}:
        outputs = [
            output(effect, attempt.intent, attempt.staged, context, until=entry.index)
            for effect in attempt.effects
        ]
    reason = facts.text(entry.facts, "reason")
    if state in {RunState.FAIL, RunState.ABORT} and reason is not None:
        code = facts.text(entry.facts, "code")
        message = f"{code}: {reason}" if code and entry.kind is Kind.REFUSED else reason
        run_facets["errorMessage"] = runs.error_facet(message)
    return RunEvent(
        eventType=state,
        eventTime=entry.time,
        run=Run(runId=attempt.run, facets=run_facets),
        job=runs.job_of(
            named,
            what=operations[0].operation if len(operations) == 1 else "batch",
            code=facts.text(about.facts, "code"),
            sql=runs.statement(single),
            description=attempt.description,
            owner=facts.text(facts.obj(about.facts, "about"), "owner"),
        ),
        inputs=inputs,
        outputs=outputs,
        producer=PRODUCER,
    )


def _read(entry: Entry, context: Context) -> list[Event]:
    """A confirmed read is a run of its consumer, with the table as its input."""
    consumer = facts.text(entry.facts, "consumer") or "unknown"
    if entry.table is None:
        return []
    run = runs.made_run_id("read", entry.index, consumer)
    run_facets: dict[str, RunFacet] = {
        "odi_ledger": runs.ledger_facet(entry),
        "odi_read": OdiReadRunFacet(
            consumer=consumer,
            mode=facts.text(entry.facts, "mode"),
            fromSnapshot=facts.text(entry.facts, "from_snapshot"),
            toSnapshot=facts.text(entry.facts, "to_snapshot"),
            rows=facts.number(entry.facts, "rows"),
            columns=facts.texts(entry.facts, "columns") or None,
            where=facts.text(entry.facts, "where"),
            principal=facts.text(entry.facts, "principal"),
            producer=PRODUCER,
        ),
    }
    job = JobRef(namespace="consumers", name=consumer)
    if entry.job is not None:
        parent = runs.job_ref(entry.job)
        job = runs.child(parent, [("read", entry.table.name)])
        if entry.run is not None and runs.is_run_id(entry.run):
            run_facets["parent"] = runs.parent_facet(RunRef(job=parent, run=entry.run), None)
    began = facts.moment(entry.facts, "began_at") or entry.time
    table = view(entry.table, context, entry.index)
    return _whole_run(
        entry,
        run=run,
        job=job,
        what="read",
        facets=run_facets,
        inputs=[read_input(table, entry)],
        began=min(began, entry.time),
    )


def _foreign(entry: Entry, context: Context) -> list[Event]:
    """A snapshot that nobody here wrote is a run of a job that is named after its engine."""
    if entry.table is None:
        return []
    engine = facts.text(entry.facts, "engine") or "unknown"
    run_facets: dict[str, RunFacet] = {
        "odi_ledger": runs.ledger_facet(entry),
        "tags": runs.tags_facet({"foreign": "true"}),
    }
    committed = facts.moment(entry.facts, "committed_at")
    if committed is not None:
        run_facets["nominalTime"] = runs.nominal(committed)
    return _whole_run(
        entry,
        run=runs.made_run_id("foreign", entry.index, str(entry.facts.get("snapshot"))),
        job=JobRef(namespace="foreign", name=f"{engine}.{entry.table.name}"),
        what="foreign",
        facets=run_facets,
        outputs=[output(entry, None, facts.NOTHING, context, until=entry.index)],
    )


def _whole_run(
    entry: Entry,
    *,
    run: RunId,
    job: JobRef,
    what: str,
    facets: dict[str, RunFacet],
    inputs: list[InputDataset] | None = None,
    outputs: list[OutputDataset] | None = None,
    began: str | None = None,
) -> list[Event]:
    """Return start and end of a run of which the ledger has one entry only."""
    made: list[Event] = []
    for place, state in enumerate((RunState.START, RunState.COMPLETE)):
        last = state is RunState.COMPLETE
        document = RunEvent(
            eventType=state,
            eventTime=entry.time if last else began or entry.time,
            run=Run(runId=run, facets=dict(facets)),
            job=runs.job_of(job, what=what),
            # What is left out of a big event is left out of that one only.
            inputs=deepcopy(inputs or []),
            outputs=deepcopy(outputs or []) if last else [],
            producer=PRODUCER,
        )
        made.append(finished(document, index=entry.index, place=place))
    return made
