"""``odi-audit run`` as people run it: a process, signals, a broker; everything once anyway."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odi_audit.cli import app
from odi_audit.ledger.port import EntryFilter
from odi_audit.model.entries import Kind
from odi_audit.query.offsets import continuity
from odi_audit.query.verify import verify
from odi_audit.workspace import Workspace
from tests.support.independent import Eyes
from tests.support.servers.kafka import Kafka
from tests.support.servers.topics import Topics

ROOT = Path(__file__).parents[2]
WAIT_S_MAX = 400
"""For one run, its JVM's start included, on a machine that has other things to do."""
SPEC = """
version: 1
job: shop/clicks
description: Every click of the shop.
owner: web-team
source:
  type: kafka
  servers: ${{KAFKA}}
  topics: [{topic}]
  value: {{format: json, columns: "id bigint, name string"}}
target: {{table: shop.clicks}}
dead_letter: {{table: shop.dead}}
"""

pytestmark = pytest.mark.timeout(1500)


class Shop:
    """A topic, a lake, a spec, and the command."""

    def __init__(self, kafka: Kafka, lake: Workspace, folder: Path) -> None:
        self.lake, self.folder = lake, folder
        self.topic, self.topics = f"clicks-{secrets.token_hex(3)}", Topics(kafka.bootstrap)
        self.topics.create(self.topic, 2)
        self.spec = folder / "clicks.yaml"
        self.spec.write_text(SPEC.format(topic=self.topic), "utf-8")
        self.sent = 0
        self.started: list[subprocess.Popen[str]] = []
        self.env = {
            **os.environ,
            "KAFKA": kafka.bootstrap,
            "ODI_LAKE": str(lake.root),
            "ODI_SPARK__MASTER": "local[2]",
            "ODI_SPARK__DRIVER_MEMORY": "768m",
            "PYTHONPATH": str(ROOT),
        }

    def fill(self, count: int) -> None:
        numbers = range(self.sent, self.sent + count)
        self.topics.fill(
            self.topic, [json.dumps({"id": n, "name": f"n{n}"}).encode() for n in numbers]
        )
        self.sent += count

    def start(self, *options: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "odi_audit.cli", "run", "clicks.yaml", *options],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=(self.folder / "stderr").open("w"),
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def end(self) -> None:
        for process in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def run(self, *options: str) -> tuple[int, dict[str, Any], str]:
        process = self.start(*options, "--json")
        out, _ = process.communicate(timeout=WAIT_S_MAX)
        return process.returncode, json.loads(out)["data"] if out else {}, self.said()

    def said(self) -> str:
        return (self.folder / "stderr").read_text("utf-8")

    def error(self) -> dict[str, Any]:
        last = [line for line in self.said().splitlines() if '"odi.error/1"' in line][-1]
        data: dict[str, Any] = json.loads(last)["data"]
        return data

    def landed(self) -> int:
        where = EntryFilter(kinds=(Kind.LANDED,))
        return len(self.lake.ledger(read_only=True).find(where))

    def wait(self, process: subprocess.Popen[str], holds: Callable[[], bool]) -> None:
        end = time.monotonic() + WAIT_S_MAX
        while not holds():
            assert process.poll() is None, self.said()
            assert time.monotonic() < end, self.said()
            time.sleep(0.1)

    def check(self) -> None:
        rows = Eyes.on(self.lake.root).rows("shop.clicks", columns=("id",))
        assert sorted(int(str(row[0])) for row in rows) == list(range(self.sent))
        assert not verify(self.lake.ledger(), self.lake.catalog())
        assert not continuity(self.lake.ledger()).events


@pytest.fixture
def shop(kafka: Kafka, make_lake: Callable[..., Workspace], tmp_path: Path) -> Iterator[Shop]:
    made = Shop(kafka, make_lake(), tmp_path)
    yield made
    made.end()


