"""One execution of a spec: ``odi-audit run``, ``jobs/submit.py`` and anybody's own code.

Owns the way from a spec to a run that has ended: one process per job, signals, the worker, what is
told on the way and at the end. Must never decide what a batch is: the loop and the worker do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.runner import hints
from jobs.runner.choose import worker_of
from jobs.runner.loop import Measured, Stop, Until, Worker, run_job, stopped_by_signals
from jobs.runner.outcome import Done, Ran
from jobs.runner.progress import Progress
from jobs.sources.base import NO_CHOICES, Choices, Lag, Limits
from jobs.spec.load import spec_digest
from odi_audit import api, version
from odi_audit.canonical import JsonObject
from odi_audit.errors import JobHeld, LedgerLocked, OdiError

if TYPE_CHECKING:
    from rich.console import Console

    from jobs.spec.model import JobSpec
    from odi_audit.committer.run import Run
    from odi_audit.ids import JobName, RunId
    from odi_audit.ledger.port import Ledger
    from odi_audit.workspace import Workspace

DIGEST_SHOWN = 12
"""Digits of a spec's digest in the version of the code; the whole of it is in each intent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be run, how long, and what the operator decided."""

    spec: JobSpec
    folder: Path
    until: Until
    call: hints.Call
    choices: Choices = NO_CHOICES
    rows: int | None = None
    every_s: float | None = None

    def limits(self) -> Limits:
        """Return the limits of a batch: those of the spec, or what was said on top of it."""
        batch = self.spec.batch
        return Limits(
            rows=self.rows or batch.rows,
            bytes=batch.bytes,
            seconds=batch.every.total_seconds() if self.every_s is None else self.every_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A run that has ended, with everything that its end is told with."""

    order: Order
    run: RunId
    path: str
    ran: Ran
    rows_per_s: float | None
    lag: Lag | None
    last: Done | None
    grown: tuple[str, ...] = field(default=())

    def to_json(self) -> JsonObject:
        """Return the form for machines, ``odi.run/1``."""
        ran, choices = self.ran, self.order.choices
        return {
            "job": self.order.spec.job,
            "spec": self.order.call.spec,
            "digest": spec_digest(self.order.spec),
            "run": self.run,
            "mode": "once" if self.order.until.drained else "continuous",
            "path": self.path,
            "reason": ran.reason,
            "batches": ran.batches,
            "records": ran.records,
            "rejects": ran.rejects,
            "bytes": ran.bytes,
            "seconds": round(ran.seconds, 3),
            "rows_per_s": None if self.rows_per_s is None else round(self.rows_per_s, 1),
            "lag": None
            if self.lag is None
            else {"rows": self.lag.total, "seconds": self.lag.seconds},
            "grown": list(self.grown),
            "accepted_gap": choices.accept_gap,
            "generation": choices.generation,
            "last_batch": None if self.last is None else _batch(self.last),
        }


def run_spec(
    order: Order,
    workspace: Workspace,
    *,
    console: Console | None = None,
    stop: Stop | None = None,
) -> Ended:
    """Run a job until the end that was asked for; ``console`` is a terminal to show progress on.

    Raises:
        JobHeld: another process runs this job.
        Refused, SourceChanged: somebody must decide; the hint is the command.
        OdiError: as of every commit and every source.
    """
    spec, stop = order.spec, stop or Stop()
    worker = worker_of(spec, folder=order.folder)
    progress = Progress(spec.job, console)
    ledger = workspace.ledger()
    run = api.run(
        spec.job,
        lake=workspace,
        code=code_of(order, workspace),
        about=about(spec),
        streaming=not order.until.drained,
    )
    with ExitStack() as around:
        around.enter_context(stopped_by_signals(stop))
        around.enter_context(held(ledger, spec.job))
        around.enter_context(run)
        _ = run.spark  # it takes SIGINT when it starts: the next line takes it back
        around.enter_context(stopped_by_signals(stop))
        around.enter_context(progress.shown())
        progress.asks(lambda: _lag(worker, run))
        try:
            ran = run_job(
                run,
                worker,
                order.limits(),
                until=order.until,
                choices=order.choices,
                stop=stop,
                tell=progress.tell,
                away=progress.away,
            )
        except OdiError as error:
            hints.complete(error, order.call, ledger, spec.job)
            error.facts["batches_landed"] = progress.tally.batches
            raise
        return _ended(order, run, worker, ran, progress)


@contextmanager
def held(ledger: Ledger, job: JobName) -> Iterator[None]:
    """Be the one process that runs a job; it shows as running as long as this one lives.

    The committer would refuse to land a batch twice anyway: this saves the work.
    """
    try:
        ledger.hold(holder(job))
    except LedgerLocked as problem:
        raise JobHeld(
            f"job {job} is being run by another process of this lake",
            hint="odi-audit jobs shows it; stop that one, or give this one another name",
            job=job,
        ) from problem
    try:
        yield
    finally:
        ledger.release(holder(job))


def holder(job: JobName) -> str:
    """Return the name by which the ledger knows that a job is being run."""
    return f"job {job}"


def code_of(order: Order, workspace: Workspace) -> str | None:
    """Return the version of the code: what the settings say, else product and spec."""
    if not workspace.origins["run.code_version"].startswith("default"):
        return None
    product = workspace.settings.run.code_version or f"odi-audit/{version()}"
    return f"{product} spec/{spec_digest(order.spec)[:DIGEST_SHOWN]}"


def about(spec: JobSpec) -> dict[str, str]:
    """Return what a spec says of itself, for the record and for lineage."""
    said = {"owner": spec.owner, "description": spec.description, "spec": spec_digest(spec)}
    return {key: value for key, value in said.items() if value}


def _lag(worker: Worker, run: Run) -> Lag | None:
    return worker.lag(run) if isinstance(worker, Measured) else None


def _ended(order: Order, run: Run, worker: Worker, ran: Ran, progress: Progress) -> Ended:
    try:
        lag = _lag(worker, run) if ran.reached_source else None
    except OdiError:
        lag = None  # the source is away: the run has ended all the same, and its lag is unknown
    tally = progress.tally
    return Ended(
        order=order,
        run=run.run_id,
        path=worker.path,
        ran=ran,
        rows_per_s=tally.rows_per_s,
        lag=lag,
        last=tally.last,
        grown=tuple(tally.grown),
    )


def _batch(done: Done) -> JsonObject:
    receipt = done.receipt
    return {
        "batch": receipt.batch,
        "run": receipt.run,
        "intent": receipt.intent,
        "records": done.records,
        "rejects": done.rejects,
        "seconds": round(done.seconds, 3),
        "tables": [
            {
                "table": landing.table.name,
                "snapshot": landing.snapshot,
                "added_rows": landing.added_rows,
            }
            for landing in receipt.landings
        ],
    }
