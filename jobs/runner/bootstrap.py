"""Bootstrap: history first, then Kafka from the exact hand-over, as one job.

Owns the moment between the two. History is read to its end, file by file or range by range; then
Kafka begins at the offsets of the hand-over and nowhere else, so a record is in exactly one of
both. Once Kafka has begun, history is never read again. All of it is told by the positions in the
ledger: a restart at any point goes on. Must never begin Kafka while history has more, or at another
place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.formats.debezium_envelope import OP, ORDER, TIME, UNAVAILABLE
from jobs.runner.frame_feeds import Learns
from jobs.runner.frame_job import FrameJob
from jobs.runner.loop import Measured, Worker
from jobs.runner.outcome import Done
from jobs.runner.tables import Growth
from jobs.sources.base import Choices, Lag, Limits, Plan
from jobs.sources.kafka import KafkaSource
from jobs.spec.model import FROM_EVENT
from odi_audit import logs
from odi_audit.errors import OffsetGap, SourceNotFound, UsageError
from odi_audit.model.offsets import OffsetKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from jobs.runner.feeds import Feed
    from jobs.spec.model import Bootstrap, JobSpec
    from odi_audit.committer.run import Run
    from odi_audit.ledger.port import Position
    from odi_audit.spark.live import LiveTable

log = logs.get_logger(__name__)

CHANGING = frozenset({"mirror", "history"})
"""Modes that take rows of the past for changes, which come before every change of the topic."""
FIRST = f"{0:016x}.0.{0:08x}"
"""The order of a row of the past: before every change.

