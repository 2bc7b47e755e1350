"""The bar of a long command: on a terminal, after two seconds, and nowhere else."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

SCRIPT = """
import sys, time
from odi_audit.cli import render
render.PROGRESS_AFTER_S = 0.2
with render.working("comparing", prints=sys.argv[2] == "prints") as progress:
    progress(3, 10)
    time.sleep(float(sys.argv[1]))
    progress(10, 10)
print("the answer")
"""


def shown(seconds: float, *, prints: bool = False, stdout_too: bool = False) -> str:
    """What a terminal gets on stderr."""
    terminal, theirs = pty.openpty()
    done = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(seconds), "prints" if prints else "-"],
        stdout=theirs if stdout_too else subprocess.DEVNULL,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(theirs)
    found = b""
    try:
        while part := os.read(terminal, 4096):
            found += part
    except OSError:
        pass  # How Linux says that the other end is closed.
    os.close(terminal)
    assert done.wait() == 0
    return found.decode()


def test_a_long_command_shows_a_bar_on_a_terminal_and_takes_it_away() -> None:
    told = shown(2.5)
    assert "comparing" in told
    # Transient: the line is erased at the end.
    assert told.rstrip().endswith("\x1b[2K")


def test_a_short_command_shows_none() -> None:
    assert "comparing" not in shown(0.0)


def test_rows_that_are_printed_are_not_mixed_with_a_bar() -> None:
    told = shown(2.5, prints=True, stdout_too=True)
    assert "comparing" not in told
    assert "the answer" in told
    assert "comparing" in shown(2.5, prints=True)


@pytest.mark.parametrize("prints", ["prints", "-"])
def test_there_is_no_bar_where_there_is_no_terminal(prints: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "0.8", prints], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("the answer\n", "")
