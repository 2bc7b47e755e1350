"""The relay in a process of its own, killed at the point it is told.

``python -m tests.support.relay_child ORDER.json``: the file holds the ledger's folder, the URL, the
point and which time it is reached. The mark that says "I am about to die" is on disk before.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from lineage.relay.relay import Manner, follow
from odi_audit.clock import SystemClock
from odi_audit.ledger import open_ledger
from tests.support.relaying import http, relay_of, state_beside, to_file


def ready_name(pid: int) -> str:
    """Name the file that says that this process ends well when it is told to."""
    return f"ready-{pid}"


def main(path: Path) -> None:
    order: dict[str, Any] = json.loads(path.read_text("utf-8"))
    folder = Path(order["folder"])
    reached: Counter[str] = Counter()

    def reach(point: str) -> None:
        reached[point] += 1
        if [point, reached[point]] == order.get("kill_at"):
            Path(order["fired"]).write_text(point, "utf-8")
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)

    ledger = open_ledger(f"sqlite:///{folder / 'ledger.db'}", clock=SystemClock(), read_only=True)
    store = state_beside(folder / "ledger.db")
    url = str(order["url"])
    target = (
        http(url, timeout_s=order.get("timeout_s", 10.0)) if "://" in url else to_file(Path(url))
    )
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    (folder / ready_name(os.getpid())).touch()
    manner = Manner(
        settle_s=order.get("settle_s", 0.05),
        retry_s_max=order.get("retry_s_max", 0.02),
        follow=bool(order.get("follow")),
        lease_s=order.get("lease_s", 30.0),
        give_up_after=100,
    )
    follow(
        lambda: relay_of(target, ledger, store, manner=manner, reach=reach), stop, patience_s=0.2
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
