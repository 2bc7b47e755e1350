"""A receiver in a process of its own, until it is ended or its standard input is closed.

It prints its URL on the first line. ``--log`` names the file of arrivals (``arrivals_in`` reads
it). With ``--state`` it posts every event that it took to that file, and takes them all again
when it starts: a receiver that is killed has lost nothing, as one with a database.
"""

from __future__ import annotations

import argparse
import base64
import sys
import threading
from pathlib import Path

from tests.support.marquez.backend import Backend
from tests.support.marquez.receiver import Receiver


class Durable(Backend):
    """A backend that writes each event down before it takes it."""

    def __init__(self, state: Path, *, keep_events: bool) -> None:
        super().__init__(keep_events=keep_events)
        if state.exists():
            for line in state.read_bytes().splitlines(keepends=True):
                if line.endswith(b"\n"):
                    super().post(base64.b64decode(line))
        self._file = state.open("ab")

    def post(self, body: bytes) -> int:
        """Write, flush, take."""
        self._file.write(base64.b64encode(body) + b"\n")
        self._file.flush()
        return super().post(body)


def main() -> None:
    """Run until the end of standard input."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.marquez", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--state", type=Path)
    parser.add_argument("--api-key")
    parser.add_argument("--delay-s", type=float, default=0.0)
    parser.add_argument("--forget-events", action="store_true", help="keep no raw events")
    parser.add_argument("--stay", action="store_true", help="do not end with standard input")
    asked = parser.parse_args()
    keep = not asked.forget_events
    backend = Backend(keep_events=keep)
    if asked.state is not None:
        backend = Durable(asked.state, keep_events=keep)
    made = Receiver(backend=backend, api_key=asked.api_key, delay_s=asked.delay_s, log=asked.log)
    made.start(asked.port)
    print(made.url, flush=True)
    if asked.stay:
        threading.Event().wait()
    sys.stdin.read()
    made.stop()


if __name__ == "__main__":
    main()
