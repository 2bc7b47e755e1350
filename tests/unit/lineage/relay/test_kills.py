"""A relay that is killed, or taken for dead: whoever comes after it makes everything right."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from lineage.relay.sources import LEDGER
from lineage.relay.state import Changes
from odi_audit.errors import RelayHeld
from tests.support.marquez import Fault, Request, receiver
from tests.support.relaying import (
    events_in,
    forever,
    http,
    judge,
    new_ledger,
    relay_of,
    state_beside,
    to_file,
)
from tests.unit.lineage.relay.conftest import Stage

ROOT = Path(__file__).parents[4]
POINTS = [
    ("leased", 1), ("before-write", 1), ("written", 1), ("submitted", 1), ("answered", 1),
    ("before-write", 2), ("written", 2), ("submitted", 3), ("answered", 3), ("before-write", 4),
    ("written", 5), ("answered", 6),
]  # fmt: skip


def start(folder: Path, url: str, **order: Any) -> subprocess.Popen[bytes]:
    path = folder / "order.json"
    path.write_text(
        json.dumps({"folder": str(folder), "url": url, "fired": str(folder / "fired"), **order})
    )
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.relay_child", str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=(folder / "stderr").open("wb"),
    )


@pytest.mark.parametrize(("point", "time_reached"), POINTS)
def test_after_a_kill_at_any_point_everything_is_there_and_in_order(
    stage: Stage, point: str, time_reached: int
) -> None:
    # The receiver takes its time, so that a kill finds requests under way.
    stage.backend.delay_s = 0.005
    child = start(stage.folder, stage.backend.url, kill_at=[point, time_reached])
    assert child.wait(60) == -signal.SIGKILL, (stage.folder / "stderr").read_text()
    assert (stage.folder / "fired").read_text() == point
    assert stage.store.lease("default") is not None
    outcome = stage.send()
    assert (outcome.left, outcome.letters) == (0, 0)
    time.sleep(0.05)  # A request of the dead one may be carried out still.
    stage.judge()
    assert stage.store.marks("default") == []


def test_a_kill_while_requests_are_under_way_is_healed_by_an_echo(stage: Stage) -> None:
    # START is carried out after the relay's death, when the run has ended by another's word.
    arrived = threading.Event()

    def late(ask: Request) -> Fault | None:
        if ask.state != "START" or ask.number >= 4:
            return None
        arrived.set()
        return Fault(stall_s=1.5)

    stage.backend.hook = late
    child = start(stage.folder, stage.backend.url)
    assert arrived.wait(60), (stage.folder / "stderr").read_text()
    child.kill()
    assert child.wait(60) == -signal.SIGKILL
    time.sleep(0.1)
    from lineage.relay.relay import Manner

    stage.backend.hook = None
    manner = Manner(settle_s=2.0, retry_s_max=0.01)
    assert stage.send(manner=manner).left == 0
    assert stage.backend.fired, "the requests of the dead one arrived"
    stage.judge(never_back=False)


@pytest.mark.parametrize(("point", "time_reached"), [("submitted", 1), ("answered", 1)])
def test_a_file_gets_everything_after_a_kill(tmp_path: Path, point: str, time_reached: int) -> None:
    ledger = new_ledger(tmp_path, 12)
    out = tmp_path / "events.jsonl"
    child = start(tmp_path, str(out), kill_at=[point, time_reached])
    assert child.wait(60) == -signal.SIGKILL
    store = state_beside(tmp_path / "ledger.db")
    assert relay_of(to_file(out), ledger, store).run(forever()).left == 0
    arrived = []
    states: dict[str, str] = {}
    names = {"COMPLETE": "COMPLETED", "FAIL": "FAILED", "ABORT": "ABORTED"}
    for line in out.read_text().splitlines():
        event = json.loads(line)
        run, state = event["run"]["runId"], event["eventType"]
        arrived.append((event["run"]["facets"]["odi_ledger"]["index"], run, state))
        states[run] = names.get(state, "RUNNING")
    judge(events_in(ledger), arrived, states)


def test_a_relay_that_was_paused_cannot_move_the_position(stage: Stage) -> None:
    relay = stage.relay(holder="old")
    lease = relay._acquire()
    other = state_beside(stage.folder / "ledger.db")
    # The old holder's time is up, by the new one's clock.
    taken = other.acquire("default", "new", "2999-01-01T00:00:00.000000Z", "2999-02-01")
    with pytest.raises(RelayHeld):
        stage.store.write(lease, Changes(passed={LEDGER: ("36", ())}))
    assert other.positions("default") == {}
    other.release(taken)
    other.close()
    assert stage.send().sent == 36
    stage.judge()


def test_a_paused_process_is_replaced_and_stops_by_itself(stage: Stage) -> None:
    # Slow answers: it is paused while it waits, not in the middle of a transaction, whose lock a
    # stopped process keeps.
    stage.backend.delay_s = 0.4
    child = start(stage.folder, stage.backend.url, follow=True, lease_s=2.0)
    until = time.monotonic() + 30
    while len(stage.backend.arrivals) < 4 and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.2)
    os.kill(child.pid, signal.SIGSTOP)
    stage.backend.delay_s = 0.0
    lease = stage.store.lease("default")
    assert lease is not None
    with pytest.raises(RelayHeld):
        stage.send()
    time.sleep(2.5)
    outcome = stage.send()
    assert outcome.left == 0
    assert outcome.sent > 0
    position, count = stage.store.positions("default"), len(stage.backend.arrivals)
    os.kill(child.pid, signal.SIGCONT)
    time.sleep(1.0)
    assert stage.store.positions("default") == position
    assert len(stage.backend.arrivals) == count, "it began nothing with a lease that is over"
    child.terminate()
    assert child.wait(20) == 0
    stage.judge(never_back=False)


def test_one_relay_at_a_time(stage: Stage) -> None:
    stage.store.begin("default", stage.there.address, {})
    stage.store.acquire("default", "somebody", "2026-01-01", "2999-01-01")
    with pytest.raises(RelayHeld, match="somebody sends to default"):
        stage.send()
    assert stage.backend.arrivals == []


def test_sigterm_ends_a_follower_cleanly(tmp_path: Path) -> None:
    ledger = new_ledger(tmp_path, 6)
    with receiver() as backend:
        child = start(tmp_path, backend.url, follow=True)
        until = time.monotonic() + 30
        while len(backend.arrivals) < 18 and time.monotonic() < until:
            time.sleep(0.02)
        child.terminate()
        assert child.wait(20) == 0
        store = state_beside(tmp_path / "ledger.db")
        assert store.lease("default") is None
        assert store.positions("default") == {LEDGER: "18"}
        assert relay_of(http(backend.url), ledger, store).run(forever()).sent == 0
