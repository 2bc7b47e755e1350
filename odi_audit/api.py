"""The library's front door: runs, sinks and sessions on a lake.

Owns the wiring of a workspace to a run. Must never hold more state than the caller gives it.
"""

from __future__ import annotations

import getpass
import os
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from odi_audit import companion, version
from odi_audit.committer.operations import NO_CONTRACT
from odi_audit.committer.parts import Parts, nowhere
from odi_audit.committer.run import Run
from odi_audit.committer.sink import Sink
from odi_audit.ids import job_name, new_run_id
from odi_audit.model.contract import Contract
from odi_audit.workspace import Workspace

if TYPE_CHECKING:
    from odi_audit.spark.types import SparkSession


def run(
    job: str,
    *,
    lake: Path | str | Workspace | None = None,
    spark: SparkSession | None = None,
    principal: str | None = None,
    code: str | None = None,
    about: Mapping[str, str] | None = None,
    streaming: bool = False,
    reach: Callable[[str], None] = nowhere,
) -> Run:
    """Start a run of a job: ``with odi.run("sales/orders_import") as run: …``.

    The lake is the one named, else ``ODI_LAKE``, else the one found from the current folder
    upwards. A session that is given must have the lake's conf (``odi-audit spark-conf``). ``about``
    may say ``owner`` and ``description`` of the job, for the record and for lineage; ``streaming``
    that this run goes on until it is stopped.

    Raises:
        UsageError: the job's name is not of the form namespace/name.
        LakeNotFound, ConfigError: no lake, or its settings are wrong.
    """
    name = job_name(job)
    workspace = find(lake)
    if spark is not None:
        workspace.use_spark(spark)
    parts = parts_of(workspace, principal=principal, code=code, about=about, reach=reach)
    return Run(parts, name, new_run_id(), streaming=streaming)


def sink(
    job: str,
    *,
    table: str,
    key: Sequence[str] = (),
    order_by: Sequence[str] = (),
    delete_when: str | None = None,
    contract: Contract = NO_CONTRACT,
    lake: Path | str | Workspace | None = None,
    spark: SparkSession | None = None,
    principal: str | None = None,
    code: str | None = None,
    reach: Callable[[str], None] = nowhere,
) -> Sink:
    """Return the function for ``foreachBatch``: appends, or upserts where ``key`` is given.

    Each micro-batch is one batch: published once, whatever Spark runs again. If the checkpoint
    folder is lost, ``restore_checkpoint(path)`` of the sink makes it again from the ledger.
    """
    workspace = find(lake)

    def start() -> Run:
        return run(
            job,
            lake=workspace,
            spark=spark,
            principal=principal,
            code=code,
            streaming=True,
            reach=reach,
        )

    job_name(job)
    return Sink(
        start,
        table=table,
        key=(key,) if isinstance(key, str) else key,
        order_by=(order_by,) if isinstance(order_by, str) else order_by,
        delete_when=delete_when,
        contract=contract,
    )


def session(lake: Path | str | Workspace | None = None, *, listener: bool = False) -> SparkSession:
    """Return a Spark session on the lake.

    With ``listener`` openlineage-spark is loaded beside us: its runs become children of ours, and
    the relay sends them (docs/guide/listener.md).

    Raises:
        SparkError: a session is active already, and has no listener: stop it first.
    """
    return find(lake).spark(listener=listener)


def find(lake: Path | str | Workspace | None) -> Workspace:
    """Return the workspace that a caller names, or the one around here."""
    if isinstance(lake, Workspace):
        return lake
    return Workspace.find(None if lake is None else Path(lake))


def parts_of(
    workspace: Workspace,
    *,
    principal: str | None = None,
    code: str | None = None,
    about: Mapping[str, str] | None = None,
    reach: Callable[[str], None] = nowhere,
) -> Parts:
    """Wire a workspace to what the committer needs."""
    settings = workspace.settings
    return Parts(
        ledger=workspace.ledger(),
        catalog=workspace.catalog,
        spark=workspace.spark,
        settings=settings,
        clock=workspace.clock,
        owner=f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}",
        principal=principal or settings.run.principal or getpass.getuser(),
        code=code or settings.run.code_version or f"odi-audit {version()}",
        reach=reach,
        beside=companion.of(settings),
        about=dict(about or {}),
    )
