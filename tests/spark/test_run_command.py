"""A spec from dry run to table: ``jobs check`` writes nothing, ``spark-submit`` runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
import pytest

from odi_audit.cli import app
from odi_audit.query.verify import verify
from odi_audit.workspace import Workspace
from tests.support.independent import Eyes

ROOT = Path(__file__).parents[2]
SUBMIT = Path(pyspark.__file__).parent / "bin/spark-submit"
SPEC = """
version: 1
job: shop/visits
owner: web-team
source: {type: files, path: inbox, format: json, settle: 0s}
target: {table: shop.visits, partition_by: [day]}
"""

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    inbox = tmp_path / "specs/inbox"
    inbox.mkdir(parents=True)
    (inbox / "a.json").write_text('{"id": 1, "day": "a"}\n{"id": 2, "day": "b"}\n', "utf-8")
    path = tmp_path / "specs/visits.yaml"
    path.write_text(SPEC, "utf-8")
    return path


def ask(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, dict[str, Any]]:
    status = app.run([*args, "--json"])
    told = capsys.readouterr()
    assert told.out, told.err
    data: dict[str, Any] = json.loads(told.out)["data"]
    return status, data


def test_a_spec_is_checked_without_a_trace_and_run_by_spark_submit(
    make_lake: Callable[..., Workspace],
    spec: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake = make_lake()
    monkeypatch.setenv("ODI_LAKE", str(lake.root))
    monkeypatch.setenv("ODI_SPARK__MASTER", "local[2]")
    size = lake.ledger().head().size
    status, told = ask(capsys, "jobs", "check", str(spec))
    would = told["would"]
    assert status == 0
    assert would["path"] == {"chosen": "spark", "why": "not arrow: its source is not Kafka"}
    assert (would["begun"], would["rows_waiting"], would["plan"]["rows"]) == (False, 2, 2)
    table = would["tables"][0]
    assert (table["name"], table["there"], table["partitioning"]) == ("shop.visits", False, ["day"])
    assert [column["name"] for column in table["columns"]] == ["id", "day"]
    assert (would["cost"]["every_s"], would["cost"]["commits"]) == (300, 288)
    assert lake.ledger().head().size == size
    assert lake.catalog().tables() == []

    conf = spec.with_name("spark.conf")
    assert app.run(["spark-conf", "--show-secrets"]) == 0
    conf.write_text(capsys.readouterr().out, "utf-8")
    done = subprocess.run(
        [str(SUBMIT), "--properties-file", str(conf), str(ROOT / "jobs/submit.py"), str(spec),
         "--once", "--json"],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)},
        cwd=spec.parent, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout.splitlines()[-1])["data"]
    assert (data["records"], data["batches"], data["path"]) == (2, 1, "spark")
    assert len(Eyes.on(lake.root).rows("shop.visits")) == 2
    assert not verify(lake.ledger(), lake.catalog())

    status, told = ask(capsys, "jobs", "check", str(spec))
    assert (status, told["would"]["plan"], told["would"]["tables"][0]["there"]) == (0, None, True)
    (spec.parent / "inbox/a.json").write_text('{"id": 9, "day": "c"}\n', "utf-8")
    status, told = ask(capsys, "jobs", "check", str(spec))
    assert status == 1
    assert told["would"]["stopped"]["code"] == "ODI-G06"
    assert told["would"]["stopped"]["hint"].startswith(f"odi-audit run {spec} --replay 1")
