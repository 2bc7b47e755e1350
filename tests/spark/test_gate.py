"""The gate: what is refused, what stays as it was, and what can be looked at afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions

import odi_audit as odi
from odi_audit.errors import BadKeys, CountMismatch, Exit, Refused, RuleBroken
from odi_audit.model.entries import Kind
from tests.support.independent import Eyes, ledger_bytes, on_disk
from tests.support.story import COLUMNS, TABLE, Teller, at, made

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from odi_audit.committer.run import Run
    from odi_audit.model.offsets import Offsets
    from odi_audit.workspace import Workspace

SEVEN_DAYS_MS = 7 * 86_400_000
MARK = "PRIVATE-8141"
"""A value of a row that must stand in no entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    lake: Workspace
    run: Run
    eyes: Eyes
    teller: Teller

    def refused(self, kind: type[Refused], code: str, commit: Callable[[], object]) -> Refused:
        """Have a batch refused, and see that main, position and files are as they were."""
        before = self.eyes.head(TABLE), self.eyes.rows(TABLE)
        known = self.lake.ledger().head().size
        with pytest.raises(kind) as caught:
            commit()
        assert (self.eyes.head(TABLE), self.eyes.rows(TABLE)) == before
        entries = list(self.lake.ledger().scan(known))
        assert [entry.kind for entry in entries] == [Kind.INTENT, Kind.REFUSED]
        assert entries[1].settles
        assert entries[1].facts["code"] == code == caught.value.code
        assert entries[1].facts["reason"] == caught.value.record
        assert caught.value.exit_status is Exit.FINDINGS
        assert caught.value.hint
        return caught.value

    def odd(self, *rows: str) -> DataFrame:
        """Return rows given as SQL values of (id, region, amount)."""
        values = ", ".join(f"({row})" for row in rows)
        return self.teller.spark.sql(
            "SELECT CAST(id AS bigint) id, CAST(region AS string) region, CAST(amount AS int) "
            f"amount FROM VALUES {values} AS t(id, region, amount)"
        )


@pytest.fixture
def bench(lake: Workspace, spark: SparkSession) -> Bench:
    """A table of ten rows, read from a source up to offset 10."""
    run = odi.run("sales/orders", lake=lake).__enter__()
    run.create_table(TABLE, COLUMNS)
    teller = Teller(run=run, spark=spark)
    run.append(teller.frame(0, 10), TABLE, offsets=at(0, 10))
    return Bench(lake=lake, run=run, eyes=Eyes.on(lake.root), teller=teller)


def test_a_broken_rule_leaves_main_as_it_was_and_a_branch_to_look_at_for_a_week(
    bench: Bench, spark: SparkSession
) -> None:
    rules = odi.Contract(rules={"not negative": "amount >= 0", "known": "region IS NOT NULL"})
    bad = bench.odd(f"10, '{MARK}', -1", "11, 'r1', 5", "12, 'r1', null")
    told = bench.refused(
        RuleBroken,
        "ODI-G03",
        lambda: bench.run.append(bad, TABLE, offsets=at(10, 13), contract=rules),
    )
    assert "not negative (1 rows)" in told.message
    assert told.facts["rules"] == ["not negative"]
    # Whoever ran the job sees the row; the ledger never does.
    assert MARK in str(told)
    assert MARK not in told.message
    assert MARK.encode() not in ledger_bytes(bench.lake.root)
    assert b"not negative" in ledger_bytes(bench.lake.root)

    branch = str(told.facts["branch"])
    ref = bench.eyes.metadata(TABLE)["refs"][branch]
    assert ref["type"] == "branch"
    assert ref["max-ref-age-ms"] == SEVEN_DAYS_MS
    shown = spark.sql(f"SELECT id, region FROM lake.{TABLE} VERSION AS OF '{branch}'").collect()
    assert (10, MARK) in [tuple(row) for row in shown]
    (refusal,) = [entry for entry in bench.lake.ledger().scan() if entry.kind is Kind.REFUSED]
    assert [item["branch"] for item in refusal.facts["branches"]] == [branch]  # type: ignore[index,union-attr]

    fixed = bad.withColumn("amount", functions.abs("amount"))
    landed = bench.run.append(fixed, TABLE, offsets=at(10, 13), contract=rules)
    assert landed.fresh
    assert (10, MARK, 1) in bench.eyes.rows(TABLE)
    assert bench.eyes.history(TABLE)[0]["summary"]["odi.batch-id"] == landed.batch


