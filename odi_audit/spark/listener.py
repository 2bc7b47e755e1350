"""openlineage-spark beside us: its conf, its spool file, and the mark that links its runs to ours.

Owns what the listener is told: it writes to one file of the lake's spool folder and never to the
network, and it hands on one local property, by which its runs find their parent (docs/adr/0014).
Must never import pyspark at the top: the conf is also printed without Spark. Must never stand in
the way of a commit: a session without the listener pays a look-up, no call to the JVM.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odi_audit.errors import StorageError
from odi_audit.ids import JobName, RunId
from odi_audit.settings import Settings

if TYPE_CHECKING:
    from typing import TextIO

    from pyspark import SparkContext

JAR_SET = "listener"
LISTENER = "io.openlineage.spark.agent.OpenLineageSparkListener"
LISTENERS = "spark.extraListeners"
SPOOL = "spool"
"""The folder of the lake that the listener's events wait in."""
APPLICATION = "spark"
"""What the listener's jobs are called first; their own words follow."""
MARK = "spark.odi.parent"
"""Local property: whose work a Spark job is. The listener tells it when the job starts."""
QUEUE = "openlineage"
_QUEUE_WAIT_MS_MAX = 10_000
"""For what Spark's start has put into the queue: one event or two."""
_CAPTURED = "spark.openlineage.capturedProperties"
_PARENT = re.compile(r"^([^/]+)/(.+)/([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})$")
_ROOTS = ("OPENLINEAGE_ROOT_PARENT_ID", "OPENLINEAGE_PARENT_ID")
_held: dict[Path, TextIO] = {}
"""Locks that say "this process may still write there"; the kernel frees them at its death."""
_marking: tuple[object, bool] = (None, False)
"""The Spark context that was looked at last, and whether it has the listener."""


def spool_dir(settings: Settings) -> Path:
    """Return the folder that the listener's events wait in."""
    return settings.lake.root / SPOOL


def new_file(settings: Settings) -> Path:
    """Return the path of a spool file that no other process has; nothing is made."""
    host = re.sub(r"[^A-Za-z0-9]+", "-", socket.gethostname())[:40]
    return spool_dir(settings) / f"{host}-{os.getpid()}-{secrets.token_hex(6)}.jsonl"


def listener_conf(settings: Settings, file: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Return the conf that loads the listener and has it write to ``file``.

    The scheduler's run, where ``OPENLINEAGE_ROOT_PARENT_ID`` or ``OPENLINEAGE_PARENT_ID`` names
    one, is the root of every run of the session, as it is of ours.
    """
    conf = {
        LISTENERS: LISTENER,
        "spark.openlineage.transport.type": "file",
        "spark.openlineage.transport.location": str(file),
        "spark.openlineage.namespace": settings.lake.name,
        "spark.openlineage.appName": APPLICATION,
        _CAPTURED: MARK,
        # Plans and properties hold values of rows and secrets: they do not leave the JVM at all.
        "spark.openlineage.facets.spark.logicalPlan.disabled": "true",
        "spark.openlineage.facets.spark_unknown.disabled": "true",
        "spark.openlineage.facets.debug.disabled": "true",
        "spark.openlineage.columnLineage.datasetLineageEnabled": "true",
    }
    for variable in _ROOTS:
        match = _PARENT.match(env.get(variable, ""))
        if match is not None:
            conf["spark.openlineage.rootParentJobNamespace"] = match[1]
            conf["spark.openlineage.rootParentJobName"] = match[2]
            conf["spark.openlineage.rootParentRunId"] = match[3].lower()
            break
    return conf


def with_listener(
    conf: Mapping[str, str],
    settings: Settings,
    *,
    file: Path,
    jars: list[Path],
    env: Mapping[str, str],
) -> dict[str, str]:
    """Return a session's conf with the listener beside whatever listeners it names itself."""
    others = [name for name in conf.get(LISTENERS, "").split(",") if name and name != LISTENER]
    loaded = [path for path in conf.get("spark.jars", "").split(",") if path]
    # From the same class path as Iceberg's jar, or it cannot look into Iceberg's tables.
    loaded += [str(jar) for jar in jars if str(jar) not in loaded]
    made = {**conf, **listener_conf(settings, file, env)}
    made[LISTENERS] = ",".join([*others, LISTENER])
    made["spark.jars"] = ",".join(loaded)
    return made


def is_on(context: SparkContext) -> bool:
    """Say whether a running Spark has the listener."""
    return LISTENER in context.getConf().get(LISTENERS, "").split(",")


def put_apart(context: SparkContext) -> None:
    """Give the listener a queue of its own on Spark's listener bus.

    A commit waits for the counts of its rows, which come over the queue that Spark shares among
    listeners: there it would wait for this one as well, which looks at every plan.
    """
    from py4j.protocol import Py4JError

    bus: Any = context._jsc.sc().listenerBus()
    for found in list(bus.listeners()):
        if str(found.getClass().getName()) == LISTENER:
            # On a machine that is so slow it misses that Spark has started, which nobody sends.
            with suppress(Py4JError):
                bus.waitUntilEmpty(_QUEUE_WAIT_MS_MAX)
            bus.removeListener(found)
            bus.addToQueue(found, QUEUE)


def hold(file: Path) -> None:
    """Make the spool folder, and say for as long as this process lives that it may write there.

    Raises:
        StorageError: the folder cannot be written. The listener itself would only log it, once
            for each event, and lose them all.
    """
    lock = file.with_suffix(".lock")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        opened = lock.open("a", encoding="utf-8")
    except OSError as error:
        raise StorageError(
            f"the listener's events cannot be kept in {file.parent}: {error.strerror or error}",
            hint="make the folder writable, or start the session without listener=True",
        ) from error
    try:
        import fcntl

        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # no such lock on Windows: the file counts as in use until it is old
        pass
    _held[lock] = opened


# -- marks -----------------------------------------------------------------------------------------


def run_mark(job: JobName, run: RunId) -> str:
    """Return the mark of what happens in a run, outside of its batches."""
    return f"run:{run}:{job}"


def intent_mark(intent: int) -> str:
    """Return the mark of an attempt at a batch, by the index of its intent."""
    return f"intent:{intent}"


@contextmanager
def marked(mark: str) -> Iterator[None]:
    """Mark the Spark jobs that this thread starts; does nothing where there is no listener."""
    context = _listening()
    if context is None:
        yield
        return
    before = context.getLocalProperty(MARK)
    context.setLocalProperty(MARK, mark)
    try:
        yield
    finally:
        from py4j.protocol import Py4JError

        # A session that was stopped, or whose JVM died, has no properties to put back.
        if _listening() is context:
            with suppress(Py4JError):
                context.setLocalProperty(MARK, before)


def _listening() -> Any:
    global _marking
    loaded = sys.modules.get("pyspark")
    context = None if loaded is None else loaded.SparkContext._active_spark_context
    if context is None:
        return None
    if _marking[0] is not context:
        _marking = (context, is_on(context))
    return context if _marking[1] else None
