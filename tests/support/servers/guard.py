"""Runs one server, and ends it when the tests end: however they end.

A program of its own, with nothing but the standard library. Its standard input is a pipe that the
test process holds: a letter on it is a signal to pass on, and its end means that the tests are
gone (also by SIGKILL), so the server goes too and its folder with it. The first line that it
prints is the server's pid; its exit status is the server's.

    python guard.py FOLDER LOG PROGRAM ARGUMENT…
    python guard.py FOLDER --postmaster DATA     (a PostgreSQL that pg_ctl has started)
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

LETTERS = {
    b"T": signal.SIGTERM,
    b"K": signal.SIGKILL,
    b"S": signal.SIGSTOP,
    b"C": signal.SIGCONT,
}
_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Run the server until it ends or the tests do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, which then stop us
    folder = Path(arguments[0])
    if arguments[1] == "--postmaster":
        return _postmaster(folder, Path(arguments[2]))
    with Path(arguments[1]).open("ab") as log:
        server = subprocess.Popen(
            arguments[2:],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509  no thread is there yet
        )
    print(server.pid, flush=True)
    alone = threading.Event()
    listener = threading.Thread(target=_listen, args=(server, folder, alone), daemon=True)
    listener.start()
    status = server.wait()
    if alone.is_set():
        listener.join()
    return status if status >= 0 else 128 - status


def _listen(server: subprocess.Popen[bytes], folder: Path, alone: threading.Event) -> None:
    while letter := os.read(0, 1):
        # poll() first: the pid of a server that is gone may be somebody else's by now.
        if letter in LETTERS and server.poll() is None:
            server.send_signal(LETTERS[letter])
    alone.set()
    if server.poll() is None:
        server.kill()
        server.wait()
    shutil.rmtree(folder, ignore_errors=True)


def _postmaster(folder: Path, data: Path) -> int:
    print(os.getpid(), flush=True)
    if os.read(0, 1):  # the tests stop it themselves
        return 0
    with contextlib.suppress(OSError, ValueError):
        pid = int((data / "postmaster.pid").read_text().split("\n", 1)[0])
        if Path(f"/proc/{pid}/cwd").resolve() == data.resolve():
            os.kill(pid, signal.SIGQUIT)
            time.sleep(1)
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def _die_with_parent() -> None:
    # Should this guard itself be killed: the kernel ends the server then (Linux only).
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
