"""The lineage reader and the counting of live rows, judged by Spark's own metadata columns."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Row

from odi_audit.catalog import SnapshotInfo, TableState
from odi_audit.catalog.attribution import live_by_ranges, live_rows
from odi_audit.catalog.moments import resolve
from odi_audit.catalog.rows import lineage_rows
from odi_audit.errors import StorageError
from odi_audit.model.tables import parse
from odi_audit.spark.jvm import Jvm
from odi_audit.spark.live import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odi_audit.workspace import Workspace

LINEAGE = ["_file", "_pos", "_row_id", "_last_updated_sequence_number"]
MODES = ("delete", "update", "merge")
LAYOUTS = {
    "v3-merge-on-read": ("3", "merge-on-read"),
    "v3-copy-on-write": ("3", "copy-on-write"),
    "v2-merge-on-read": ("2", "merge-on-read"),
}
COLUMNS = """
    id bigint NOT NULL, region string, small int, ratio float, amount decimal(10,2),
    at timestamp, local timestamp_ntz, day date, raw binary, extra string, gone string,
    who struct<name: string, age: int, home: struct<city: string>>,
    tags array<string>, lines array<struct<sku: string, n: int>>,
    notes map<string, struct<text: string, stars: int>>
"""
ROW = """
    id, concat('r', id % 3), CAST(id * 2 AS int), CAST(id / 10 AS float),
    CAST(id * 1.5 AS decimal(10,2)),
    timestamp'2026-01-01 12:00:00.123456' + make_interval(0, 0, 0, CAST(id % 50 AS int)),
    timestamp_ntz'2026-01-01 00:00:00' + make_interval(0, 0, 0, CAST(id % 50 AS int)),
    date_add(date'2026-01-01', CAST(id % 50 AS int)), encode(concat('b', id), 'utf-8'),
    if(id % 4 = 0, null, 'x'), 'gone',
    if(id % 5 = 0, null, named_struct('name', concat('n', id), 'age', CAST(id AS int),
        'home', if(id % 3 = 0, null, named_struct('city', 'c')))),
    if(id % 7 = 0, null, if(id % 7 = 1, array(), array('a', null, concat('t', id)))),
    if(id % 6 = 0, null, if(id % 6 = 1, array(),
        array(named_struct('sku', 's', 'n', CAST(id AS int)), null))),
    if(id % 8 = 0, null, map('k', named_struct('text', 't', 'stars', CAST(id AS int)), 'z', null))