def test_a_required_column_and_one_that_the_table_requires_may_not_be_null(bench: Bench) -> None:
    required = odi.Contract(required=("region",))
    told = bench.refused(
        RuleBroken,
        "ODI-G03",
        lambda: bench.run.append(
            bench.odd("10, null, 1"), TABLE, offsets=at(10, 11), contract=required
        ),
    )
    assert "region (1 rows)" in told.message
    told = bench.refused(
        RuleBroken,
        "ODI-G03",
        lambda: bench.run.append(
            bench.odd("10, 'a', 1", "null, 'a', 1"), TABLE, offsets=at(10, 12)
        ),
    )
    assert "column id that the table requires is null" in told.message


def test_null_and_duplicate_keys_are_refused_with_samples(bench: Bench) -> None:
    key = odi.Contract(key=("region",))
    told = bench.refused(
        BadKeys,
        "ODI-G02",
        lambda: bench.run.append(
            bench.odd("10, 'a', 1", "11, 'a', 2", "12, 'a', 2", "13, null, 3"),
            TABLE,
            offsets=at(10, 14),
            contract=key,
        ),
    )
    assert (told.facts["null_keys"], told.facts["duplicate_keys"]) == (1, 2)
    assert sorted(told.facts["samples"]) == [  # type: ignore[arg-type]
        '{"region":"a"}', '{"region":"a"}', '{"region":null}',
    ]  # fmt: skip

    def upsert(rows: DataFrame, **more: object) -> Callable[[], object]:
        return lambda: bench.run.upsert(rows, TABLE, key=["id"], offsets=at(10, 14), **more)  # type: ignore[arg-type]

    told = bench.refused(
        BadKeys, "ODI-G02", upsert(bench.odd("7, 'a', 1", "7, 'b', 2", "null, 'c', 3"))
    )
    assert (told.facts["null_keys"], told.facts["duplicate_keys"]) == (1, 1)
    assert '{"id":7}' in str(told)
    assert '{"id":null}' in str(told)
    assert '"id":7' not in told.message
    assert told.hint is not None
    assert "order_by" in told.hint
    # Two newest rows of one key are as bad as two rows without an order.
    tied = bench.odd("7, 'a', 2", "7, 'b', 2", "7, 'c', 1")
    told = bench.refused(BadKeys, "ODI-G02", upsert(tied, order_by=["amount"]))
    assert told.facts["duplicate_keys"] == 1
    upsert(bench.odd("7, 'a', 1", "7, 'b', 2", "7, 'c', null"), order_by=["amount"])()
    assert (7, "b", 2) in bench.eyes.rows(TABLE)


def test_a_table_that_holds_a_key_twice_is_not_the_batchs_fault(bench: Bench) -> None:
    bench.run.append(bench.odd("3, 'twin', 1"), TABLE, offsets=at(10, 11))
    one = bench.odd("3, 'new', 9")
    promised = odi.kafka({"t": {0: (0, 1)}}, bootstrap="broker:9092", exact_count=True)
    assert bench.run.upsert(one, TABLE, key=["id"], offsets=promised).fresh
    assert bench.eyes.rows(TABLE).count((3, "new", 9)) == 2
    # A key that stands twice in the batch and once in the table is Spark's own to find.
    told = bench.refused(
        BadKeys,
        "ODI-G02",
        lambda: bench.run.upsert(
            bench.odd("5, 'a', 1", "5, 'b', 1"), TABLE, key=["ID"], offsets=at(11, 13)
        ),
    )
    assert told.facts["duplicate_keys"] == 1
    assert "5" in str(told.facts["samples"])


