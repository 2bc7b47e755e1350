"""The relay over a real HTTP server: order, retries, dead letters, stops."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from lineage.relay.desk import SUSPECT_MAX
from lineage.relay.relay import Manner, follow
from lineage.relay.sources import LEDGER
from lineage.relay.state import Stand
from tests.support.marquez import Fault, Request
from tests.support.relaying import fill, forever, http, intend, settle, to_file
from tests.unit.lineage.relay.conftest import Stage

FAILING = 0.65
Hook = Callable[[Request], Fault | None]


def runs_of(stage: Stage) -> list[str]:
    return [str(entry.run) for entry in stage.ledger.scan() if entry.kind.value == "intent"]


def first_times(wanted: Callable[[Request], bool], fault: Fault, times: int) -> Hook:
    """Fault the first so many requests that fit."""
    left = [times]

    def hook(request: Request) -> Fault | None:
        if not wanted(request) or not left[0]:
            return None
        left[0] -= 1
        return fault

    return hook


def test_every_event_arrives_in_the_order_of_its_run(stage: Stage) -> None:
    outcome = stage.send()
    assert (outcome.sent, outcome.left, outcome.letters) == (36, 0, 0)
    stage.judge()
    assert max(Counter(stage.taken()).values()) == 1
    assert stage.store.positions("default") == {LEDGER: "36"}
    assert stage.store.marks("default") == []


def test_what_came_since_is_sent_and_nothing_twice(stage: Stage) -> None:
    stage.send()
    fill(stage.ledger, range(12, 15))
    assert stage.send().sent == 9
    assert stage.send().sent == 0
    stage.judge()
    assert len(stage.taken()) == 45


def test_the_bytes_that_arrive_are_those_of_the_event(stage: Stage) -> None:
    bodies: list[bytes] = []
    stage.backend.hook = lambda request: bodies.append(request.body)  # type: ignore[func-returns-value]
    stage.send()
    from lineage.context import LedgerContext
    from lineage.events import events_of

    context = LedgerContext(stage.ledger)
    made = [event.body for entry in stage.ledger.scan() for event in events_of(entry, context)]
    assert sorted(bodies) == sorted(made)


def test_a_start_that_fails_for_a_while_holds_its_run_and_no_other(stage: Stage) -> None:
    run = runs_of(stage)[0]
    stage.backend.hook = first_times(lambda ask: ask.run == run, Fault(status=503), 5)
    assert stage.send().left == 0
    assert len(stage.backend.fired) == 5
    stage.judge()


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_passing_faults_are_tried_again(stage: Stage, status: int) -> None:
    stage.backend.hook = first_times(lambda _: True, Fault(status=status), 4)
    outcome = stage.send()
    assert (outcome.left, outcome.letters) == (0, 0)
    assert len(stage.backend.fired) == 4
    stage.judge()


@pytest.mark.parametrize("how", ["reset", "close"])
@pytest.mark.parametrize("carry_out", [True, False])
def test_a_line_that_breaks_is_tried_again(stage: Stage, how: str, carry_out: bool) -> None:
    fault = Fault(close=how, carry_out=carry_out)
    stage.backend.hook = first_times(lambda _: True, fault, 4)
    assert stage.send().left == 0
    assert len(stage.backend.fired) == 4
    stage.judge()


def test_retry_after_is_waited_for_by_every_lane(stage: Stage) -> None:
    stage.backend.hook = first_times(lambda _: True, Fault(status=429, retry_after="1"), 1)
    stage.send()
    times = [arrival.time for arrival in stage.backend.arrivals]
    refused = next(one.time for one in stage.backend.arrivals if one.status == 429)
    # Requests of other lanes were on their way already; whatever comes after waits.
    after = [moment for moment in times if moment > refused + 0.3]
    assert min(after) - refused >= 0.95
    stage.judge()


def test_an_event_that_is_refused_is_parked_and_its_run_held_behind_it(stage: Stage) -> None:
    run = runs_of(stage)[1]
    stage.backend.hook = lambda ask: Fault(status=422) if ask.run == run else None
    outcome = stage.send()
    assert (outcome.sent, outcome.left, outcome.letters) == (33, 0, 3)
    letters = stage.store.letters("default")
    assert [(one.state, one.stand, one.status) for one in letters] == [
        ("START", Stand.PARKED, 422),
        ("RUNNING", Stand.HELD, None),
        ("COMPLETE", Stand.HELD, None),
    ]
    assert {one.run for one in letters} == {run}
    assert len([one for one in stage.backend.arrivals if one.run == run]) == 1
    assert stage.store.positions("default") == {LEDGER: "36"}


def test_what_comes_later_of_a_held_run_is_held_too(stage: Stage) -> None:
    opened = intend(stage.ledger, 100)
    stage.backend.hook = lambda ask: Fault(status=400) if ask.run == opened.run else None
    assert stage.send().letters == 1
    settle(stage.ledger, opened, 100)
    assert stage.send().letters == 2
    assert len([one for one in stage.backend.arrivals if one.run == opened.run]) == 1
    stage.backend.hook = None
    keys = [(one.source, one.key) for one in stage.store.letters("default")]
    stage.store.ask_retry("default", keys)
    outcome = stage.send()
    assert (outcome.sent, outcome.letters) == (2, 0)
    stage.judge()


def test_a_retry_that_is_refused_again_stays_parked_in_order(stage: Stage) -> None:
    run = runs_of(stage)[2]
    stage.backend.hook = lambda ask: Fault(status=422) if ask.run == run else None
    stage.send()
    keys = [(one.source, one.key) for one in stage.store.letters("default")]
    stage.store.ask_retry("default", keys)
    assert stage.send().letters == 3
    letters = stage.store.letters("default")
    assert [(one.state, one.stand, one.tries) for one in letters] == [
        ("START", Stand.PARKED, 2), ("RUNNING", Stand.HELD, 0), ("COMPLETE", Stand.HELD, 0),
    ]  # fmt: skip
    assert stage.store.marks("default") == []


def test_a_drop_lets_the_rest_of_the_run_go(stage: Stage) -> None:
    run = runs_of(stage)[0]
    stage.backend.hook = lambda ask: (
        Fault(status=422) if (ask.run, ask.state) == (run, "START") else None
    )
    stage.send()
    first = stage.store.letters("default")[0]
    stage.store.drop("default", [(first.source, first.key)], reason="r", who="w", at="t")
    outcome = stage.send()
    assert (outcome.sent, outcome.letters) == (2, 0)
    assert [state for _, found, state in stage.taken() if found == run] == ["RUNNING", "COMPLETE"]
    assert stage.backend.states[run] == "COMPLETED"


def test_a_backend_that_fails_most_of_the_time_parks_no_event(stage: Stage) -> None:
    chance, fails = random.Random(5), [0]
    row: Counter[str] = Counter()

    def hook(request: Request) -> Fault | None:
        fault = chance.random() < FAILING
        fails[0] += fault
        row[request.run] = row[request.run] + 1 if fault else 0
        longest.append(row[request.run])
        return Fault(status=500) if fault else None

    longest: list[int] = []
    fill(stage.ledger, range(12, 100))
    stage.backend.hook = hook
    outcome = stage.send(manner=Manner(settle_s=0.1, retry_s_max=0.05, give_up_after=1_000))
    assert max(longest) > SUSPECT_MAX, "no event failed often enough to be suspected"
    assert fails[0] > 300
    assert (outcome.left, outcome.letters) == (0, 0)
    stage.judge()


def test_500_for_ever_parks_the_event_while_others_are_taken(stage: Stage) -> None:
    run = runs_of(stage)[3]
    stage.backend.hook = lambda ask: Fault(status=500) if ask.run == run else None
    outcome = stage.send()
    assert (outcome.left, outcome.letters) == (0, 3)
    letter = stage.store.letters("default")[0]
    assert letter.status == 500
    assert letter.tries >= SUSPECT_MAX
    assert "while others were taken" in letter.reason


def test_500_for_ever_of_the_only_event_is_judged_by_the_backends_health(stage: Stage) -> None:
    stage.send()
    opened = intend(stage.ledger, 100)
    stage.backend.hook = lambda ask: Fault(status=500) if ask.run == opened.run else None
    assert stage.send().letters == 1
    assert "/api/v1/namespaces" in stage.backend.reads


def test_500_for_ever_of_everything_parks_nothing(stage: Stage) -> None:
    stage.backend.hook = lambda _: Fault(status=500)
    outcome = stage.send(manner=Manner(retry_s_max=0.01, give_up_after=60))
    assert (outcome.sent, outcome.left, outcome.letters) == (0, 36, 0)
    assert "500" in (outcome.error or "")


@pytest.mark.parametrize("status", [401, 403, 404, 302])
def test_a_destination_that_turns_us_away_stops_the_relay_and_parks_nothing(
    stage: Stage, status: int
) -> None:
    stage.backend.hook = lambda _: Fault(status=status)
    outcome = stage.send()
    assert (outcome.sent, outcome.left, outcome.letters) == (0, 36, 0)
    assert str(status) in (outcome.stopped or "")
    facts = stage.store.facts("default")
    assert facts is not None
    assert str(status) in (facts.stopped or "")
    assert len(stage.backend.arrivals) <= 4, "one for each lane, and no more"
    stage.backend.hook = None
    assert stage.send().sent == 36
    facts = stage.store.facts("default")
    assert facts is not None
    assert facts.stopped is None
    stage.judge()


def test_a_wrong_key_is_told_and_a_right_one_goes_through(stage: Stage) -> None:
    stage.backend.api_key = "s3cr3t-right"
    outcome = stage.send(http(stage.backend.url, api_key="s3cr3t-wrong"))
    assert "401" in (outcome.stopped or "")
    assert "s3cr3t" not in repr(outcome)
    assert stage.send(http(stage.backend.url, api_key="s3cr3t-right")).sent == 36
    stage.judge()


def test_nobody_listening_ends_once_with_everything_left(stage: Stage) -> None:
    port = stage.backend.port
    stage.backend.stop()
    outcome = stage.send(manner=Manner(retry_s_max=0.01, give_up_after=5))
    assert (outcome.sent, outcome.left) == (0, 36)
    assert stage.store.doubts("default") == [], "what was never connected cannot arrive late"
    stage.backend.start(port)
    assert stage.send().sent == 36
    stage.judge()


def test_a_timeout_leaves_a_doubt_and_the_end_is_said_once_more(stage: Stage) -> None:
    run = runs_of(stage)[0]
    # The first START is carried out long after the run has ended, as a slow server would.
    stage.backend.hook = first_times(
        lambda ask: (ask.run, ask.state) == (run, "START"), Fault(stall_s=0.8), 1
    )
    manner = Manner(settle_s=1.2, retry_s_max=0.01, give_up_after=40)
    outcome = stage.send(http(stage.backend.url, timeout_s=0.3), manner=manner)
    assert outcome.left == 0
    mine = [state for _, found, state in stage.taken() if found == run]
    assert mine[-1] == "COMPLETE"
    assert mine.index("COMPLETE") < len(mine) - 2, "the late START came after the end"
    stage.judge(never_back=False)
    assert stage.store.doubts("default") == []


def test_a_follower_sends_what_comes_and_ends_when_told(stage: Stage) -> None:
    stop = threading.Event()
    done: list[object] = []
    manner = Manner(follow=True, settle_s=0.05, retry_s_max=0.02)
    thread = threading.Thread(
        target=lambda: done.append(follow(lambda: stage.relay(manner=manner), stop))
    )
    thread.start()
    fill(stage.ledger, range(20, 22))
    until = time.monotonic() + 20
    while len(stage.taken()) < 42 and time.monotonic() < until:
        time.sleep(0.02)
    stop.set()
    thread.join(10)
    assert not thread.is_alive()
    stage.judge()
    assert stage.store.lease("default") is None


def test_destinations_have_positions_of_their_own(stage: Stage, tmp_path: Path) -> None:
    from dataclasses import replace

    archive = replace(to_file(tmp_path / "events.jsonl"), name="archive")
    stage.backend.hook = lambda _: Fault(status=503)
    failing = Manner(retry_s_max=0.01, give_up_after=3)
    assert stage.send(manner=failing).left == 36
    assert stage.send(archive).sent == 36
    assert stage.store.positions("archive") == {LEDGER: "36"}
    assert stage.store.positions("default") == {}
    assert len((tmp_path / "events.jsonl").read_bytes().splitlines()) == 36


def test_an_event_that_cannot_be_made_is_parked_and_the_rest_goes_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lineage.relay import sources

    real = sources.events_of

    def events_of(entry: object, context: object) -> object:
        if entry.index == 3:  # type: ignore[attr-defined]
            raise ValueError("odd entry")
        return real(entry, context)  # type: ignore[arg-type]

    monkeypatch.setattr(sources, "events_of", events_of)
    outcome = stage.send()
    assert (outcome.sent, outcome.left, outcome.letters) == (33, 0, 3)
    assert "no event can be made of entry 3" in stage.store.letters("default")[0].reason


def test_stopping_at_once_leaves_everything_for_the_next(stage: Stage) -> None:
    stop = threading.Event()
    stop.set()
    assert stage.relay().run(stop).left == 36
    assert stage.send().sent == 36
    assert forever().is_set() is False