def test_a_run_ends_with_its_source_or_with_a_signal_and_its_last_batch_is_whole(
    shop: Shop, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.fill(500)
    shop.topics.fill(shop.topic, [b'{"id": 500, "name": "n500", "more": 1.5}'])
    shop.sent += 1
    monkeypatch.setenv("KAFKA", shop.env["KAFKA"])
    options = ["--lake", str(shop.lake.root), "--json"]
    assert app.run(["jobs", "check", str(shop.spec), *options]) == 0
    would = json.loads(capsys.readouterr().out)["data"]["would"]
    assert (would["path"]["chosen"], would["plan"]["rows"], would["begun"]) == ("arrow", 501, False)
    table = would["tables"][0]
    assert (table["name"], table["there"]) == ("shop.clicks", False)
    assert {column["name"]: column["type"] for column in table["columns"]} == {
        "id": "bigint", "name": "string",
    }  # fmt: skip
    assert table["sample"]["records"] == 501
    assert table["sample"]["add"] == {"more": "double"}
    assert shop.lake.ledger().head().size == 0

    status, told, said = shop.run("--once", "--rows", "200")
    assert status == 0, said
    assert (told["records"], told["batches"], told["rejects"]) == (501, 3, 0)
    assert (told["path"], told["mode"], told["lag"]["rows"]) == ("arrow", "once", 0)
    assert told["reason"] == "the source is read to its end"
    assert said.count('"event": "batch"') == 3
    intent = shop.lake.ledger().get(told["last_batch"]["intent"])
    assert intent.facts["about"] == {
        "owner": "web-team", "description": "Every click of the shop.", "spec": told["digest"],
    }  # fmt: skip
    assert str(intent.facts["code"]).endswith(f" spec/{told['digest'][:12]}")

    assert told["grown"] == ["shop.clicks"]

    shop.fill(100)
    assert app.run(["jobs", "--spec", str(shop.spec), *options]) == 0
    lag = json.loads(capsys.readouterr().out)["data"]["jobs"][0]["lag"]
    assert (lag["rows"], lag["stopped"], lag["untold"]) == (100, None, None)
    assert 0 <= lag["seconds"] < WAIT_S_MAX
    process = shop.start("--continuous", "--every", "1s", "--json")
    shop.wait(process, lambda: shop.landed() >= 4)
    assert app.run(["run", str(shop.spec), *options]) == 6
    assert "ODI-I09" in capsys.readouterr().err
    assert app.run(["jobs", "--spec", str(shop.spec), *options]) == 0
    job = next(iter(json.loads(capsys.readouterr().out)["data"]["jobs"]))
    assert (job["job"], job["state"], job["lag"]["rows"]) == ("shop/clicks", "running", 0)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=WAIT_S_MAX)
    assert process.returncode == 0, shop.said()
    assert json.loads(out)["data"]["reason"] == "told to stop by SIGTERM"
    assert app.run(["jobs", *options]) == 0
    job = next(iter(json.loads(capsys.readouterr().out)["data"]["jobs"]))
    assert (job["state"], job["lag"]) == ("idle", None)
    shop.check()


def test_a_killed_run_goes_on_where_it_was_and_a_recreated_topic_stops_it_with_a_command(
    shop: Shop,
) -> None:
    shop.fill(3000)
    process = shop.start("--until", "10m", "--every", "1s", "--rows", "100")
    shop.wait(process, lambda: shop.landed() >= 4)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=WAIT_S_MAX)
    assert shop.landed() < 30
    status, told, said = shop.run("--once")
    assert status == 0, said
    assert 0 < told["records"] < 3000
    shop.check()

    shop.topics.delete(shop.topic)
    shop.topics.create(shop.topic, 2)
    shop.fill(50)
    status, _, said = shop.run("--until", "5 batches")
    assert status == 1, said
    assert shop.error()["code"] == "ODI-G06"
    command = shop.error()["facts"]["command"]
    assert shop.error()["hint"].startswith(command)
    assert command == "odi-audit run clicks.yaml --until '5 batches' --replay 1"
    words = shlex.split(command)[3:]
    status, told, said = shop.run("--once", *words[2:])
    assert (status, told["records"], told["generation"]) == (0, 50, 1), said
    rows = Eyes.on(shop.lake.root).rows("shop.clicks", columns=("id",))
    assert sorted(int(str(row[0])) for row in rows) == list(range(shop.sent))
