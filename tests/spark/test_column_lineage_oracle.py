"""No edge is missing: change one input column, see which outputs change, and look for the edge.

Plans are drawn at random from a small grammar. The oracle runs each of them twice in Spark, with
one input column shuffled in between; every output whose values changed must have an edge, direct
or indirect, from that column. It knows nothing of plans.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from odi_audit.spark.plan import changes
from odi_audit.spark.plan.reader import Read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEED = 20261116
PLANS_COUNT = 30
LEFT = ["a", "b", "c", "d"]
RIGHT = ["k", "p", "q"]
QUICK = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""A dozen rows are not worth compiling a plan for."""
CHANGED_MIN = 60
"""Pairs of an input and an output that must be seen to change, or the test tests nothing."""


@dataclass(slots=True)
class Grammar:
    """Random SQL over ``l(a, b, c, d)`` and ``r(k, p, q)``; every column is a bigint."""

    rng: random.Random
    made: int = 0

    def query(self, depth: int) -> tuple[str, list[str]]:
        """Return a query and its columns."""
        if depth == 0:
            table, columns = self.rng.choice([("l", LEFT), ("r", RIGHT)])
            return f"SELECT {', '.join(columns)} FROM {table}", columns
        makers = [
            self.project,
            self.filter,
            self.aggregate,
            self.window,
            self.join,
            self.union,
            self.distinct,
            self.limit,
            self.explode,
            self.scalar,
            self.member,
            self.minus,
            self.cte,
        ]
        return self.rng.choice(makers)(depth - 1)

    def name(self) -> str:
        self.made += 1
        return f"c{self.made}"

    def value(self, columns: list[str], prefix: str = "") -> str:
        one, two = (f"{prefix}{self.rng.choice(columns)}" for _ in range(2))
        return self.rng.choice(
            [
                one,
                f"{one} + {two}",
                f"CASE WHEN {one} > 4 THEN {two} ELSE 0 END",
                f"coalesce(nullif({one}, 3), {two})",
                f"if({one} % 2 = 0, {one}, -{two})",
                f"CAST(element_at(transform(array({one}, {two}), x -> x * 2), 1) AS bigint)",
                f"named_struct('x', {one}, 'y', {two}).y",
                f"map(1, {one}, 2, {two})[2]",
                "7L",
            ]
        )

    def condition(self, columns: list[str]) -> str:
        return (
            f"{self.value(columns)} {self.rng.choice(['>', '<=', '<>'])} {self.rng.randint(1, 6)}"
        )

    def project(self, depth: int) -> tuple[str, list[str]]:
        inner, columns = self.query(depth)
        names = [self.name() for _ in range(self.rng.randint(1, 3))]
        listed = ", ".join(f"{self.value(columns)} AS {name}" for name in names)
        return f"SELECT {listed} FROM ({inner})", names

    def filter(self, depth: int) -> tuple[str, list[str]]:
        inner, columns = self.query(depth)
        return f"SELECT * FROM ({inner}) WHERE {self.condition(columns)}", columns

    def aggregate(self, depth: int) -> tuple[str, list[str]]:
        inner, columns = self.query(depth)
        group, total = self.name(), self.name()
        function = self.rng.choice(["sum", "max", "count", "count(DISTINCT "])
        call = f"{function}{'' if '(' in function else '('}{self.value(columns)})"
        where = f" FILTER (WHERE {self.condition(columns)})" if self.rng.random() < 0.3 else ""
        return (
            (
                f"SELECT {self.rng.choice(columns)} % 3 AS {group}, {call}{where} AS {total} "
                f"FROM ({inner}) GROUP BY 1"
            ),
            [group, total],
        )

    def window(self, depth: int) -> tuple[str, list[str]]:
        inner, columns = self.query(depth)
        name = self.name()
        function = self.rng.choice(
            ["rank()", f"sum({self.value(columns)})", f"max({self.rng.choice(columns)})"]
        )
        over = f"PARTITION BY {self.rng.choice(columns)} % 2 ORDER BY {self.rng.choice(columns)}"
        return f"SELECT *, {function} OVER ({over}) AS {name} FROM ({inner})", [*columns, name]

    def join(self, depth: int) -> tuple[str, list[str]]:
        left, left_columns = self.query(depth)
        right, right_columns = self.query(0)
        kind = self.rng.choice(
            ["JOIN", "LEFT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"]
        )
        on = f"x.{self.rng.choice(left_columns)} = y.{self.rng.choice(right_columns)}"
        names = [self.name(), self.name()]
        second = f"x.{self.rng.choice(left_columns)}"
        if "SEMI" not in kind and "ANTI" not in kind:
            second = self.value(right_columns, "y.")
        return (
            (
                f"SELECT x.{self.rng.choice(left_columns)} AS {names[0]}, {second} AS {names[1]} "
                f"FROM ({left}) x {kind} ({right}) y ON {on}"
            ),
            names,
        )

    def union(self, depth: int) -> tuple[str, list[str]]:
        left, left_columns = self.query(depth)
        right, right_columns = self.query(depth)
        one, two = self.name(), self.name()
        word = self.rng.choice(["UNION ALL", "UNION"])
        return (
            (
                f"SELECT {self.value(left_columns)} AS {one}, {self.value(left_columns)} AS {two} "
                f"FROM ({left}) {word} SELECT {self.value(right_columns)}, "
                f"{self.value(right_columns)} FROM ({right})"
            ),
            [one, two],
        )

    def distinct(self, depth: int) -> tuple[str, list[str]]:
        inner, columns = self.query(depth)
        return f"SELECT DISTINCT * FROM ({inner})", columns

    def limit(self, depth: int) -> tuple[str, list[str]]:
        inner, columns = self.query(depth)
        order = ", ".join(self.rng.sample(columns, len(columns)))
        return f"SELECT * FROM (SELECT * FROM ({inner}) ORDER BY {order} LIMIT 5)", columns

    def explode(self, depth: int) -> tuple[str, list[str]]:
        inner, columns = self.query(depth)
        name = self.name()
        values = f"{self.value(columns)}, {self.value(columns)}"
        made = self.rng.choice(
            [f"explode(array({values}))", f"explode(filter(array({values}), v -> v > 3))"]
        )
        return f"SELECT *, {made} AS {name} FROM ({inner})", [*columns, name]

    def scalar(self, depth: int) -> tuple[str, list[str]]:
        inner, columns = self.query(depth)
        name = self.name()
        where = f" WHERE r.k = o.{self.rng.choice(columns)}" if self.rng.random() < 0.6 else ""
        subquery = f"SELECT max({self.value(RIGHT, 'r.')}) FROM r{where}"
        return f"SELECT o.*, ({subquery}) AS {name} FROM ({inner}) o", [*columns, name]

    def member(self, depth: int) -> tuple[str, list[str]]:
        inner, columns = self.query(depth)
        word = self.rng.choice(["IN", "NOT IN"])
        return (
            (
                f"SELECT * FROM ({inner}) WHERE {self.rng.choice(columns)} {word} "
                f"(SELECT {self.rng.choice(RIGHT)} FROM r WHERE {self.condition(RIGHT)})"
            ),
            columns,
        )

    def minus(self, depth: int) -> tuple[str, list[str]]:
        inner, columns = self.query(depth)
        name = self.name()
        word = self.rng.choice(["EXCEPT", "INTERSECT", "EXCEPT ALL"])
        return (
            (
                f"SELECT {self.rng.choice(columns)} AS {name} FROM ({inner}) {word} "
                f"SELECT {self.rng.choice(RIGHT)} FROM r"
            ),
            [name],
        )

    def cte(self, depth: int) -> tuple[str, list[str]]:
        inner, columns = self.query(depth)
        view, one, two = self.name(), self.name(), self.name()
        key = self.rng.choice(columns)
        return (
            (
                f"SELECT * FROM (WITH {view} AS ({inner}) SELECT "
                f"m.{self.rng.choice(columns)} AS {one}, n.{self.rng.choice(columns)} AS {two} "
                f"FROM {view} m JOIN {view} n ON m.{key} = n.{key})"
            ),
            [one, two],
        )


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("inputs"))


