"""How jobs stand, from a ledger alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.runner.running import holder
from jobs.status.listing import specs_of
from jobs.status.standing import State, standing, standings
from odi_audit.canonical import Json
from odi_audit.cli import app
from odi_audit.committer import records
from odi_audit.errors import ConfigError
from odi_audit.ids import BatchId, JobName, RunId, TableUuid
from odi_audit.ledger import create_ledger
from odi_audit.ledger.port import Ledger
from odi_audit.model.entries import Draft, Entry, Kind
from odi_audit.model.runs import Outcome
from odi_audit.model.tables import TableRef

JOB, OTHER = JobName("shop/clicks"), JobName("shop/orders")
CLICKS = TableRef(uuid=TableUuid("t-1"), name="shop.clicks")
DEAD = TableRef(uuid=TableUuid("t-2"), name="shop.dead")


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.time = datetime(2026, 11, 16, 7, 0, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time

    def move(self, **by: float) -> None:
        self.time += timedelta(**by)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(tmp_path: Path, clock: Clock) -> Any:
    made = create_ledger(f"sqlite:///{tmp_path / 'ledger.db'}", clock=clock)
    yield made
    made.close()


def intend(ledger: Ledger, batch: str, job: JobName = JOB, owner: str = "somebody") -> int:
    about: Json = {"owner": "web-team"}
    facts = {"owner": owner, "about": about}
    return ledger.append(
        Draft(kind=Kind.INTENT, job=job, batch=BatchId(batch), table=CLICKS, facts=facts)
    )[0].index


def land(ledger: Ledger, clock: Clock, batch: str, rows: int, *, job: JobName = JOB) -> None:
    intent = intend(ledger, batch, job)
    clock.move(seconds=2)
    for table, count, follows in ((DEAD, 7, "nothing"), (CLICKS, rows, None)):
        facts: dict[str, Json] = {
            "snapshot": "1",
            "counts": {"added-records": count, "added-data-files": 3},
        }
        if follows is not None:
            facts["follows"] = follows
        ledger.append(
            Draft(
                kind=Kind.LANDED, job=job, batch=BatchId(batch), table=table, intent=intent,
                settles=table is CLICKS, facts=facts,
            )
        )  # fmt: skip


def test_a_job_stands_by_its_last_batches_and_its_last_day(ledger: Ledger, clock: Clock) -> None:
    assert standings(ledger, clock.now()) == []
    land(ledger, clock, "b-0", 100)
    clock.move(days=2)
    land(ledger, clock, "b-1", 1000)
    land(ledger, clock, "b-2", 3000)
    land(ledger, clock, "b-9", 1, job=OTHER)
    found = standings(ledger, clock.now())
    assert [item.job for item in found] == [JOB, OTHER]
    job = found[0]
    assert (job.state, job.owner, job.tables) == (
        State.IDLE, "web-team", ("shop.clicks", "shop.dead"),
    )  # fmt: skip
    assert job.last is not None
    assert (job.last.batch, job.last.rows) == ("b-2", 3000)
    assert job.rows_per_s == pytest.approx(4100 / 6)
    assert job.day is not None
    assert (job.day.rows, job.day.files, job.day.snapshots, job.day.scaled) == (4000, 12, 4, False)


def begin(ledger: Ledger, owner: str = "somebody") -> Entry:
    run = RunId("5f8a3f1e-0000-4000-8000-000000000001")
    draft = records.run_started(JOB, run, principal="ana", code="v1", owner=owner)
    return ledger.append(draft)[0]


def test_a_job_stands_as_its_last_run_ended(ledger: Ledger, clock: Clock) -> None:
    def stands() -> tuple[State, str | None]:
        found = standing(ledger, JOB, clock.now())
        return found.state, found.note

    assert stands() == (State.NEVER, None)
    ledger.hold("alive")
    started = begin(ledger, "alive")
    assert stands() == (State.RUNNING, None), "it has no batch yet"
    ledger.release("alive")
    died = "the process of its last run died; the next run goes on where it was"
    assert stands() == (State.FAILED, died)
    ledger.append(records.run_ended(started, Outcome.DIED, reason="gone"))
    assert stands() == (State.FAILED, died)
    no_broker = {"error_code": "ODI-I01", "reason": "no broker"}
    ledger.append(records.run_ended(begin(ledger), Outcome.FAILED, **no_broker))
    assert stands() == (State.FAILED, "ODI-I01: no broker")
    started = begin(ledger)
    land(ledger, clock, "b-1", 10)
    ledger.append(records.run_ended(started, Outcome.FAILED, reason="ValueError was raised"))
    assert stands() == (State.FAILED, "ValueError was raised")
    for outcome in (Outcome.STOPPED, Outcome.COMPLETED):
        ledger.append(records.run_ended(begin(ledger), outcome))
        assert stands() == (State.IDLE, None)


def test_a_job_is_running_unsettled_or_refused(ledger: Ledger, clock: Clock) -> None:
    land(ledger, clock, "b-1", 10)
    ledger.hold(holder(JOB))
    assert standing(ledger, JOB, clock.now()).state is State.RUNNING
    ledger.release(holder(JOB))
    intent = intend(ledger, "b-2", owner="dead one")
    told = standing(ledger, JOB, clock.now())
    assert (told.state, told.note) == (
        State.UNSETTLED, "a crash left a batch open: odi-audit reconcile",
    )  # fmt: skip
    ledger.hold("dead one")
    assert standing(ledger, JOB, clock.now()).state is State.RUNNING
    ledger.release("dead one")
    ledger.append(
        Draft(
            kind=Kind.REFUSED, job=JOB, batch=BatchId("b-2"), intent=intent, settles=True,
            facts={"code": "ODI-G03", "reason": "amount is negative"},
        )
    )  # fmt: skip
    told = standing(ledger, JOB, clock.now())
    assert (told.state, told.note) == (State.REFUSED, "ODI-G03: amount is negative")
    land(ledger, clock, "b-3", 10)
    assert standing(ledger, JOB, clock.now()).state is State.IDLE


def test_a_folder_of_specs_may_hold_other_files_but_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "version: 1\njob: a/b\nsource: {type: iceberg, table: x.y, read: appends}\n"
        "target: {table: a.b}\n"
    )
    (tmp_path / "b.yml").write_text("services: {}\n")
    (tmp_path / "c.txt").write_text("no spec")
    found = specs_of([tmp_path], {})
    assert [spec.job for _, spec in found.found] == ["a/b"]
    assert [file for file, _ in found.problems] == [str(tmp_path / "b.yml")]
    with pytest.raises(ConfigError):
        specs_of([tmp_path / "b.yml"], {})


def test_the_command_lists_jobs_of_the_ledger_and_of_specs(
    make_lake: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = make_lake()
    land(lake.ledger(), Clock(), "b-1", 10)
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "version: 1\njob: shop/later\ntarget: {table: shop.later}\n"
        "source: {type: files, path: nowhere, format: csv}\n"
    )
    assert app.run(["jobs", "--lake", str(lake.root)]) == 0
    out = capsys.readouterr().out
    assert "shop/clicks" in out
    assert "idle" in out
    assert app.run(["jobs", "--lake", str(lake.root), "--spec", str(spec), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "odi.jobs/1"
    later = answer["data"]["jobs"][1]
    assert (later["job"], later["state"], later["lag"]["rows"]) == ("shop/later", "never run", None)
    assert later["note"].startswith("ODI-I03")
