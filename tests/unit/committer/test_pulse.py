"""The pulse of a run: long batches and quiet streams are told, and nothing else is."""

from __future__ import annotations

import time
from collections.abc import Callable

import odi_audit as odi
from odi_audit.committer.pulse import IDLE_BEATS
from odi_audit.ids import BatchId, JobName
from odi_audit.ledger.port import Ledger
from odi_audit.model.entries import Draft, Entry, Kind
from odi_audit.workspace import Workspace

JOB = JobName("sales/orders")
EVERY_S = 0.05


def alive(ledger: Ledger) -> list[Entry]:
    return [entry for entry in ledger.scan() if entry.kind is Kind.ALIVE]


def wait_for(ledger: Ledger, wanted: Callable[[Entry], bool]) -> Entry:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for entry in alive(ledger):
            if wanted(entry):
                return entry
        time.sleep(EVERY_S)
    raise AssertionError("no such entry")


def beating(make_lake: Callable[..., Workspace], every_s: float) -> Workspace:
    return Workspace.find(make_lake().root, overrides={"run.pulse_s": str(every_s)})


def test_a_long_batch_is_told_until_it_is_settled_and_a_quiet_run_more_seldom(
    make_lake: Callable[..., Workspace],
) -> None:
    with beating(make_lake, EVERY_S) as lake:
        ledger = lake.ledger()
        with odi.run(JOB, lake=lake, streaming=True) as run:
            opened = open_batches(ledger, run.parts.owner)
            told = wait_for(ledger, lambda entry: entry.intent is not None)
            assert (told.intent, told.run, told.batch) == (opened.index, opened.run, "b-2")
            end = Draft(kind=Kind.ABANDONED, batch=opened.batch, intent=opened.index, settles=True)
            ledger.append(end)
            size = len(alive(ledger))
            began = time.monotonic()
            quiet = wait_for(ledger, lambda entry: entry.intent is None)
            assert (quiet.run, quiet.batch, quiet.facts["stream"]) == (run.run_id, None, True)
            assert time.monotonic() - began > EVERY_S * (IDLE_BEATS - 2)
            # One beat may have been under way when the batch was settled.
            assert len([one for one in alive(ledger) if one.intent is not None]) <= size + 1
        ended = len(alive(ledger))
        time.sleep(EVERY_S * (IDLE_BEATS + 5))
        assert len(alive(ledger)) <= ended + 1


def open_batches(ledger: Ledger, owner: str) -> Entry:
    """Open a batch of somebody else and one of ours; return ours."""
    facts = {"owner": owner, "stream": {"query": "q"}}
    other = Draft(kind=Kind.INTENT, job=JOB, batch=BatchId("b-1"), facts={"owner": "another"})
    own = Draft(kind=Kind.INTENT, job=JOB, batch=BatchId("b-2"), facts=facts)
    return ledger.append(other, own)[1]


def test_short_batches_and_runs_leave_no_pulse_and_none_is_asked_for_with_0(
    make_lake: Callable[..., Workspace],
) -> None:
    with beating(make_lake, 0) as lake, odi.run(JOB, lake=lake) as run:
        ledger = lake.ledger()
        ledger.append(
            Draft(kind=Kind.INTENT, job=JOB, batch=BatchId("b-1"),
                  facts={"owner": run.parts.owner})
        )  # fmt: skip
        time.sleep(EVERY_S * 4)
        assert alive(ledger) == []
