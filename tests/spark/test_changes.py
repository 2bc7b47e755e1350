"""Changes, diff, impact and consumers on real tables, judged by a plain record and by Spark.

The record is kept in Python while the story is told: which rows each snapshot holds, and which
batch made, changed and took each of them.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

import odi_audit as odi
from odi_audit.catalog.changes import CHANGE, changes, compare
from odi_audit.cli.app import run as main
from odi_audit.errors import EntryNotFound, Exit
from odi_audit.ids import SnapshotId
from odi_audit.model.tables import parse
from odi_audit.query.diff import diff
from odi_audit.query.impact import Fate, impact
from odi_audit.query.origin import Confidence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from odi_audit.catalog import TableState
    from odi_audit.committer.run import Run
    from odi_audit.model.offsets import Offsets
    from odi_audit.model.receipts import Receipt
    from odi_audit.workspace import Workspace

NAME = "sales.orders"
COPY_ON_WRITE = {f"write.{kind}.mode": "copy-on-write" for kind in ("delete", "update", "merge")}
LAYOUTS: dict[str, dict[str, str]] = {
    "merge-on-read": {},
    "copy-on-write": COPY_ON_WRITE,
    "format-2": {"format-version": "2"},
}
Row: TypeAlias = tuple[int, str, int]


@dataclass(slots=True)
class Version:
    """A row as a snapshot holds it, with who made and last changed it."""

    row: Row
    born: str
    changed: str


@dataclass(slots=True)
class Record:
    """What must be true, kept without any of the code under test."""

    now: dict[int, Version] = field(default_factory=dict)
    at: dict[str, dict[int, Version]] = field(default_factory=dict)
    took: dict[tuple[int, str], str] = field(default_factory=dict)
    batches: list[str] = field(default_factory=list)

    def write(self, receipt: Receipt, rows: dict[int, Row], gone: set[int] | None = None) -> None:
        for key, row in rows.items():
            born = self.now[key].born if key in self.now else receipt.batch
            self.now[key] = Version(row, born, receipt.batch)
        for key in gone or ():
            self.took[key, self.now.pop(key).born] = receipt.batch
        self.batches.append(receipt.batch)
        self.keep(receipt)

    def keep(self, receipt: Receipt) -> None:
        self.at[str(receipt.snapshot)] = dict(self.now)

    def rows(self, snapshot: str) -> dict[int, Row]:
        return {key: version.row for key, version in self.at[snapshot].items()}


def made(key: int, more: int = 0) -> Row:
    return key, f"r{key % 3}", key * 10 + more


def frame(spark: SparkSession, keys: range, more: int = 0) -> DataFrame:
    return spark.range(keys.start, keys.stop, 1, 1).selectExpr(
        "id", "concat('r', id % 3) AS region", f"CAST(id * 10 + {more} AS int) AS amount"
    )


def at(start: int, end: int) -> Offsets:
    return odi.mapping("topic", {"p0": (start, end)})


def tell(run: Run, spark: SparkSession, properties: dict[str, str]) -> Record:
    """Make the table and its history, and the record of it."""
    record = Record()
    columns = "id bigint NOT NULL, region string, amount int"
    run.create_table(NAME, columns, partitioned_by=["region"], properties=properties)

    def append(keys: range, start: int) -> Receipt:
        receipt = run.append(frame(spark, keys), NAME, offsets=at(start, start + 10))
        record.write(receipt, {key: made(key) for key in keys})
        return receipt

    append(range(30), 0)
    append(range(30, 40), 10)
    receipt = run.update(NAME, where="id < 5", set={"amount": "amount + 1"})
    record.write(receipt, {key: made(key, 1) for key in range(5)})
    record.write(run.delete(NAME, where="id IN (7, 35)"), {}, {7, 35})
    source = frame(spark, range(38, 44), 5)
    receipt = run.upsert(source, NAME, key=["id"], offsets=at(20, 30))
    record.write(receipt, {key: made(key, 5) for key in range(38, 44)})
    record.keep(run.compact(NAME, options={"rewrite-all": "true"}))
    kept = append(range(50, 55), 30)
    before = dict(record.now)
    append(range(60, 63), 40)
    receipt = run.update(NAME, where="id = 50", set={"amount": "0"})
    record.write(receipt, {50: (50, "r2", 0)})
    run.rollback(NAME, to_snapshot=str(kept.snapshot))
    record.now = before
    receipt = run.append(frame(spark, range(70, 72)), NAME, offsets=odi.once("after the rollback"))
    record.write(receipt, {key: made(key) for key in range(70, 72)})
    receipt = run.update(NAME, where="id IN (1, 70)", set={"amount": "-1"})
    record.write(receipt, {key: (key, f"r{key % 3}", -1) for key in (1, 70)})
    return record


@pytest.fixture(params=LAYOUTS)
def story(
    request: pytest.FixtureRequest, lake: Workspace, spark: SparkSession
) -> tuple[str, Record]:
    with odi.run("sales/orders", lake=lake) as run:
        return request.param, tell(run, spark, LAYOUTS[request.param])


def state_of(lake: Workspace, name: str = NAME) -> TableState:
    return lake.catalog().load(parse(name))


def images(state: TableState, before: str | None, after: str, **how: Any) -> Counter[Any]:
    first = None if before is None else SnapshotId(before)
    return Counter(
        (row[CHANGE], (row["id"], row["region"], row["amount"]))
        for batch in changes(state, first, SnapshotId(after), **how)
        for row in batch.to_pylist()
    )


def expected(before: dict[int, Row], after: dict[int, Row], *, paired: bool) -> Counter[Any]:
    """What must come out: with pairs (a key or row ids), or as rows that went and came."""
    names = ("update_before", "update_after") if paired else ("delete", "insert")
    found: list[tuple[str, Row]] = []
    for key in before.keys() | after.keys():
        if key not in after:
            found.append(("delete", before[key]))
        elif key not in before:
            found.append(("insert", after[key]))
        elif before[key] != after[key]:
            found += [(names[0], before[key]), (names[1], after[key])]
    return Counter(found)


def spark_rows(spark: SparkSession, lake: Workspace, snapshot: str) -> dict[int, Row]:
    table = parse(NAME).sql(lake.settings.catalog.name)
    found = spark.sql(f"SELECT id, region, amount FROM {table} VERSION AS OF {snapshot}").collect()
    return {row.id: (row.id, row.region, row.amount) for row in found}


def test_everything_agrees_with_the_record_and_with_spark(
    story: tuple[str, Record], lake: Workspace, spark: SparkSession
) -> None:
    # One test: telling the story again for each question would take minutes.
    layout, record = story
    state = state_of(lake)
    # The rows of the record are the rows of the table, says Spark.
    for snapshot in list(record.at)[::4] + list(record.at)[-1:]:
        assert record.rows(snapshot) == spark_rows(spark, lake, snapshot)
    _changes_between_any_two_snapshots(state, record, has_ids=layout != "format-2")
    _diff_counts(lake, record, has_ids=layout != "format-2")
    _fates(lake, record, has_ids=layout != "format-2")
    _with_any_file_gone(lake, state, record)
    if layout == "copy-on-write":
        _changelog_view(state, record, lake, spark)
    if layout != "format-2":
        _joins_by_row_id(state, record, lake, spark)


def _changes_between_any_two_snapshots(state: TableState, record: Record, has_ids: bool) -> None:
    # Every other one: before and after the compaction, and on both sides of the rollback.
    for before, after in itertools.product(list(record.at)[::2], repeat=2):
        old, new = record.rows(before), record.rows(after)
        assert images(state, before, after) == expected(old, new, paired=has_ids)
        assert images(state, before, after, key=["id"]) == expected(old, new, paired=True)
    last = list(record.at)[-1]
    assert images(state, None, last) == expected({}, record.rows(last), paired=has_ids)


def _diff_counts(lake: Workspace, record: Record, has_ids: bool) -> None:
    ledger, catalog = lake.ledger(), lake.catalog()
    snapshots = list(record.at)
    for before, after in [(snapshots[0], snapshots[-1]), (snapshots[-3], snapshots[6])]:
        old, new = record.rows(before), record.rows(after)
        found = diff(ledger, catalog, parse(NAME), before, after, key=["id"], limit=100)
        changed = {key for key in old.keys() & new.keys() if old[key] != new[key]}
        assert found.added == len(new.keys() - old.keys())
        assert found.removed == len(old.keys() - new.keys())
        assert found.changed == len(changed)
        assert found.columns == {"amount": len(changed)}
        shown = {row.values["id"]: row for row in found.samples if row.change == "changed"}
        assert shown.keys() == changed
        for key in changed:
            assert shown[key].differences == {"amount": (old[key][2], new[key][2])}
        if has_ids:
            held = record.at[after]
            named = {row.values["id"]: row.batch for row in found.samples}
            if before == snapshots[0]:
                assert {key: named[key] for key in changed} == {
                    key: held[key].changed for key in changed
                }
                assert named[7] == record.took[7, record.batches[0]]


def _fates(lake: Workspace, record: Record, has_ids: bool) -> None:
    head = record.at[list(record.at)[-1]]
    rollback = next(entry.batch for entry in lake.ledger().scan() if entry.kind.value == "rollback")
    for batch, snapshot in zip(
        record.batches, [s for s in record.at if s in _own(lake)], strict=True
    ):
        found = impact(lake.ledger(), lake.catalog(), batch)
        fate = found.tables[0].fate
        if not has_ids:
            assert fate.confidence is Confidence.FILE
            assert fate.written == fate.live + fate.gone + fate.untold  # type: ignore[operator]
            continue
        written = {
            key: version for key, version in record.at[snapshot].items() if version.changed == batch
        }
        undone = found.tables[0].undone_by is not None
        _compare_fate(fate, batch, written, head, record, rollback if undone else None)


def _own(lake: Workspace) -> set[str]:
    """The snapshots of batches that write rows: all but the compaction's."""
    return {
        str(entry.facts["snapshot"])
        for entry in lake.ledger().scan()
        if entry.kind.value == "landed" and entry.facts["operation"] != "compact"
    }


