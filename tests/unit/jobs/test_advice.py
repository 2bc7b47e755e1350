"""What a commit interval costs, and which one is advised."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobs.advice import DAY_S, INTERVALS_S, Rates, advise, cost, rates_of
from jobs.spec import parse_spec
from jobs.spec.model import JobSpec
from odi_audit.canonical import Json
from odi_audit.cli.app import run as cli
from odi_audit.errors import UsageError
from odi_audit.ids import BatchId, JobName, TableUuid
from odi_audit.ledger import create_ledger
from odi_audit.model.entries import Draft, Kind
from odi_audit.model.tables import TableRef

TEXT = """
version: 1
job: shop/clicks
source: {type: kafka, servers: localhost:1, topics: [clicks], value: {format: json}}
batch: {every: %s}
target: {table: shop.clicks}
dead_letter: {table: shop.dead}
"""


def spec(every: str = "1m") -> JobSpec:
    return parse_spec(TEXT % every, {})


def test_twenty_tasks_and_a_commit_a_minute_make_28800_files_a_day() -> None:
    found = advise(spec("1m"), rates_of(spec(), tasks=20))
    assert found.chosen.files == 28_800
    assert found.chosen.snapshots == 1_440
    assert found.recommended.every_s == 300
    assert any("10,000 files" in note for note in found.chosen.notes)


def test_every_interval_from_ten_seconds_to_an_hour_is_priced() -> None:
    found = advise(spec("7m"), Rates())
    assert [item.every_s for item in found.costs] == list(INTERVALS_S)
    assert (INTERVALS_S[0], INTERVALS_S[-1]) == (10, 3600)
    assert sum(item.recommended for item in found.costs) == 1
    assert 60 <= found.recommended.every_s <= 300
    for shorter, longer in zip(found.costs, found.costs[1:], strict=False):
        assert shorter.commits > longer.commits
        assert shorter.files >= longer.files
        assert shorter.freshness_s < longer.freshness_s
        assert shorter.metadata_written_bytes > longer.metadata_written_bytes
    assert "is advised" in found.tells[0]


def test_files_are_as_many_as_rows_fill_and_no_larger_than_aimed_at() -> None:
    idle = cost(Rates(rows_per_s=0.01, tasks=20, known=True), 60)
    assert idle.files == DAY_S // 60, "a task without rows writes no file"
    big = cost(Rates(rows_per_s=1e6, row_bytes=1000, tasks=2, known=True), 3600)
    assert big.file_bytes <= 128 * 1024 * 1024
    assert big.compaction_bytes == 0
    slow = cost(Rates(tables=200, commit_s=0.5), 60)
    assert slow.snapshots == 200 * 1440
    assert any("fall behind" in note for note in slow.notes)


def test_the_rates_are_those_of_the_batches_that_landed(tmp_path: Path) -> None:
    class Stepping:
        moment = datetime(2026, 11, 16, 7, 0, tzinfo=UTC)

        def now(self) -> datetime:
            self.moment += timedelta(seconds=30)
            return self.moment

    ledger = create_ledger(f"sqlite:///{tmp_path / 'ledger.db'}", clock=Stepping())
    job, table = JobName("shop/clicks"), TableRef(uuid=TableUuid("u-1"), name="shop.clicks")
    aside = TableRef(uuid=TableUuid("u-2"), name="shop.dead")
    for number in range(4):
        batch = BatchId(f"b-{number}")
        for place, rows in ((table, 6000), (aside, 9)):
            counts: dict[str, Json] = {
                "added-records": rows,
                "added-files-size": rows * 50,
                "added-data-files": 3,
            }
            facts: dict[str, Json] = {"counts": counts, "snapshot": f"{number}"}
            ledger.append(Draft(kind=Kind.LANDED, job=job, batch=batch, table=place, facts=facts))
    found = rates_of(spec(), ledger=ledger, source_rows_per_s=lambda: 1.0)
    ledger.close()
    assert found.rows_per_s == pytest.approx(3 * 6000 / 180)
    assert (found.row_bytes, found.tasks, found.tables) == (50, 3, 1)
    assert "4 batches of this job" in found.basis[0]


def test_without_batches_the_source_is_asked_and_else_it_is_assumed() -> None:
    asked = rates_of(spec(), source_rows_per_s=lambda: 250.0)
    assert asked.rows_per_s == 250
    assert asked.known
    assumed = rates_of(spec(), source_rows_per_s=lambda: None)
    assert assumed.basis[0].startswith("assumed")
    assert rates_of(spec(), rows_per_s=7, row_bytes=9).rows_per_s == 7
    with pytest.raises(UsageError, match="tasks"):
        rates_of(spec(), tasks=0)


def test_the_command_answers_without_a_lake_and_without_a_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(TEXT % "10s", "utf-8")
    assert cli(["advise", "job.yaml", "--offline", "--tasks", "20", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "odi.advise/1"
    assert answer["data"]["chosen"]["files"] == 172_800
    assert answer["data"]["recommended_s"] == 300
    assert cli(["advise", "job.yaml", "--offline"]) == 0
    assert "advised" in capsys.readouterr().out
