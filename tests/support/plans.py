"""Plans that column lineage is tried on: what jobs really do, one idea each.

``TABLES`` are made first, in one catalog; a plan is SQL over them, or a function of the session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLES = {
    "orders": (
        "id bigint, cust bigint, amount decimal(10,2), region string, at timestamp, "
        "info struct<a:int,b:string>, tags map<string,string>, "
        "items array<struct<sku:string,n:int>>"
    ),
    "cust": "id bigint, name string, region string, rank int",
}
ROWS = {
    "orders": (
        "SELECT id, id % 2 AS cust, CAST(id AS decimal(10,2)) AS amount, "
        "concat('r', id) AS region, timestamp'2026-01-01' AS at, "
        "named_struct('a', 1, 'b', 'x') AS info, map('k', 'v') AS tags, "
        "array(named_struct('sku', 's', 'n', 1)) AS items FROM range(2)"
    ),
    "cust": (
        "SELECT id, concat('n', id) AS name, concat('r', id) AS region, 1 AS rank FROM range(2)"
    ),
}

SQL = {
    "columns": "SELECT id, region FROM {orders}",
    "renamed": "SELECT id AS order_id, region AS area FROM {orders}",
    "expression": "SELECT id + cust AS total, upper(region) AS area FROM {orders}",
    "cast": "SELECT CAST(id AS string) AS id FROM {orders}",
    "literal": "SELECT 1 AS one, id FROM {orders}",
    "struct_access": "SELECT info.a AS a, info.b AS b FROM {orders}",
    "struct_made": "SELECT named_struct('x', id, 'y', region) AS s FROM {orders}",
    "map_access": "SELECT tags['k'] AS k FROM {orders}",
    "array_access": "SELECT items[0].sku AS sku FROM {orders}",
    "higher_order": "SELECT transform(items, x -> x.n + id) AS t FROM {orders}",
    "aggregate_lambda": "SELECT aggregate(items, 0, (a, x) -> a + x.n) AS n FROM {orders}",
    "filtered": "SELECT id FROM {orders} WHERE amount > 1 AND region LIKE 'r%'",
    "sorted": "SELECT id, region FROM {orders} ORDER BY amount DESC",
    "limited": "SELECT id, region FROM {orders} ORDER BY at LIMIT 1",
    "inner_join": (
        "SELECT o.id, c.name FROM {orders} o JOIN {cust} c ON o.cust = c.id AND o.amount > c.rank"
    ),
    "left_join": "SELECT o.id, c.name FROM {orders} o LEFT JOIN {cust} c ON o.cust = c.id",
    "full_join_using": "SELECT id, name, amount FROM {orders} FULL JOIN {cust} USING (id)",
    "natural_join": "SELECT * FROM (SELECT id, amount FROM {orders}) NATURAL JOIN {cust}",
    "semi_join": "SELECT o.id FROM {orders} o LEFT SEMI JOIN {cust} c ON o.cust = c.id",
    "anti_join": "SELECT o.id FROM {orders} o LEFT ANTI JOIN {cust} c ON o.cust = c.id",
    "cross_join": "SELECT o.id, c.name FROM {orders} o CROSS JOIN {cust} c",
    "self_join": "SELECT a.id, b.amount FROM {orders} a JOIN {orders} b ON a.id = b.cust",
    "lateral_join": (
        "SELECT o.id, t.name FROM {orders} o, LATERAL (SELECT name FROM {cust} c "
        "WHERE c.id = o.cust) t"
    ),
    "grouped": "SELECT region, sum(amount) AS total, count(*) AS n FROM {orders} GROUP BY region",
    "counted": "SELECT count(region) AS n, count(DISTINCT cust) AS d FROM {orders}",
    "having": "SELECT region, max(at) AS last FROM {orders} GROUP BY region HAVING min(id) >= 0",
    "group_expression": (
        "SELECT upper(region) AS r, avg(amount) AS a FROM {orders} GROUP BY upper(region)"
    ),
    "aggregate_filter": "SELECT sum(amount) FILTER (WHERE id > 0) AS s FROM {orders}",
    "rollup": "SELECT region, cust, sum(amount) AS s FROM {orders} GROUP BY ROLLUP (region, cust)",
    "row_number": (
        "SELECT id, row_number() OVER (PARTITION BY region ORDER BY at) AS n FROM {orders}"
    ),
    "window_sum": (
        "SELECT id, sum(amount) OVER (PARTITION BY region ORDER BY at) AS s FROM {orders}"
    ),
    "lag": "SELECT id, lag(amount, 1) OVER (PARTITION BY cust ORDER BY id) AS before FROM {orders}",
    "case_when": (
        "SELECT CASE WHEN rank > 1 THEN name WHEN region = 'r1' THEN region ELSE 'x' END AS c "
        "FROM {cust}"
    ),
    "if": "SELECT if(rank > 1, name, region) AS c FROM {cust}",
    "coalesce": "SELECT coalesce(name, region) AS c FROM {cust}",
    "nvl": "SELECT nvl(name, region) AS c FROM {cust}",
    "hashes": "SELECT md5(name) AS m, sha2(region, 256) AS s, hash(rank) AS h FROM {cust}",
    "union_all": "SELECT id, name FROM {cust} UNION ALL SELECT cust, region FROM {orders}",
    "union": "SELECT id, name FROM {cust} UNION SELECT cust, region FROM {orders}",
    "intersect": "SELECT id FROM {cust} INTERSECT SELECT cust FROM {orders}",
    "except": "SELECT id FROM {cust} EXCEPT SELECT cust FROM {orders} WHERE id > 5",
    "distinct": "SELECT DISTINCT region FROM {orders}",
    "in_subquery": "SELECT id FROM {orders} WHERE cust IN (SELECT id FROM {cust} WHERE rank > 0)",
    "exists": (
        "SELECT id FROM {orders} o WHERE EXISTS (SELECT 1 FROM {cust} c WHERE c.id = o.cust)"
    ),
    "scalar_subquery": (
        "SELECT id, (SELECT max(name) FROM {cust} c WHERE c.id = o.cust) AS best FROM {orders} o"
    ),
    "plain_scalar_subquery": "SELECT id, (SELECT max(rank) FROM {cust}) AS best FROM {orders}",
    "cte": (
        "WITH a AS (SELECT id, name FROM {cust}), b AS (SELECT id, upper(name) AS up FROM a) "
        "SELECT a.name, b.up FROM a JOIN b ON a.id = b.id"
    ),
    "cte_twice": (
        "WITH a AS (SELECT region, sum(amount) AS s FROM {orders} GROUP BY region) "
        "SELECT x.region, y.s FROM a x JOIN a y ON x.region = y.region"
    ),
    "explode": "SELECT id, i.sku AS sku FROM {orders} LATERAL VIEW explode(items) t AS i",
    "inline": "SELECT id, sku, n FROM {orders} LATERAL VIEW OUTER inline(items) t AS sku, n",
    "explode_map": "SELECT id, explode(tags) AS (k, v) FROM {orders}",
    "stack": "SELECT stack(2, 'a', id, 'b', cust) AS (k, v) FROM {orders}",
    "pivot": (
        "SELECT * FROM (SELECT cust, region, amount FROM {orders}) "
        "PIVOT (sum(amount) FOR region IN ('r0' AS r0, 'r1' AS r1))"
    ),
    "unpivot": (
        "SELECT * FROM (SELECT region, id, cust FROM {orders}) UNPIVOT (v FOR k IN (id, cust))"
    ),
    "nested_queries": (
        "SELECT up FROM (SELECT upper(area) AS up FROM (SELECT region AS area FROM {orders}))"
    ),
    "values": "SELECT * FROM VALUES (1, 'a') AS t(x, y)",
}

WRITTEN = (
    "SELECT o.id, upper(c.name) AS name, c.rank FROM {orders} o JOIN {cust} c ON o.cust = c.id"
)
"""Rows for tables that are there; ``rank`` is stored in a wider type."""


def _udf(spark: SparkSession, names: dict[str, str]) -> DataFrame:
    from pyspark.sql.functions import udf

    def doubled(text: str) -> str:
        return text + text

    return spark.table(names["cust"]).select(udf(doubled, "string")("name").alias("twice"))


def _union_by_name(spark: SparkSession, names: dict[str, str]) -> DataFrame:
    left, right = spark.table(names["cust"]), spark.table(names["orders"]).select("region", "id")
    return left.select("id", "name", "region").unionByName(right, allowMissingColumns=True)


def _deduplicated(spark: SparkSession, names: dict[str, str]) -> DataFrame:
    return spark.table(names["cust"]).dropDuplicates(["region"]).select("id", "name")


def _hinted(spark: SparkSession, names: dict[str, str]) -> DataFrame:
    frame = spark.table(names["cust"]).repartition(2, "id").sample(1.0).hint("broadcast")
    return frame.select("id", "name").offset(0).limit(5)


def _view(spark: SparkSession, names: dict[str, str]) -> DataFrame:
    spark.table(names["cust"]).selectExpr("id", "upper(name) AS up").createOrReplaceTempView("seen")
    return spark.sql("SELECT id, up FROM seen")


def _cached(spark: SparkSession, names: dict[str, str]) -> DataFrame:
    return spark.table(names["cust"]).selectExpr("id", "lower(name) AS low").cache().select("low")


def _files(spark: SparkSession, names: dict[str, str]) -> DataFrame:
    return spark.read.parquet(names["files"]).selectExpr("id", "upper(name) AS up")


def _many_steps(spark: SparkSession, names: dict[str, str]) -> DataFrame:
    frame = spark.table(names["cust"])
    for step in range(5):
        frame = frame.withColumn("rank", frame["rank"] + step).withColumnRenamed("name", f"n{step}")
        frame = frame.withColumnRenamed(f"n{step}", "name")
    return frame.select("rank", "name")


FRAMES: dict[str, Callable[[SparkSession, dict[str, str]], DataFrame]] = {
    "python_udf": _udf,
    "union_by_name": _union_by_name,
    "deduplicated": _deduplicated,
    "hinted": _hinted,
    "view": _view,
    "cached": _cached,
    "files": _files,
    "many_steps": _many_steps,
}


def frame_of(spark: SparkSession, name: str, names: dict[str, str]) -> DataFrame:
    """Return the data frame of a plan; ``names`` says what the tables are called here."""
    if name in SQL:
        return spark.sql(SQL[name].format(**names))
    return FRAMES[name](spark, names)
