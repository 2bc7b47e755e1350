"""What makes no snapshot: creation, schema changes, expiry, rollback; and what they refuse."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

import odi_audit as odi
from odi_audit.errors import EntryNotFound, Exit, SchemaMismatch, TableExists, UsageError
from odi_audit.model.entries import Kind
from tests.support.independent import Eyes, on_disk
from tests.support.story import COLUMNS, TABLE, Teller, at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odi_audit.committer.run import Run
    from odi_audit.workspace import Workspace

FAR = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture
def run(lake: Workspace) -> Run:
    return odi.run("sales/orders", lake=lake, principal="ana", code="v7").__enter__()


def test_a_new_table_has_the_format_and_the_properties_of_the_lake_and_its_own(
    lake: Workspace, run: Run
) -> None:
    schema = StructType(
        [StructField("id", LongType(), nullable=False), StructField("It's", StringType())]
    )
    receipt = run.create_table(
        TABLE, schema, partitioned_by=["bucket(4, id)"], properties={"owner.team": "o'hara \\ co"}
    )
    metadata = Eyes.on(lake.root).metadata(TABLE)
    assert metadata["format-version"] == 3
    assert [field["name"] for field in metadata["schemas"][0]["fields"]] == ["id", "It's"]
    assert metadata["schemas"][0]["fields"][0]["required"]
    assert metadata["partition-specs"][0]["fields"][0]["transform"] == "bucket[4]"
    assert metadata["properties"]["write.merge.mode"] == "merge-on-read"
    assert metadata["properties"]["owner.team"] == "o'hara \\ co"
    assert metadata["properties"]["odi.created-by"] == f"{receipt.batch}/{receipt.intent}"
    (_, created) = lake.ledger().batch_entries(receipt.batch)
    assert created.facts["principal"] == "ana"
    assert created.facts["code"] == "v7"
    assert created.facts["partition_spec"] == metadata["partition-specs"][0]


def test_a_table_that_is_there_is_used_as_it_is_or_the_difference_is_shown(
    lake: Workspace, run: Run
) -> None:
    run.create_table(TABLE, COLUMNS)
    size = lake.ledger().head().size
    with pytest.raises(TableExists) as there:
        run.create_table(TABLE, COLUMNS)
    assert there.value.exit_status is Exit.CONFLICT
    assert not run.create_table(TABLE, COLUMNS, if_not_exists=True).fresh
    with pytest.raises(SchemaMismatch) as other:
        run.create_table(TABLE, "id string, region string", if_not_exists=True)
    assert "missing   amount int" in other.value.message
    assert "wrong     id: table has bigint, batch has string" in other.value.message
    assert lake.ledger().head().size == size
    with pytest.raises(UsageError):
        run.create_table("sales.bad", "id nonsense")
    assert lake.ledger().open_intents() == []


def test_a_schema_change_is_recorded_with_before_and_after_and_old_rows_stay_readable(
    lake: Workspace, spark: SparkSession, run: Run
) -> None:
    eyes = Eyes.on(lake.root)
    run.create_table(TABLE, COLUMNS)
    teller = Teller(run=run, spark=spark)
    run.append(teller.frame(0, 2), TABLE, offsets=at(0, 2))
    receipt = run.evolve_schema(
        TABLE, add={"note": "string"}, widen={"amount": "bigint"}, rename={"region": "area"}
    )
    (_, changed) = lake.ledger().batch_entries(receipt.batch)

    def names(which: str) -> list[tuple[str, str]]:
        fields = changed.facts[which]["fields"]  # type: ignore[index,call-overload]
        return [(field["name"], field["type"]) for field in fields]  # type: ignore[index,union-attr]

    assert changed.kind is Kind.SCHEMA_CHANGE
    assert names("before") == [("id", "long"), ("region", "string"), ("amount", "int")]
    assert names("after") == [
        ("id", "long"), ("area", "string"), ("amount", "long"), ("note", "string"),
    ]  # fmt: skip
    assert eyes.rows(TABLE) == [(0, "r0", 0, None), (1, "r1", 3, None)]
    assert len(eyes.history(TABLE)) == 1
    run.evolve_schema(TABLE, drop=["note"])
    for wrong in (
        {"widen": {"amount": "int"}},
        {"drop": ["nothing"]},
        {"rename": {"area": "id"}},
        {"add": {"id": "string"}},
        {},
    ):
        with pytest.raises(UsageError):
            run.evolve_schema(TABLE, **wrong)  # type: ignore[arg-type]
    assert lake.ledger().open_intents() == []
    assert [field["name"] for field in eyes.table(TABLE).schema().model_dump()["fields"]] == [
        "id", "area", "amount",
    ]  # fmt: skip


def test_expiry_removes_what_nobody_needs_and_the_ledger_still_knows_it(
    lake: Workspace, spark: SparkSession, run: Run
) -> None:
    eyes, ledger = Eyes.on(lake.root), lake.ledger()
    warehouse = Path(lake.settings.catalog.warehouse or "")
    run.create_table(TABLE, COLUMNS)
    teller = Teller(run=run, spark=spark)
    first = run.append(teller.frame(0, 4), TABLE, offsets=at(0, 4))
    # A snapshot that came past the committer has no entry but the one that expiry makes.
    spark.sql(f"INSERT INTO lake.{TABLE} VALUES (90, 'f', 1)")
    foreign = str(eyes.head(TABLE)["snapshot-id"])
    run.overwrite(teller.frame(0, 2), TABLE, where="true", offsets=at(4, 6))
    last = run.append(teller.frame(2, 3), TABLE, offsets=at(6, 7))
    run.expire(TABLE, older_than=FAR, retain_last=2)
    assert len(eyes.metadata(TABLE)["snapshots"]) == 2
    receipt = run.expire(TABLE, older_than=FAR)
    assert [str(item["snapshot-id"]) for item in eyes.metadata(TABLE)["snapshots"]] == [
        last.snapshot
    ]
    assert on_disk(warehouse) == eyes.data_files(TABLE)
    (noticed,) = [entry for entry in ledger.scan() if entry.kind is Kind.FOREIGN]
    assert noticed.facts["snapshot"] == foreign
    assert noticed.facts["added_rows"] == 1
    landed = ledger.landed(first.batch, first.landing.table.uuid)
    assert landed is not None
    assert landed.facts["snapshot"] == first.snapshot
    # The batch is known although its snapshot is gone.
    assert not run.append(teller.frame(0, 4), TABLE, offsets=at(0, 4)).fresh
    assert ledger.batch_entries(receipt.batch)[-1].kind is Kind.MAINTENANCE
    with pytest.raises(UsageError):
        run.expire(TABLE, retain_last=0)
    assert run.expire(TABLE).fresh, "nothing to expire is still recorded"


def test_a_rollback_goes_to_an_ancestor_only_and_names_what_it_undoes(
    lake: Workspace, spark: SparkSession, run: Run
) -> None:
    eyes, ledger = Eyes.on(lake.root), lake.ledger()
    run.create_table(TABLE, COLUMNS)
    teller = Teller(run=run, spark=spark)
    first = run.append(teller.frame(0, 2), TABLE, offsets=at(0, 2))
    second = run.append(teller.frame(2, 4), TABLE, offsets=at(2, 4))
    third = run.append(teller.frame(4, 6), TABLE, offsets=at(4, 6))
    receipt = run.rollback(TABLE, to_batch=first.batch[:14])
    (_, entry) = ledger.batch_entries(receipt.batch)
    assert entry.facts["undone"] == [third.batch, second.batch]
    assert entry.facts["from"] == third.snapshot
    assert [row[0] for row in eyes.rows(TABLE)] == [0, 1]
    with pytest.raises(UsageError, match="not in the history"):
        run.rollback(TABLE, to_snapshot=third.snapshot)
    with pytest.raises(UsageError, match="either"):
        run.rollback(TABLE)
    with pytest.raises(EntryNotFound):
        run.rollback(TABLE, to_batch="b-ffff")
    run.create_table("sales.other", COLUMNS)
    with pytest.raises(UsageError, match="has not landed"):
        run.rollback("sales.other", to_batch=first.batch)
    assert ledger.open_intents() == []