def _compare_fate(
    fate: Fate,
    batch: str,
    written: dict[int, Version],
    head: dict[int, Version],
    record: Record,
    rollback: str | None,
) -> None:
    live = changed = 0
    changers: Counter[str | None] = Counter()
    takers: Counter[str | None] = Counter()
    for key, version in written.items():
        now = head.get(key)
        if now is None or now.born != version.born:
            takers[record.took.get((key, version.born), rollback)] += 1
        elif now.changed == batch:
            live += 1
        else:
            changed += 1
            changers[rollback or now.changed] += 1
    assert fate.confidence is Confidence.EXACT
    assert (fate.written, fate.live, fate.changed) == (len(written), live, changed)
    assert fate.born == sum(version.born == batch for version in written.values())
    assert {by.batch: by.rows for by in fate.changed_by} == changers
    assert {by.batch: by.rows for by in fate.gone_by} == takers
    assert fate.took == sum(taker == batch for taker in record.took.values())


def _with_any_file_gone(lake: Workspace, state: TableState, record: Record) -> None:
    """With a data file gone, what is told is a part of the truth, and the file is named."""
    snapshots = list(record.at)
    # Over the compaction, over the rollback and back, and over one update.
    pairs = [(0, -1), (-1, 0), (1, 2), (-3, -1)]
    ways: list[dict[str, Any]] = [{}, {"key": ["id"]}, {"where": "region = 'r1'"}]
    asked = [(snapshots[a], snapshots[b], how) for a, b in pairs for how in ways]
    truth = [images(state, before, after, **how) for before, after, how in asked]
    fates = {batch: _fate(lake, batch) for batch in record.batches[:5]}
    named = 0
    # Without a file of deletes nothing can be told: that is an error, and not meant here.
    data = Path(str(lake.settings.catalog.warehouse)).rglob("*[!s].parquet")
    for path in sorted(data)[::5]:
        away = path.rename(path.with_suffix(".away"))
        for (before, after, how), whole in zip(asked, truth, strict=True):
            missing: list[str] = []
            compared = compare(state, SnapshotId(before), SnapshotId(after), missing=missing, **how)
            told = Counter(
                (row[CHANGE], (row["id"], row["region"], row["amount"]))
                for batch in compared.batches()
                for row in batch.to_pylist()
            )
            assert told <= whole
            assert missing or told == whole
            assert all(name.endswith(path.name) for name in missing)
            named += bool(missing)
        for batch, whole_fate in fates.items():
            _is_part(_fate(lake, batch), whole_fate)
        away.rename(path)
    assert named