def test_as_many_rows_as_the_source_promised_or_none(bench: Bench) -> None:
    def orders(start: int, end: int) -> Offsets:
        parts = {"orders": {0: (start, end)}}
        return odi.kafka(parts, bootstrap="broker:9092", exact_count=True)

    few = bench.teller.frame(10, 14)
    told = bench.refused(
        CountMismatch, "ODI-G07", lambda: bench.run.append(few, TABLE, offsets=orders(0, 5))
    )
    assert (told.facts["promised"], told.facts["staged"]) == (5, 4)
    bench.refused(
        CountMismatch,
        "ODI-G07",
        lambda: bench.run.upsert(few, TABLE, key=["id"], offsets=orders(0, 5)),
    )
    assert bench.run.append(few, TABLE, offsets=orders(0, 4)).fresh
    # An upsert's promise is about the rows that came, not about those that were kept.
    twice = bench.odd("1, 'a', 1", "1, 'a', 2")
    assert bench.run.upsert(
        twice, TABLE, key=["id"], order_by=["amount"], offsets=orders(4, 6)
    ).fresh


def test_overwrites_pass_the_same_gate(bench: Bench) -> None:
    rules = odi.Contract(rules={"not negative": "amount >= 0"})
    bad = bench.odd("50, 'r1', -1")
    bench.refused(
        RuleBroken,
        "ODI-G03",
        lambda: bench.run.overwrite(
            bad, TABLE, where="true", offsets=odi.once("o"), contract=rules
        ),
    )
    bench.refused(
        RuleBroken,
        "ODI-G03",
        lambda: bench.run.overwrite_partitions(bad, TABLE, offsets=odi.once("p"), contract=rules),
    )
    assert [row[0] for row in bench.eyes.rows(TABLE)] == sorted(made(n)[0] for n in range(10))


def test_without_days_for_inspection_nothing_of_a_refused_batch_stays(
    bench: Bench, relimited: Callable[..., Workspace]
) -> None:
    warehouse = Path(bench.lake.settings.catalog.warehouse or "")
    before = {kind: on_disk(warehouse, kind) for kind in (".parquet", ".avro")}
    other = relimited(limits__refused_branch_days="0", limits__refusal_samples_max="0")
    with odi.run("sales/orders", lake=other) as run, pytest.raises(RuleBroken) as caught:
        run.append(
            bench.odd(f"10, '{MARK}', -1"),
            TABLE,
            offsets=at(10, 11),
            contract=odi.Contract(rules={"not negative": "amount >= 0"}),
        )
    assert MARK not in str(caught.value)
    assert list(bench.eyes.metadata(TABLE)["refs"]) == ["main"]
    assert {kind: on_disk(warehouse, kind) for kind in before} == before
    other.close()


def test_the_gate_makes_no_second_pass_over_the_rows(bench: Bench, spark: SparkSession) -> None:
    passed = spark.sparkContext.accumulator(0)

    @functions.udf("bigint")
    def counted(value):  # type: ignore[no-untyped-def]  # PySpark would read hints
        passed.add(1)
        return value

    contract = odi.Contract(key=("id",), required=("region",), rules={"positive": "amount >= 0"})
    rows = bench.teller.frame(10, 30).withColumn("id", counted("id"))
    bench.run.append(rows, TABLE, offsets=at(10, 30), contract=contract)
    assert passed.value == 20
    bench.run.upsert(
        bench.teller.frame(25, 40).withColumn("id", counted("id")),
        TABLE,
        key=["id"],
        order_by=["amount"],
        offsets=at(30, 45),
        contract=contract,
    )
    assert passed.value == 35
    assert [row[0] for row in bench.eyes.rows(TABLE)] == sorted(range(40), key=lambda n: str((n,)))
