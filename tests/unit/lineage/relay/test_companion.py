"""The relay beside a run: never in its way, and done by the end if the backend answers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from odi_audit import companion
from odi_audit.committer.parts import alone
from odi_audit.workspace import Workspace
from tests.support.marquez import Fault, receiver
from tests.support.relaying import events_in, fill, judge

ROOT = Path(__file__).parents[4]
CHILD = """
import sys, time
from pathlib import Path
from odi_audit import companion
from odi_audit.workspace import Workspace
from tests.support.relaying import fill
with Workspace.find(Path(sys.argv[1])) as lake:
    before = time.monotonic()
    end = companion.of(lake.settings)()
    joined = time.monotonic() - before
    fill(lake.ledger(), range(int(sys.argv[2])))
    before = time.monotonic()
    end()
    end()
    print(joined, time.monotonic() - before)
"""


def beside(lake: Workspace, batches: int) -> tuple[float, float, float]:
    """Run a process with a companion; return how long it held up, and the exit's seconds."""
    began = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(lake.root), str(batches)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        cwd=lake.root,
    )
    assert child.stdout is not None
    line = child.stdout.readline()
    told = time.monotonic()
    assert child.wait(60) == 0
    joined, left = (float(word) for word in line.split())
    assert began < told
    return joined, left, time.monotonic() - told


def configure(lake: Workspace, url: str, **more: object) -> None:
    lines = [f"{key} = {value}" for key, value in more.items()]
    with (lake.root / "odi.toml").open("a") as stream:
        stream.write(f'\n[lineage]\nrelay = "thread"\ntransport = "http"\nurl = "{url}"\n')
        stream.write("\n".join(lines) + "\n")


def test_without_the_setting_nothing_is_started(make_lake: Callable[..., Workspace]) -> None:
    lake = make_lake()
    assert companion.of(lake.settings) is alone


def test_thread_without_a_transport_is_told(
    make_lake: Callable[..., Workspace], capsys: pytest.CaptureFixture[str]
) -> None:
    root = make_lake().root
    lake = Workspace.find(root, overrides={"lineage.relay": "thread"})
    assert companion.of(lake.settings) is alone
    assert "no lineage.transport is set" in capsys.readouterr().err


def test_what_a_run_recorded_is_at_the_backend_when_its_process_has_ended(
    make_lake: Callable[..., Workspace],
) -> None:
    lake = make_lake()
    with receiver() as backend:
        configure(lake, backend.url, exit_wait_s=30)
        joined, left, _ = beside(lake, 5)
        assert joined < 0.5
        assert left < 0.1
        taken = [(one.index, one.run, one.state) for one in backend.arrivals if one.taken]
        judge(events_in(lake.ledger()), taken, backend.states)


@pytest.mark.parametrize("how", ["down", "slow", "refusing"])
def test_a_backend_that_is_ill_does_not_hold_the_process(
    make_lake: Callable[..., Workspace], how: str
) -> None:
    lake = make_lake()
    with receiver() as backend:
        url = backend.url
        if how == "down":
            backend.stop()
        elif how == "slow":
            backend.delay_s = 20.0
        else:
            backend.hook = lambda _: Fault(status=401)
        configure(lake, url, exit_wait_s=1.5)
        joined, left, gone = beside(lake, 5)
        assert joined < 0.5
        assert left < 0.1
        assert gone < 10, "1.5 s at most, and what a busy machine adds"
    fill(lake.ledger(), range(5, 6))
    assert lake.ledger().head().size == 18
