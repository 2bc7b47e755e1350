"""The relay on a bad network, killed at random, while batches are recorded.

Seeded: the seed is printed, and ``ODI_TEST_SEED`` gives one. Afterwards every event is at the
receiver and no run is in a wrong state; a fault that did not fire fails the test.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from lineage.relay.relay import Manner
from odi_audit.clock import SystemClock
from odi_audit.ledger import open_ledger
from tests.support.bad_wire import FAULTS, LATE_S_MAX, BadWire, bad_wire
from tests.support.marquez import Fault, Receiver, Request, receiver
from tests.support.relay_child import ready_name
from tests.support.relaying import (
    events_in,
    fill_in_a_run,
    forever,
    http,
    judge,
    new_ledger,
    relay_of,
    state_beside,
)

ROOT = Path(__file__).parents[2]
SECONDS = 75
SOAK_SECONDS = 3600
SETTLE_S = LATE_S_MAX + 1.5
"""How long the relay waits before it says an end once more: longer than any request is late."""
STATUSES = {"429": 429, "500": 500, "503": 503}
KINDS = (*FAULTS, *STATUSES, "kill", "pause")


class Chaos:
    """One bad thing after another, each for a moment."""

    def __init__(
        self, folder: Path, wire: BadWire, backend: Receiver, chance: random.Random
    ) -> None:
        self.folder, self.wire, self.backend, self.chance = folder, wire, backend, chance
        self.fired: Counter[str] = Counter()
        self.status: str | None = None
        backend.hook = self._hook
        self.child = self._start()

    def go(self, kind: str) -> None:
        length_s = self.chance.uniform(0.2, 1.5)
        if kind == "kill":
            self.child.kill()
            assert self.child.wait(30) == -signal.SIGKILL
            self.fired["kill"] += 1
            self.child = self._start()
        elif kind == "pause":
            os.kill(self.child.pid, signal.SIGSTOP)
            time.sleep(length_s)
            os.kill(self.child.pid, signal.SIGCONT)
            self.fired["pause"] += 1
        elif kind in STATUSES:
            self.status = kind
            time.sleep(length_s)
            self.status = None
        else:
            self.wire.mode = kind
            time.sleep(length_s)
            self.wire.mode = None
        assert self.child.poll() is None, (self.folder / "stderr").read_text()[-2000:]

    def end(self) -> None:
        # One that was killed a moment ago may still be starting.
        ready, deadline = self.folder / ready_name(self.child.pid), time.monotonic() + 60
        while not ready.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.child.terminate()
        assert self.child.wait(60) == 0, (self.folder / "stderr").read_text()[-2000:]

    def _hook(self, _request: Request) -> Fault | None:
        kind = self.status
        if kind is None or self.chance.random() < 0.3:
            return None
        self.fired[kind] += 1
        return Fault(status=STATUSES[kind], retry_after="1" if kind == "429" else None)

    def _start(self) -> subprocess.Popen[bytes]:
        order = {
            "folder": str(self.folder), "url": f"http://127.0.0.1:{self.wire.port}",
            "timeout_s": 0.6, "settle_s": SETTLE_S, "retry_s_max": 0.3, "follow": True,
        }  # fmt: skip
        path = self.folder / "order.json"
        path.write_text(json.dumps(order))
        with (self.folder / "stderr").open("ab") as stderr:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.support.relay_child", str(path)],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=subprocess.STDOUT,
            )


def record(folder: Path, stop: threading.Event) -> None:
    """Record runs of batches beside all this, as jobs would."""
    url = f"sqlite:///{folder / 'ledger.db'}"
    ledger = open_ledger(url, clock=SystemClock())
    number = 0
    while not stop.wait(0.2):
        fill_in_a_run(ledger, range(number, number + 2))
        number += 2
    ledger.close()


def storm(folder: Path, seconds: float) -> None:
    seed = int(os.environ.get("ODI_TEST_SEED", "") or random.SystemRandom().randrange(2**32))
    print(f"ODI_TEST_SEED={seed}")
    chance = random.Random(seed)
    new_ledger(folder).close()
    stop = threading.Event()
    writer = threading.Thread(target=record, args=(folder, stop))
    with receiver() as backend, bad_wire("127.0.0.1", backend.port, chance) as wire:
        chaos = Chaos(folder, wire, backend, chance)
        writer.start()
        until = time.monotonic() + seconds
        rounds = 0
        while time.monotonic() < until:
            # Each kind in each round, in another order: none is left out by chance.
            for kind in chance.sample(KINDS, len(KINDS)):
                chaos.go(kind)
                time.sleep(chance.uniform(0.1, 0.8))
            rounds += 1
        stop.set()
        writer.join(30)
        chaos.end()
        fired = chaos.fired + wire.fired
        time.sleep(LATE_S_MAX)
        ledger = open_ledger(
            f"sqlite:///{folder / 'ledger.db'}", clock=SystemClock(), read_only=True
        )
        store = state_beside(folder / "ledger.db")
        manner = Manner(settle_s=0.5, retry_s_max=0.3, give_up_after=50)
        outcome = relay_of(http(f"http://127.0.0.1:{wire.port}"), ledger, store, manner=manner).run(
            forever()
        )
        print(rounds, outcome, dict(fired))
        assert (outcome.left, outcome.letters, outcome.stopped) == (0, 0, None)
        assert {kind for kind in KINDS if not fired[kind]} == set(), "a fault never fired"
        taken = [
            (one.index, one.run, one.state) for one in backend.arrivals if one.taken and one.run
        ]
        # Every run that the receiver knows, it knows from events of that run, and not as a parent.
        assert set(backend.states) == set(backend.backend.runs)
        # A late request may set a run back for a moment; the end is said once more.
        judge(events_in(ledger), taken, backend.states, never_back=False)
        assert len(taken) > 100
        store.close()
        ledger.close()


@pytest.mark.timeout(SECONDS + 200)
def test_after_a_storm_everything_is_there_and_every_state_is_right(tmp_path: Path) -> None:
    storm(tmp_path, SECONDS)


@pytest.mark.soak
@pytest.mark.timeout(SOAK_SECONDS + 1800)
def test_after_an_hour_of_storm_everything_is_there(tmp_path: Path) -> None:
    storm(tmp_path, SOAK_SECONDS)
