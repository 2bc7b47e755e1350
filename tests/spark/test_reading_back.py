"""Reading without a JVM, judged by Spark: the same rows, ids, sequence numbers and positions."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

import odi_audit as odi
from odi_audit.catalog import SnapshotInfo, TableState
from odi_audit.catalog.rows import lineage_rows
from odi_audit.cli.app import run
from odi_audit.ids import JobName, SnapshotId, batch_id
from odi_audit.ledger import create_ledger
from odi_audit.model.entries import Draft, Kind
from odi_audit.model.offsets import mapping
from odi_audit.model.receipts import Landing
from odi_audit.model.stamps import Stamps
from odi_audit.model.tables import TableName, parse
from odi_audit.query.batches import BatchState, list_batches
from odi_audit.query.trace import Confidence, trace
from odi_audit.query.verify import verify
from odi_audit.upkeep.rebuild import rebuild

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from odi_audit.workspace import Workspace

COPY_ON_WRITE = {f"write.{kind}.mode": "copy-on-write" for kind in ("delete", "update", "merge")}
LAYOUTS = {
    "merge-on-read": (3, "", {}),
    "partitioned": (3, "PARTITIONED BY (region, bucket(2, id))", {}),
    "copy-on-write": (3, "", COPY_ON_WRITE),
    "format-2": (2, "", {}),
}


def create(
    lake: Workspace, spark: SparkSession, name: TableName, layout: tuple[int, str, dict[str, str]]
) -> str:
    version, partitioning, properties = layout
    sql = name.sql(lake.settings.catalog.name)
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {lake.settings.catalog.name}.`{name.parts[0]}`")
    listed = {"format-version": str(version), "write.wap.enabled": "false", **properties}
    body = ", ".join(f"'{key}'='{value}'" for key, value in listed.items())
    spark.sql(
        f"CREATE TABLE {sql} (id bigint NOT NULL, region string, amount decimal(10,2)) "
        f"USING iceberg {partitioning} TBLPROPERTIES ({body})"
    )
    return sql


def rows(spark: SparkSession, start: int, end: int, region: str | None = None) -> DataFrame:
    name = f"'{region}'" if region else "concat('r', id % 3)"
    return spark.range(start, end, 1, 2).selectExpr(
        "id", f"{name} AS region", "CAST(id * 1.5 AS decimal(10,2)) AS amount"
    )


def as_spark_sees(spark: SparkSession, sql: str, state: TableState, where: str = "true") -> object:
    lineage = ", _row_id, _last_updated_sequence_number" if state.has_row_ids else ", null, null"
    names = ", ".join(f"`{column.name}`" for column in state.columns)
    found = spark.sql(f"SELECT {names}, _file, _pos {lineage} FROM {sql} WHERE {where}").collect()
    return sorted((tuple(str(value) for value in row) for row in found), key=str)


def as_we_see(state: TableState, where: str | None = None) -> object:
    names = [column.name for column in state.columns]
    names += ["_file", "_pos", "_row_id", "_last_updated_sequence_number"]
    found = [row for batch in lineage_rows(state, where) for row in batch.to_pylist()]
    return sorted((tuple(str(row[name]) for name in names) for row in found), key=str)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_row_has_the_lineage_that_spark_gives_it(
    lake: Workspace, spark: SparkSession, layout: str
) -> None:
    name = parse("sales.orders")
    sql = create(lake, spark, name, LAYOUTS[layout])

    def same(where: str | None = None) -> int:
        state = lake.catalog().load(name)
        ours = as_we_see(state, where)
        assert ours == as_spark_sees(spark, sql, state, where or "true")
        return len(ours)  # type: ignore[arg-type]

    for start in (0, 100):
        rows(spark, start, start + 100).writeTo(sql).append()
    assert same() == 200
    spark.sql(f"UPDATE {sql} SET amount = 1 WHERE id % 10 = 7")
    rows(spark, 190, 210, "merged").createOrReplaceTempView("changes")
    spark.sql(
        f"MERGE INTO {sql} t USING changes c ON t.id = c.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    spark.sql(f"DELETE FROM {sql} WHERE id IN (3, 104, 205)")
    assert same() == 207
    older = lake.catalog().load(name)
    spark.sql(
        f"CALL {lake.settings.catalog.name}.system.rewrite_data_files("
        "table => 'sales.orders', options => map('rewrite-all', 'true'))"
    )
    assert same() == 207
    spark.sql(f"UPDATE {sql} SET region = 'moved' WHERE id IN (7, 8)")
    spark.sql(f"ALTER TABLE {sql} ADD COLUMN note string")
    spark.sql(f"ALTER TABLE {sql} RENAME COLUMN amount TO price")
    rows(spark, 500, 510, "late").selectExpr(
        "id", "region", "amount AS price", "'n' AS note"
    ).writeTo(sql).append()
    assert same() == 217
    for where, count in {
        "id = 7": 1,
        "id >= 198 AND id < 502": 13,
        "region = 'merged'": 19,
        "note = 'n' AND id > 505": 4,
        "note IS NULL AND id IN (1, 2, 3)": 2,
        "price > 740.50": 10,
        "id = -1": 0,
    }.items():
        assert same(where) == count, where
    # An older snapshot is read as it was, under the schema that it had.
    assert older.current_snapshot is not None
    now = lake.catalog().load(name)
    then = [r for b in lineage_rows(now, snapshot=older.current_snapshot) for r in b.to_pylist()]
    assert len(then) == 207
    assert "amount" in then[0]
    assert "note" not in then[0]


def test_rows_from_before_an_upgrade_get_their_ids_as_spark_gives_them(
    lake: Workspace, spark: SparkSession
) -> None:
    name = parse("sales.upgraded")
    sql = create(lake, spark, name, LAYOUTS["format-2"])
    rows(spark, 0, 20).writeTo(sql).append()
    spark.sql(f"ALTER TABLE {sql} SET TBLPROPERTIES ('format-version'='3')")
    state = lake.catalog().load(name)
    assert as_we_see(state) == as_spark_sees(spark, sql, state)
    assert all(row[-2] == "None" for row in as_we_see(state))  # type: ignore[attr-defined]
    rows(spark, 20, 30).writeTo(sql).append()
    spark.sql(f"UPDATE {sql} SET amount = 9 WHERE id = 3")
    state = lake.catalog().load(name)
    assert as_we_see(state) == as_spark_sees(spark, sql, state)
    by_id = {row.values["id"]: row for row in trace(lake.ledger(), lake.catalog(), name, limit=99)}
    assert by_id[25].birth.confidence is Confidence.EXACT
    assert by_id[5].birth.confidence is Confidence.FILE
    assert by_id[3].birth.confidence is Confidence.UNKNOWN
    assert by_id[3].last_change.confidence is Confidence.EXACT


def test_names_with_capitals_quotes_and_letters_of_any_script_are_read(
    lake: Workspace, spark: SparkSession
) -> None:
    name = TableName(("Größe", 'It\'s "Odd" Ünï 表'))
    sql = create(lake, spark, name, LAYOUTS["merge-on-read"])
    rows(spark, 0, 5).writeTo(sql).append()
    assert lake.catalog().tables() == [name]
    assert len(as_we_see(lake.catalog().load(parse(str(name))))) == 5  # type: ignore[arg-type]


# -- a table and a ledger ------------------------------------------------------------------------


def audited(
    lake: Workspace, spark: SparkSession, name: TableName, data: DataFrame, key: int, how: str
) -> str:
    """Write one stamped batch and record it, as the committer would."""
    ledger, state = lake.ledger(), lake.catalog().load(name)
    job, part = JobName("sales/orders"), mapping("topic", {"p0": (key, key + 1)})
    batch = batch_id(job=job, source=part.source, start=part.start(), end=part.end(), generation=0)
    work = {"op": how, "table": state.ref.name, "table_uuid": state.ref.uuid, "work": "w"}
    said = {"principal": "ana", "code": "v1"}
    (intent,) = ledger.append(
        Draft(
            kind=Kind.INTENT,
            job=job,
            batch=batch,
            facts={"operations": [work], "offsets": part.to_json(), "generation": 0, **said},
        )
    )
    assert intent.run is not None
    stamps = Stamps(
        job=job,
        run=intent.run,
        batch=batch,
        operation=how,
        source=part.source,
        offsets=part.to_stamp(),
        intent=intent.index,
        **said,
    ).to_summary()
    info = write(lake, spark, name, data, stamps, how)
    landing = Landing(
        table=state.ref,
        operation=how,
        snapshot=info.id,
        sequence_number=info.sequence_number,
        first_row_id=info.first_row_id,
        added_rows=info.added_rows,
        schema_id=info.schema_id,
        counts={"rows": int(info.summary.get("added-records", "0"))},
    )
    facts = {**landing.to_json(), "offsets": part.to_json(), "source": part.source, **said}
    ledger.append(
        Draft(
            kind=Kind.LANDED,
            job=job,
            run=intent.run,
            batch=batch,
            table=state.ref,
            intent=intent.index,
            settles=True,
            facts=facts,
        )
    )
    return batch


def write(
    lake: Workspace,
    spark: SparkSession,
    name: TableName,
    data: DataFrame,
    stamps: dict[str, str],
    how: str,
) -> SnapshotInfo:
    sql = name.sql(lake.settings.catalog.name)
    prefix = "spark.sql.iceberg.snapshot-property."
    for key, value in stamps.items():
        spark.conf.set(prefix + key, value)
    try:
        if how == "append":
            data.writeTo(sql).append()
        else:
            data.createOrReplaceTempView("changes")
            spark.sql(
                f"MERGE INTO {sql} t USING changes c ON t.id = c.id "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )
    finally:
        for key in stamps:
            spark.conf.unset(prefix + key)
    state = lake.catalog().load(name)
    found = state.snapshot(state.current_snapshot or SnapshotId(""))
    assert found is not None
    return found


def test_a_row_is_traced_through_an_upsert_a_compaction_and_expiry(
    lake: Workspace, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    name = parse("sales.orders")
    sql = create(lake, spark, name, LAYOUTS["merge-on-read"])
    catalog = lake.settings.catalog.name
    first = audited(lake, spark, name, rows(spark, 0, 100), 1, "append")
    second = audited(lake, spark, name, rows(spark, 100, 200), 2, "append")
    third = audited(lake, spark, name, rows(spark, 95, 105, "changed"), 3, "upsert")
    assert verify(lake.ledger(), lake.catalog()) == []

    def told() -> dict[object, tuple[object, object]]:
        found = trace(lake.ledger(), lake.catalog(), name, "id >= 94 AND id <= 105")
        assert {row.birth.confidence for row in found} == {Confidence.EXACT}
        return {row.values["id"]: (row.birth.batch, row.last_change.batch) for row in found}

    expected = {key: (first if key < 100 else second, third) for key in range(95, 105)}
    expected |= {94: (first, first), 105: (second, second)}
    assert told() == expected
    spark.sql(
        f"CALL {catalog}.system.rewrite_data_files("
        "table => 'sales.orders', options => map('rewrite-all', 'true'))"
    )
    assert told() == expected
    spark.sql(
        f"CALL {catalog}.system.expire_snapshots(table => 'sales.orders', "
        "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)"
    )
    assert len(lake.catalog().load(name).snapshots) == 1
    assert told() == expected

    # The compaction and the expiry came past the committer, and so does this write.
    spark.sql(f"INSERT INTO {sql} VALUES (999, 'foreign', 1)")
    status = run(["verify", "--lake", str(lake.root), "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert status == 1
    assert answer["schema"] == "odi.verify/1"
    codes = [finding["code"] for finding in answer["data"]["findings"]]
    assert sorted(codes) == ["ODI-V01", "ODI-V01", "ODI-V04", "ODI-V04", "ODI-V04"]
    (row,) = trace(lake.ledger(), lake.catalog(), name, "id = 999")
    assert row.birth.foreign
    assert row.birth.batch is None


def test_the_commands_answer_people_and_machines(
    lake: Workspace, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    name = parse("sales.orders")
    create(lake, spark, name, LAYOUTS["merge-on-read"])
    batch = audited(lake, spark, name, rows(spark, 0, 10), 1, "append")
    at = ["--lake", str(lake.root)]
    for command in (
        ["batches", "--table", "sales.orders", "--since", "1h"],
        ["batch", batch[:12]],
        ["trace", "sales.orders", "--where", "id = 7"],
        ["verify", "sales.orders"],
    ):
        assert run([*command, *at]) == 0
        page = capsys.readouterr().out
        assert batch in page or command[0] == "verify"
        assert run([*command, *at, "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert answer["schema"] == f"odi.{command[0]}/1"
    assert run(["batch", "b-ffff", *at]) == 4
    assert run(["trace", "sales.order", *at]) == 4
    assert run(["trace", "sales.orders", "--where", "x = 1", *at]) == 2
    assert "ODI-U01" in capsys.readouterr().err


def test_what_the_committer_writes_verifies_clean_and_is_traced(
    lake: Workspace, spark: SparkSession, tmp_path: Path
) -> None:
    name = parse("sales.orders")

    def clean() -> bool:
        return verify(lake.ledger(), lake.catalog()) == []

    with odi.run("sales/orders", lake=lake, spark=spark) as run:
        run.create_table("sales.orders", "id bigint, region string, amount decimal(10,2)")
        first = run.append(rows(spark, 0, 100), "sales.orders", offsets=odi.once("a"))
        changed = run.upsert(
            rows(spark, 95, 105, "changed"), "sales.orders", key=["id"], offsets=odi.once("b")
        )
        run.delete("sales.orders", where="id = 3", offsets=odi.once("c"))
        assert clean()
        run.compact("sales.orders")
        kept = run.append(rows(spark, 300, 310), "sales.orders", offsets=odi.once("d"))
        undone = run.append(rows(spark, 400, 410), "sales.orders", offsets=odi.once("e"))
        run.rollback("sales.orders", to_snapshot=kept.snapshot)
        assert clean()
        run.expire("sales.orders", older_than=datetime(2100, 1, 1, tzinfo=UTC), retain_last=1)
        assert clean()
    found = trace(lake.ledger(), lake.catalog(), name, "id IN (7, 99, 104, 305)")
    origins = {row.values["id"]: (row.birth.batch, row.last_change.batch) for row in found}
    assert origins == {
        7: (first.batch, first.batch),
        99: (first.batch, changed.batch),
        104: (changed.batch, changed.batch),
        305: (kept.batch, kept.batch),
    }
    states = {summary.batch: summary for summary in list_batches(lake.ledger())}
    assert states[undone.batch].state is BatchState.UNDONE
    assert states[first.batch].rows == 100
    empty = create_ledger(f"sqlite:///{tmp_path / 'new.db'}", clock=lake.clock)
    recovered = rebuild(empty, lake.catalog(), apply=True)
    assert [item.stamps.batch for item in recovered.recoveries] == [kept.batch]
    assert verify(empty, lake.catalog()) == []
    empty.close()
