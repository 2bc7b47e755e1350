"""A Kafka job on the Arrow path: topics appended to tables, with no row in the JVM.

Owns one batch of it: which table each topic goes to, the files that tasks write, and what the
committer is told. Must never write before the intent is recorded: tasks run inside the batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from jobs.arrow_path import cut, pieces_of, write_files
from jobs.runner.growing import TableTooSmall, until_it_fits
from jobs.runner.outcome import Done
from jobs.runner.tables import Growth
from jobs.sources.base import batch_of
from jobs.tasks.dead_letters import Origin
from jobs.tasks.files import FilesWork, Report, Route
from odi_audit.errors import RuleBroken
from odi_audit.model.contract import Contract
from odi_audit.model.shares import WHOLE, Follows, Share
from odi_audit.settings import catalog_pyiceberg_properties
from odi_audit.spark.loose import loose_table

if TYPE_CHECKING:
    from jobs.sources.base import Plan
    from jobs.sources.kafka import KafkaSource
    from jobs.sources.registry import RegistryAccess
    from jobs.tasks.decoders import Format
    from odi_audit.canonical import JsonObject
    from odi_audit.committer.run import Run
    from odi_audit.model.loose import LooseFile, LooseTable
    from odi_audit.spark.live import LiveTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """A table of the batch and the topics that feed it."""

    table: LiveTable
    topics: tuple[str, ...]
    format: Format
    facts: tuple[str, ...] = ()
    contract: Contract = field(default_factory=Contract)


class KafkaArrow:
    """Carries out plans of one job."""

    path = "arrow"

    def __init__(
        self,
        source: KafkaSource,
        destinations: Callable[[Run, Sequence[str]], list[Destination]],
        dead: Callable[[Run], LiveTable] | None,
    ) -> None:
        self._source = source
        self._destinations = destinations
        self._dead = dead

    def carry_out(self, run: Run, plan: Plan) -> Done:
        """Read, decode, write and commit one batch, once.

        Raises:
            RuleBroken: records cannot be read, and there is no table for dead letters.
            Refused, CommitConflict, OutcomeUnknown: as of every commit.
        """
        began = time.monotonic()
        (receipt, report), grown = until_it_fits(
            run,
            lambda: self._attempt(run, plan),
            batch=batch_of(run.job, plan.offsets, plan.generation),
        )
        return Done(
            plan=plan,
            receipt=receipt,
            path=self.path,
            records=report.records,
            rejects=report.rejects,
            bytes=report.bytes,
            seconds=time.monotonic() - began,
            grown=grown,
        )

    def _attempt(self, run: Run, plan: Plan):  # type: ignore[no-untyped-def]
        pieces = pieces_of(plan.offsets)
        topics = sorted({piece.topic for piece in pieces})
        targets = self._destinations(run, topics)
        dead = None if self._dead is None else self._dead(run)
        reading = _Reading(run, plan, self._source, targets, dead)
        batch = run.batch(
            offsets=plan.offsets, generation=plan.generation, accept_gap=plan.accept_gap
        )
        if dead is not None:
            share = Share(follows=Follows.NOTHING)
            batch.append_files(reading.files(None), dead.ref.name, share=share)
        for target in targets:
            batch.append_files(
                reading.files(target.table.ref.name),
                target.table.ref.name,
                contract=target.contract,
                share=_share(target, targets, plan),
            )
            batch.note(target.table.ref.name, reading.source_facts(target))
        return batch.commit(), reading.report


class _Reading:
    """The one reading of a batch: every table of it asks for its files here."""

    def __init__(
        self,
        run: Run,
        plan: Plan,
        source: KafkaSource,
        targets: Sequence[Destination],
        dead: LiveTable | None,
    ) -> None:
        self._run = run
        self._plan = plan
        self._source = source
        self._targets = targets
        self._dead = dead
        self._storage = catalog_pyiceberg_properties(run.parts.settings)
        self._loose: dict[str, LooseTable] = {}
        self.report = Report()
        self._done = False

    def files(self, table: str | None) -> Callable[[LooseTable], list[LooseFile]]:
        """Return what the committer calls when a table's part is to be written."""

        def write(now: LooseTable) -> list[LooseFile]:
            if not self._done:
                self._read()
            described = self._loose.get(table or "")
            if described is not None and described.schema_json != now.schema_json:
                # Somebody changed the table meanwhile: read again, in its new form.
                raise TableTooSmall({str(table): Growth()})
            return self.report.files.get(table, [])

        return write

    def source_facts(self, target: Destination) -> Callable[[], JsonObject]:
        """Return what tells under which schemas the records for a table were written."""
        access: RegistryAccess | None = getattr(target.format, "registry", None)
        registry = None if access is None else access.url
        return lambda: self.report.schemas.facts(registry, target.topics)

    def _read(self) -> None:
        run, plan = self._run, self._plan
        label = f"odi-{batch_of(run.job, plan.offsets, plan.generation)[:14]}"
        routes: dict[str, Route] = {}
        for target in self._targets:
            name = target.table.ref.name
            described = replace(loose_table(target.table, label), storage=self._storage)
            self._loose[name] = described
            for topic in target.topics:
                routes[topic] = Route(
                    table=name, loose=described, format=target.format, facts=target.facts
                )
        work = FilesWork(
            bootstrap=self._source.bootstrap,
            options=self._source.options,
            uncommitted=self._source.uncommitted,
            routes=routes,
            origin=Origin(
                job=run.job,
                batch=batch_of(run.job, plan.offsets, plan.generation),
                source=plan.offsets.source,
            ),
            dead=None
            if self._dead is None
            else replace(loose_table(self._dead, label), storage=self._storage),
        )
        tasks = run.spark.sparkContext.defaultParallelism
        self.report = write_files(run.spark, work, cut(pieces_of(plan.offsets), tasks))
        self._done = True
        _check(self.report, self._dead)


def _check(report: Report, dead: LiveTable | None) -> None:
    names = {*report.unknown, *report.wider}
    if names:
        raise TableTooSmall(
            {
                name: Growth(add=report.unknown.get(name, {}), widen=report.wider.get(name, {}))
                for name in sorted(names)
            }
        )
    if report.rejects and dead is None:
        raise RuleBroken(
            f"{report.rejects} of {report.records} records cannot be read",
            hint="name a table for them: dead_letter: {table: …}",
            samples=[] if report.reason is None else [report.reason],
            rules=["every record can be read"],
        )


def _share(target: Destination, targets: Sequence[Destination], plan: Plan) -> Share:
    if len(targets) == 1:
        return WHOLE
    mine: Mapping[str, object] = plan.offsets.ranges
    return Share(
        partitions=tuple(name for name in mine if name.rpartition("-")[0] in target.topics)
    )
