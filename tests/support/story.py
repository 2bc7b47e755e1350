"""Every operation of the committer, told once: what it is asked, and what must be true afterwards.

Used on the embedded lake and on PostgreSQL. The rows that must be there are computed in plain
Python; the table is judged through :class:`tests.support.independent.Eyes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import odi_audit as odi
from odi_audit.model.entries import Kind
from odi_audit.model.stamps import KEYS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from odi_audit.committer.run import Run
    from odi_audit.ledger.port import Ledger
    from odi_audit.model.offsets import Offsets
    from odi_audit.model.receipts import Receipt
    from tests.support.independent import Eyes

TABLE = "sales.orders"
COLUMNS = "id bigint NOT NULL, region string, amount int"
Rows: TypeAlias = dict[int, tuple[int, str, int]]
Step: TypeAlias = tuple[str, Callable[[], "Receipt"], Rows]

_SUMMARY_COUNTS = ("added-records", "deleted-records", "total-records", "added-data-files")


@dataclass(frozen=True, slots=True, kw_only=True)
class Teller:
    """Tells the story in one run, on one table that is partitioned by region."""

    run: Run
    spark: SparkSession

    def steps(self) -> Iterator[Step]:
        """Yield each operation with the rows that it must leave."""
        run, rows = self.run, {number: made(number) for number in range(20)}
        yield "append", lambda: run.append(self.frame(0, 20), TABLE, offsets=at(0, 20)), dict(rows)

        changed = {number: (number, f"r{number % 4}", 7) for number in range(18, 24)}
        rows |= changed
        del rows[18]
        yield "upsert", self._upsert, dict(rows)

        rows = {key: row for key, row in rows.items() if row[1] != "r1"} | {41: (41, "r1", 1)}
        one = self.given((41, "r1", 1))
        yield (
            "overwrite_partitions",
            lambda: run.overwrite_partitions(one, TABLE, offsets=odi.once("r1 anew")),
            dict(rows),
        )

        rows = {key: row for key, row in rows.items() if row[1] != "r2"} | {42: (42, "r2", 2)}
        two = self.given((42, "r2", 2))
        yield (
            "overwrite",
            lambda: run.overwrite(two, TABLE, where="region = 'r2'", offsets=odi.once("r2 anew")),
            dict(rows),
        )

        rows |= {key: (key, row[1], row[2] + 100) for key, row in rows.items() if key < 8}
        yield (
            "update",
            lambda: run.update(TABLE, where="id < 8", set={"amount": "amount + 100"}),
            dict(rows),
        )

        del rows[12]
        yield "delete", lambda: run.delete(TABLE, where="id = 12"), dict(rows)

        rows = {key: row for key, row in rows.items() if row[1] != "r3"}
        yield "delete", lambda: run.delete(TABLE, where="region = 'r3'"), dict(rows)

        whole = {"rewrite-all": "true"}
        yield "compact", lambda: run.compact(TABLE, options=whole), dict(rows)

        none = self.frame(0, 1).filter("id < 0")
        yield "append", lambda: run.append(none, TABLE, offsets=at(26, 40)), dict(rows)

    def frame(self, start: int, end: int) -> DataFrame:
        """Return rows as :func:`made` makes them."""
        return self.spark.range(start, end, 1, 1).selectExpr(
            "id", "concat('r', id % 4) AS region", "CAST(id * 3 AS int) AS amount"
        )

    def given(self, *rows: tuple[int, str, int]) -> DataFrame:
        """Return rows given as values; they need no Python worker."""
        values = ", ".join(f"(CAST({key}L AS bigint), '{region}', {n})" for key, region, n in rows)
        return self.spark.sql(f"SELECT * FROM VALUES {values} AS t(id, region, amount)")

    def _upsert(self) -> Receipt:
        # 18 is changed and then deleted; 19 comes twice and the newer one wins; 20–23 are new.
        source = self.spark.sql(
            "SELECT id, concat('r', id % 4) AS region, 7 AS amount, 1 AS version, "
            "if(id = 18, 'd', 'u') AS op FROM range(18, 24) UNION ALL "
            "SELECT 19L, 'r9', 9, 0, 'u'"
        )
        return self.run.upsert(
            source,
            TABLE,
            key=["id"],
            order_by=["version"],
            delete_when="op = 'd'",
            offsets=at(20, 26),
        )


def made(number: int) -> tuple[int, str, int]:
    """Return the row of an id, as the first append brings it."""
    return number, f"r{number % 4}", number * 3


def at(start: int, end: int) -> Offsets:
    """Name a part of the story's source."""
    return odi.mapping("orders topic", {"p0": (start, end)})


def check_landed(eyes: Eyes, ledger: Ledger, receipt: Receipt, operation: str) -> dict[str, Any]:
    """Compare a receipt with the table's own document and with the ledger; return the snapshot."""
    snapshot, landing = eyes.head(TABLE), receipt.landing
    summary = snapshot["summary"]
    assert {key: summary.get(key, "") for key in KEYS if not summary.get(key)} == {}
    assert summary["odi.batch-id"] == receipt.batch
    assert summary["odi.run-id"] == receipt.run
    assert summary["odi.job"] == receipt.job
    assert summary["odi.intent"] == str(receipt.intent)
    assert summary["odi.operation"] == operation == landing.operation
    assert landing.snapshot == str(snapshot["snapshot-id"])
    assert landing.sequence_number == snapshot["sequence-number"]
    assert landing.first_row_id == snapshot.get("first-row-id")
    assert landing.added_rows == snapshot.get("added-rows")
    assert landing.schema_id == snapshot["schema-id"]
    assert landing.table.uuid == eyes.metadata(TABLE)["table-uuid"]
    for key in _SUMMARY_COUNTS:
        assert landing.counts.get(key, 0) == int(summary.get(key, 0)), key
    entries = ledger.batch_entries(receipt.batch)
    assert [entry.kind for entry in entries] == [Kind.INTENT, Kind.STAGED, Kind.LANDED]
    intent, staged, landed = entries
    assert intent.index == receipt.intent == staged.intent == landed.intent
    assert landed.settles
    assert landed.facts["snapshot"] == landing.snapshot
    return snapshot
