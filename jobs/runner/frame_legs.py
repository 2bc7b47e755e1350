"""The legs of a batch on Spark's path: which part of a plan goes to which table.

Owns the three ways: one table, a table for each topic, a table for each value of a field. Must
never read a record to find the first two; the third asks the rows themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from jobs.runner import tables
from jobs.runner.kafka_job import table_of
from jobs.runner.kafka_transactions import is_marks
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


def legs_of(plan: Plan, target: Target) -> list[Leg]:
    """Return the parts of a plan.

    Raises:
        UsageError: a table is not allowed, or there would be too many.
    """
    route = target.route
    if route is None:
        return [Leg(plan=plan, table=target.table)]
    if route.by == "field":
        return [Leg(plan=plan, table=None, share=BY_JOB)]
    by_table: dict[str, list[str]] = {}
    for name in plan.offsets.ranges:
        topic = name.rpartition("-")[0]
        if is_marks(topic):
            raise UsageError(
                f"topic {topic} holds marks of transactions, and no rows for a table of its own",
                hint="leave it out of source.topics or source.pattern",
            )
        table = table_of(route.table, topic)
        tables.check_allowed(table, route.allow)
        by_table.setdefault(table, []).append(name)
    check_count(by_table, route)
    made = []
    for table, partitions in sorted(by_table.items()):
        part = replace(plan, offsets=plan.offsets.only(partitions))
        made.append(Leg(plan=part, table=table, share=Share(partitions=tuple(partitions))))
    return made


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
