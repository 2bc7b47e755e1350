"""Starting, watching and killing the children of a fault test, from the test's side."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.work import Work

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A running or ended child, and the folder of what it wrote."""

    process: subprocess.Popen[bytes]
    folder: Path
    own_jvm: bool

    def wait(self) -> int:
        """Wait for its end; minus nine is SIGKILL."""
        return self.process.wait(TIMEOUT_S)

    def kill(self) -> None:
        """Kill it now, wherever it is; with a JVM of its own, that too."""
        with contextlib.suppress(ProcessLookupError):
            if self.own_jvm and (self.folder / "started").exists():
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.kill()
        self.process.wait(TIMEOUT_S)

    def wait_for(self, name: str) -> None:
        """Wait until it has written a mark; fails when it ends without."""
        until = time.monotonic() + TIMEOUT_S
        while not (self.folder / name).exists():
            ended = self.process.poll()
            if (ended is not None and not (self.folder / name).exists()) or (
                time.monotonic() > until
            ):
                raise AssertionError(f"no {name} from the child ({ended}): {self.said()}")
            time.sleep(0.01)

    @property
    def fired(self) -> str | None:
        """The kill point at which it was about to die."""
        found: str | None = self._read("fired")
        return found

    @property
    def receipt(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self._read("receipt")
        return found

    @property
    def result(self) -> dict[str, str] | None:
        """How the work ended; None when the child did not get there."""
        found: dict[str, str] | None = self._read("result")
        return found

    @property
    def road(self) -> list[str]:
        """The points that it reached, in order."""
        path = self.folder / "road"
        return path.read_text("utf-8").split() if path.exists() else []

    def said(self) -> str:
        return (self.folder / "stderr").read_text("utf-8", "replace")[-4000:]

    def _read(self, name: str) -> Any:
        path = self.folder / name
        return json.loads(path.read_text("utf-8")) if path.exists() else None


@dataclass(slots=True, kw_only=True)
class Nursery:
    """Starts children on one lake; ends those that a failed test leaves behind.

    ``joins`` is the environment by which a child finds the JVM of the test; without it every
    child starts one of its own.
    """

    lake: Path
    folder: Path
    joins: Mapping[str, str] = field(default_factory=dict)
    made: list[Child] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def start(
        self,
        work: Work,
        *,
        kill_at: str | None = None,
        kill_jvm_at: str | None = None,
        wait_at: str | None = None,
        gate: Path | None = None,
        own_jvm: bool = False,
    ) -> Child:
        out = self.folder / f"child-{next(self.numbers)}"
        out.mkdir(parents=True)
        order = {
            "lake": str(self.lake),
            "work": work.to_text(),
            "out": str(out),
            "kill_at": kill_at,
            "kill_jvm_at": kill_jvm_at,
            "wait_at": wait_at,
            "gate": None if gate is None else str(gate),
            "own_jvm": own_jvm,
        }
        path = out / "order.json"
        path.write_text(json.dumps(order), "utf-8")
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        if not own_jvm:
            environment |= self.joins
        with (out / "stderr").open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.child", str(path)],
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=out,
            )
        self.made.append(Child(process=process, folder=out, own_jvm=own_jvm))
        return self.made[-1]

    def end(self) -> None:
        """Kill what still runs."""
        for child in self.made:
            if child.process.poll() is None:
                child.kill()


@contextlib.contextmanager
def nursery(lake: Path, folder: Path, *, joins: Mapping[str, str]) -> Iterator[Nursery]:
    """A nursery that leaves no child behind."""
    made = Nursery(lake=lake, folder=folder, joins=joins)
    try:
        yield made
    finally:
        made.end()
