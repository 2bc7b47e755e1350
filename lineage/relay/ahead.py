"""Events made by a process of its own, ahead of the relay that sends them.

To make an event takes about as long as to send it, and both want the one lock of Python: where a
long history is to be sent, two processes do it side by side. Owns that process and the pages that
it was asked for. Must never be needed: where it fails, events are made here.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from lineage.relay.sources import LEDGER, Item, Lag, LedgerSource, Step
from odi_audit import logs, redact
from odi_audit.ids import RunId

log = logs.get_logger(__name__)

WORTH_IT = 2_000
"""Entries to be sent for which it pays to start a process: it takes a second."""
PAGE = 100
PAGES_MAX = 4
"""Asked for at a time: enough that the process never waits, and a few MiB at most."""
END_WAIT_S_MAX = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the process needs to know before it makes anything."""

    url: str
    busy_timeout_s: float
    only_ends: bool
    secrets: Sequence[str]


Packed = list[tuple[str, list[tuple[str, RunId, str, bytes, str | None]]]]
"""Steps as they go through the pipe: plain values take a tenth of the time that objects take."""


def packed(steps: Sequence[Step]) -> Packed:
    """Return steps of a ledger as plain values."""
    return [
        (step.after, [(one.key, one.run, one.state, one.body, one.fault) for one in step.items])
        for step in steps
    ]


def _unpacked(page: Packed) -> Iterator[Step]:
    for after, items in page:
        made = (
            Item(source=LEDGER, key=key, run=run, state=state, body=body, fault=fault)
            for key, run, state, body, fault in items
        )
        yield Step(after=after, items=tuple(made))


class Ahead:
    """The events of a ledger, made in another process while there are many of them."""

    name = LEDGER

    def __init__(self, near: LedgerSource, url: str, *, busy_timeout_s: float) -> None:
        """Read as ``near`` does; ``url`` is its ledger's, for the other process to open."""
        self._near = near
        self._url = url
        self._busy_timeout_s = busy_timeout_s
        self._maker: _Maker | None = None
        self._failed = False
        self._end = 0
        """Where the ledger ended when it was last asked: to ask is a walk through its tree."""

    def head(self) -> str:
        """Return the position at the end of what there is now."""
        return self._near.head()

    def lag(self, position: str | None) -> Lag:
        """Say how much follows a position."""
        return self._near.lag(position)

    def fetch(self, key: str) -> Item | None:
        """Make one event again."""
        return self._near.fetch(key)

    def freeze(self) -> None:
        """Read no further than what there is now."""
        self._near.freeze()

    def read(self, position: str | None, limit: int) -> list[Step] | None:
        """Return the next entries' events; None while they are being made."""
        at, maker = self._near.index(position), self._maker
        if maker is not None and (maker.at != at or maker.secrets != redact.registered()):
            self.close()
            maker = None
        if maker is None:
            self._end = self._near.end()
            if self._failed or self._end - at < WORTH_IT:
                return self._near.read(position, limit)
            maker = self._start(at)
        elif maker.has_asked_for(self._end):
            self._end = self._near.end()
        if maker is not None:
            try:
                made = maker.take(limit, self._end)
            except _Ended:
                self._failed = True
                log.warning("events are made by the relay itself: the process for it ended")
            else:
                if made is None or made:
                    return made
        # It has made all there is, or is gone.
        self.close()
        return self._near.read(position, limit)

    def close(self) -> None:
        """End the other process, if there is one."""
        if self._maker is not None:
            self._maker.close()
            self._maker = None

    def _start(self, at: int) -> _Maker | None:
        secrets = redact.registered()
        order = Order(
            url=self._url,
            busy_timeout_s=self._busy_timeout_s,
            only_ends=self._near.only_ends,
            secrets=redact.registered_secrets(),
        )
        try:
            self._maker = _Maker(order, at, secrets)
        except OSError as problem:
            self._failed = True
            log.warning("events are made by the relay itself", reason=str(problem))
        return self._maker


class _Ended(Exception):
    """The process is gone, or could not make what it was asked for."""


class _Maker:
    """The process, and what it was asked for and has not given yet."""

    def __init__(self, order: Order, at: int, secrets: int) -> None:
        self.at = at
        self.secrets = secrets
        self._asked_to = at
        self._open = 0
        self._given: deque[Step] = deque()
        self._pages: SimpleQueue[Packed | None] = SimpleQueue()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "lineage.relay.maker"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        with suppress(_Ended):  # told at the first page that is asked for
            self._tell(order)
        threading.Thread(target=self._listen, name="odi-relay-ahead", daemon=True).start()

    def has_asked_for(self, end: int) -> bool:
        """Say whether everything before ``end`` was asked for."""
        return self._asked_to >= end

    def take(self, limit: int, end: int) -> list[Step] | None:
        """Return up to ``limit`` steps that are made; None: not yet; none: there are no more.

        Raises:
            _Ended: it makes no more.
        """
        while self._open < PAGES_MAX and self._asked_to < end:
            stop = min(self._asked_to + PAGE, end)
            self._tell((self._asked_to, stop))
            self._asked_to, self._open = stop, self._open + 1
        while len(self._given) < limit and self._open:
            try:
                page = self._pages.get_nowait()
            except Empty:
                break
            if page is None:
                raise _Ended
            self._given.extend(_unpacked(page))
            self._open -= 1
        made = [self._given.popleft() for _ in range(min(limit, len(self._given)))]
        self.at += len(made)
        return made if made or not self._open else None

    def close(self) -> None:
        """End the process: it ends with its standard input."""
        assert self._process.stdin is not None
        with suppress(OSError):  # it may be gone already
            self._process.stdin.close()
        try:
            self._process.wait(END_WAIT_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _tell(self, what: object) -> None:
        assert self._process.stdin is not None
        try:
            pickle.dump(what, self._process.stdin)
            self._process.stdin.flush()
        except OSError as problem:
            raise _Ended from problem

    def _listen(self) -> None:
        stream = self._process.stdout
        assert stream is not None
        with stream:
            while True:
                try:
                    page = pickle.load(stream)  # noqa: S301 - from our own process
                except (EOFError, OSError, ValueError, pickle.UnpicklingError):
                    self._pages.put(None)
                    return
                self._pages.put(page)
