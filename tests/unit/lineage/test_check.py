"""`lineage check` finds what Marquez lacks or has wrong, and `--repair` mends it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from lineage.leaving import Event
from lineage.marquez import server as server_module
from lineage.marquez.check import Report, check
from lineage.marquez.comparing import Relayed
from lineage.marquez.server import Marquez
from tests.support.marquez import Receiver
from tests.unit.lineage.check_bench import (
    ENDS,
    ask,
    assert_no_start_after_an_end,
    codes,
    give,
    marquez,
    runs,
    sent,
    small,
)
from tests.unit.lineage.conftest import LINES, History, Told, work

__all__ = ["ask", "marquez"]


# -- the same --------------------------------------------------------------------------------------


def test_what_was_sent_as_the_ledger_says_is_the_same(
    told: Told, marquez: Receiver, ask: Callable[..., Report]
) -> None:
    give(marquez, told.history.events)
    report = ask(told.history)
    assert (codes(report), report.notes) == ({}, [])
    assert report.runs_count == len(runs(told.history))
    assert report.entries_count == told.history.ledger.head().size
    assert not marquez.arrivals, "a check sends nothing"


def test_a_run_that_is_open_in_the_ledger_may_run(
    history: History, marquez: Receiver, ask: Callable[..., Report]
) -> None:
    give(marquez, small(history).events)
    assert codes(ask(history)) == {}
    assert "RUNNING" in marquez.states.values()


def test_events_that_come_twice_make_no_difference(
    history: History, marquez: Receiver, ask: Callable[..., Report]
) -> None:
    for event in small(history).events:
        give(marquez, [event, event])
    assert codes(ask(history)) == {}


def test_an_empty_ledger_is_the_same_as_an_empty_server(
    history: History, ask: Callable[..., Report]
) -> None:
    report = ask(history)
    assert (codes(report), report.runs_count) == ({}, 0)


# -- each difference, found and mended -------------------------------------------------------------


def lost_run(history: History) -> list[Event]:
    gone = runs(history)[1]
    return [event for event in history.events if event.run != gone]


def lost_end(history: History) -> list[Event]:
    gone = runs(history)[0]
    return [event for event in history.events if event.run != gone or event.state != "COMPLETE"]


def lost_newest_of_an_open_run(history: History) -> list[Event]:
    return history.events[:-1]


def lost_start_of_an_open_run(history: History) -> list[Event]:
    gone = runs(history)[-1]
    return [event for event in history.events if event.run != gone or event.state != "START"]


def start_came_again(history: History) -> list[Event]:
    return [*history.events, history.events[0]]


def lost_refusal(history: History) -> list[Event]:
    return [event for event in history.events if event.state != "FAIL"]


def lost_everything(history: History) -> list[Event]:
    return []


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lost_run, {"run-missing": 1}),
        (lost_end, {"state": 1, "version-missing": 1}),
        (lost_newest_of_an_open_run, {"event-missing": 1}),
        (lost_start_of_an_open_run, {"event-missing": 1, "input-missing": 2}),
        (start_came_again, {"state": 1, "edge-missing": 1}),
        (lost_refusal, {"state": 1, "edge-missing": 1}),
        (lost_everything, {"job-missing": 4, "run-missing": 6, "column-missing": 4}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_difference_is_found_and_mended(
    history: History,
    marquez: Receiver,
    ask: Callable[..., Report],
    spoil: Callable[[History], list[Event]],
    expected: dict[str, int],
) -> None:
    given = spoil(small(history))
    give(marquez, given)
    report = ask(history)
    assert codes(report) == expected
    assert all(finding.hint for finding in report.findings)
    repaired = ask(history, repair=True)
    assert codes(repaired) == {}
    assert repaired.repaired is not None
    assert repaired.repaired.sent_count == len(marquez.arrivals) > 0
    assert_no_start_after_an_end(marquez, given)
    assert codes(ask(history)) == {}


def test_of_a_run_in_a_wrong_state_the_end_alone_is_sent(
    history: History, marquez: Receiver, ask: Callable[..., Report]
) -> None:
    give(marquez, start_came_again(small(history)))
    ask(history, repair=True)
    assert {state for _, state in sent(marquez)} == {"COMPLETE"}
    assert marquez.states[runs(history)[0]] == "COMPLETED"


def test_of_a_missing_run_all_events_are_sent_in_order_and_the_newest_run_stays_so(
    history: History, marquez: Receiver, ask: Callable[..., Report]
) -> None:
    give(marquez, lost_run(small(history)))
    newest = marquez.backend.datasets["s3://lake", "warehouse/sales/orders"].current
    ask(history, repair=True)
    first, last = runs(history)[1], runs(history)[2]
    assert sent(marquez) == [
        (first, "START"),
        (first, "RUNNING"),
        (first, "COMPLETE"),
        (last, "COMPLETE"),
    ]
    assert marquez.backend.datasets["s3://lake", "warehouse/sales/orders"].current == newest


def test_a_version_an_input_and_an_edge_that_are_missing_are_found_and_mended(
    history: History, marquez: Receiver, ask: Callable[..., Report]
) -> None:
    small(history)
    held = runs(history)[2]
    for event in history.events:
        body = json.loads(event.body)
        if event.run == held:
            body.pop("outputs")
            body["inputs"] = body["inputs"][:1]
        assert marquez.backend.post(json.dumps(body).encode()) == 201
    report = ask(history)
    assert codes(report) == {
        "edge-missing": 3,
        "input-missing": 2,
        "version-missing": 1,
    }
    assert codes(ask(history, repair=True)) == {}
    assert sent(marquez) == [(held, "COMPLETE")]


def test_another_snapshot_than_the_ledger_s_is_found_and_mended(
    history: History, marquez: Receiver, ask: Callable[..., Report]
) -> None:
    small(history)
    held = runs(history)[0]
    for event in history.events:
        body = json.loads(event.body)
        if event.run == held and body.get("outputs"):
            report = body["outputs"][0]["outputFacets"]["icebergCommitReport"]
            report["snapshotId"] = "12"
        assert marquez.backend.post(json.dumps(body).encode()) == 201
    found = ask(history)
    assert codes(found) == {"version-different": 1}
    assert found.findings[0].facts["snapshot"] == "5000000000000001001"
    assert codes(ask(history, repair=True)) == {}


def test_a_column_s_edge_that_is_missing_is_found_and_mended(
    history: History, marquez: Receiver, ask: Callable[..., Report]
) -> None:
    give(marquez, small(history).events)
    orders = ("s3://lake", "warehouse/sales/orders", "amount")
    assert marquez.backend.columns.pop(orders)
    report = ask(history)
    assert codes(report) == {"column-missing": 3}
    assert {finding.facts["column"] for finding in report.findings} == {"amount"}
    assert codes(ask(history, repair=True)) == {}


def test_a_run_that_nobody_here_knows_is_named_and_left_alone(
    history: History, marquez: Receiver, ask: Callable[..., Report]
) -> None:
    small(history)
    stranger = "018f3c5e-0000-7000-8000-000000000666"
    foreign = json.loads(history.events[-1].body)
    foreign["run"]["runId"] = stranger
    give(marquez, history.events[:-1])
    assert marquez.backend.post(json.dumps(foreign).encode()) == 201
    give(marquez, history.events[-1:])
    report = ask(history, repair=True)
    assert codes(report) == {"run-extra": 1}
    assert (report.findings[0].subject, report.findings[0].hint) == (stranger, None)
    assert not marquez.arrivals


def test_datasets_that_the_ledger_does_not_name_are_found(
    history: History, marquez: Receiver, ask: Callable[..., Report]
) -> None:
    small(history)
    for event in history.events:
        body = json.loads(event.body)
        if body.get("outputs"):
            body["outputs"].append({"namespace": "s3://lake", "name": "stranger"})
            body["inputs"] = [*body["inputs"], {"namespace": "s3://lake", "name": "other"}]
        assert marquez.backend.post(json.dumps(body).encode()) == 201
    found = codes(ask(history))
    assert set(found) == {"version-extra", "input-extra", "edge-extra"}
    assert found["version-extra"] == found["input-extra"] == 4


def test_an_end_that_the_ledger_does_not_have_is_found_and_no_start_is_sent(
    history: History, marquez: Receiver, ask: Callable[..., Report]
) -> None:
    history.intend(work("append"))
    give(marquez, history.events)
    foreign = json.loads(history.events[0].body)
    foreign["eventType"] = "COMPLETE"
    assert marquez.backend.post(json.dumps(foreign).encode()) == 201
    report = ask(history, repair=True)
    assert (codes(report), marquez.arrivals) == ({"state": 1}, [])
    assert report.findings[0].hint is None


def test_a_start_that_never_came_is_a_note_once_the_run_has_ended(
    history: History, marquez: Receiver, ask: Callable[..., Report]
) -> None:
    history.land(history.intend(work("append")))
    give(marquez, history.events[1:])
    report = ask(history, repair=True)
    assert (codes(report), [note.code for note in report.notes]) == ({}, ["start-missing"])
    assert not marquez.arrivals


def test_a_stream_whose_edges_marquez_dropped_is_a_note(
    history: History, marquez: Receiver, ask: Callable[..., Report]
) -> None:
    for _ in range(2):
        history.land(history.intend(work("append"), stream={"query": "q", "batch": 1}))
    kinds = {json.loads(event.body)["job"]["facets"]["jobType"]["processingType"]
             for event in history.events}  # fmt: skip
    give(marquez, history.events)
    report = ask(history)
    assert codes(report) == {}
    assert {note.code for note in report.notes} == (
        {"stream-edge"} if kinds == {"STREAMING"} else set()
    )


# -- what is looked at -----------------------------------------------------------------------------


def test_what_the_relay_has_yet_to_send_is_pending(
    history: History, marquez: Receiver, ask: Callable[..., Report]
) -> None:
    small(history)
    give(marquez, history.events[:4])
    report = ask(history, relay=Relayed(delivered_to=history.events[4].index))
    assert codes(report) == {}
    assert (report.runs_count, report.pending_runs_count) == (6, 5)
    # Beyond its position a relay may have sent some already.
    give(marquez, history.events[4:-3])
    assert codes(ask(history, relay=Relayed(delivered_to=history.events[4].index))) == {}
    marquez.backend.runs[runs(history)[0]].state = "RUNNING"
    report = ask(history, relay=Relayed(delivered_to=history.events[4].index), repair=True)
    assert codes(report) == {}
    assert {run for run, _ in sent(marquez)} <= set(runs(history)[:1])


def test_what_waits_for_a_decision_is_named_and_left_to_the_relay(
    history: History, marquez: Receiver, ask: Callable[..., Report]
) -> None:
    small(history)
    first, second = runs(history)[:2]
    give(marquez, [event for event in history.events if event.run not in {first, second}])
    relay = Relayed(parked=frozenset({first}), dropped={second: "too big (ana)"})
    report = ask(history, relay=relay, repair=True)
    assert codes(report) == {"run-missing": 1}
    [finding] = report.findings
    assert (finding.subject, finding.hint) == (first, f"odi-audit relay retry {first}")
    [note] = [note for note in report.notes if note.subject == second]
    assert "too big (ana)" in note.message
    assert not {run for run, _ in sent(marquez)} & {first, second}


def test_a_check_may_begin_in_the_middle(
    history: History, marquez: Receiver, ask: Callable[..., Report]
) -> None:
    small(history)
    first, second = runs(history)[:2]
    end = next(
        event.index for event in history.events if event.run == first and event.state in ENDS
    )
    give(marquez, [event for event in history.events if event.run not in {first, second}])
    report = ask(history, first=end)
    assert {finding.subject for finding in report.findings if finding.code == "run-missing"} == {
        first,
        second,
    }
    # A run that began before is sent whole.
    ask(history, first=end, repair=True)
    assert sent(marquez)[:3] == [(first, "START"), (first, "RUNNING"), (first, "COMPLETE")]
    assert codes(ask(history)) == {}


def test_a_check_may_be_about_one_table(
    history: History, marquez: Receiver, ask: Callable[..., Report]
) -> None:
    small(history)
    report = ask(history, table=LINES)
    assert (report.jobs_count, report.runs_count) == (1, 1)
    assert codes(report) == {"job-missing": 1, "run-missing": 1}
    assert codes(ask(history, table=LINES, repair=True)) == {}
    assert {run for run, _ in sent(marquez)} == {runs(history)[4]}


def test_runs_that_pages_leave_out_are_asked_for_one_by_one(
    history: History, marquez: Receiver, ask: Callable[..., Report], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(12):
        history.land(history.intend(work("append")))
    give(marquez, history.events)
    # All of one moment: their order is another one on each page.
    for run in marquez.backend.runs.values():
        run.started = "2026-11-01T00:00:00.000000Z"
    monkeypatch.setattr(server_module, "PAGE_RUNS", 5)
    assert codes(ask(history)) == {}
    assert any("/jobs/runs/" in path for path in marquez.reads)


def test_ten_times_the_runs_are_not_ten_times_the_requests(
    history: History, marquez: Receiver, ask: Callable[..., Report]
) -> None:
    counts = []
    for more in (10, 90):
        for _ in range(more):
            history.land(history.intend(work("append")))
        give(marquez, history.events[-2 * more :])
        marquez.reads.clear()
        assert codes(ask(history)) == {}
        counts.append(len(marquez.reads))
    assert counts[0] == counts[1]


def test_an_entry_recorded_during_the_check_is_no_stranger(
    history: History, marquez: Receiver
) -> None:
    history.land(history.intend(work("append")))
    give(marquez, history.events)
    once: list[int] = []

    def hook(request: Any) -> None:
        if "/runs" in request.path and not once:
            once.append(1)
            history.land(history.intend(work("append")))
            give(marquez, history.events[2:])

    marquez.hook = hook
    assert codes(check(history.ledger, Marquez(marquez.url))) == {}
    assert once, "the entry did come in the middle"
