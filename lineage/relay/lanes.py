"""Lanes: threads that each send one chunk at a time and hand the answers back.

Owns the threads and their senders. A thread knows nothing of order or state; whoever submits does.
Must never lose an answer, nor swallow an error: it is raised where answers are collected.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from lineage.relay.answers import UNSENT, Answer, Verdict
from lineage.relay.senders import Sender
from lineage.relay.window import Work

GATHER_S = 0.01
"""How long answers are gathered before they are written down together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a lane did: answers to events, or whether the destination is well.

    ``free``: with this the lane has done all that it was given.
    """

    works: Sequence[Work] = ()
    answers: Sequence[Answer] = ()
    well: bool | None = None
    error: BaseException | None = None
    free: bool = True


class Lanes:
    """Threads with a sender each. Made and used by one thread."""

    def __init__(self, make: Callable[[], Sender], count: int, name: str) -> None:
        """Start the lanes. Raises what ``make`` raises."""
        self._tasks: SimpleQueue[Sequence[Work] | None] = SimpleQueue()
        self._results: SimpleQueue[Result] = SimpleQueue()
        self._senders = [make() for _ in range(count)]
        self.chunk_max = self._senders[0].chunk_max
        self.one_by_one = self._senders[0].one_by_one
        self.valid_until = float("inf")
        """Nothing is begun after this: a process that slept may no longer have the lease."""
        self._closed = False
        self.busy = 0
        self.count = count
        for number, sender in enumerate(self._senders):
            threading.Thread(
                target=self._serve, args=(sender,), name=f"odi-relay-{name}-{number}", daemon=True
            ).start()

    @property
    def free(self) -> int:
        """How many lanes wait for work."""
        return self.count - self.busy

    def submit(self, works: Sequence[Work]) -> None:
        """Have the free lanes send events, each a part of them."""
        size = min(-(-len(works) // self.free), self.chunk_max) if self.one_by_one else len(works)
        for low in range(0, len(works), size or 1):
            self.busy += 1
            self._tasks.put(works[low : low + size])

    def probe(self) -> None:
        """Have a lane see whether the destination is well."""
        self.busy += 1
        self._tasks.put(())

    def collect(self, wait_s: float) -> list[Result]:
        """Return what has come back, after at most ``wait_s`` for the first.

        After the first a moment longer, unless a lane wants new work: what is written down for one
        answer is written down for several as fast.

        Raises:
            BaseException: what a sender raised; that is a bug of ours.
        """
        found: list[Result] = []
        try:
            if wait_s > 0 and self.busy:
                found.append(self._results.get(timeout=wait_s))
                until = time.monotonic() + GATHER_S
                while not found[-1].free and (left := until - time.monotonic()) > 0:
                    found.append(self._results.get(timeout=left))
            elif wait_s > 0:
                time.sleep(wait_s)
            while True:
                found.append(self._results.get_nowait())
        except Empty:
            pass
        self.busy -= sum(result.free for result in found)
        for result in found:
            if result.error is not None:
                raise result.error
        return found

    def close(self) -> None:
        """End the lanes; one that still waits for an answer ends after it."""
        self._closed = True
        for _ in range(self.count):
            self._tasks.put(None)

    def _serve(self, sender: Sender) -> None:
        while (works := self._tasks.get()) is not None:
            try:
                if not works:
                    self._results.put(Result(well=sender.probe()))
                elif time.monotonic() > self.valid_until:
                    self._results.put(Result(works=works, answers=[UNSENT] * len(works)))
                elif self.one_by_one:
                    self._send_each(sender, works)
                else:
                    answers = sender.send([work.item for work in works])
                    self._results.put(Result(works=works, answers=answers))
            except BaseException as error:  # noqa: BLE001 - raised again by `collect`
                self._results.put(Result(error=error))
        sender.close()

    def _send_each(self, sender: Sender, works: Sequence[Work]) -> None:
        """Send one after another, and hand each answer back at once; a failure ends it."""
        last = len(works) - 1
        for place, work in enumerate(works):
            answers = sender.send([work.item])
            well = answers[0].verdict in {Verdict.DONE, Verdict.REFUSED}
            goes_on = well and not self._closed and time.monotonic() <= self.valid_until
            self._results.put(Result(works=(work,), answers=answers, free=place == last))
            if not goes_on and place < last:
                rest = works[place + 1 :]
                self._results.put(Result(works=rest, answers=[UNSENT] * len(rest)))
                return
