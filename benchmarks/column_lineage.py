"""What column lineage costs: reading a wide plan, and its share of a commit.

Owns the two measurements that ``benchmarks.lineage`` reports. Must never be a test: time is no
proof.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import odi_audit as odi
from odi_audit.model.tables import parse
from odi_audit.spark.jvm import Jvm
from odi_audit.spark.live import LiveTable, load
from odi_audit.spark.plan import of_rows
from odi_audit.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAMESPACE = "column_lineage"
WARM_ROUNDS = 10
"""Until the JVM has compiled the printing of plans."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Medians, in milliseconds."""

    columns: int
    rounds: int
    plan_ms: float
    plan_ms_max: float
    commit_rows: int
    commit_ms: float
    commit_lineage_ms: float

    @property
    def commit_share(self) -> float:
        """Column lineage as a part of a commit: 0.01 is one hundredth."""
        return self.commit_lineage_ms / self.commit_ms


def measure(
    lake: Workspace,
    *,
    columns: int = 200,
    rounds: int = 30,
    commit_rows: int = 1_000_000,
    commit_rounds: int = 5,
) -> Cost:
    """Measure on a lake of the caller's; tables are made in the namespace ``column_lineage``."""
    spark = lake.spark()
    wide = _wide(lake, spark, columns)
    target = load(Jvm(spark), lake.settings.catalog.name, parse(f"{NAMESPACE}.wide_out"))
    plan_ms = _timed(wide, target, rounds)
    commits, told = _commits(lake, spark, commit_rows, commit_rounds)
    return Cost(
        columns=columns,
        rounds=rounds,
        plan_ms=statistics.median(plan_ms),
        plan_ms_max=max(plan_ms),
        commit_rows=commit_rows,
        commit_ms=statistics.median(commits),
        commit_lineage_ms=statistics.median(told),
    )


def _timed(frame: DataFrame, target: LiveTable, rounds: int) -> list[float]:
    taken: list[float] = []
    for number in range(WARM_ROUNDS + rounds):
        started = time.perf_counter()
        fact = of_rows(frame, target)
        if number >= WARM_ROUNDS:
            taken.append((time.perf_counter() - started) * 1000)
        assert not fact["unknown"], fact.get("reasons")
    return taken


def _wide(lake: Workspace, spark: SparkSession, columns: int) -> DataFrame:
    """A join of two wide tables, with a computed expression for each column."""
    catalog = lake.settings.catalog.name
    listed = ", ".join(f"c{number} bigint" for number in range(columns))
    with odi.run("bench/column_lineage", lake=lake, spark=spark) as run:
        for name in ("wide_left", "wide_right"):
            run.create_table(f"{NAMESPACE}.{name}", f"id bigint, {listed}")
        run.create_table(f"{NAMESPACE}.wide_out", listed)
    made = ", ".join(
        f"CASE WHEN l.c{number} > 3 THEN l.c{number} + r.c{number} "
        f"ELSE coalesce(r.c{(number + 1) % columns}, l.c{number}) END AS c{number}"
        for number in range(columns)
    )
    return spark.sql(
        f"SELECT {made} FROM {catalog}.{NAMESPACE}.wide_left l "
        f"JOIN {catalog}.{NAMESPACE}.wide_right r ON l.id = r.id WHERE l.c1 > 0"
    )


def _commits(
    lake: Workspace, spark: SparkSession, rows: int, rounds: int
) -> tuple[list[float], list[float]]:
    """Return how long whole commits took, and how long column lineage of the same frames did."""
    table = f"{NAMESPACE}.rows"
    catalog = lake.settings.catalog.name
    commits: list[float] = []
    told: list[float] = []
    with odi.run("bench/column_lineage", lake=lake, spark=spark) as run:
        run.create_table(table, "id bigint, name string, amount double")
        for number in range(rounds + 2):
            frame = spark.range(number * rows, (number + 1) * rows).selectExpr(
                "id", "concat('n', id % 1000) AS name", "CAST(id AS double) / 3 AS amount"
            )
            target = load(Jvm(spark), catalog, parse(table))
            started = time.perf_counter()
            of_rows(frame, target)
            between = time.perf_counter()
            run.append(frame, table, offsets=odi.mapping("bench", {"p": (number, number + 1)}))
            if number >= 2:
                told.append((between - started) * 1000)
                commits.append((time.perf_counter() - between) * 1000)
    return commits, told
