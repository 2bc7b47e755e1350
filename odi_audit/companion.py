"""A companion of runs: a thread beside them that does what must never be in a commit's way.

Owns the thread's life: started by the first run of a lake in this process, told when the last one
has ended, waited for at the end of the process for a moment only. What it does is loaded by name,
in the thread: the layers above are not imported here (docs/adr/0012-relay.md). Must never raise
into a run, nor make it wait.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable
from importlib import import_module

from odi_audit import logs
from odi_audit.committer.parts import alone
from odi_audit.errors import OdiError
from odi_audit.settings import Settings, ledger_url

log = logs.get_logger(__name__)

WORK = "lineage.relay.beside"
"""The module whose ``work(settings, wanted, stop)`` the thread calls."""

End = Callable[[], None]


def of(settings: Settings) -> Callable[[], End]:
    """Return what a run calls when it starts; what that returns, it calls when it ends."""
    if settings.lineage.relay != "thread":
        return alone
    if settings.lineage.transport == "none":
        log.warning("lineage.relay is thread, but no lineage.transport is set: nothing is sent")
        return alone
    return lambda: _join(settings)


class _Companion:
    """The thread beside the runs of one lake."""

    def __init__(self, settings: Settings) -> None:
        self.users = 0
        self.stop = threading.Event()
        self.thread = threading.Thread(
            target=self._work, args=(settings,), name="odi-companion", daemon=True
        )

    def wanted(self) -> bool:
        return self.users > 0

    def _work(self, settings: Settings) -> None:
        try:
            import_module(WORK).work(settings, self.wanted, self.stop)
        except OdiError as error:
            log.warning("the companion of this run ended", error=str(error))
        except Exception as error:  # noqa: BLE001 - a thread's outermost edge: no run may feel it
            reason = f"a bug: {type(error).__name__}: {error}"
            log.warning("the companion of this run ended", error=reason)


_lock = threading.Lock()
_running: dict[tuple[int, str], _Companion] = {}


def _join(settings: Settings) -> End:
    # The process is part of the key: a fork has none of its parent's threads.
    key = (os.getpid(), ledger_url(settings))
    with _lock:
        companion = _running.get(key)
        if companion is None or not companion.thread.is_alive():
            if not _running:
                atexit.register(_leave)
            companion = _running[key] = _Companion(settings)
            companion.users = 1
            companion.thread.start()
            _waits[key] = settings.lineage.exit_wait_s
        else:
            companion.users += 1
    ended = threading.Event()

    def end() -> None:
        with _lock:
            if not ended.is_set():
                ended.set()
                companion.users -= 1

    return end


_waits: dict[tuple[int, str], float] = {}


def _leave() -> None:
    """At the end of the process: let companions finish, if that takes no longer than a moment."""
    until = time.monotonic() + max(_waits.values(), default=0.0)
    for companion in _running.values():
        companion.users = 0
    for companion in _running.values():
        companion.thread.join(max(until - time.monotonic(), 0.0))
        companion.stop.set()
