"""The demo's stage: headings, quotations, commands that really run, and the killing of a process.

Owns how the story looks and how child processes are started. A command is shown as the reader can
type it, run as a process of its own, and its output and exit status are quoted. Must never show a
command that was not run.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from jobs.files import FilesJob
from odi_audit.errors import SparkError

if TYPE_CHECKING:
    from rich.console import Console

ROOT = Path(__file__).resolve().parents[1]
"""Where the packages are: child processes must find the same ones."""
COMMAND_S_MAX = 120
STAGED_S_MAX = 180
"""How long a second Spark may take on a slow machine to start and to stage one file."""
_LOOK_EVERY_S = 0.05
_WIDTH = 100
_INDENT = "    "


@dataclass(slots=True, kw_only=True)
class Stage:
    """Where the story is told: the lake, the two consoles, and the environment of commands."""

    lake: Path
    console: Console
    talk: Console
    env: Mapping[str, str]
    _chapter: int = field(default=0, init=False)

    def heading(self, text: str) -> None:
        """Begin a chapter."""
        self._chapter += 1
        self.console.print()
        self.console.print(Text(f"{self._chapter}  {text}", style="bold cyan"))

    def say(self, text: str) -> None:
        """Say something, wrapped to a readable width."""
        self.console.print(Text(text), width=min(_WIDTH, self.console.width))

    def quote(self, text: str) -> None:
        """Show something as it is: a command, a line of output."""
        for line in text.splitlines():
            self._line(line, "green")

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Show on the talk's console that something takes a while."""
        if self.talk.is_terminal:
            with self.talk.status(f"{what} …"):
                yield
        else:
            self.talk.print(f"{what} …")
            yield

    def command(self, *arguments: str, lake: bool = True) -> str:
        """Return a command as the reader can type it here."""
        whole = [*arguments, "--lake", str(self.lake)] if lake else list(arguments)
        return f"{program()} {typed(whole)}"

    def python(self, *arguments: str) -> str:
        """Return a call of this Python as the reader can type it here."""
        return f"{shown_executable(Path(sys.executable))} {typed(arguments)}"

    def run(self, *arguments: str, lake: bool = True) -> int:
        """Run one of our commands; show it, its output and its exit status."""
        whole = [*arguments, "--lake", str(self.lake)] if lake else list(arguments)
        done = subprocess.run(
            [sys.executable, "-P", "-m", "odi_audit.cli", *whole],
            env=self.child_env(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S_MAX,
            check=False,
        )
        self._line(f"$ odi-audit {typed(whole)}", "bold")
        self.quote((done.stdout + done.stderr).strip("\n"))
        if done.returncode:
            self._line(f"(exit status {done.returncode})", "yellow")
        return done.returncode

    def child_env(self) -> dict[str, str]:
        """Return the environment of a child process: quiet, and with the same packages."""
        paths = [str(ROOT), *filter(None, [self.env.get("PYTHONPATH")])]
        return {**self.env, "PYTHONPATH": os.pathsep.join(paths), "ODI_LOG__LEVEL": "error"}

    def _line(self, text: str, style: str) -> None:
        # Never folded: an id must stay in one piece, to be copied.
        self.console.print(Text((_INDENT + text).rstrip(), style=style), soft_wrap=True)


@contextmanager
def quiet_jvm(log: Path) -> Iterator[None]:
    """Have a JVM that is started inside write what it says on its own to a file.

    It keeps the standard error that it was born with: Spark's talk and the JVM's own warnings
    would stand in the middle of the story.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    kept = os.dup(2)
    with log.open("ab") as stream:
        os.dup2(stream.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def kill_when_staged(spec: FilesJob, stage: Stage) -> int:
    """Run a job in another process, SIGKILL it between staging and publishing; return its pid.

    Raises:
        SparkError: it ended, or took too long, before it came to that point.
    """
    with tempfile.TemporaryDirectory(prefix="odi-demo-") as folder:
        marker, output = Path(folder) / "staged", Path(folder) / "output"
        arguments = [str(stage.lake), str(spec.folder), spec.table, spec.job, str(marker)]
        with output.open("wb") as stream:
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", "jobs.demo_victim", *arguments],
                env=stage.child_env(),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
            )
        try:
            _wait_for(marker, child, output)
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait()
    return child.pid


def _wait_for(marker: Path, child: subprocess.Popen[bytes], output: Path) -> None:
    until = time.monotonic() + STAGED_S_MAX
    while not marker.exists():
        if child.poll() is not None or time.monotonic() > until:
            lines = output.read_text("utf-8", errors="replace").strip().splitlines()
            raise SparkError(
                "the demo's second process did not come to the point where it is killed: "
                + (lines[-1] if lines else "it said nothing"),
                hint="odi-audit doctor",
            )
        time.sleep(_LOOK_EVERY_S)


def program() -> str:
    """Return how the reader starts our command line here."""
    python = Path(sys.executable)
    beside = python.with_name("odi-audit")
    if not beside.exists():
        return f"{shown_executable(python)} -m odi_audit.cli"
    return shown_executable(beside)


def typed(arguments: Sequence[str]) -> str:
    """Return arguments as a person would type them in a shell."""
    plain = set('"$`\\!')
    return " ".join(
        f'"{item}"' if "'" in item and not plain & set(item) else shlex.quote(item)
        for item in arguments
    )


def shown_executable(path: Path) -> str:
    """Return an executable as short as it can be typed: its name, or a path from here."""
    if shutil.which(path.name) == str(path):
        return path.name
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))