def _fate(lake: Workspace, batch: str) -> Fate:
    return impact(lake.ledger(), lake.catalog(), batch).tables[0].fate


def _is_part(fate: Fate, whole: Fate) -> None:
    counts = (fate.live, fate.changed or 0, fate.gone, fate.untold)
    assert sum(counts) == fate.written  # type: ignore[arg-type]
    for count in ("written", "live", "gone", "changed", "born"):
        assert (getattr(fate, count) or 0) <= (getattr(whole, count) or 0)
    for by, truly in ((fate.changed_by, whole.changed_by), (fate.gone_by, whole.gone_by)):
        known = {item.batch: item.rows for item in truly}
        assert all(item.rows <= known[item.batch] for item in by if item.batch is not None)
    if fate != whole:
        assert fate.note is not None
        assert "data files are gone" in fate.note


def _changelog_view(
    state: TableState, record: Record, lake: Workspace, spark: SparkSession
) -> None:
    """Iceberg's own changelog, step by step, says the same."""
    catalog = lake.settings.catalog.name
    main = [info.id for info in state.snapshots if info.id in record.at][:6]
    for before, after in itertools.pairwise(main):
        view = spark.sql(
            f"CALL {catalog}.system.create_changelog_view(table => '{NAME}', options => "
            f"map('start-snapshot-id', '{before}', 'end-snapshot-id', '{after}'), "
            "identifier_columns => array('id'))"
        ).collect()[0][0]
        found = spark.sql(f"SELECT id, region, amount, _change_type FROM {view}").collect()
        theirs = Counter(
            (row["_change_type"].lower(), (row.id, row.region, row.amount)) for row in found
        )
        assert images(state, before, after) == theirs