def rows_of(rng: random.Random) -> dict[str, list[dict[str, int]]]:
    return {
        "l": [{name: rng.randint(0, 8) for name in LEFT} for _ in range(14)],
        "r": [{name: rng.randint(0, 8) for name in RIGHT} for _ in range(9)],
    }


def shuffled(
    tables: dict[str, list[dict[str, int]]], table: str, column: str, rng: random.Random
) -> dict[str, list[dict[str, int]]]:
    """The same rows with one column's values replaced by others."""
    changed = [{**row, column: rng.randint(0, 8)} for row in tables[table]]
    return {**tables, table: changed}


def show(spark: SparkSession, tables: Mapping[str, list[dict[str, int]]]) -> None:
    for name, rows in tables.items():
        columns = LEFT if name == "l" else RIGHT
        values = ", ".join(
            "(" + ", ".join(f"{row[column]}L" for column in columns) + ")" for row in rows
        )
        spark.sql(
            f"CREATE OR REPLACE TEMP VIEW {name} AS SELECT * FROM VALUES {values} "
            f"AS t({', '.join(columns)})"
        )


def result(frame: DataFrame) -> dict[str, Counter[Any]]:
    """The values of each output column, as a bag: what a reader of the column would see."""
    rows = frame.collect()
    return {name: Counter(row[name] for row in rows) for name in frame.columns}


