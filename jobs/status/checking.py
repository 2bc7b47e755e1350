"""What a spec would do, asked of its source and its lake: a dry run.

Owns the answer to ``jobs check``: the path, the tables as they would be made or changed, the batch
that would be planned, what the interval costs. Must never write: no entry, no table, no position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.advice import Advice, advise, rates_of
from jobs.runner import kafka_columns
from jobs.runner.choose import Way, feed_of, tables_there, way_of
from jobs.runner.frame_feeds import Marks
from jobs.runner.hints import Call, complete
from jobs.sources.base import NO_CHOICES, Limits, Plan
from jobs.sources.rates import rows_per_second
from jobs.sources.registry_start import Weak, weak_subjects
from jobs.status.looking import looking
from jobs.status.sampling import Sample, kafka_sample
from odi_audit.canonical import Json, JsonObject
from odi_audit.errors import OdiError, Refused

if TYPE_CHECKING:
    from jobs.runner.feeds import Feed
    from jobs.spec.model import JobSpec
    from odi_audit.catalog import TableState
    from odi_audit.committer.run import Run
    from odi_audit.workspace import Workspace

TABLES_SAMPLED_MAX = 20
"""Tables of a route whose records are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLook:
    """One table: as it is or as it would be made, and what the sample would change in it."""

    name: str
    there: bool
    columns: Mapping[str, str] = field(default_factory=dict)
    partitioning: tuple[str, ...] = ()
    sample: Sample | None = None
    note: str | None = None

    def to_json(self) -> JsonObject:
        """Return the form for machines."""
        made: dict[str, Json] = {
            "name": self.name,
            "there": self.there,
            "columns": [{"name": name, "type": kind} for name, kind in self.columns.items()],
            "partitioning": list(self.partitioning),
            "note": self.note,
            "sample": None,
        }
        if self.sample is not None:
            made["sample"] = {
                "records": self.sample.records,
                "rejects": self.sample.rejects,
                "reason": self.sample.reason,
                "add": dict(self.sample.add),
                "widen": dict(self.sample.widen),
            }
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What a spec would do now; ``stopped`` is why its source would not let it go on."""

    way: Way
    source: str
    begun: bool
    waiting: int | None
    plan: Plan | None
    stopped: Refused | None
    tables: tuple[TableLook, ...]
    advice: Advice
    first: str | None
    """What comes before the source: history that a bootstrap has not read yet."""
    weak: tuple[Weak, ...] = ()
    """Subjects of the registry that promise less than the spec asks for."""

    def to_json(self) -> JsonObject:
        """Return the form for machines."""
        return {
            "path": {"chosen": self.way.path, "why": self.way.why},
            "source": self.source,
            "begun": self.begun,
            "rows_waiting": self.waiting,
            "plan": None if self.plan is None else _plan(self.plan),
            "stopped": None
            if self.stopped is None
            else {
                "code": self.stopped.code,
                "message": self.stopped.message,
                "hint": self.stopped.hint,
            },
            "tables": [table.to_json() for table in self.tables],
            "cost": self.advice.chosen.to_json(),
            "recommended_s": self.advice.recommended.every_s,
            "basis": list(self.advice.rates.basis),
            "first": self.first,
            "weak_subjects": [
                {
                    "subject": item.subject,
                    "found": item.found,
                    "wanted": item.wanted,
                    "fix": item.command,
                }
                for item in self.weak
            ],
        }


def check(
    spec: JobSpec, path: Path, workspace: Workspace, *, tell: Callable[[str], None]
) -> Checked:
    """Look at what a job would do; ``tell`` is told where Spark has to be started for it.

    Raises:
        NotSupported: the spec asks for a path that it cannot take.
        SourceUnavailable, SourceDenied, SourceNotFound: the source could not be asked.
    """
    run = looking(spec, workspace, tell=tell)
    first = None
    if spec.bootstrap is not None:
        from jobs.runner.bootstrap import handed_over

        first = f"history of type {spec.bootstrap.source.type}, unless it has been read"
        spec = handed_over(spec)
    there = tables_there(spec, workspace.catalog())
    way = way_of(spec, there)
    feed = feed_of(spec, folder=path.resolve().parent)
    feed.prepare(run)
    positions = run.parts.ledger.job_positions(run.job, feed.identity())
    waiting: int | None = None
    plan: Plan | None = None
    stopped: Refused | None = None
    try:
        waiting = feed.lag(run, positions).total
        plan = _planned(spec, run, feed)
    except Refused as error:
        complete(error, Call(spec=str(path)), run.parts.ledger, run.job)
        stopped = error
    looks = _tables(spec, run, feed, plan, there)
    rates = rates_of(spec, ledger=run.parts.ledger, source_rows_per_s=lambda: rows_per_second(spec))
    return Checked(
        way=way,
        source=feed.identity(),
        begun=bool(positions),
        waiting=waiting,
        plan=plan,
        stopped=stopped,
        tables=tuple(looks),
        advice=advise(spec, rates),
        first=None if positions else first,
        weak=tuple(weak_subjects(spec, {*_topics(plan), *map(_topic, positions)})),
    )


def _planned(spec: JobSpec, run: Run, feed: Feed) -> Plan | None:
    from jobs.runner.unfinished import unfinished

    rest = unfinished(run.parts.ledger, run.job)
    if rest is not None:
        return rest
    mine = feed.identity()
    return feed.plan(
        run,
        run.parts.ledger.job_positions(run.job, mine),
        Limits(rows=spec.batch.rows, bytes=spec.batch.bytes),
        choices=NO_CHOICES,
        elsewhere=[name for name in run.parts.ledger.job_sources(run.job) if name != mine],
    )


# -- tables ----------------------------------------------------------------------------------------


def _tables(
    spec: JobSpec, run: Run, feed: Feed, plan: Plan | None, there: Sequence[TableState]
) -> list[TableLook]:
    states = {str(state.name): state for state in there}
    if spec.target.route is None:
        assert spec.target.table is not None
        fed: dict[str, list[str]] = {spec.target.table: _topics(plan)}
    elif spec.target.route.by == "topic":
        marks = feed.marks(plan) if plan is not None and isinstance(feed, Marks) else frozenset()
        fed = _routed(spec, [topic for topic in _topics(plan) if topic not in marks])
    else:
        note = f"the rows' {spec.target.route.field} names it; Spark would have to read them all"
        return [TableLook(name=spec.target.route.table, there=False, note=note)]
    asked = _Asked(spec=spec, run=run, feed=feed, plan=plan)
    return [
        _look(asked, name, topics, states.get(name))
        for name, topics in list(fed.items())[:TABLES_SAMPLED_MAX]
    ]


def _topics(plan: Plan | None) -> list[str]:
    ranges = {} if plan is None else plan.offsets.ranges
    return sorted(set(map(_topic, ranges)))


def _topic(partition: str) -> str:
    return partition.rpartition("-")[0]


def _routed(spec: JobSpec, topics: Sequence[str]) -> dict[str, list[str]]:
    from jobs.runner.kafka_job import table_of
    from jobs.runner.tables import check_allowed

    assert spec.target.route is not None
    fed: dict[str, list[str]] = {}
    for topic in topics:
        name = table_of(spec.target.route.table, topic)
        check_allowed(name, spec.target.route.allow)
        fed.setdefault(name, []).append(topic)
    return fed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What every table is looked at with."""

    spec: JobSpec
    run: Run
    feed: Feed
    plan: Plan | None


