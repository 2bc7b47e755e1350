"""A job on Spark's path: the rows of any feed, transformed, checked, and written as its mode says.

Owns one batch of it, from the feed's frame to one commit over all its tables: the raw table first,
then the others, and dead letters before both. Must never write outside of that batch, nor read a
plan twice in two ways: a frame is kept while it is used.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql import functions as F

from jobs.formats.debezium_envelope import NEEDED
from jobs.patterns import names
from jobs.patterns.contracts import judged, puts_aside
from jobs.patterns.fitting import columns_of, filled, growth_for
from jobs.patterns.letters import letters, of_rejects
from jobs.patterns.moved import LOST, MODES, Past, old_rows, settled
from jobs.patterns.raw import COLUMNS as RAW_COLUMNS
from jobs.patterns.raw import raw_rows
from jobs.patterns.survey import Survey, is_row, look
from jobs.patterns.transforms import transformed
from jobs.patterns.writes import Load, write
from jobs.runner import tables
from jobs.runner.careful import with_care
from jobs.runner.frame_feeds import Hears, Learns, Marks
from jobs.runner.frame_legs import BY_JOB, Leg, by_field, has_rows, legs_of
from jobs.runner.frame_tables import key_of, last_table, make
from jobs.runner.growing import TableTooSmall, until_it_fits
from jobs.runner.outcome import Done
from jobs.runner.tables import Growth
from jobs.runner.unfinished import unfinished
from jobs.sources.base import batch_of
from jobs.tasks.dead_letters import Origin
from jobs.tasks.rows import REASON
from odi_audit.errors import CommitConflict, NotSupported, RuleBroken, UsageError
from odi_audit.ids import BatchId
from odi_audit.model.shares import Follows, Share
from odi_audit.model.tables import quote
from odi_audit.spark import failures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from jobs.runner.feeds import Feed
    from jobs.sources.base import Choices, Lag, Limits, Plan
    from jobs.spec.model import JobSpec
    from odi_audit.committer.batch import BatchBuilder
    from odi_audit.committer.run import Run
    from odi_audit.ledger.port import Position
    from odi_audit.model.receipts import Receipt
    from odi_audit.spark.live import LiveTable

LEARN_MAX = 5
"""Each reading may show fields that the last one did not."""
SIDE = Share(follows=Follows.NOTHING)


@dataclass(slots=True)
class _Batch:
    """One attempt at a batch: what its legs have come to."""

    builder: BatchBuilder
    origin: Origin
    kept: ExitStack
    surveys: list[Survey] = field(default_factory=list)
    dead: list[DataFrame] = field(default_factory=list)
    broken: int = 0
    loads: int = 0
    care: bool = False

    def keep(self, frame: DataFrame) -> DataFrame:
        """Keep a frame's rows until the batch is done."""
        frame.persist(StorageLevel.MEMORY_AND_DISK)
        self.kept.callback(frame.unpersist)
        return frame