def _joins_by_row_id(
    state: TableState, record: Record, lake: Workspace, spark: SparkSession
) -> None:
    """Spark's metadata columns, joined, say the same."""
    table = parse(NAME).sql(lake.settings.catalog.name)
    first, last = list(record.at)[1], list(record.at)[-1]
    side = "SELECT _row_id AS i, _last_updated_sequence_number AS s FROM {} VERSION AS OF {}"
    joined = spark.sql(
        f"SELECT count_if(b.i IS NULL) AS inserted, count_if(a.i IS NULL) AS deleted, "
        f"count_if(a.s != b.s) AS updated FROM ({side.format(table, first)}) b "
        f"FULL OUTER JOIN ({side.format(table, last)}) a ON a.i = b.i"
    ).collect()[0]
    found = compare(state, SnapshotId(first), SnapshotId(last))
    assert found.inserted_count == joined.inserted
    assert found.deleted_count == joined.deleted
    assert found.updated_count == joined.updated


def test_a_consumer_that_applies_what_it_reads_has_the_table(
    lake: Workspace, spark: SparkSession
) -> None:
    copy: dict[int, Row] = {}

    def catch_up(form: Any) -> int:
        with odi.read_changes(NAME, consumer="copy", lake=lake, as_=form) as reading:
            data: Any = reading.data
            rows = (
                [row.asDict() for row in data.collect()]
                if form == "spark"
                else data.read_all().to_pylist()
            )
            for row in rows:
                if row["_change"] in ("delete", "update_before"):
                    assert copy.pop(row["id"]) == (row["id"], row["region"], row["amount"])
                else:
                    assert row["id"] not in copy
                    copy[row["id"]] = (row["id"], row["region"], row["amount"])
            assert all(row["_batch"] is not None for row in rows)
            return len(rows)

    with odi.run("sales/orders", lake=lake) as run:
        run.create_table(NAME, "id bigint NOT NULL, region string, amount int")
        run.append(frame(spark, range(10)), NAME, offsets=at(0, 10))
        assert catch_up("spark") == 10
        # Every key moves to the next row: only all the old ones first, then the new, is right.
        run.update(NAME, where="id >= 0", set={"id": "id + 1"})
        run.delete(NAME, where="id = 9")
        assert catch_up("arrow") == 19
        table = parse(NAME).sql(lake.settings.catalog.name)
        spark.sql(f"ALTER TABLE {table} CREATE TAG month_end")
        run.compact(NAME, options={"rewrite-all": "true"})
        assert catch_up("spark") == 0
        run.append(frame(spark, range(20, 22)), NAME, offsets=at(10, 20))
        assert catch_up("arrow") == 2
        held = spark.table(table).collect()
        assert sorted(copy.values()) == sorted((row.id, row.region, row.amount) for row in held)
        with odi.read_stable(NAME, tag="month_end", consumer="books", lake=lake) as stable:
            assert stable.to_table().num_rows == 9
        with odi.read_stable(NAME, tag="month_end", lake=lake, as_="spark") as stable:
            assert stable.to_spark().count() == 9
        spark.sql(f"ALTER TABLE {table} DROP TAG month_end")
        run.append(frame(spark, range(30, 31)), NAME, offsets=at(20, 30))
        run.expire(NAME, older_than=datetime.now(UTC), retain_last=1)
    with pytest.raises(EntryNotFound, match=r"expired.*since='start'.*since='oldest'"):
        catch_up("arrow")


