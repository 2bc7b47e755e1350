"""The child of a fault test: does one piece of work, and is killed at the point it is told.

``python -m tests.support.child WORK.json``: the file holds the lake, the work, where to die or to
wait, and where to write what happened. The mark that says "I am about to die" is on disk before
the signal is sent, so that a kill which never came is seen.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import odi_audit as odi
from odi_audit.errors import OdiError
from odi_audit.workspace import Workspace
from tests.support import joining
from tests.support.work import Work, carry_out

WAIT_S_MAX = 600
"""A barrier that nobody opens must not hold a child for ever."""
OWN_JVM = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}


def main(path: Path) -> None:
    order: dict[str, Any] = json.loads(path.read_text("utf-8"))
    out = Path(order["out"])
    own = bool(order["own_jvm"])
    overrides = {"log.level": "warning"}
    if own:
        os.setpgid(0, 0)
        overrides |= {
            "spark.master": "local[1]",
            "spark.driver_memory": "512m",
            "spark.conf": json.dumps(OWN_JVM),
        }
    lake = Workspace.find(Path(order["lake"]), overrides=overrides)
    spark = None if own else joining.on(joining.join(), lake)
    mark(out / "started")
    work = Work.from_text(order["work"])
    with (
        reporting(out / "result"),
        odi.run(work.job, lake=lake, spark=spark, reach=_reach(order, out, own=own)) as run,
    ):
        receipt = carry_out(run, work)
        mark(
            out / "receipt",
            {
                "fresh": receipt.fresh,
                "batch": receipt.batch,
                "snapshots": [landing.snapshot for landing in receipt.landings],
            },
        )


@contextlib.contextmanager
def reporting(path: Path) -> Iterator[None]:
    """Write down how the work ended: well, or with which of our errors."""
    try:
        yield
    except OdiError as error:
        mark(path, {"code": error.code, "kind": type(error).__name__, "text": str(error)})
        sys.exit(int(error.exit_status))
    mark(path, {"code": "", "kind": "", "text": ""})


def mark(path: Path, body: object = None) -> None:
    """Write a file that is whole and on disk when this returns."""
    draft = path.with_name(f".{path.name}.draft")
    with draft.open("w", encoding="utf-8") as stream:
        json.dump(body, stream)
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(path)


def die(*, own: bool) -> None:
    """Kill this process, and with ``own`` its JVM too, as a power cut would."""
    if own:
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(WAIT_S_MAX)


def kill_jvm() -> None:
    """Kill the JVM that this process started, and only that."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    gateway.proc.kill()
    gateway.proc.wait()


def _reach(order: dict[str, Any], out: Path, *, own: bool) -> Callable[[str], None]:
    def reach(point: str) -> None:
        with (out / "road").open("a", encoding="utf-8") as stream:
            stream.write(point + "\n")
        if point == order["kill_at"]:
            mark(out / "fired", point)
            die(own=own)
        if point == order["kill_jvm_at"]:
            mark(out / "fired", point)
            kill_jvm()
        if point == order["wait_at"] and not (out / "waiting").exists():
            mark(out / "waiting", point)
            _wait_for(Path(order["gate"]))

    return reach


def _wait_for(gate: Path) -> None:
    until = time.monotonic() + WAIT_S_MAX
    while not gate.exists():
        if time.monotonic() > until:
            raise TimeoutError(f"nobody opened {gate}")
        time.sleep(0.005)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
