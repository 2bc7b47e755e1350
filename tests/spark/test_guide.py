"""The ten-minute guide, typed line by line: what it says happens, happens."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/guide/ten-minutes.md").read_text("utf-8")

pytestmark = pytest.mark.timeout(600)


def typed(language: str) -> str:
    """Everything in one language after the demo, which has a test of its own."""
    own_lake = GUIDE[GUIDE.index("## 2.") :]
    return "\n".join(re.findall(rf"^```{language}\n(.*?)^```$", own_lake, re.MULTILINE | re.DOTALL))


def put_on_path(folder: Path) -> None:
    """Make ``odi-audit`` and ``python`` those of this test, as an activated environment does."""
    folder.mkdir()
    python = shlex.quote(sys.executable)
    for name, call in {"python": "", "odi-audit": " -m odi_audit.cli"}.items():
        (folder / name).write_text(f'#!/bin/sh\nexec {python}{call} "$@"\n', "utf-8")
        (folder / name).chmod(0o755)


def test_every_line_of_the_guide_works_in_order(tmp_path: Path) -> None:
    put_on_path(tmp_path / "bin")
    here = tmp_path / "repo"
    here.mkdir()
    (here / "inbox").mkdir()
    orders = pa.table({"order_id": [4], "amount": pa.array([Decimal("1.00")])})
    pq.write_table(orders, here / "inbox/orders.parquet")
    (here / "job.py").write_text(typed("python"), "utf-8")
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["/bin/sh", "-eu", "-c", typed("sh") + "\npython job.py\nodi-audit verify\n"],
        cwd=here,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout
    assert "monday.csv: batch b-" in said
    assert "ODI-G03" in done.stderr
    assert "\nstatus 1\n" in said
    assert "refused" in said
    assert "tuesday.csv: batch b-" in said
    assert re.search(r"born in batch b-[0-9a-f]{32} \(exact\)", said)
    assert said.count("Clean: ") == 2
    assert "signed: the first" in said
    # The job of the last section: its batch, its snapshot, and that it was fresh.
    assert re.search(r"^b-[0-9a-f]{32} \d+ True$", said, re.MULTILINE)
