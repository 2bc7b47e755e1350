"""Trace, its histories and its deleted rows, judged by a plain record of who touched which row."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

import odi_audit as odi
from odi_audit.cli.app import run as command
from odi_audit.model.tables import parse
from odi_audit.query.gone import gone_rows
from odi_audit.query.origin import Confidence, Origin
from odi_audit.query.trace import start_trace, trace
from odi_audit.query.versions import row_history

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from odi_audit.workspace import Workspace

TABLE = "sales.orders"
COLUMNS = "id bigint NOT NULL, region string, amount int"
COPY_ON_WRITE = {f"write.{kind}.mode": "copy-on-write" for kind in ("delete", "update", "merge")}
FUTURE = datetime(2100, 1, 1, tzinfo=UTC)
Values: TypeAlias = dict[str, object]


@dataclass(slots=True)
class Life:
    """One row: its versions with the batch of each (None: foreign), and its end."""

    versions: list[tuple[str | None, Values]]
    gone_by: str | None = None
    gone: bool = False
    rolled_back: bool = False


@dataclass(slots=True)
class Record:
    """Which batch touched which row, kept in plain Python."""

    lives: list[Life] = field(default_factory=list)
    now: dict[int, Life] = field(default_factory=dict)

    def insert(self, batch: str | None, *rows: Values) -> None:
        for row in rows:
            life = Life([(batch, row)])
            self.lives.append(life)
            self.now[int(str(row["id"]))] = life

    def change(self, batch: str | None, ids: set[int], **new: object) -> None:
        for key in ids & self.now.keys():
            life = self.now[key]
            life.versions.append((batch, {**life.versions[-1][1], **new}))

    def remove(self, batch: str | None, ids: set[int], *, rolled_back: bool = False) -> None:
        for key in ids & self.now.keys():
            life = self.now.pop(key)
            life.gone, life.gone_by, life.rolled_back = True, batch, rolled_back

    def rename(self, old: str, new: str) -> None:
        for life in self.lives:
            life.versions = [
                (batch, {new if name == old else name: value for name, value in row.items()})
                for batch, row in life.versions
            ]

    def add(self, column: str) -> None:
        for life in self.lives:
            life.versions = [(batch, {**row, column: None}) for batch, row in life.versions]


def told(origin: Origin) -> str | None:
    """Return the batch of an answer that must be exact; None where it says foreign."""
    assert origin.confidence is Confidence.EXACT
    assert (origin.batch is None) == origin.foreign
    return origin.batch


@dataclass(slots=True)
class Judge:
    """Asks, and compares every answer with the record."""

    lake: Workspace
    record: Record
    table: str = TABLE

    def origins(self) -> None:
        found = trace(self.lake.ledger(), self.lake.catalog(), parse(self.table), limit=1000)
        answers = {row.values["id"]: (told(row.birth), told(row.last_change)) for row in found}
        expected = {
            key: (life.versions[0][0], life.versions[-1][0])
            for key, life in self.record.now.items()
        }
        assert answers == expected
        assert len(found) == len(expected)

    def histories(self, where: str | None = None) -> None:
        for history in row_history(
            self.lake.ledger(), self.lake.catalog(), parse(self.table), where, limit=1000
        ):
            life = self.record.now[int(str(history.versions[0].values["id"]))]
            assert history.complete
            assert history.note is None
            versions = [(told(item.origin), dict(item.values)) for item in history.versions]
            assert versions == list(reversed(life.versions))
            assert told(history.birth) == life.versions[0][0]
            for (_, older), item in zip(life.versions[-2::-1], history.versions, strict=False):
                assert item.changes is not None
                changes = {each.column: (each.before, each.after) for each in item.changes}
                assert changes == {
                    name: (older[name], value)
                    for name, value in item.values.items()
                    if older[name] != value
                }

    def gone(self, where: str | None = None, fits: Callable[[Life], bool] = bool) -> int:
        found = gone_rows(
            self.lake.ledger(), self.lake.catalog(), parse(self.table), where, limit=1000
        )
        assert found.horizon.complete
        answers = Counter(
            (
                json.dumps(dict(row.values)),
                told(row.birth),
                told(row.last_change),
                told(row.deleted_by),
                row.rolled_back,
            )
            for row in found.rows
        )
        expected = Counter(
            (
                json.dumps(life.versions[-1][1]),
                life.versions[0][0],
                life.versions[-1][0],
                life.gone_by,
                life.rolled_back,
            )
            for life in self.record.lives
            if life.gone and fits(life)
        )
        assert answers == expected
        return expected.total()


def made(number: int, amount: int | None = None) -> Values:
    return {
        "id": number,
        "region": f"r{number % 3}",
        "amount": number * 3 if amount is None else amount,
    }


def frame(spark: SparkSession, start: int, end: int, amount: str = "id * 3") -> DataFrame:
    return spark.range(start, end, 1, 1).selectExpr(
        "id", "concat('r', id % 3) AS region", f"CAST({amount} AS int) AS amount"
    )


def at(start: int, end: int) -> odi.Offsets:
    return odi.mapping("orders topic", {"p0": (start, end)})


@pytest.mark.parametrize("layout", ["merge-on-read", "copy-on-write"])
def test_every_answer_is_that_of_a_plain_record_of_who_touched_which_row(
    lake: Workspace, spark: SparkSession, layout: str, capsys: pytest.CaptureFixture[str]
) -> None:
    record = Record()
    judge = Judge(lake, record)
    properties = COPY_ON_WRITE if layout == "copy-on-write" else {}
    with odi.run("sales/orders", lake=lake, spark=spark) as run:
        run.create_table(TABLE, COLUMNS, partitioned_by=["region"], properties=properties)
        for start in (0, 12):
            batch = run.append(
                frame(spark, start, start + 12), TABLE, offsets=at(start, start + 12)
            ).batch
            record.insert(batch, *map(made, range(start, start + 12)))

        # Some change, some are new, one is deleted by its key.
        source = frame(spark, 20, 30, "id * 3 + 1").selectExpr("*", "id = 21 AS dead")
        batch = run.upsert(source, TABLE, key=["id"], delete_when="dead", offsets=at(24, 34)).batch
        for number in (20, 22, 23):
            record.change(batch, {number}, amount=number * 3 + 1)
        record.remove(batch, {21})
        record.insert(batch, *(made(number, number * 3 + 1) for number in range(24, 30)))

        batch = run.update(TABLE, where="id IN (7, 22)", set={"amount": "99"}).batch
        record.change(batch, {7, 22}, amount=99)
        then = run.delete(TABLE, where="id IN (8, 23)").batch
        record.remove(then, {8, 23})
        run.compact(TABLE, options={"rewrite-all": "true"})
        judge.origins()
        judge.histories()
        assert judge.gone() == 3

        run.evolve_schema(TABLE, rename={"amount": "price"}, add={"note": "string"})
        record.rename("amount", "price")
        record.add("note")
        batch = run.update(TABLE, where="id = 7", set={"price": "5", "note": "'late'"}).batch
        record.change(batch, {7}, price=5, note="late")

        # Rolled back: a changed row is as it was, a new one is gone with its batch.
        kept = lake.catalog().load(parse(TABLE)).current_snapshot
        new = frame(spark, 40, 42).selectExpr("id", "region", "amount AS price", "'x' AS note")
        batch = run.append(new, TABLE, offsets=at(34, 36)).batch
        for number in (40, 41):
            record.insert(batch, {**made(number), "note": "x"})
        record.rename("amount", "price")
        run.update(TABLE, where="id = 5", set={"price": "-1"})
        back = run.rollback(TABLE, to_snapshot=kept)
        record.remove(back.batch, {40, 41}, rolled_back=True)

        # A replaced partition: new rows, and the old ones are gone.
        old = {key for key, life in record.now.items() if life.versions[-1][1]["region"] == "r1"}
        anew = spark.sql("SELECT 61L AS id, 'r1' AS region, 1 AS price, 'anew' AS note")
        batch = run.overwrite_partitions(anew, TABLE, offsets=odi.once("r1 anew")).batch
        record.remove(batch, old)
        record.insert(batch, {"id": 61, "region": "r1", "price": 1, "note": "anew"})
        batch = run.delete(TABLE, where="region = 'r2'").batch
        record.remove(
            batch, {k for k, life in record.now.items() if life.versions[-1][1]["region"] == "r2"}
        )
    sql = parse(TABLE).sql(lake.settings.catalog.name)
    spark.sql(f"UPDATE {sql} SET price = 1000 WHERE id = 9")
    record.change(None, {9}, price=1000)
    spark.sql(f"DELETE FROM {sql} WHERE id = 12")
    record.remove(None, {12})
    judge.origins()
    judge.histories()
    # The filter fits no older version of the row, which is found by its id all the same.
    judge.histories("price = 1000")
    assert judge.gone() > 12
    # Some matched the filter only before their last change.
    for where, fits in {
        "price = 66": lambda life: any(row["price"] == 66 for _, row in life.versions),
        "price = 67": lambda life: any(row["price"] == 67 for _, row in life.versions),
        "id = 23": lambda life: life.versions[0][1]["id"] == 23,
    }.items():
        assert judge.gone(where, fits) == 1

    # As it was then, under the names of then.
    (history,) = row_history(lake.ledger(), lake.catalog(), parse(TABLE), "id = 7", as_of=then)
    assert [version.values["amount"] for version in history.versions] == [99, 21]
    assert history.complete
    by_then = gone_rows(lake.ledger(), lake.catalog(), parse(TABLE), as_of=then, limit=1000)
    assert {row.values["id"] for row in by_then.rows} == {8, 21, 23}

    # Under another name it is the same table.
    spark.sql(f"ALTER TABLE {sql} RENAME TO sales.renamed")
    judge.table = "sales.renamed"
    judge.origins()

    # After expiry the ledger answers for births and last changes; versions are said to be gone.
    with odi.run("sales/orders", lake=lake, spark=spark) as run:
        run.compact(judge.table, options={"rewrite-all": "true"})
        run.expire(judge.table, older_than=FUTURE, retain_last=1)
    assert len(lake.catalog().load(parse(judge.table)).snapshots) == 1
    judge.origins()
    nine = record.now[9]
    (history,) = row_history(lake.ledger(), lake.catalog(), parse(judge.table), "id = 9")
    assert not history.complete
    assert history.birth.batch == nine.versions[0][0]
    assert f"the ledger still names the birth batch {history.birth.batch}" in str(history.note)
    gone = gone_rows(lake.ledger(), lake.catalog(), parse(judge.table), "id = 8")
    assert gone.rows == ()
    assert not gone.horizon.complete
    assert [item.operation for item in gone.horizon.takings] == [
        "delete",
        "overwrite_partitions",
        "delete",
        "upsert",
    ]
    assert gone.horizon.takings[2].where == "id IN (8, 23)"
    where = ["--where", "id = 9", "--lake", str(lake.root)]
    for flag in ("--history", "--deleted"):
        assert command(["trace", judge.table, flag, *where]) == 0
        assert "expired" in capsys.readouterr().out


def test_a_row_of_a_v2_table_is_narrowed_to_the_batches_whose_files_were_rewritten(
    lake: Workspace, spark: SparkSession
) -> None:
    name = parse("sales.legacy")
    batches: list[str] = []

    def asked(where: str) -> tuple[Origin, Origin]:
        (row,) = trace(lake.ledger(), lake.catalog(), name, where)
        return row.birth, row.last_change

    with odi.run("sales/legacy", lake=lake, spark=spark) as run:
        run.create_table(
            "sales.legacy",
            COLUMNS,
            partitioned_by=["region"],
            properties={"format-version": "2"},
        )
        for start in (0, 10, 20):
            done = run.append(
                frame(spark, start, start + 10), "sales.legacy", offsets=at(start, start + 10)
            )
            batches.append(done.batch)
        # Only one partition gets rows of this one.
        only = frame(spark, 90, 91).filter("region = 'r0'")
        elsewhere = run.append(only, "sales.legacy", offsets=at(30, 31)).batch
        run.compact("sales.legacy", options={"rewrite-all": "true"})
        # While the snapshot before is kept, an equal row in it says which file it came from.
        birth, change = asked("id = 15")
        assert (birth.batch, birth.confidence) == (batches[1], Confidence.FILE)
        assert change == birth
        updated = run.update("sales.legacy", where="id = 3", set={"amount": "1"}).batch
        birth, change = asked("id = 3")
        assert (change.batch, change.confidence) == (updated, Confidence.FILE)
        assert birth.confidence is Confidence.CANDIDATES
        assert set(birth.candidates) == {*batches, elsewhere}
        deleted = run.delete("sales.legacy", where="id = 14").batch
        (row,) = gone_rows(lake.ledger(), lake.catalog(), name, "id = 14").rows
        assert row.deleted_by.batch == deleted
        assert row.deleted_by.confidence is Confidence.FILE
        # Landed after the compaction: no candidate for what it rewrote.
        late = run.append(frame(spark, 40, 42), "sales.legacy", offsets=at(31, 33)).batch
        run.expire("sales.legacy", older_than=FUTURE, retain_last=1)
    for where, candidates in {
        "id = 16": tuple(reversed(batches)),
        "id = 15": (elsewhere, *reversed(batches)),
    }.items():
        birth, change = asked(where)
        assert birth.batch is None
        assert birth.confidence is Confidence.CANDIDATES
        assert birth.candidates == candidates
        assert birth.candidates_count == len(candidates)
        assert change == birth
    assert asked("id = 41")[0].batch == late


def test_a_data_file_that_is_gone_is_named_and_the_rest_is_answered(
    lake: Workspace, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    with odi.run("sales/orders", lake=lake, spark=spark) as run:
        run.create_table(TABLE, COLUMNS)
        for start in (0, 10):
            run.append(frame(spark, start, start + 10), TABLE, offsets=at(start, start + 10))
    (row,) = trace(lake.ledger(), lake.catalog(), parse(TABLE), "id = 15")
    Path(row.file.removeprefix("file:")).unlink()
    tracing = start_trace(lake.ledger(), lake.catalog(), parse(TABLE))
    assert {item.values["id"] for item in tracing} == set(range(10))
    assert tracing.missing == [row.file]
    with pytest.raises(odi.OdiError, match="gone"):
        trace(lake.ledger(), lake.catalog(), parse(TABLE))
    assert command(["trace", TABLE, "--json", "--lake", str(lake.root)]) == 1
    shown = capsys.readouterr()
    answer = json.loads(shown.out)["data"]
    assert answer["missing"] == [row.file]
    assert len(answer["rows"]) == 10
    assert row.file in shown.err
