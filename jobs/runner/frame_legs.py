"""The legs of a batch on Spark's path: which part of a plan goes to which table.

Owns the three ways: one table, a table for each topic, a table for each value of a field. Must
never read a record to find the first two; the third asks the rows themselves.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from jobs.runner import tables
from jobs.runner.kafka_job import table_of
from jobs.runner.transaction_flow import marks_among
from jobs.sources.base import Plan
from odi_audit.errors import UsageError
from odi_audit.model.shares import WHOLE, Follows, Share
from odi_audit.model.tables import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from jobs.spec.model import Route, Target

BY_JOB = Share(follows=Follows.JOB)
"""Of a table that gets some rows of every partition."""
_ODD = re.compile(r"[^A-Za-z0-9_]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """A part of a plan and its table; None: the rows say which."""

    plan: Plan
    table: str | None
    share: Share = WHOLE


def legs_of(plan: Plan, target: Target, marks: Collection[str] = ()) -> list[Leg]:
    """Return the parts of a plan; ``marks`` are topics that a batch is cut by, and have no rows.

    With a table for each topic, a topic with nothing in the plan has no part of its own, and there
    may be no part at all. What it and the marks have of the offsets goes along with every table:
    so each says with which marks it stands as it does. Only one of them reads it.

    Raises:
        UsageError: a table is not allowed, or there would be too many.
    """
    route = target.route
    if route is None:
        return [Leg(plan=plan, table=target.table)]
    if route.by == "field":
        return [Leg(plan=plan, table=None, share=BY_JOB)]
    by_table: dict[str, list[str]] = {}
    along: list[str] = []
    for topic, partitions in _by_topic(plan).items():
        if topic in marks:
            along += partitions
            continue
        if topic in marks_among([topic]):
            raise UsageError(
                f"topic {topic} holds marks of transactions, and no rows for a table of its own",
                hint="leave it out of source.topics or source.pattern, or cut batches by it: "
                "batch.cut_at_transactions",
            )
        table = table_of(route.table, topic)
        tables.check_allowed(table, route.allow)
        if _has_something(plan, partitions):
            by_table.setdefault(table, []).extend(partitions)
        else:
            along += partitions
    check_count(by_table, route)
    made: list[Leg] = []
    for table, partitions in sorted(by_table.items()):
        mine = (*partitions, *along)
        part = replace(plan, offsets=plan.offsets.only(partitions if made else mine))
        share = Share(partitions=mine, follows=Follows.JOB if along else Follows.TABLE)
        made.append(Leg(plan=part, table=table, share=share))
    return made


def has_rows(plan: Plan, marks: Collection[str]) -> bool:
    """Say whether a plan has anything beside marks."""
    found = _by_topic(plan).items()
    return any(_has_something(plan, parts) for topic, parts in found if topic not in marks)


def _by_topic(plan: Plan) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in plan.offsets.ranges:
        found.setdefault(name.rpartition("-")[0], []).append(name)
    return found


def _has_something(plan: Plan, partitions: Iterable[str]) -> bool:
    """Say whether a plan has records of partitions, or a gap in them that was accepted."""
    gaps = {gap.partition for gap in plan.gaps}
    ranges = plan.offsets.ranges
    return any(ranges[name].start != ranges[name].end or name in gaps for name in partitions)


def by_field(rows: DataFrame, route: Route) -> dict[str, list[str]]:
    """Return the tables that rows go to, each with the values of the field that lead there.

    Raises:
        UsageError: a table is not allowed, or there would be too many.
    """
    assert route.field is not None
    column = F.col(quote(route.field)).cast("string")
    found = rows.select(column.alias("v")).distinct().limit(route.tables_max + 2).collect()
    made: dict[str, list[str]] = {}
    for value in sorted(row[0] for row in found if row[0] is not None):
        table = route.table.replace("{field}", _ODD.sub("_", value).lower())
        tables.check_allowed(table, route.allow)
        made.setdefault(table, []).append(value)
    check_count(made, route)
    return made


def check_count(found: Iterable[str], route: Route) -> None:
    """Refuse more tables than the spec allows.

    Raises:
        UsageError: with the limit.
    """
    count = len(set(found))
    if count > route.tables_max:
        raise UsageError(
            f"rows go to more tables than tables_max: {route.tables_max} allows",
            hint="raise target.route.tables_max, or choose another field",
            tables=count,
        )