"""


class Scene:
    """One table, seen by Spark and by us."""

    def __init__(self, lake: Workspace, spark: SparkSession, name: str) -> None:
        self.lake, self.spark, self.name = lake, spark, parse(name)
        self.catalog = lake.settings.catalog.name
        self.sql = self.name.sql(self.catalog)
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self.catalog}.`{self.name.parts[0]}`")

    def create(self, columns: str, version: str, mode: str, partitioning: str = "") -> None:
        properties = {
            "format-version": version,
            "write.wap.enabled": "false",
            **{f"write.{kind}.mode": mode for kind in MODES},
        }
        listed = ", ".join(f"'{key}'='{value}'" for key, value in properties.items())
        self.run(
            f"CREATE TABLE @ ({columns}) USING iceberg {partitioning} TBLPROPERTIES ({listed})"
        )

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.spark.sql(statement.replace("@", self.sql))

    def compact(self) -> None:
        self.run(
            f"CALL {self.catalog}.system.rewrite_data_files(table => '{self.name}', "
            "options => map('rewrite-all', 'true'))"
        )

    @property
    def state(self) -> TableState:
        return self.lake.catalog().load(self.name)

    def same(self, where: str | None = None, moment: str | None = None) -> int:
        """Compare the rows that match, and the counts of all, as of a moment; return how many."""
        state = self.state
        info = None if moment is None else resolve(state, moment)
        ours = self.ours(state, where, info)
        theirs = self.theirs(state, where, info)
        assert len(ours) == len(theirs)
        for mine, other in zip(ours, theirs, strict=True):
            assert mine == other
        if where is None:
            self._same_counts(state, info, theirs)
        return len(ours)

    def same_under(self, *filters: str) -> None:
        """Compare which rows each filter finds; Spark says it for all of them at once."""
        state = self.state
        listed = ", ".join(f"({where})" for where in filters)
        theirs = self.spark.sql(f"SELECT _file, _pos, {listed} FROM {self.sql}").collect()
        for number, where in enumerate(filters):
            found = lineage_rows(state, where, columns=[])
            ours = {(row["_file"], row["_pos"]) for batch in found for row in batch.to_pylist()}
            assert ours == {(row[0], row[1]) for row in theirs if row[2 + number]}, where

    def ours(
        self, state: TableState, where: str | None, info: SnapshotInfo | None
    ) -> list[dict[str, Any]]:
        found = lineage_rows(state, where, snapshot=None if info is None else info.id)
        rows = [row for batch in found for row in batch.to_pylist()]
        for row in rows:
            del row["_file_snapshot"]
        made = [{name: _our_value(value) for name, value in row.items()} for row in rows]
        return sorted(made, key=_place)

    def theirs(
        self, state: TableState, where: str | None, info: SnapshotInfo | None
    ) -> list[dict[str, Any]]:
        lineage = LINEAGE if state.has_row_ids else LINEAGE[:2]
        of = self.sql if info is None else f"{self.sql} VERSION AS OF {info.id}"
        frame = self.spark.sql(f"SELECT *, {', '.join(lineage)} FROM {of} WHERE {where or 'true'}")
        nothing = {} if state.has_row_ids else dict.fromkeys(LINEAGE[2:])
        made = [
            {
                name: _spark_value(value, name)
                for name, value in zip(frame.columns, row, strict=True)
            }
            | nothing
            for row in frame.collect()
        ]
        return sorted(made, key=_place)

    def _same_counts(
        self, state: TableState, info: SnapshotInfo | None, rows: list[dict[str, Any]]
    ) -> None:
        snapshot = None if info is None else info.id
        found = live_rows(state, snapshot)
        assert found.rows_count == len(rows)
        numbered = [row for row in rows if row["_row_id"] is not None]
        expected = Counter(row["_last_updated_sequence_number"] for row in numbered)
        assert found.by_sequence == expected
        starts = sorted({0, 5, *(s.first_row_id for s in state.snapshots if s.first_row_id)})
        places = Counter(bisect_right(starts, row["_row_id"]) - 1 for row in numbered)
        assert live_by_ranges(state, snapshot, starts) == [places[n] for n in range(len(starts))]
        if len(numbered) < len(rows):
            entries = "SELECT data_file.file_path, snapshot_id FROM @.all_entries WHERE status = 1"
            added = self.spark.sql(entries.replace("@", self.sql)).collect()
            by = {row[0]: str(row[1]) for row in added}
            old = Counter(by[row["_file"]] for row in rows if row["_row_id"] is None)
            assert found.by_file_snapshot == old


def _place(row: dict[str, Any]) -> tuple[str, int]:
    return row["_file"], row["_pos"]


def _our_value(value: object) -> object:
    if isinstance(value, dict):
        return {name: _our_value(part) for name, part in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return sorted((key, repr(_our_value(part))) for key, part in value)
    if isinstance(value, list):
        return [_our_value(part) for part in value]
    return value


def _spark_value(value: object, name: str) -> object:
    if isinstance(value, Row):
        return {key: _spark_value(part, key) for key, part in value.asDict().items()}
    if isinstance(value, dict):
        return sorted((key, repr(_spark_value(part, ""))) for key, part in value.items())
    if isinstance(value, list):
        return [_spark_value(part, name) for part in value]
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, datetime) and not name.startswith("local"):
        return value.astimezone(UTC)
    return value


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_and_counts_are_as_spark_has_them_through_a_whole_life(
    lake: Workspace, spark: SparkSession, layout: str
) -> None:
    version, mode = LAYOUTS[layout]
    table = Scene(lake, spark, "sales.life")
    table.create(COLUMNS, version, mode, "PARTITIONED BY (region)")
    table.run(
        f"INSERT INTO @ SELECT {ROW} FROM range(0, 60, 1, 1)",
        "UPDATE @ SET amount = 1.25, who = null WHERE id % 10 = 7",
        "DELETE FROM @ WHERE id IN (3, 14)",
        "ALTER TABLE @ CREATE TAG before",
    )
    assert table.same() == 58
    table.run(
        "ALTER TABLE @ ADD COLUMN note string",
        "ALTER TABLE @ ADD COLUMN who.email string",
        "ALTER TABLE @ ADD COLUMN lines.element.price double",
        "ALTER TABLE @ RENAME COLUMN extra TO renamed",
        "ALTER TABLE @ RENAME COLUMN who.name TO called",
        "ALTER TABLE @ DROP COLUMN gone",
        "ALTER TABLE @ ADD COLUMN gone string",
        "ALTER TABLE @ ALTER COLUMN small TYPE bigint",
        "ALTER TABLE @ ALTER COLUMN ratio TYPE double",
        "ALTER TABLE @ ALTER COLUMN amount TYPE decimal(18,2)",
        "ALTER TABLE @ ADD PARTITION FIELD bucket(2, id)",
    )
    assert table.same() == 58
    table.run(
        "CREATE OR REPLACE TEMP VIEW changes AS SELECT id, 'merged' AS note FROM range(50, 70)",
        "MERGE INTO @ t USING changes c ON t.id = c.id WHEN MATCHED THEN UPDATE SET note = c.note "
        "WHEN NOT MATCHED THEN INSERT (id, note, region) VALUES (c.id, c.note, null)",
        "ALTER TABLE @ DROP PARTITION FIELD region",
        "DELETE FROM @ WHERE id = 55",
        "ALTER TABLE @ CREATE BRANCH side",
        "INSERT INTO @.`branch_side` (id, note) VALUES (900, 'on the side')",
    )
    assert table.same() == 67
    _same_under_filters(table)
    table.compact()
    assert table.same() == 67
    table.run("UPDATE @ SET note = 'late' WHERE id IN (1, 69)")
    if version == "2":
        table.run("ALTER TABLE @ SET TBLPROPERTIES ('format-version'='3')")
        assert table.same() == 67
    table.run("INSERT INTO @ (id, note) VALUES (100, 'last'), (101, null)")
    assert table.same() == 69
    _same_under_filters(table)
    assert table.same(moment="before") == 58
    assert table.same(moment="side") == 68
    for info in table.state.snapshots[:4]:
        table.same(moment=info.id)


def _same_under_filters(table: Scene) -> None:
    table.same_under(
        "note = 'merged'",
        "note != 'merged'",
        "note IS NULL AND id < 20",
        "note NOT IN ('merged', 'x')",
        "NOT (note = 'merged' OR id < 30)",
        "renamed = 'x' AND gone IS NULL",
        "gone = 'gone'",
        "small = 20 OR small > 5000000000",
        "ratio = 1.1",
        "ratio > 1.1 AND ratio <= 2.3",
        "amount = 1.25 OR amount = 4.5",
        "amount BETWEEN 15 AND 30.005",
        "at >= '2026-01-30' AND at < '2026-02-02T12:00:00.123456+00:00'",
        "local = '2026-01-09 00:00:00'",
        "day IN ('2026-01-05', '2026-02-10')",
        "raw = X'6235'",
        "who.called = 'n8' OR who.age = 11",
        "who.home.city = 'c' AND who.email IS NULL",
        "who IS NULL AND tags IS NOT NULL",
        "region LIKE 'r%' AND region NOT LIKE '%1'",
        "region = 'r1' AND id >= 40",
        "id = 42",
    )


# -- equality deletes ------------------------------------------------------------------------


def delete_by_key(
    table: Scene,
    names: Sequence[str],
    keys: Sequence[Sequence[object]],
    partition: str | None = None,
) -> None:
    """Commit an equality delete, as other engines write them."""
    jvm = Jvm(table.spark)
    java = load(jvm, table.catalog, table.name).java
    gateway = table.spark.sparkContext._gateway
    assert gateway is not None
    schema = java.schema().select(list(names))
    ids = gateway.new_array(gateway.jvm.int, len(names))
    for place, name in enumerate(names):
        ids[place] = schema.findField(name).fieldId()
    data = jvm.iceberg.data
    parquet = jvm.iceberg.FileFormat.PARQUET
    builder = getattr(data, "GenericFileWriterFactory$Builder")(java).deleteFileFormat(parquet)
    factory = builder.equalityFieldIds(ids).equalityDeleteRowSchema(schema).build()
    where = None
    if partition is not None:
        where = data.GenericRecord.create(java.spec().partitionType())
        where.set(0, partition)
    output = jvm.iceberg.io.OutputFileFactory.builderFor(java, 0, len(keys)).build()
    place = output.newOutputFile() if where is None else output.newOutputFile(java.spec(), where)
    writer = factory.newEqualityDeleteWriter(place, java.spec(), where)
    for key in keys:
        record = data.GenericRecord.create(schema)
        for name, value in zip(names, key, strict=True):
            record.setField(name, value)
        writer.write(record)
    writer.close()
    java.newRowDelta().addDeletes(writer.toDeleteFile()).commit()


@pytest.mark.parametrize("version", ["2", "3"])
def test_equality_deletes_take_the_rows_that_spark_says_they_take(
    lake: Workspace, spark: SparkSession, version: str
) -> None:
    # Iceberg 1.12 keeps keys that it read under one schema and asks them under another, where the
    # column is of another type: deleted rows come back. Without its cache it agrees.
    spark.conf.set("spark.sql.iceberg.executor-cache.enabled", "false")
    table = Scene(lake, spark, "sales.keys")
    table.create("name string, region string, n int", version, "merge-on-read")
    rows = ", ".join(
        f"({name}, {region}, {n})"
        for n, (name, region) in enumerate(
            (name, region)
            for name in ("'a'", "'b'", "'c'", "null")
            for region in ("'r1'", "'r2'", "null")
        )
    )
    table.run(f"INSERT INTO @ VALUES {rows}")
    # Everywhere, before there are partitions; null is a key like any other.
    delete_by_key(table, ["name"], [["a"], [None]])
    assert table.same() == 6
    table.run("INSERT INTO @ VALUES ('a', 'r1', 100), (null, 'r2', 101)")
    assert table.same() == 8
    delete_by_key(table, ["name", "region"], [["b", "r1"], ["c", None], ["c", "r9"]])
    assert table.same() == 6
    table.run("ALTER TABLE @ ADD PARTITION FIELD region", f"INSERT INTO @ VALUES {rows}")
    # In one partition only: what lies in the others, and under the older spec, stays.
    delete_by_key(table, ["name"], [["a"], ["b"]], partition="r1")
    assert table.same() == 16
    delete_by_key(table, ["n"], [[7], [100]], partition="r2")
    table.run(
        "ALTER TABLE @ RENAME COLUMN name TO called", "ALTER TABLE @ ALTER COLUMN n TYPE bigint"
    )
    assert table.same() == 15
    table.run("DELETE FROM @ WHERE n = 3")
    table.same_under("called = 'a'", "called IS NULL", "region = 'r1' AND n < 6", "n = 7")
    for info in table.state.snapshots:
        table.same(moment=info.id)
    # Without a file of deletes rows would come back: that is never an answer.
    for row in spark.sql(f"SELECT file_path FROM {table.sql}.delete_files").collect():
        Path(row[0].removeprefix("file:")).unlink()
    with pytest.raises(StorageError):
        list(lineage_rows(table.state, missing=[]))


def test_a_column_with_a_default_has_it_in_older_rows(lake: Workspace, spark: SparkSession) -> None:
    table = Scene(lake, spark, "sales.defaults")
    table.create("id bigint, who struct<name: string>", "3", "merge-on-read")
    table.run("INSERT INTO @ VALUES (1, named_struct('name', 'ana')), (2, null)")
    jvm = Jvm(spark)
    java = load(jvm, table.catalog, table.name).java
    types, literals = jvm.iceberg.types.Types, jvm.iceberg.expressions.Expressions
    days = literals.lit("2026-11-01").to(types.DateType.get())
    price = literals.lit("1.5").to(types.DecimalType.of(6, 1))
    update = java.updateSchema()
    update.addColumn("level", types.IntegerType.get(), "", literals.lit(5))
    update.addColumn("day", types.DateType.get(), "", days)
    update.addColumn("price", types.DecimalType.of(6, 1), "", price)
    update.addColumn("who", "team", types.StringType.get(), "", literals.lit("red"))
    update.commit()
    assert table.same() == 2
    table.run("INSERT INTO @ (id, level) VALUES (3, null)", "UPDATE @ SET level = 6 WHERE id = 1")
    assert table.same() == 3
    table.same_under(
        "level = 5",
        "level != 5",
        "level IS NULL",
        "day = '2026-11-01'",
        "price = 1.5 AND level > 5",
        "who.team = 'red'",
    )
    assert table.same("level != 5") == 1
