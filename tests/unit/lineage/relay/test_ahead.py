"""Events made by another process: the same ones, whatever becomes of that process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lineage.relay import ahead
from lineage.relay.ahead import Ahead
from lineage.relay.sources import LedgerSource, Step
from odi_audit import redact
from odi_audit.ledger import SqlLedger
from tests.support.relaying import forever, new_ledger, relay_of, state_beside, to_file

ROOT = Path(__file__).parents[4]
BATCHES = 60
SECRET = "0000000000000000000000000000001f"
"""A part of the id of a batch: it stands in its events as any text does."""
WAIT_S_MAX = 60.0


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "WORTH_IT", 20)
    monkeypatch.setattr(ahead, "PAGE", 7)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqlLedger]:
    made = new_ledger(tmp_path, BATCHES)
    yield made
    made.close()


def over(ledger: SqlLedger, folder: Path, **how: object) -> Ahead:
    near = LedgerSource(ledger, **how)  # type: ignore[arg-type]
    return Ahead(near, f"sqlite:///{folder / 'ledger.db'}", busy_timeout_s=5.0)


def walk(source: Ahead, limit: int = 5) -> Iterator[Step]:
    """Read to the end, as a relay does: not yet is no end."""
    position: str | None = None
    deadline = time.monotonic() + WAIT_S_MAX
    while time.monotonic() < deadline:
        steps = source.read(position, limit)
        if steps is None:
            time.sleep(0.002)
            continue
        if not steps:
            return
        for step in steps:
            position = step.after
            yield step
    raise AssertionError("the events did not come")


@pytest.mark.parametrize("how", [{}, {"only_ends": True}, {"start": 31, "stop": 150}])
def test_the_other_process_makes_the_very_same_events(
    ledger: SqlLedger, tmp_path: Path, how: dict[str, object]
) -> None:
    source = over(ledger, tmp_path, **how)
    made = list(walk(source))
    wanted = LedgerSource(ledger, **how).read(None, 1000)  # type: ignore[arg-type]
    assert made == wanted
    assert len(made) > 100
    assert source._maker is None, "it is not kept when there is nothing left to make"


def test_few_events_are_made_without_it(ledger: SqlLedger, tmp_path: Path) -> None:
    source = over(ledger, tmp_path, start=BATCHES * 3 - 10)
    first = source.read(None, 1000)
    assert first is not None
    assert len(first) == 10


def test_where_it_dies_the_relay_goes_on_by_itself(ledger: SqlLedger, tmp_path: Path) -> None:
    source = over(ledger, tmp_path)
    steps = walk(source)
    made = [next(steps) for _ in range(12)]
    assert source._maker is not None
    source._maker._process.kill()
    made += steps
    assert made == LedgerSource(ledger).read(None, 1000)


@pytest.mark.parametrize("program", ["/bin/false", "/no/such/program"])
def test_where_it_cannot_even_start_the_relay_makes_all_events(
    ledger: SqlLedger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(ahead.sys, "executable", program)
    assert list(walk(over(ledger, tmp_path))) == LedgerSource(ledger).read(None, 1000)


def test_a_secret_that_becomes_known_is_kept_out_of_what_follows(
    ledger: SqlLedger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = over(ledger, tmp_path)
    steps = walk(source)
    made = [next(steps) for _ in range(12)]
    monkeypatch.setattr(redact, "_registered", {SECRET})
    made += steps
    assert len(made) == BATCHES * 3
    assert not [step for step in made if any(SECRET.encode() in one.body for one in step.items)]


def test_a_relay_sends_everything_through_it_and_leaves_no_process(
    ledger: SqlLedger, tmp_path: Path
) -> None:
    store, source = state_beside(tmp_path / "ledger.db"), over(ledger, tmp_path)
    started: list[int] = []
    start = source._start

    def watched(at: int) -> object:
        maker = start(at)
        assert maker is not None
        started.append(maker._process.pid)
        return maker

    source._start = watched  # type: ignore[method-assign,assignment]
    events = tmp_path / "events.jsonl"
    outcome = relay_of(to_file(events), ledger, store, sources=[source]).run(forever())
    assert (outcome.sent, outcome.left) == (BATCHES * 3, 0)
    assert len(events.read_bytes().splitlines()) == BATCHES * 3
    assert len(started) == 1
    assert not Path(f"/proc/{started[0]}").exists()
    store.close()


def test_it_does_not_outlive_a_relay_that_is_killed(ledger: SqlLedger, tmp_path: Path) -> None:
    script = """
import sys, time
from lineage.relay import ahead
from lineage.relay.sources import LedgerSource
from odi_audit.clock import SystemClock
from odi_audit.ledger import open_ledger
ahead.WORTH_IT = 20
ledger = open_ledger(sys.argv[1], clock=SystemClock(), read_only=True)
source = ahead.Ahead(LedgerSource(ledger), sys.argv[1], busy_timeout_s=5.0)
while source.read(None, 1) is None:
    time.sleep(0.01)
print(source._maker._process.pid, flush=True)
time.sleep(60)
"""
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    with subprocess.Popen(
        [sys.executable, "-c", script, url],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
    ) as relay:
        assert relay.stdout is not None
        pid = int(relay.stdout.readline())
        relay.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()