def _look(asked: _Asked, name: str, topics: Sequence[str], state: TableState | None) -> TableLook:
    spec, plan = asked.spec, asked.plan
    sample: Sample | None = None
    if plan is not None and spec.source.type == "kafka":
        sample = kafka_sample(spec, plan, topics, state)
    if state is not None:
        return TableLook(
            name=name,
            there=True,
            columns={column.name: column.type for column in state.columns},
            partitioning=_partitioning(state),
            sample=sample,
            note="rows come from a transform: what it makes is not looked at"
            if spec.transform is not None
            else None,
        )
    partitioning = tuple(term.sql for term in spec.target.partition_by)
    columns, note = _new_columns(asked, sample)
    if sample is not None:
        # What the spec's columns lack is added at the first batch; what it has is no news.
        known = {column.lower() for column in columns}
        add = {column: kind for column, kind in sample.add.items() if column.lower() not in known}
        sample = Sample(
            records=sample.records, rejects=sample.rejects, reason=sample.reason, add=add
        )
    return TableLook(
        name=name,
        there=False,
        columns=columns,
        partitioning=partitioning,
        sample=sample,
        note=note,
    )


def _new_columns(asked: _Asked, sample: Sample | None) -> tuple[dict[str, str], str | None]:
    """Return the columns that a table would be made with, or why that cannot be told."""
    from jobs.patterns import names

    spec, plan, feed = asked.spec, asked.plan, asked.feed
    if spec.transform is not None:
        return {}, "its columns are those of the transform's result, which Spark would have to run"
    given = kafka_columns.told(spec) if spec.source.type == "kafka" else None
    if plan is None and given is None:
        return {}, "the source has nothing to show what its columns are"
    try:
        if spec.source.type == "kafka" and given is None and spec.target.route is not None:
            found = dict(sample.add) if sample is not None else {}
        elif plan is None:
            assert given is not None
            found = given
        else:
            found = feed.columns(asked.run, plan)
    except OdiError as error:
        return {}, f"{error.code}: {error.message}"
    return found | names.added(spec.target, changes=feed.changes), None


def _partitioning(state: TableState) -> tuple[str, ...]:
    by_id = {column.id: column.name for column in state.columns}
    return tuple(
        by_id.get(item.source_id, item.name)
        if item.transform == "identity"
        else f"{item.transform}({by_id.get(item.source_id, item.name)})"
        for item in state.specs[state.spec_id]
    )


def _plan(plan: Plan) -> JsonObject:
    return {
        "rows": plan.rows,
        "more": plan.more,
        "offsets": plan.offsets.to_json(),
        "news": list(plan.news),
    }
