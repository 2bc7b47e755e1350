"""Changes into a large table: our mirror against a MERGE written by hand in ``foreachBatch``.

Owns the change events (as Debezium writes them, without schemas) and both sides. Both read the
same topic, take the newest change of each row by its place in the source's log, leave out what is
older than what the table has, and delete, update and insert in one MERGE. Must never compare with
a MERGE that would be wrong after a restart: then the comparison would be of two different things.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as fn

import odi_audit as odi
from benchmarks.ingest_place import (
    COLUMNS,
    CUSTOMERS,
    KINDS,
    Place,
    Took,
    cpu_s,
    deliver,
)
from jobs.runner.choose import worker_of
from jobs.runner.loop import Until, run_job
from jobs.sources.base import Limits
from jobs.spec import parse_spec
from tests.support.servers.topics import Topics

WARM_ROUNDS = 3
"""A job runs for days: what Spark compiles in its first batches is not what is asked for here."""
FIRST_LSN = 26_435_840
FIRST_MS = 1_794_787_846_245
SPEC = """
version: 1
job: bench/{name}
source:
  type: kafka
  servers: {servers}
  topics: [{topic}]
  envelope: debezium
  value: {{format: json}}
  key: {{format: json}}
target:
  table: {table}
  mode: mirror
  key: [id]
dead_letter: {{table: bench.dead}}
"""
EVENT = (
    f"before struct<{COLUMNS.replace(' ', ': ').replace(',:', ',')}>, "
    f"after struct<{COLUMNS.replace(' ', ': ').replace(',:', ',')}>, "
    "source struct<lsn: bigint>, op string"
)
MERGE = """
MERGE INTO lake.{table} AS t USING changes AS s ON t.id = s.id
WHEN MATCHED AND s.op = 'd' AND (t._lsn IS NULL OR s._lsn >= t._lsn) THEN DELETE
WHEN MATCHED AND (t._lsn IS NULL OR s._lsn >= t._lsn) THEN UPDATE SET
  t.customer = s.customer, t.amount = s.amount, t.kind = s.kind, t._lsn = s._lsn
WHEN NOT MATCHED AND s.op != 'd' THEN INSERT (id, customer, amount, kind, _lsn)
  VALUES (s.id, s.customer, s.amount, s.kind, s._lsn)