def edges_of(found: Read, frame: DataFrame) -> Iterator[tuple[str, str, str]]:
    """Yield (table, input column, output column); ``*`` for all columns."""
    columns = changes._by_name(found, frame)
    for output, edges in [
        *((name, column.edges) for name, column in columns.items()),
        ("*", found.relation.rows),
    ]:
        for origin in edges:
            table = found.leaves[origin.leaf].datasets[0].name.rpartition("/")[2]
            yield table, origin.column, output


def test_every_output_that_changes_with_an_input_has_an_edge_from_it(
    spark: SparkSession, folder: str
) -> None:
    rng = random.Random(SEED)
    tables = rows_of(rng)
    for key, value in QUICK.items():
        spark.conf.set(key, value)
    for name, columns in (("l", LEFT), ("r", RIGHT)):
        # Lineage is read from plans over files, values come from plans over the same columns.
        empty = spark.createDataFrame([], ", ".join(f"{column} bigint" for column in columns))
        empty.write.parquet(f"{folder}/{name}")
    seen, missing = 0, []
    for number in range(PLANS_COUNT):
        sql, _ = Grammar(rng).query(rng.randint(1, 3))
        for name in ("l", "r"):
            spark.read.parquet(f"{folder}/{name}").createOrReplaceTempView(name)
        frame = spark.sql(sql)
        found = changes._read(frame)
        assert not any(column.unknown for _, column in found.relation.columns or ()), sql
        edges = set(edges_of(found, frame))
        show(spark, tables)
        before = result(spark.sql(sql))
        used = [
            (table, column) for table in ("l", "r") for column in (LEFT if table == "l" else RIGHT)
        ]
        for table, column in rng.sample(used, 3):
            show(spark, shuffled(tables, table, column, rng))
            after = result(spark.sql(sql))
            for output in before:
                if before[output] == after[output]:
                    continue
                seen += 1
                if not {(table, column, output), (table, column, "*")} & edges:
                    missing.append(f"plan {number}: {table}.{column} -> {output}\n  {sql}")
    assert not missing, "\n".join(missing)
    assert seen >= CHANGED_MIN, f"only {seen} changes were seen"
