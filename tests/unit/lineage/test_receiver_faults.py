"""The receiver's faults: lines that are closed, stalls, outages, and the death of its process."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
import requests

from tests.support.marquez import Fault, Receiver, Request, arrivals_in
from tests.unit.lineage.receiver_bench import RUN, event, marquez, post

__all__ = ["marquez"]


@pytest.mark.parametrize("carry_out", [True, False])
@pytest.mark.parametrize("close", ["close", "reset"])
def test_a_line_may_be_closed_before_or_after_an_event_was_taken(
    marquez: Receiver, close: str, carry_out: bool
) -> None:
    marquez.hook = lambda _: Fault(close=close, carry_out=carry_out)
    with pytest.raises(requests.ConnectionError):
        post(marquez, event())
    assert len(marquez.fired) == 1
    assert bool(marquez.states) is carry_out
    assert [(each.status, each.taken) for each in marquez.arrivals] == [(0, carry_out)]


def test_a_fault_answers_as_asked_and_only_the_requests_that_it_is_for(marquez: Receiver) -> None:
    def busy(request: Request) -> Fault | None:
        return Fault(status=503, retry_after="7") if request.number == 1 else None

    marquez.hook = busy
    assert post(marquez, event()) == 201
    address = marquez.url + "/api/v1/lineage"
    answer = requests.post(address, json=event("COMPLETE"), timeout=5)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "7")
    assert marquez.states == {RUN.format(1): "RUNNING"}
    assert post(marquez, event("COMPLETE")) == 201
    assert len(marquez.fired) == 1


def test_a_request_that_stalls_is_overtaken(marquez: Receiver) -> None:
    marquez.hook = lambda request: Fault(stall_s=0.5) if request.number == 0 else None
    with pytest.raises(requests.Timeout):
        requests.post(marquez.url + "/api/v1/lineage", json=event("START"), timeout=0.1)
    assert post(marquez, event("COMPLETE")) == 201
    deadline = time.monotonic() + 5
    while len(marquez.arrivals) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [arrival.state for arrival in marquez.arrivals] == ["COMPLETE", "START"]
    assert marquez.states == {RUN.format(1): "RUNNING"}


def test_a_receiver_that_was_stopped_comes_back_on_its_port(marquez: Receiver) -> None:
    post(marquez, event())
    port = marquez.port
    marquez.stop()
    with pytest.raises(requests.ConnectionError):
        post(marquez, event("COMPLETE"))
    marquez.start(port)
    assert post(marquez, event("COMPLETE")) == 201
    assert marquez.states == {RUN.format(1): "COMPLETED"}


def test_a_receiver_in_its_own_process_survives_being_killed(tmp_path: Path) -> None:
    log, state = tmp_path / "log", tmp_path / "state"
    command = [sys.executable, "-m", "tests.support.marquez"]
    command += ["--log", str(log), "--state", str(state)]

    def begin() -> tuple[subprocess.Popen[str], str]:
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        return child, child.stdout.readline().strip()

    child, url = begin()
    try:
        answer = requests.post(url + "/api/v1/lineage", json=event(), timeout=5)
        assert answer.status_code == 201
    finally:
        child.kill()
        child.communicate()
    child, url = begin()
    try:
        held = requests.get(f"{url}/api/v1/jobs/runs/{RUN.format(1)}", timeout=5).json()
        assert held["state"] == "RUNNING"
    finally:
        child.communicate("")
    assert child.returncode == 0
    assert [(each.state, each.status, each.taken) for each in arrivals_in(log)] == [
        ("START", 201, True)
    ]