def test_what_was_read_of_one_state_is_written_also_when_the_table_has_moved(
    lake: Workspace, spark: SparkSession
) -> None:
    table = parse(NAME).sql(lake.settings.catalog.name)
    totals = parse("sales.totals").sql(lake.settings.catalog.name)
    with odi.run("sales/orders", lake=lake) as run:
        run.create_table(NAME, "id bigint, region string, amount int")
        first = run.append(frame(spark, range(9)), NAME, offsets=at(0, 10))
        spark.sql(f"ALTER TABLE {table} CREATE TAG month_end")
        run.append(frame(spark, range(9, 12)), NAME, offsets=at(10, 20))

    def write(part: str, move: bool = False, **state: str) -> dict[str, int]:
        with odi.run("sales/totals", lake=lake) as run:
            run.create_table("sales.totals", "region string, rows bigint", if_not_exists=True)
            with odi.read_stable(NAME, run=run, as_="spark", **state) as reading:
                counted = reading.to_spark().groupBy("region").count()
                if move:
                    run.append(frame(spark, range(20, 30)), NAME, offsets=at(20, 30))
                rows = counted.withColumnRenamed("count", "rows")
                run.overwrite(rows, "sales.totals", where="true", offsets=odi.once(part))
        return {row.region: row.rows for row in spark.table(totals).collect()}

    assert write("main", as_of="main") == {"r0": 4, "r1": 4, "r2": 4}
    assert write("tag", tag="month_end") == {"r0": 3, "r1": 3, "r2": 3}
    assert write("snapshot", as_of=str(first.snapshot)) == {"r0": 3, "r1": 3, "r2": 3}
    # While it is read the table moves on, and so does the time between reading and writing.
    assert write("moved", move=True, as_of="main") == {"r0": 4, "r1": 4, "r2": 4}
    read = [entry.facts["rows"] for entry in lake.ledger().scan() if entry.kind.value == "read"]
    assert read == [12, 9, 9, 12]


