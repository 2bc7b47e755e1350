"""The listener's runs go through the same relay as ours."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from lineage.relay.destinations import destinations_of
from lineage.relay.operate import SPOOL, send
from odi_audit.clock import SystemClock
from odi_audit.settings import Settings
from odi_audit.spark.listener import spool_dir
from odi_audit.workspace import Workspace
from tests.support.marquez import Fault, receiver
from tests.support.relaying import fill, forever
from tests.unit.lineage.heard import dataset, run_id, whole, write


def settings_of(lake: Workspace, url: str) -> Settings:
    overrides = {
        "lineage.transport": "http", "lineage.url": url, "lineage.settle_s": "0.05",
        "lineage.retry_s_max": "0.02",
    }  # fmt: skip
    return Workspace.find(lake.root, overrides=overrides).settings


def test_events_of_the_spool_are_sent_beside_those_of_the_ledger(
    make_lake: Callable[..., Workspace],
) -> None:
    lake = make_lake()
    fill(lake.ledger(), range(3))
    path = write(lake.root / SPOOL / "p.jsonl", *whole(1, inputs=[dataset("file", "/in")]))
    with receiver() as backend:
        settings = settings_of(lake, backend.url)
        assert spool_dir(settings) == lake.root / SPOOL
        there = destinations_of(settings.lineage)
        first = send(settings, there, now=SystemClock(), stop=forever())[0]
        assert (first.sent, first.left) == (11, 0)
        assert backend.states[run_id(1)] == "COMPLETED"
        write(path, *whole(2, inputs=[dataset("file", "/in")]))
        assert send(settings, there, now=SystemClock(), stop=forever())[0].sent == 2
        assert send(settings, there, now=SystemClock(), stop=forever())[0].sent == 0


def test_a_file_stays_while_one_of_its_events_is_parked(
    make_lake: Callable[..., Workspace],
) -> None:
    lake = make_lake()
    path = write(lake.root / SPOOL / "p.jsonl", *whole(1, inputs=[dataset("file", "/in")]))
    path.with_suffix(".lock").touch()
    old = time.time() - 10_000
    os.utime(path, (old, old))
    with receiver() as backend:
        backend.hook = lambda ask: Fault(status=422) if ask.state == "START" else None
        settings = settings_of(lake, backend.url)
        there = destinations_of(settings.lineage)
        assert send(settings, there, now=SystemClock(), stop=forever())[0].letters == 2
        assert path.exists()
        backend.hook = None
        from lineage.relay.standing import retry

        assert len(retry(settings, run_id(1), there, now=SystemClock())) == 2
        assert send(settings, there, now=SystemClock(), stop=forever())[0].letters == 0
        assert backend.states[run_id(1)] == "COMPLETED"
        assert not path.exists()
