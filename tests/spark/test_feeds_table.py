"""Another table as the source of a job: every change once, and on record as a reading."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

import odi_audit as odi
from jobs.runner.frame_job import FrameJob
from jobs.runner.loop import Until, run_job
from jobs.runner.outcome import Ran
from jobs.sources.base import NO_CHOICES, Choices, Limits
from jobs.sources.table import TableFeed
from jobs.spec import parse_spec
from lineage.context import LedgerContext
from lineage.events import events_of
from odi_audit.errors import SourceChanged
from odi_audit.ledger.port import EntryFilter
from odi_audit.model.entries import Kind
from odi_audit.query.consumers import list_consumers
from odi_audit.query.impact import impact
from odi_audit.query.verify import verify
from odi_audit.workspace import Workspace
from tests.support.independent import Eyes
from tests.support.killed import Killed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odi_audit.model.receipts import Receipt

COLUMNS = "id bigint, region string, amount bigint"
SPEC = """
version: 1
job: shop/copy
source: {{type: iceberg, table: shop.orders, read: {read}{more}}}
{transform}
target: {{table: shop.copy, {target}}}
"""


def text(read: str, target: str, *, more: str = "", transform: str = "") -> str:
    return SPEC.format(read=read, target=target, more=more, transform=transform)


MIRROR = text("changes", "mode: mirror, key: id")


def run_once(
    lake: Workspace,
    spec_text: str,
    *,
    choices: Choices = NO_CHOICES,
    reach: Callable[[str], None] | None = None,
    rows: int = 10_000,
) -> Ran:
    spec = parse_spec(spec_text, {})
    more: dict[str, Any] = {} if reach is None else {"reach": reach}
    with odi.run(spec.job, lake=lake, **more) as run:
        worker = FrameJob(spec, TableFeed(spec))
        return run_job(run, worker, Limits(rows=rows), until=Until(drained=True), choices=choices)


class Source:
    """The table that is read, and who writes it."""

    def __init__(self, lake: Workspace, spark: SparkSession) -> None:
        self._lake, self._spark, self._number = lake, spark, 0
        with odi.run("shop/import", lake=lake) as run:
            run.create_table("shop.orders", COLUMNS)

    def upsert(self, *rows: tuple[int, str, int]) -> Receipt:
        self._number += 1
        frame = self._spark.createDataFrame(list(rows), COLUMNS)
        with odi.run("shop/import", lake=self._lake) as run:
            at = odi.once(f"upsert-{self._number}")
            return run.upsert(frame, "shop.orders", key=["id"], offsets=at)

    def append(self, *rows: tuple[int, str, int]) -> Receipt:
        self._number += 1
        frame = self._spark.createDataFrame(list(rows), COLUMNS)
        with odi.run("shop/import", lake=self._lake) as run:
            return run.append(frame, "shop.orders", offsets=odi.once(f"append-{self._number}"))

    def do(self, what: Callable[[Any], Any]) -> None:
        with odi.run("shop/import", lake=self._lake) as run:
            what(run)


@pytest.fixture
def source(lake: Workspace, spark: SparkSession) -> Source:
    return Source(lake, spark)


def rows(lake: Workspace, table: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[:3]) for row in Eyes.on(lake.root).rows(table))


def test_a_mirror_of_a_table_follows_it_through_kills_and_its_readings_are_on_record(
    lake: Workspace, source: Source
) -> None:
    source.append((1, "n", 10), (2, "n", 20), (3, "s", 30))
    assert run_once(lake, MIRROR).batches == 1
    changed = source.upsert((2, "w", 21), (4, "w", 40))
    source.do(lambda run: run.delete("shop.orders", where="id = 1"))
    source.do(lambda run: run.update("shop.orders", where="id = 3", set={"id": "5"}))
    source.do(lambda run: run.compact("shop.orders", options={"rewrite-all": "true"}))

    def reach(point: str) -> None:
        if point == "published:0":
            raise Killed

    with pytest.raises(Killed):
        run_once(lake, MIRROR, reach=reach)
    assert run_once(lake, MIRROR).batches <= 1
    assert run_once(lake, MIRROR).batches == 0
    assert rows(lake, "shop.copy") == rows(lake, "shop.orders") == [
        (2, "w", 21), (4, "w", 40), (5, "s", 30),
    ]  # fmt: skip
    # A key that goes and comes back is there afterwards.
    source.do(lambda run: run.delete("shop.orders", where="id = 2"))
    source.append((2, "e", 22))
    run_once(lake, MIRROR)
    assert rows(lake, "shop.copy") == rows(lake, "shop.orders")
    seen = impact(lake.ledger(), lake.catalog(), changed.batch)
    wrote = [batch.tables for reader in seen.readers for batch in reader.wrote]
    assert wrote == [("shop.copy",)]
    (consumer,) = list_consumers(lake.ledger(), lake.catalog())
    assert (consumer.position.consumer, consumer.lag_batches) == ("shop/copy", 0)
    ledger = lake.ledger()
    context = LedgerContext(ledger)
    made = [event for entry in ledger.scan() for event in events_of(entry, context)]
    bodies = [json.loads(event.body) for event in made]
    told = [body for body in bodies if body["job"]["name"].endswith("copy") and body.get("outputs")]
    inputs = {item["name"] for body in told for item in body.get("inputs", [])}
    assert any(name.endswith("shop/orders") for name in inputs)
    assert not verify(lake.ledger(), lake.catalog())


def test_appends_go_on_snapshot_by_snapshot_and_anything_else_stops_the_job(
    lake: Workspace, source: Source
) -> None:
    spec = text("appends", "mode: append", more=", where: amount > 0, start: latest")
    source.append((1, "n", 10))
    assert run_once(lake, spec).records == 0, "the place to start at is written down"
    for number in range(2, 6):
        source.append((number, "n", number), (-number, "n", 0))
    source.do(lambda run: run.compact("shop.orders", options={"rewrite-all": "true"}))
    assert run_once(lake, spec, rows=4).batches >= 2
    assert [row[0] for row in rows(lake, "shop.copy")] == [2, 3, 4, 5]
    source.do(lambda run: run.delete("shop.orders", where="id = 2"))
    with pytest.raises(SourceChanged, match=r"is read by its appends, but snapshot \d+ of"):
        run_once(lake, spec)
    assert not verify(lake.ledger(), lake.catalog())


def test_a_position_that_has_expired_stops_the_job_until_somebody_decides(
    lake: Workspace, source: Source
) -> None:
    source.append((1, "n", 10))
    run_once(lake, MIRROR)
    source.upsert((1, "n", 11), (2, "n", 20))
    source.do(lambda run: run.expire("shop.orders", older_than=datetime.now(UTC)))
    with pytest.raises(SourceChanged, match="has expired: what changed since then cannot be told"):
        run_once(lake, MIRROR)
    run_once(lake, MIRROR, choices=Choices(generation=1))
    assert rows(lake, "shop.copy") == rows(lake, "shop.orders")
    assert run_once(lake, MIRROR).batches == 0


TOTALS = "transform: SELECT region, sum(amount) AS amount FROM batch GROUP BY region"


def test_a_correction_replaces_a_window_says_what_changed_and_is_not_done_twice(
    lake: Workspace, source: Source, capfd: pytest.CaptureFixture[str]
) -> None:
    spec = text(
        "rows",
        "mode: replace, where: region <> 'other'",
        more=", where: amount > 0",
        transform=TOTALS + "\ncontract: {key: region}",
    )
    source.append((1, "n", 10), (2, "n", 20), (3, "s", 30), (4, "other", 5), (5, "w", -1))
    assert run_once(lake, spec).batches == 1
    with odi.run("shop/hand", lake=lake) as run:
        run.update("shop.copy", where="region = 'other'", set={"amount": "99"})
    assert run_once(lake, spec).batches == 0, "the same window of the same rows is the same work"
    source.upsert((1, "n", 11), (3, "w", 30), (4, "n", 5))
    capfd.readouterr()
    assert run_once(lake, spec).batches == 1
    told = capfd.readouterr().err
    held = sorted(tuple(row) for row in Eyes.on(lake.root).rows("shop.copy"))
    assert held == [("n", 36), ("other", 99), ("w", 30)], "what is outside of the window stays"
    line = next(json.loads(text) for text in told.splitlines() if "rows were replaced" in text)
    assert (line["added"], line["removed"], line["changed"]) == (1, 1, 1)
    assert "odi-audit diff shop.copy" in line["next"]
    assert run_once(lake, spec).batches == 0
    assert run_once(lake, spec, choices=Choices(generation=1)).batches == 1
    assert not verify(lake.ledger(), lake.catalog())
    kept = json.dumps([entry.facts for entry in lake.ledger().scan()], default=str)
    assert "<> 'other'" not in kept, "no value of a condition is in the ledger"


def test_a_window_of_whole_partitions_replaces_files_and_any_other_one_rows(
    lake: Workspace, source: Source
) -> None:
    with odi.run("shop/make", lake=lake) as run:
        run.create_table("shop.copy", COLUMNS, partitioned_by=["region"])
    source.append((1, "n", 10), (2, "n", 20), (3, "s", 30))
    by_region = text("rows", "mode: replace, where: region = 'n'", more=", where: region = 'n'")
    by_id = text("rows", "mode: replace, where: id > 1", more=", where: id > 1")
    assert run_once(lake, by_region).batches == 1
    assert run_once(lake, by_id.replace("shop/copy", "shop/other")).batches == 1
    assert rows(lake, "shop.copy") == [(1, "n", 10), (2, "n", 20), (3, "s", 30)]
    source.upsert((2, "n", 21))
    source.do(lambda run: run.delete("shop.orders", where="id = 1"))
    assert run_once(lake, by_region).batches == 1
    assert rows(lake, "shop.copy") == [(2, "n", 21), (3, "s", 30)]
    found = lake.ledger().find(EntryFilter(kinds=(Kind.LANDED,)))
    done = [entry.facts["operation"] for entry in found if entry.job in {"shop/copy", "shop/other"}]
    assert done[-3:] == ["overwrite", "upsert", "overwrite"]