def test_what_a_reading_run_wrote_is_downstream_of_the_batch(
    lake: Workspace, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    with odi.run("sales/orders", lake=lake) as run:
        run.create_table(NAME, "id bigint, region string, amount int")
        run.create_table("sales.copy", "id bigint, region string, amount int")
        first = run.append(frame(spark, range(5)), NAME, offsets=at(0, 10))

    def copy(source: str, target: str, consumer: str) -> tuple[str, Receipt]:
        with odi.run("sales/copying", lake=lake) as run:
            with odi.read_changes(source, consumer=consumer, run=run, as_="spark") as reading:
                rows = reading.to_spark().select("id", "region", "amount")
                receipt = run.append(rows, target, offsets=reading.offsets)
            return run.run_id, receipt

    run_id, copied = copy(NAME, "sales.copy", "copier")
    # The copy is read and written back, and that is copied again: a circle.
    _, back = copy("sales.copy", NAME, "back")
    _, last = copy(NAME, "sales.copy", "copier")
    found = impact(lake.ledger(), lake.catalog(), first.batch)
    (reader,) = found.readers
    assert (reader.read.consumer, reader.read.run, reader.certain) == ("copier", run_id, True)
    assert [written.batch for written in reader.wrote] == [copied.batch]
    (second,) = reader.wrote[0].readers
    assert [written.batch for written in second.wrote] == [back.batch]
    (third,) = second.wrote[0].readers
    assert [written.batch for written in third.wrote] == [last.batch]
    assert third.wrote[0].readers == ()
    _commands(lake, first.batch, copied.batch, capsys)


def _commands(lake: Workspace, first: str, copied: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The commands say what the library says, for people and for machines."""

    def call(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main([*words, "--lake", str(lake.root)])
        told = capsys.readouterr()
        return status, told.out, told.err

    def data(*words: str) -> Any:
        status, out, _ = call(*words, "--json")
        assert status == 0
        answer = json.loads(out)
        assert answer["schema"] == f"odi.{'consumers' if '--list' in words else words[0]}/1"
        return answer["data"]

    assert data("diff", NAME, first, "main")["added"] == 5
    assert "5 added, 0 removed, 0 changed" in call("diff", NAME, first, "main")[1]
    assert data("impact", first)["readers"][0]["wrote"][0]["batch"] == copied
    status, out, _ = call("impact", first)
    assert status == 0
    assert "5 still as the batch left them" in out
    assert f"    wrote {copied} to sales.copy" in out
    listed = {item["consumer"]: item for item in data("read", "--list")["consumers"]}
    assert (listed["back"]["standing"], listed["back"]["lag_batches"]) == ("behind", 1)
    assert "behind" in call("read", "--list", "sales.copy")[1]
    page = data("read", "sales.copy", "--consumer", "back")
    assert (page["inserted"], page["applied"], page["entry"]) == (5, False, None)
    _, out, err = call("read", "sales.copy", "--consumer", "back", "--limit", "1")
    assert "5 inserted" in out
    assert "--apply" in err
    applied = data("read", "sales.copy", "--consumer", "back", "--apply", "--limit", "0")
    assert applied["entry"] is not None
    assert "has read all" in call("read", "sales.copy", "--consumer", "back")[1]
    assert call("read", "sales.copy")[0] == Exit.USAGE
    assert call("read", "sales.kopy", "--consumer", "x")[0] == Exit.NOT_FOUND
    assert call("impact", "b-ffffffff")[0] == Exit.NOT_FOUND
    assert call("diff", NAME, first, "no-such-tag")[0] == Exit.NOT_FOUND
    status, _, err = call("diff", NAME, first, "main", "--key", "idd")
    assert (status, "did you mean id?" in err) == (Exit.USAGE, True)


def test_an_upgrade_to_v3_is_no_change_and_rows_written_anew_are_counted_apart(
    lake: Workspace, spark: SparkSession
) -> None:
    record = Record()
    table = parse(NAME).sql(lake.settings.catalog.name)
    with odi.run("sales/orders", lake=lake) as run:
        run.create_table(
            NAME,
            "id bigint, region string, amount int",
            properties={"format-version": "2"},
        )
        receipt = run.append(frame(spark, range(6)), NAME, offsets=at(0, 10))
        record.write(receipt, {key: made(key) for key in range(6)})
        spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('format-version' = '3')")
        receipt = run.update(NAME, where="id = 1", set={"amount": "amount + 1"})
        record.write(receipt, {1: made(1, 1)})
        record.keep(run.compact(NAME, options={"rewrite-all": "true"}))
        receipt = run.append(frame(spark, range(6, 8)), NAME, offsets=at(10, 20))
        record.write(receipt, {key: made(key) for key in (6, 7)})
        same = run.update(NAME, where="id < 3", set={"amount": "amount"})
        record.keep(same)
    state = state_of(lake)
    first, updated, compacted, appended, last = record.at
    for before, after in itertools.product((first, updated, compacted, appended), repeat=2):
        old, new = record.rows(before), record.rows(after)
        has_ids = first not in (before, after)
        assert images(state, before, after) == expected(old, new, paired=has_ids)
        assert images(state, before, after, key=["id"]) == expected(old, new, paired=True)
    found = diff(lake.ledger(), lake.catalog(), parse(NAME), appended, last)
    assert (found.added, found.removed, found.changed, found.rewritten) == (0, 0, 0, 3)
    assert found.samples == ()
    by_key = diff(lake.ledger(), lake.catalog(), parse(NAME), appended, last, key=["id"])
    assert (by_key.changed, by_key.rewritten) == (0, 0)
    assert impact(lake.ledger(), lake.catalog(), same.batch).tables[0].fate.live == 3
