"""Runs on record: that they began, how they ended, and that they died."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

import odi_audit as odi
from odi_audit.cli.app import app
from odi_audit.committer import lifetime
from odi_audit.errors import CatalogUnavailable, CommitConflict, LedgerLocked
from odi_audit.ledger.port import Ledger
from odi_audit.model.entries import Entry, Kind
from odi_audit.workspace import Workspace

ROOT = Path(__file__).parents[3]
JOB = "sales/orders"
DIES = """
import os, signal, sys
import odi_audit as odi
with odi.run("sales/orders", lake=sys.argv[1]) as run:
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def lake(make_lake: Callable[..., Workspace]) -> Workspace:
    return make_lake()


def runs(ledger: Ledger) -> list[Entry]:
    return [entry for entry in ledger.scan() if entry.kind in {Kind.RUN_STARTED, Kind.RUN_ENDED}]


def the_end(ledger: Ledger) -> Entry:
    started, ended = runs(ledger)
    assert (ended.kind, ended.intent, ended.settles) == (Kind.RUN_ENDED, started.index, True)
    assert (ended.run, ended.job) == (started.run, started.job) and started.job == JOB
    assert ledger.open_runs() == []
    return ended


LEAVES = """
import sys
import odi_audit as odi
sink = odi.sink("sales/orders", table="sales.orders", lake=sys.argv[1])
sink._running()
"""