class FrameJob:
    """One spec whose rows need Spark, fed by any source."""

    path = "spark"

    def __init__(self, spec: JobSpec, feed: Feed) -> None:
        self._spec = spec
        self._feed = feed
        self._changes = feed.changes
        self._added = names.added(spec.target, changes=feed.changes)

    def prepare(self, run: Run) -> None:
        """Reach the source, and make what can be made before the first batch.

        Raises:
            NotSupported: the spec asks for what its changes cannot give.
        """
        route = self._spec.target.route
        if self._changes and route is not None and route.by == "field":
            raise NotSupported(
                "target.route by field: of a delete only the key is known, and so no table",
                hint="write by: topic, or a job for each table",
            )
        self._feed.prepare(run)
        if self._spec.dead_letter is not None:
            tables.make_dead_letters(run, self._spec.dead_letter.table)

    def positions(self, run: Run) -> Mapping[str, Position]:
        """Return where the job stands on this source."""
        return run.parts.ledger.job_positions(run.job, self._feed.identity())

    def plan(self, run: Run, limits: Limits, *, choices: Choices, waited_s: float) -> Plan | None:
        """Return the next batch: the rest of one that only some tables have, or a new one."""
        rest = unfinished(run.parts.ledger, run.job)
        if rest is not None:
            return rest
        mine = self._feed.identity()
        others = [name for name in run.parts.ledger.job_sources(run.job) if name != mine]
        return self._feed.plan(
            run,
            self.positions(run),
            limits,
            choices=choices,
            elsewhere=others,
            waited_s=waited_s,
        )

    def carry_out(self, run: Run, plan: Plan) -> Done:
        """Read, transform, check and commit one batch, once.

        Raises:
            RuleBroken: records cannot be read, and there is no table for dead letters.
            UsageError: a transform fails, or a table is not allowed.
            Refused, CommitConflict, OutcomeUnknown: as of every commit.
        """
        began = time.monotonic()
        batch = batch_of(run.job, plan.offsets, plan.generation)
        (receipt, made), grown = until_it_fits(
            run, lambda: with_care(partial(self._attempt, run, plan, batch)), batch=batch
        )
        done = Done(
            plan=plan,
            receipt=receipt,
            path=self.path,
            records=sum(survey.records for survey in made.surveys),
            rejects=sum(survey.rejects for survey in made.surveys) + made.broken,
            bytes=sum(survey.bytes for survey in made.surveys),
            seconds=time.monotonic() - began,
            grown=grown,
        )
        if isinstance(self._feed, Hears):
            self._feed.landed(done)
        return done

    def lag(self, run: Run) -> Lag:
        """Return how far the job is behind its source."""
        return self._feed.lag(run, self.positions(run))

    # -- one attempt -------------------------------------------------------------------------

    def _attempt(self, run: Run, plan: Plan, batch: BatchId, care: bool) -> tuple[Receipt, _Batch]:
        with ExitStack() as kept:
            made = _Batch(
                builder=run.batch(
                    offsets=plan.offsets, generation=plan.generation, accept_gap=plan.accept_gap
                ),
                origin=Origin(job=run.job, batch=batch, source=plan.offsets.source),
                kept=kept,
                care=care,
            )
            for leg in self._legs(run, plan):
                self._take(run, leg, made)
            self._bury(run, made)
            return made.builder.commit(), made

    def _legs(self, run: Run, plan: Plan) -> list[Leg]:
        marks = self._feed.marks(plan) if isinstance(self._feed, Marks) else frozenset()
        found = legs_of(plan, self._spec.target, marks)
        if not marks or has_rows(plan, marks):
            return found
        if self._spec.transform is not None:
            return []  # there is nothing that it could be given
        if self._spec.target.route is None:
            return found
        # The table that got something last takes note of the marks.
        last = last_table(run, self._spec)
        return [] if last is None else [Leg(plan=plan, table=last.ref.name, share=BY_JOB)]

    def _take(self, run: Run, leg: Leg, made: _Batch) -> None:
        """Add a leg's operations to the batch."""
        spec = self._spec
        table = None if leg.table is None else tables.live(run, leg.table)
        straight = leg.table is not None and spec.transform is None
        if straight and table is None:
            assert leg.table is not None
            columns = self._feed.columns(run, leg.plan) | self._added
            table = make(run, spec, self._feed, leg, name=leg.table, columns=columns)
        frame, survey = self._read(run, leg, table if straight else None, made)
        if survey.rejects:
            self._refuse_without_dead_letters(survey, leg)
            made.dead.append(of_rejects(frame, made.origin, table=leg.table))
        if spec.target.raw is not None:
            self._keep_raw(run, frame, made)
        rows = frame.filter(is_row(frame))
        lacks = self._changes and (survey.moved or made.care)
        old = old_rows(rows) if lacks and spec.target.mode in MODES else None
        if spec.transform is not None:
            needed = NEEDED if self._changes else ()
            rows = transformed(rows, spec.transform, needed=needed)
            old = None if old is None else transformed(old, spec.transform, needed=needed)
        if leg.table is not None:
            self._load(run, leg, leg.table, rows, made, old=old)
            return
        assert spec.target.route is not None
        self._spread(run, leg, rows, made)

    def _read(
        self, run: Run, leg: Leg, table: LiveTable | None, made: _Batch
    ) -> tuple[DataFrame, Survey]:
        """Return a leg's records, kept, and what they are; tables grow until records fit."""
        for _ in range(LEARN_MAX):
            frame = made.keep(self._feed.frame(run, leg.plan, table))
            survey = look(frame)
            growth = Growth(add=survey.add, widen=survey.widen)
            if not growth:
                made.surveys.append(survey)
                return frame, survey
            if table is not None:
                raise TableTooSmall({table.ref.name: growth})
            if not isinstance(self._feed, Learns):
                break
            self._feed.learn(leg.plan, growth)
        raise CommitConflict(
            f"records show new fields whenever they are read: {', '.join(survey.add)}",
            hint="name the columns in the spec: source.value.columns",
        )

    def _load(
        self,
        run: Run,
        leg: Leg,
        name: str,
        rows: DataFrame,
        made: _Batch,
        *,
        old: DataFrame | None = None,
    ) -> None:
        """Add the operation that brings rows into one table; ``old`` are old keys of moved rows."""
        spec, survey = self._spec, made.surveys[-1]
        table = tables.live(run, name)
        if table is None:
            columns = columns_of(rows, self._added)
            table = make(run, spec, self._feed, leg, name=name, columns=columns)
        growth = growth_for(rows, table.schema, self._added)
        if growth and spec.target.evolve == "permissive":
            raise TableTooSmall({name: growth})
        key = key_of(self._spec, self._feed, leg, table)
        if old is not None:
            versions = spec.target.mode == "history"
            past = Past.of(run.spark, table, key=key, survey=survey, versions=versions)
            rows, survey = self._settle(leg, rows, old, past, made), replace(survey, hidden=False)
        if puts_aside(spec):
            told = judged(rows, spec, changes=self._changes)
            rows, _ = self._put_aside(told, f"contract of {name}", name, made)
        load = Load(
            rows=filled(rows, table.schema),
            table=table,
            survey=survey,
            share=leg.share,
            keep=made.keep,
            key=key,
            changes=self._changes,
        )
        made.loads += 1
        with failures.translated(f"{spec.target.mode} of {name}"):
            write(made.builder, load, spec)
        made.builder.note(name, survey.schemas_by(spec.registry))

    def _spread(self, run: Run, leg: Leg, rows: DataFrame, made: _Batch) -> None:
        """Add an operation for each table that the rows themselves name."""
        route = self._spec.target.route
        assert route is not None
        assert route.field is not None
        rows = made.keep(rows)
        if route.field not in rows.columns:
            raise UsageError(
                f"rows have no column {route.field}, by which target.route names their table",
                hint=f"they have {', '.join(c for c in rows.columns if names.is_own(c))}",
            )
        value = F.col(quote(route.field)).cast("string")
        nowhere = rows.filter(value.isNull())
        reason = f"field {route.field} is null: it names no table"
        lost = nowhere.count()
        if lost:
            made.broken += lost
            self._refuse_without_dead_letters(made.surveys[-1], leg, lost, reason)
            told = nowhere.withColumn(REASON, F.lit(reason))
            made.dead.append(letters(told, made.origin, table=None))
        for name, values in by_field(rows, route).items():
            mine = rows.filter(value.isin(values))
            self._load(run, leg, name, mine, made)

    # -- what is beside the rows -------------------------------------------------------------

    def _keep_raw(self, run: Run, frame: DataFrame, made: _Batch) -> None:
        raw = self._spec.target.raw
        assert raw is not None
        target = self._spec.target.model_copy(
            update={"partition_by": raw.partition_by, "provenance": "batch", "properties": {}}
        )
        table = tables.make(run, raw.table, RAW_COLUMNS, target)
        # First in the batch, so first in sight: the curated table is never ahead of it.
        made.builder.append(raw_rows(frame), table.ref.name)
        made.builder.note(table.ref.name, made.surveys[-1].schemas_by(self._spec.registry))

    def _settle(
        self, leg: Leg, rows: DataFrame, old: DataFrame, past: Past, made: _Batch
    ) -> DataFrame:
        """Return changes with the values of moved rows; what lacks some is put aside."""
        what = f"moved rows of {past.table}"
        with failures.translated(what):
            told = settled(rows, old, past, keep=made.keep)
        rows, lost = self._put_aside(told, what, past.table, made)
        if lost:
            self._refuse_without_dead_letters(made.surveys[-1], leg, lost, LOST)
        return rows

    def _put_aside(
        self, told: DataFrame, what: str, table: str, made: _Batch
    ) -> tuple[DataFrame, int]:
        """Return rows that have no reason against them, and how many have one."""
        told = made.keep(told)
        bad = told.filter(F.col(REASON).isNotNull())
        with failures.translated(what):
            count = bad.count()
        if count:
            made.broken += count
            made.dead.append(letters(bad, made.origin, table=table))
        return told.filter(F.col(REASON).isNull()), count

    def _bury(self, run: Run, made: _Batch) -> None:
        """Add the dead letters of all legs; where they are all there is, the offsets are theirs."""
        dead = self._spec.dead_letter
        share = SIDE if made.loads else BY_JOB
        if dead is not None and made.dead:
            table = tables.make_dead_letters(run, dead.table)
            rows = reduce(lambda one, other: one.unionByName(other), made.dead)
            made.builder.append(rows, table.ref.name, share=share)
        elif not made.loads:
            self._nothing(run, made)

    def _nothing(self, run: Run, made: _Batch) -> None:
        """Let the offsets move though no table gets a row."""
        table, dead = last_table(run, self._spec), self._spec.dead_letter
        if table is None and dead is not None:
            table = tables.make_dead_letters(run, dead.table)
        if table is None:
            raise UsageError(
                "no record of the batch leads to a table, and the job has none yet",
                hint="begin where there are rows: source.start",
            )
        empty = run.spark.createDataFrame([], table.schema)
        made.builder.append(empty, table.ref.name, share=BY_JOB)

    def _refuse_without_dead_letters(
        self, survey: Survey, leg: Leg, count: int | None = None, reason: str | None = None
    ) -> None:
        if self._spec.dead_letter is not None:
            return
        told = reason or survey.reason
        raise RuleBroken(
            f"{count or survey.rejects} of {survey.records} records cannot be read"
            + ("" if leg.table is None else f" for {leg.table}"),
            hint="name a table for them: dead_letter: {table: …}",
            samples=[] if told is None else [told],
            rules=["every record can be read"],
        )
