"""How a run is told when to end, what it says of itself, and what to type when it stops."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from jobs.runner import loop
from jobs.runner.choose import spec_cannot, way_of, worker_of
from jobs.runner.ends import until_of
from jobs.runner.hints import Call, complete, next_generation
from jobs.runner.loop import Stop, Until, run_job, stopped_by_signals
from jobs.runner.outcome import Done
from jobs.runner.progress import Progress, Tally
from jobs.runner.running import held
from jobs.sources.base import ACCEPT_GAP, REPLAY, Choices, Lag, Limits, Plan
from jobs.spec import check_text, parse_spec
from jobs.spec.summary import understand
from odi_audit.cli import app
from odi_audit.errors import (
    CommitConflict,
    JobHeld,
    NotSupported,
    OdiError,
    OffsetGap,
    SourceChanged,
    SourceUnavailable,
    UsageError,
)
from odi_audit.ids import BatchId, JobName, RunId, TableUuid
from odi_audit.ledger import open_ledger
from odi_audit.model.entries import Draft, Kind
from odi_audit.model.offsets import kafka
from odi_audit.model.receipts import Receipt
from odi_audit.model.tables import TableRef
from odi_audit.settings import ledger_url
from odi_audit.workspace import Workspace

READY = sorted((Path(__file__).parents[4] / "jobs/ready").glob("*.yaml"))
NOW = datetime(2026, 11, 18, 6, 0, tzinfo=UTC)
JOB = JobName("shop/clicks")
SPEC = """
version: 1
job: shop/clicks
source: {type: kafka, servers: "localhost:9092", topics: [clicks], value: {format: json}}
target: {table: shop.clicks}
"""


class Variables(dict[str, str]):
    """Every variable is set: ready specs name servers and passwords."""

    def __contains__(self, _name: object) -> bool:
        return True

    def __missing__(self, name: str) -> str:
        return "localhost:9092" if "PASSWORD" not in name else "secret-enough"

    def get(self, name: str, _default: Any = None) -> str:
        return self[name]


# -- when it ends ----------------------------------------------------------------------------------


def test_an_end_is_a_duration_a_number_of_batches_or_a_time() -> None:
    assert until_of(None, drained=True, now=NOW) == Until(drained=True)
    assert until_of("5 batches", drained=False, now=NOW) == Until(batches=5)
    assert until_of("1 batch", drained=True, now=NOW) == Until(drained=True, batches=1)
    for text, seconds in {"10m": 600, "1h30m": 5400, "2026-11-18T06:00:30Z": 30}.items():
        deadline = until_of(text, drained=False, now=NOW).deadline
        assert deadline is not None
        assert deadline - time.monotonic() == pytest.approx(seconds, abs=5)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("soon", "no end of a run"),
        ("10", "no end of a run"),
        ("0 batches", "one batch at least"),
        ("0s", "is over"),
        ("2026-11-18T05:00:00Z", "is over"),
        ("2026-11-18T07:00:00", "without a zone"),
    ],
)
def test_words_that_are_no_end_are_refused_with_what_is_one(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        until_of(text, drained=False, now=NOW)


# -- the loop --------------------------------------------------------------------------------------


class Work:
    """A worker whose batches are numbers; some of them fail."""

    path = "arrow"

    def __init__(self, *steps: int | OdiError | None) -> None:
        self.steps = list(steps)
        self.waited: list[float] = []
        self.not_ready: list[OdiError] = []

    def prepare(self, run: Any) -> None:
        if self.not_ready:
            raise self.not_ready.pop(0)

    def positions(self, run: Any) -> Mapping[str, Any]:
        return {}

    def plan(self, run: Any, limits: Limits, *, choices: Choices, waited_s: float) -> Plan | None:
        self.waited.append(waited_s)
        step = self.steps.pop(0) if self.steps else None
        if isinstance(step, OdiError):
            raise step
        offsets = kafka({"clicks": {0: (0, step or 0)}}, bootstrap="localhost:9092")
        return None if step is None else Plan(offsets=offsets, rows=step)

    def carry_out(self, run: Any, plan: Plan) -> Done:
        receipt = Receipt(
            job=JOB, run=RunId("r"), batch=BatchId("b-1"), intent=0, fresh=True,
            confidence="exact", landings=(),
        )  # fmt: skip
        return Done(
            plan=plan, receipt=receipt, path="arrow", records=plan.rows, rejects=1, bytes=9,
            seconds=0.5,
        )  # fmt: skip


@pytest.fixture
def run(make_lake: Any) -> Any:
    from odi_audit import api

    return api.run(JOB, lake=make_lake())


@pytest.fixture(autouse=True)
def _no_naps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "LOOK_S", 0)
    monkeypatch.setattr(loop, "AWAY_S_MAX", 0)


def test_a_run_ends_with_its_source_or_after_so_many_batches(run: Any) -> None:
    ran = run_job(run, Work(10, 20, None), Limits(), until=Until(drained=True))
    assert (ran.batches, ran.records, ran.rejects, ran.bytes) == (2, 30, 2, 18)
    assert ran.reason == "the source is read to its end"
    ran = run_job(run, Work(1, None, 1, 1), Limits(), until=Until(batches=2))
    assert (ran.batches, ran.reason) == (2, "2 batches are done")


def test_a_source_that_is_away_is_waited_for_only_where_the_run_goes_on(run: Any) -> None:
    told: list[str] = []
    away = [SourceUnavailable("gone") for _ in range(8)]
    ran = run_job(
        run, Work(*away, 5), Limits(), until=Until(batches=1), away=lambda e: told.append(e.code)
    )
    assert (ran.records, told) == (5, ["ODI-I01"] * 8)
    with pytest.raises(SourceUnavailable):
        run_job(run, Work(SourceUnavailable("gone"), 5), Limits(), until=Until(drained=True))


def test_a_source_that_is_away_when_a_run_starts_is_waited_for_as_well(run: Any) -> None:
    work, told = Work(5), []
    work.not_ready = [SourceUnavailable("gone"), SourceUnavailable("gone")]
    ran = run_job(run, work, Limits(), until=Until(batches=1), away=lambda e: told.append(e.code))
    assert (ran.batches, ran.reached_source, told) == (1, True, ["ODI-I01"] * 2)
    work.not_ready = [SourceUnavailable("gone")]
    with pytest.raises(SourceUnavailable):
        run_job(run, work, Limits(), until=Until(drained=True))
    stop, work.not_ready = Stop(), [SourceUnavailable("gone") for _ in range(3)]
    ran = run_job(
        run, work, Limits(), until=Until(), stop=stop, away=lambda _error: stop.ask("enough")
    )
    assert (ran.reason, ran.reached_source) == ("enough", False)


def test_what_was_not_published_is_tried_again_but_not_for_ever(run: Any) -> None:
    again = [CommitConflict("moved") for _ in range(loop.AGAIN_MAX)]
    assert run_job(run, Work(*again[1:], 5), Limits(), until=Until(batches=1)).batches == 1
    with pytest.raises(CommitConflict):
        run_job(run, Work(*again, 5), Limits(), until=Until(batches=1))


def test_the_first_batch_waits_since_the_last_one_of_any_run(run: Any) -> None:
    work = Work(1)
    run_job(run, work, Limits(), until=Until(batches=1))
    assert work.waited == [float("inf")]
    table = TableRef(uuid=TableUuid("t-1"), name="shop.clicks")
    run.parts.ledger.append(
        Draft(kind=Kind.LANDED, job=JOB, batch=BatchId("b-1"), table=table, facts={})
    )
    work = Work(1)
    run_job(run, work, Limits(), until=Until(batches=1))
    assert 0 <= work.waited[0] < 60


def test_a_signal_asks_for_the_end_and_a_second_one_is_it() -> None:
    stop = Stop()
    with stopped_by_signals(stop):
        os.kill(os.getpid(), signal.SIGTERM)
        stop.wait(5)
        assert stop
        assert stop.reason == "told to stop by SIGTERM"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_one_process_at_a_time_runs_a_job(make_lake: Any) -> None:
    lake: Workspace = make_lake()
    other = open_ledger(ledger_url(lake.settings), clock=lake.clock)
    with held(lake.ledger(), JOB):
        with pytest.raises(JobHeld, match="shop/clicks"), held(other, JOB):
            pass
        with held(other, JobName("shop/orders")):
            pass
    with held(other, JOB):
        pass
    other.close()


# -- what to type ----------------------------------------------------------------------------------


def test_a_choice_becomes_the_whole_command(make_lake: Any) -> None:
    ledger = make_lake().ledger()
    call = Call(spec="my clicks.yaml", options=("--continuous",))
    gap = OffsetGap("gone", hint='to go on: --accept-gap "why"; or bring back', choice=ACCEPT_GAP)
    complete(gap, call, ledger, JOB)
    command = "odi-audit run 'my clicks.yaml' --continuous --accept-gap \"why they may be missing\""
    assert gap.hint == f"{command}  (to go on); or bring back"
    assert gap.facts["command"] == command
    ledger.append(Draft(kind=Kind.REPLAY, job=JOB, facts={"generation": 3}))
    assert next_generation(ledger, JOB) == 4
    changed = SourceChanged("other", hint="put it back; read it with --replay 1", choice=REPLAY)
    complete(changed, call, ledger, JOB)
    assert str(changed.hint).startswith("odi-audit run 'my clicks.yaml' --continuous --replay 4 ")
    assert str(changed.hint).endswith("--replay 4  (read it); put it back")
    file = SourceChanged("file", hint="rename; read it with --generation 1 (or higher): rows stay")
    complete(file, call, ledger, JOB)
    assert str(file.hint).endswith("--replay 4  (read it: rows stay); rename")


# -- the path --------------------------------------------------------------------------------------


def test_a_plain_append_takes_the_arrow_path_and_says_why_another_does_not(tmp_path: Path) -> None:
    plain = parse_spec(SPEC, {})
    assert way_of(plain).path == "arrow"
    assert worker_of(plain, folder=tmp_path).path == "arrow"
    asked = plain.model_copy(update={"engine": "spark"})
    assert (way_of(asked).path, way_of(asked).why) == ("spark", "the spec says engine: spark")
    upsert = parse_spec(SPEC.replace("shop.clicks}", "shop.clicks, mode: upsert, key: id}"), {})
    assert way_of(upsert).why == "not arrow: its mode is upsert"
    forced = upsert.model_copy(update={"engine": "arrow"})
    with pytest.raises(NotSupported, match="its mode is upsert"):
        worker_of(forced, folder=tmp_path)


@pytest.mark.parametrize("path", READY, ids=lambda path: path.name)
def test_every_ready_spec_has_a_worker_on_the_path_that_its_check_names(path: Path) -> None:
    found = check_text(path.read_text("utf-8"), Variables())
    assert found.spec is not None, found.problems
    assert (spec_cannot(found.spec) is None) == (understand(found.spec).engine == "arrow")
    worker = worker_of(found.spec, folder=path.parent)
    assert worker.path in {"arrow", "spark"}


# -- what is shown ---------------------------------------------------------------------------------


def test_the_line_on_a_terminal_has_rate_lag_rejects_and_the_last_commit() -> None:
    tally, work = Tally(job=JOB), Work(1000)
    plan = work.plan(None, Limits(), choices=Choices(), waited_s=0)
    assert plan is not None
    tally.add(work.carry_out(None, plan), now=100.0)
    tally.lag = 12345
    assert tally.line(104.0) == (
        "shop/clicks · 1 batches · 1,000 rows · 2,000 rows/s · lag 12,345 · 1 rejects · "
        "b-1 4 s ago · arrow"
    )


def test_a_terminal_gets_one_live_line_and_a_file_gets_log_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = StringIO()
    for console in (Console(file=shown, force_terminal=True, width=200), None):
        progress, work = Progress(JOB, console), Work(1000)
        progress.asks(lambda: Lag(rows={"clicks-0": 7}))
        plan = work.plan(None, Limits(), choices=Choices(), waited_s=0)
        assert plan is not None
        with progress.shown():
            progress.tell(work.carry_out(None, plan))
            progress.away(SourceUnavailable("the broker is gone"))
        assert progress.tally.lag == 7
    assert "2,000 rows/s · lag 7 · 1 rejects" in shown.getvalue()
    assert "trying again: ODI-I01" in shown.getvalue()
    said = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line[:1] == "{"]
    assert [line["event"] for line in said] == ["batch", "trying again"]
    assert (said[0]["records"], said[0]["lag"], said[0]["rows_per_s"]) == (1000, 7, 2000)


# -- the command -----------------------------------------------------------------------------------


def test_a_call_that_makes_no_sense_is_refused_before_anything_is_reached(
    make_lake: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake, spec = str(make_lake().root), tmp_path / "clicks.yaml"
    spec.write_text(SPEC, "utf-8")
    wrong = {
        ("--once", "--continuous"): "exclude each other",
        ("--until", "soon"): "5 batches",
        ("--rows", "0"): "room for a row",
        ("--every", "5"): "such as 10s",
        ("--accept-gap", " "): "for a reason",
        ("--replay", "-1"): "below zero",
    }
    for options, told in wrong.items():
        assert app.run(["run", str(spec), *options, "--lake", lake]) == 2
        assert told in capsys.readouterr().err
    assert app.run(["run", str(tmp_path / "no.yaml"), "--lake", lake]) == 3
    assert "odi-audit jobs new" in capsys.readouterr().err
