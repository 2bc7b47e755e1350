"""The choice of the path that a job's rows take, and of the worker that carries it out.

Owns which kind of worker a spec gets, and why not the other. The Arrow path is taken where it can
be: it depends on the spec, and on what the tables are that are there already. Must never start
Spark: tables are looked at by their metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from jobs.runner.loop import Measured, Worker
from jobs.sources.base import Choices, Lag, Limits, Plan
from odi_audit.errors import NotSupported, TableNotFound
from odi_audit.model.tables import parse

if TYPE_CHECKING:
    from jobs.runner.feeds import Feed
    from jobs.runner.outcome import Done
    from jobs.spec.model import JobSpec
    from odi_audit.catalog import TableState
    from odi_audit.catalog.lake import LakeCatalog
    from odi_audit.committer.run import Run
    from odi_audit.ledger.port import Position

ROUTED_LOOKED_AT_MAX = 1_000
"""Tables of a route that are looked at before the start; a job has no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Which path is taken, and why it is not the other."""

    path: Literal["arrow", "spark"]
    why: str


def way_of(spec: JobSpec, tables: Iterable[TableState] = ()) -> Way:
    """Say which path a job takes, given the tables that are there already.

    Raises:
        NotSupported: the spec asks for the Arrow path, and it cannot be taken.
    """
    if spec.engine == "spark":
        return Way(path="spark", why="the spec says engine: spark")
    obstacle = spec_cannot(spec)
    for state in () if obstacle else tables:
        obstacle = _table_cannot(spec, state)
        if obstacle is not None:
            obstacle = f"table {state.name}: {obstacle}"
            break
    if obstacle is None:
        return Way(path="arrow", why="records become data files inside the tasks that read them")
    if spec.engine == "arrow":
        raise NotSupported(
            f"job {spec.job} asks for engine: arrow, but {obstacle}",
            hint="write engine: auto or engine: spark into the spec",
            job=spec.job,
            obstacle=obstacle,
        )
    return Way(path="spark", why=f"not arrow: {obstacle}")


def spec_cannot(spec: JobSpec) -> str | None:
    """Say what in a spec keeps it from the Arrow path; None where nothing does."""
    from jobs.runner.kafka_job import arrow_cannot

    if spec.source.type == "kafka" and spec.source.envelope != "none":
        return f"its records are changes (envelope: {spec.source.envelope})"
    return arrow_cannot(spec, None)


def tables_there(spec: JobSpec, catalog: LakeCatalog) -> list[TableState]:
    """Return those of a job's tables that rows go to and that are there already."""
    target = spec.target
    if target.route is None:
        assert target.table is not None
        try:
            return [catalog.load(parse(target.table))]
        except TableNotFound:
            return []
    from jobs.spec.words import matches

    allowed = target.route.allow
    found = [name for name in catalog.tables() if any(matches(str(name), one) for one in allowed)]
    return [catalog.load(name) for name in found[:ROUTED_LOOKED_AT_MAX]]


def worker_of(spec: JobSpec, *, folder: Path) -> Worker:
    """Return the worker of a job; ``folder`` is the spec's, which relative paths begin at.

    Raises:
        NotSupported: the spec asks for a path that it cannot take.
    """
    if spec.bootstrap is None:
        return _worker_of(spec, folder)
    from jobs.runner.bootstrap import bootstrapped, handed_over

    return bootstrapped(spec, folder=folder, then=_worker_of(handed_over(spec), folder))


def _worker_of(spec: JobSpec, folder: Path) -> Worker:
    return KafkaAppend(spec) if spec_cannot(spec) is None else _checked_frames(spec, folder)


class KafkaAppend:
    """A Kafka append that the spec lets take either path: its tables decide, at the start."""

    def __init__(self, spec: JobSpec) -> None:
        self._spec = spec
        self._worker: Worker | None = None
        self.path: str = "spark" if spec.engine == "spark" else "arrow"

    def prepare(self, run: Run) -> None:
        """Look at the tables that are there, and choose."""
        way = way_of(self._spec, tables_there(self._spec, run.parts.catalog()))
        self._worker = _arrow(self._spec) if way.path == "arrow" else _on_frames(self._spec, None)
        self.path = self._worker.path
        self._worker.prepare(run)

    def positions(self, run: Run) -> Mapping[str, Position]:
        """Return where the job stands."""
        return self._chosen().positions(run)

    def plan(self, run: Run, limits: Limits, *, choices: Choices, waited_s: float) -> Plan | None:
        """Return the next batch, or None while none is due."""
        return self._chosen().plan(run, limits, choices=choices, waited_s=waited_s)

    def carry_out(self, run: Run, plan: Plan) -> Done:
        """Read, decode, write and commit one batch, once."""
        return self._chosen().carry_out(run, plan)

    def lag(self, run: Run) -> Lag | None:
        """Return how far the job is behind, where its worker can tell."""
        worker = self._chosen()
        return worker.lag(run) if isinstance(worker, Measured) else None

    def _chosen(self) -> Worker:
        assert self._worker is not None, "prepare comes first"
        return self._worker


def _table_cannot(spec: JobSpec, state: TableState) -> str | None:
    from jobs.formats.json_rows import why_not as json_cannot
    from odi_audit.catalog.data_files import arrow_schema_of
    from odi_audit.catalog.data_files import why_not as files_cannot
    from odi_audit.catalog.loose import loose_view

    described = loose_view(state)
    obstacle = files_cannot(described)
    if obstacle is None and spec.source.type == "kafka" and spec.source.value.format == "json":
        obstacle = json_cannot(arrow_schema_of(described))
    return obstacle


def _checked_frames(spec: JobSpec, folder: Path) -> Worker:
    way_of(spec)
    return _on_frames(spec, folder)


def _arrow(spec: JobSpec) -> Worker:
    from jobs.runner.kafka_job import KafkaJob

    return KafkaJob(spec)


def _on_frames(spec: JobSpec, folder: Path | None) -> Worker:
    from jobs.runner.frame_job import FrameJob

    return FrameJob(spec, feed_of(spec, folder=folder))


def feed_of(spec: JobSpec, *, folder: Path | None) -> Feed:
    """Return what feeds a job on Spark's path."""
    if spec.source.type == "kafka":
        from jobs.runner.kafka_feed import KafkaFeed

        return KafkaFeed(spec)
    if spec.source.type == "files":
        from jobs.sources.files import FilesFeed

        assert folder is not None
        return FilesFeed(spec, folder=folder)
    if spec.source.type == "jdbc":
        from jobs.sources.jdbc import JdbcFeed

        return JdbcFeed(spec)
    from jobs.sources.table import TableFeed

    return TableFeed(spec)