The place that the log had when the row was read would be too late: a transaction that was open then
has changes before that place, and the row does not show them.
"""
SHOWN_MAX = 5


def handed_over(spec: JobSpec) -> JobSpec:
    """Return the job behind the hand-over: the same, but that Kafka begins there."""
    assert spec.bootstrap is not None
    assert spec.source.type == "kafka"
    source = spec.source.model_copy(update={"start": spec.bootstrap.hand_over})
    return spec.model_copy(update={"source": source, "bootstrap": None})


def bootstrapped(spec: JobSpec, *, folder: Path, then: Worker) -> Worker:
    """Return a worker that reads history, then hands over; ``then`` begins at the hand-over.

    Raises:
        UsageError: the spec does not tell how rows of the past are found again.
    """
    assert spec.bootstrap is not None
    history = _history(spec, spec.bootstrap, folder)
    after = handed_over(spec)
    assert after.source.type == "kafka"
    return _Bootstrapped(spec, history=history, then=then, kafka=KafkaSource(after.source))


class _Bootstrapped:
    """One job of two workers; the ledger says which of them is at work."""

    def __init__(
        self, spec: JobSpec, *, history: FrameJob, then: Worker, kafka: KafkaSource
    ) -> None:
        self._spec = spec
        self._history = history
        self._then = then
        self._kafka = kafka
        self._taken_over = False
        self.path = history.path

    def prepare(self, run: Run) -> None:
        """Reach both sources; the hand-over must be there before history is read.

        Raises:
            OffsetGap: Kafka does not hold the hand-over any more, or not yet.
            UsageError: the hand-over does not name every partition.
        """
        if self._begun(run):
            self._take_over(run)
            return
        self._check(run)
        self._history.prepare(run)

    def positions(self, run: Run) -> Mapping[str, Position]:
        """Return where the worker stands that is at work."""
        return self._now().positions(run)

    def plan(self, run: Run, limits: Limits, *, choices: Choices, waited_s: float) -> Plan | None:
        """Return the next batch of history; where there is none left, the next one of Kafka.

        Raises:
            OffsetGap: Kafka lost the hand-over while history was read.
            SourceNotFound: there is no history at all.
        """
        if not self._taken_over:
            made = self._history.plan(run, limits, choices=choices, waited_s=float("inf"))
            if made is not None or self._history.lag(run).total:
                # Some of it may still be settling: Kafka waits for that.
                return made
            self._check(run)
            if not self._history.positions(run):
                raise self._no_history()
            self._take_over(run)
            log.info("history is complete: the source takes over", job=run.job)
        made = self._then.plan(run, limits, choices=choices, waited_s=waited_s)
        if made is not None and not self._begun(run):
            self._check_first(made)
        return made

    def carry_out(self, run: Run, plan: Plan) -> Done:
        """Carry out a batch of the source that it is of."""
        if plan.offsets.kind is not OffsetKind.KAFKA:
            return self._history.carry_out(run, plan)
        if not self._taken_over:
            self._take_over(run)
        return self._then.carry_out(run, plan)

    def lag(self, run: Run) -> Lag | None:
        """Return how far the worker is behind that is at work."""
        worker = self._now()
        return worker.lag(run) if isinstance(worker, Measured) else None

    # -- the hand-over ------------------------------------------------------------------------

    def _now(self) -> Worker:
        return self._then if self._taken_over else self._history

    def _begun(self, run: Run) -> bool:
        # Whichever cluster it was: that it is still the same is for the Kafka worker to say.
        return any(name.startswith("kafka://") for name in run.parts.ledger.job_sources(run.job))

    def _take_over(self, run: Run) -> None:
        # Only now: the path of its rows depends on the table that history has made.
        self._then.prepare(run)
        self._taken_over = True
        self.path = self._then.path

    def _check(self, run: Run) -> None:
        if self._begun(run):
            return
        assert self._spec.bootstrap is not None
        hand_over = self._spec.bootstrap.hand_over
        cluster = self._kafka.look({})
        there = {
            f"{topic.name}-{number}": marks
            for topic in cluster.topics.values()
            for number, marks in topic.partitions.items()
        }
        places = self._kafka.begin(cluster).places
        if hand_over.offsets is not None:
            unnamed = sorted(set(there) - set(places))
            if unnamed:
                raise UsageError(
                    f"bootstrap.hand_over.offsets names no offset for {_listed(unnamed)}: what "
                    "they hold could be in history too, or in neither",
                    hint="name every partition of every topic",
                )
        elif hand_over.timestamp is None:
            raise UsageError(
                "bootstrap.hand_over is no exact place",
                hint="write {offsets: {topic: {0: 10}}} or {timestamp: …}",
            )
        lost = []
        for name, marks in sorted(there.items()):
            place = places.get(name, marks.end)
            # By its time, the first record that is kept may follow others that are not.
            by_time = hand_over.timestamp is not None and place <= marks.begin and marks.begin > 0
            if by_time or not marks.begin <= place <= marks.end:
                lost.append(f"{name}: hand-over {place}, held {marks.begin} to {marks.end}")
        if lost:
            raise OffsetGap(
                f"Kafka does not hold the hand-over: {_listed(lost)}; records between history and "
                "what is held would be in neither",
                hint="take a hand-over that Kafka holds, with history up to it: "
                "bootstrap.hand_over",
                partitions=lost[:SHOWN_MAX],
            )

    def _check_first(self, plan: Plan) -> None:
        """See that the first batch of Kafka begins at the hand-over in every partition it has."""
        assert self._spec.bootstrap is not None
        given = self._spec.bootstrap.hand_over.offsets
        if given is None or plan.offsets.kind is not OffsetKind.KAFKA:
            return
        wanted = {
            f"{topic}-{number}": offset
            for topic, parts in given.items()
            for number, offset in parts.items()
        }
        wrong = [
            f"{name}: {part.start}, not {wanted.get(name)}"
            for name, part in plan.offsets.ranges.items()
            if part.start != wanted.get(name)
        ]
        if wrong:
            raise OffsetGap(
                f"the first batch of Kafka does not begin at the hand-over: {_listed(wrong)}",
                hint="odi-audit jobs check SPEC",
            )

    def _no_history(self) -> SourceNotFound:
        return SourceNotFound(
            "bootstrap.from has no record at all: Kafka would begin at the hand-over, and nothing "
            "before it would be in the table",
            hint="see that history is where bootstrap.from says; to begin without it, leave "
            "bootstrap out and write source.start",
        )


# -- history --------------------------------------------------------------------------------------


def _history(spec: JobSpec, given: Bootstrap, folder: Path) -> FrameJob:
    changing = spec.target.mode in CHANGING and spec.source.type == "kafka"
    changing = changing and spec.source.envelope == "debezium"  # type: ignore[union-attr]
    if changing and spec.target.key == FROM_EVENT:
        raise UsageError(
            "target.key is from_event, and rows of history tell no key",
            hint="name the columns: target.key: [id]",
        )
    source = given.source
    if source.type == "iceberg" and source.read == "changes" and not changing:
        source = source.model_copy(update={"read": "appends"})
    past = spec.model_copy(
        update={
            "source": source,
            "transform": given.transform,
            "bootstrap": None,
            "registry": None,
        }
    )
    feed = _feed(past, folder)
    return FrameJob(past, _AsChanges(feed) if changing and not feed.changes else feed)


def _feed(past: JobSpec, folder: Path) -> Feed:
    if past.source.type == "files":
        from jobs.sources.files import FilesFeed

        return FilesFeed(past, folder=folder)
    if past.source.type == "jdbc":
        from jobs.sources.jdbc import JdbcFeed

        return JdbcFeed(past, closed=True)
    from jobs.sources.table import TableFeed

    return TableFeed(past)


class _AsChanges:
    """A feed of plain rows, taken for changes that come before every other."""

    changes = True

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def prepare(self, run: Run) -> None:
        """Reach the source."""
        self._feed.prepare(run)

    def identity(self) -> str:
        """Return the source's own name."""
        return self._feed.identity()

    def plan(
        self,
        run: Run,
        positions: Mapping[str, Position],
        limits: Limits,
        *,
        choices: Choices,
        elsewhere: Sequence[str] = (),
        waited_s: float = float("inf"),
    ) -> Plan | None:
        """Return the source's own plan."""
        return self._feed.plan(
            run, positions, limits, choices=choices, elsewhere=elsewhere, waited_s=waited_s
        )

    def columns(self, run: Run, plan: Plan) -> dict[str, str]:
        """Return the source's own columns."""
        return self._feed.columns(run, plan)

    def frame(self, run: Run, plan: Plan, table: LiveTable | None) -> DataFrame:
        """Return the rows, as a snapshot of the source would have read them."""
        from pyspark.sql import functions as F

        return self._feed.frame(run, plan, table).withColumns(
            {
                OP: F.lit("r"),
                ORDER: F.lit(FIRST),
                TIME: F.lit(None).cast("timestamp"),
                UNAVAILABLE: F.lit(None).cast("array<string>"),
            }
        )

    def lag(self, run: Run, positions: Mapping[str, Position]) -> Lag:
        """Return the source's own lag."""
        return self._feed.lag(run, positions)

    def learn(self, plan: Plan, growth: Growth) -> None:
        """Pass on what the records showed."""
        if isinstance(self._feed, Learns):
            self._feed.learn(plan, growth)


def _listed(items: Sequence[str]) -> str:
    more = f" and {len(items) - SHOWN_MAX} more" if len(items) > SHOWN_MAX else ""
    return ", ".join(items[:SHOWN_MAX]) + more