def die(lake: Workspace) -> None:
    """Start a run in a process of its own that is killed in it."""
    killed = subprocess.run(
        [sys.executable, "-c", DIES, str(lake.root)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, "the fault did not fire"


def test_a_run_is_recorded_when_it_begins_and_when_it_ends(
    lake: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CTX_DAG_ID", "daily")
    ledger = lake.ledger()
    about = {"owner": "shop", "description": ""}
    with odi.run(JOB, lake=lake, principal="ana", code="v7", about=about, streaming=True) as run:
        [started] = runs(ledger)
        assert ledger.open_runs() == [started]
        assert (started.job, started.run) == (JOB, run.run_id)
        assert ledger.is_alive(str(started.facts["owner"]))
        told = {key: started.facts[key] for key in ("principal", "code", "about", "streaming")}
        assert told == {
            "principal": "ana", "code": "v7", "about": {"owner": "shop"}, "streaming": True,
        }  # fmt: skip
        assert started.facts["environment"] == {"AIRFLOW_CTX_DAG_ID": "daily"}
    assert the_end(ledger).facts == {"outcome": "completed"}
    assert not ledger.is_alive(str(started.facts["owner"]))


@pytest.mark.parametrize(
    ("error", "facts"),
    [
        (
            CommitConflict("sales.orders kept moving", samples=["id = 7"]),
            {"outcome": "failed", "error_code": "ODI-C01", "reason": "sales.orders kept moving"},
        ),
        (ValueError("id = 7"), {"outcome": "failed", "reason": "ValueError was raised in the run"}),
        (
            KeyboardInterrupt(),
            {"outcome": "stopped", "reason": "the run was stopped by KeyboardInterrupt"},
        ),
        (
            lifetime.Stopped("the query was stopped while it wrote"),
            {"outcome": "stopped", "reason": "the query was stopped while it wrote"},
        ),
        (SystemExit(0), {"outcome": "completed"}),
        (SystemExit(3), {"outcome": "stopped", "reason": "the run was stopped by SystemExit"}),
    ],
)
def test_what_ended_a_run_is_recorded_and_no_value_of_a_row(
    lake: Workspace, error: BaseException, facts: dict[str, str]
) -> None:
    with pytest.raises(type(error)), odi.run(JOB, lake=lake):
        raise error
    ended = the_end(lake.ledger())
    assert ended.facts == facts
    assert b"id = 7" not in ended.to_bytes()


def test_a_run_that_cannot_start_has_failed(lake: Workspace) -> None:
    (lake.root / "catalog.db").unlink()
    with pytest.raises(CatalogUnavailable), odi.run(JOB, lake=lake):
        raise AssertionError("it must not start")
    ended = the_end(lake.ledger())
    assert (ended.facts["outcome"], ended.facts["error_code"]) == (
        "failed", CatalogUnavailable.code,
    )  # fmt: skip


def test_the_next_run_of_anybody_tells_that_a_run_has_died(lake: Workspace) -> None:
    die(lake)
    ledger = lake.ledger()
    [started] = runs(ledger)
    with odi.run("sales/other", lake=lake):
        ended = ledger.settled_by(started.index)
        assert ended is not None and ended.kind is Kind.RUN_ENDED
        assert (ended.run, ended.facts["outcome"]) == (started.run, "died")
    assert ledger.open_runs() == []


def test_a_sink_whose_process_ends_in_good_order_says_that_it_was_stopped(lake: Workspace) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", LEAVES, str(lake.root)], env=env, check=True)
    ended = the_end(lake.ledger())
    assert ended.facts == {
        "outcome": "stopped", "reason": "its process ended while the query was running",
    }  # fmt: skip


def test_reconcile_shows_dead_runs_and_ends_them_when_told_to(lake: Workspace) -> None:
    die(lake)
    [started] = runs(lake.ledger())
    with odi.run("sales/other", lake=Workspace.find(lake.root)):
        pass  # it ends the dead one, and must not be taken for dead itself
    die(lake)
    last = runs(lake.ledger())[-1]
    assert last.run != started.run

    def ask(*more: str) -> tuple[int, object]:
        answer = CliRunner().invoke(app, ["reconcile", "--json", "--lake", str(lake.root), *more])
        return answer.exit_code, json.loads(answer.stdout)["data"]["runs"]

    dead = [{"run": last.run, "job": JOB, "since": last.time}]
    assert ask() == (1, dead)
    page = CliRunner().invoke(app, ["reconcile", "--lake", str(lake.root)])
    assert page.exit_code == 1 and "--apply would end" in page.stdout
    assert ask("--apply") == (0, dead)
    assert ask() == (0, [])


def test_a_run_that_was_taken_for_dead_still_tells_how_it_ended(lake: Workspace) -> None:
    ledger = lake.ledger()
    with odi.run(JOB, lake=lake) as run:
        # As when a connection broke, and with it the sign of life.
        ledger.release(run.parts.owner)
        assert [entry.run for entry in lifetime.end_dead(ledger)] == [run.run_id]
        assert lifetime.end_dead(ledger) == []
    started, died, ended = runs(ledger)
    assert (died.facts["outcome"], died.settles) == ("died", True)
    assert (ended.facts["outcome"], ended.settles) == ("completed", False)
    assert ended.intent == died.intent == started.index


@contextmanager
def locked(lake: Workspace) -> Iterator[None]:
    """Keep the ledger's file from every writer."""
    with closing(sqlite3.connect(lake.root / "ledger.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def test_an_end_that_cannot_be_recorded_is_an_error_but_hides_none(lake: Workspace) -> None:
    with Workspace.find(lake.root, overrides={"ledger.busy_timeout_s": "0.1"}) as impatient:
        well, badly = (odi.run(JOB, lake=impatient).__enter__() for _ in range(2))
        error = ValueError("why")
        with locked(lake):
            with pytest.raises(LedgerLocked):
                well.__exit__(None, None, None)
            badly.__exit__(ValueError, error, None)
        [note] = error.__notes__
        assert note.startswith(f"the end of run {badly.run_id} was not recorded")
    # Neither holds anything any more: the next run says what can be said.
    with odi.run(JOB, lake=lake):
        died = [entry for entry in runs(lake.ledger()) if entry.facts.get("outcome") == "died"]
    assert {entry.run for entry in died} == {well.run_id, badly.run_id}