"""


def cdc_rounds(
    place: Place, *, rows: int, changes: int, rounds: int
) -> tuple[list[Took], list[Took]]:
    """Return the rounds of our mirror and of the MERGE; each has a topic of new changes."""
    sides: list[tuple[Callable[[str], None], str, list[Took]]] = []
    for name, order in (("mirror", "_source_order string"), ("by_hand", "_lsn bigint")):
        table = f"bench.cdc_{name}"
        _make(place, table, f"{COLUMNS}, {order}", rows)
        work = _mirror(place, table) if name == "mirror" else _by_hand(place, table)
        sides.append((work, table, []))
    for number in range(WARM_ROUNDS + rounds):
        topic = f"changes-{number}"
        _fill(place, topic, number, changes, rows)
        for work, _, kept in sides if number % 2 == 0 else reversed(sides):
            cpu, began = cpu_s(place.pid), time.time()
            work(topic)
            took = Took(
                rows=changes, seconds=time.time() - began, cpu_s=cpu_s(place.pid) - cpu
            )  # fmt: skip
            if number >= WARM_ROUNDS:
                kept.append(took)
        _compare(place, sides[0][1], sides[1][1])
    return sides[0][2], sides[1][2]


def _make(place: Place, table: str, columns: str, rows: int) -> None:
    with odi.run("bench/cdc_base", lake=place.lake) as run:
        run.create_table(table, columns)
        base = run.spark.range(rows).select(
            fn.col("id"),
            fn.concat(fn.lit("customer-"), fn.col("id") % CUSTOMERS).alias("customer"),
            (fn.col("id") % 1000 + 0.5).alias("amount"),
            fn.concat(fn.lit("k"), fn.col("id") % KINDS).alias("kind"),
            fn.lit(None).cast(columns.rsplit(" ", 1)[1]).alias(columns.rsplit(" ", 2)[1]),
        )
        run.append(base, table, offsets=odi.once(f"base of {table}"))


# -- our side --------------------------------------------------------------------------------------


def _mirror(place: Place, table: str) -> Callable[[str], None]:
    def work(topic: str) -> None:
        text = SPEC.format(
            name=f"mirror_{topic.replace('-', '_')}", servers=place.kafka.bootstrap, topic=topic,
            table=table,
        )  # fmt: skip
        spec = parse_spec(text, {})
        with odi.run(spec.job, lake=place.lake) as run:
            worker = worker_of(spec, folder=Path.cwd())
            ran = run_job(run, worker, Limits(), until=Until(drained=True))
        if ran.rejects or ran.batches != 1:
            raise RuntimeError(f"{ran.rejects} changes were not readable, {ran.batches} batches")

    return work


# -- the other side --------------------------------------------------------------------------------


def _by_hand(place: Place, table: str) -> Callable[[str], None]:
    def merge(frame: DataFrame, _number: int) -> None:
        parsed = frame.select(fn.from_json(fn.col("value").cast("string"), EVENT).alias("e"))
        rows = parsed.select(
            fn.coalesce("e.after.id", "e.before.id").alias("id"),
            *[fn.col(f"e.after.{name}").alias(name) for name in ("customer", "amount", "kind")],
            fn.col("e.source.lsn").alias("_lsn"),
            fn.col("e.op").alias("op"),
        )
        newest = Window.partitionBy("id").orderBy(fn.col("_lsn").desc())
        last = rows.withColumn("_n", fn.row_number().over(newest)).filter("_n = 1").drop("_n")
        last.createOrReplaceTempView("changes")
        frame.sparkSession.sql(MERGE.format(table=table))

    def work(topic: str) -> None:
        stream = (
            place.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", place.kafka.bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
            .writeStream.foreachBatch(merge)
            .option("checkpointLocation", str(place.folder / "checkpoints" / topic))
            .trigger(availableNow=True)
            .start()
        )
        stream.awaitTermination()

    return work


# -- events ----------------------------------------------------------------------------------------


def _fill(place: Place, topic: str, number: int, changes: int, rows: int) -> None:
    Topics(place.kafka.bootstrap).create(topic, 1)
    events = _events(number, changes, rows)
    deliver(
        place.kafka.bootstrap,
        ({"topic": topic, "value": value, "key": key} for key, value in events),
    )


def _events(number: int, changes: int, rows: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield changes of rows all over the table: of ten, eight updates, an insert and a delete."""
    step = max(1, rows // changes)
    for place in range(changes):
        lsn = FIRST_LSN + 100 * (number * changes + place)
        found = (place * step + number) % rows
        kind = place % 10
        op = "c" if kind == 8 else "d" if kind == 9 else "u"
        row = rows + number * changes + place if op == "c" else found
        image = (
            f'{{"id":{row},"customer":"customer-{lsn % CUSTOMERS}","amount":{place % 1000}.25,'
            f'"kind":"k{number}"}}'
        )
        bare = f'{{"id":{row},"customer":null,"amount":null,"kind":null}}'
        yield (
            f'{{"id":{row}}}'.encode(),
            (
                f'{{"before":{bare if op == "d" else "null"},'
                f'"after":{"null" if op == "d" else image},'
                f'"source":{{"version":"3.6.1.Final","connector":"postgresql","name":"shop",'
                f'"ts_ms":{FIRST_MS + place},"snapshot":"false","db":"shop",'
                f'"sequence":"[\\"{lsn - 112}\\",\\"{lsn}\\"]","schema":"public",'
                f'"table":"events","txId":{700 + place},"lsn":{lsn},"xmin":null}},'
                f'"transaction":null,"op":"{op}","ts_ms":{FIRST_MS + place + 40}}}'
            ).encode(),
        )


def _compare(place: Place, one: str, other: str) -> None:
    """Refuse a round after which the two tables differ."""
    columns = "id, customer, amount, kind"
    first, second = (place.spark.sql(f"SELECT {columns} FROM lake.{t}") for t in (one, other))
    digest = fn.sum(
        fn.xxhash64(*[fn.col(name) for name in columns.split(", ")]).cast("decimal(38,0)")
    )
    found = [frame.agg(fn.count("id"), digest).collect()[0] for frame in (first, second)]
    if tuple(found[0]) != tuple(found[1]):
        raise RuntimeError(f"{one} and {other} differ after the same changes: {found}")
