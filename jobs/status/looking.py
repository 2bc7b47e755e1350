"""A run that only looks: what questions to a source are asked with, before anything is written.

Owns the run that is never started, on a ledger that is opened for reading. Spark is refused to it,
or started with the reason told. Must never hold an owner, settle an intent or write an entry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from odi_audit.committer.parts import Parts
from odi_audit.committer.run import Run
from odi_audit.errors import NotSupported
from odi_audit.ids import new_run_id

if TYPE_CHECKING:
    from jobs.spec.model import JobSpec
    from odi_audit.spark.types import SparkSession
    from odi_audit.workspace import Workspace


def looking(
    spec: JobSpec, workspace: Workspace, *, tell: Callable[[str], None] | None = None
) -> Run:
    """Return a run that is not started; with ``tell`` it may start Spark, and says why."""

    def refuse() -> NoReturn:
        raise NotSupported(
            f"a source of type {spec.source.type} answers this through Spark, and none is started "
            "for it"
        )

    def start() -> SparkSession:
        assert tell is not None
        tell(f"starting Spark: a source of type {spec.source.type} is read through it")
        return workspace.spark()

    parts = Parts(
        ledger=workspace.ledger(read_only=True),
        catalog=workspace.catalog,
        spark=refuse if tell is None else start,
        settings=workspace.settings,
        clock=workspace.clock,
        owner="nobody",
        principal="nobody",
        code="",
    )
    return Run(parts, spec.job, new_run_id())
