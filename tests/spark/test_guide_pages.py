"""The guide's pages, typed line by line on one demo lake: what they say happens, happens.

One page is not here: the ten minutes have a test of their own. What a page shows in Python or SQL
is run too, in its place; only what writes with Spark is left out.
"""

from __future__ import annotations

import getpass
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.spark.test_guide import put_on_path
from tests.support.demo import Demo

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs/guide"
OTHERS = {"ten-minutes.md", "marquez.md", "stack.md"}
"""The first has a test of its own; the others need containers, and their commands are checked."""
PAGES = sorted(path for path in GUIDE.glob("*.md") if path.name not in OTHERS)
BATCH = r"b-[0-9a-f]{32}"
WORDS = {
    "coverage.md": (
        r"sales\.orders +\S+ +7 +6 +85\.7 % +[\d,]+ +[\d,]+ +99\.9 % +spark",
        r'"schema": "odi\.coverage/1"',
    ),
    "diff.md": (
        r"1,209 added, 4 removed, 21 changed \(rows matched by row id\)",
        r"changed columns: status in 21, amount in 1, updated_at in 21",
        rf"- order_id = 1131, .*\({BATCH}\)",
        r"~ order_id = 1042, .*amount = 63\.74 → 1063\.74",
        r"103 added, 1 removed, 2 changed \(rows matched by order_id\)",
        r'"added": 809, "removed": 4, "changed": 21',
        r"ODI-L10",
        r"^status 4$",
    ),
    "history.md": (
        rf"done +upsert +70 +\S+ .*{BATCH}",
        r"foreign +overwrite +1 +spark",
        r'"schema": "odi\.history/1"',
        r"did you mean sales\.orders",
        r"^status 4$",
    ),
    "impact.md": (
        r"400 rows written \(400 new, 0 updated\)",
        r"375 still as the batch left them",
        rf"20 by {BATCH}\n +1 \(a write that is not on record\)\n +4 deleted since",
        rf"finance/totals .*: stable in run .*\n +wrote {BATCH} to finance\.totals",
        r"70 rows written \(10 new, 60 updated\); 5 rows taken away by it",
        r'"schema": "odi\.impact/1"',
        r"no batch of the ledger begins with 'b-ffffffff'",
        r"^status 4$",
    ),
    "incident.md": (
        rf"customer = Eco, orders = 216, amount = 90553\.95\n.*\n +born in batch {BATCH}",
        r"finance/totals +stable",
        r"fed by\n.*totals\.overwrite\.finance\.totals \(overwrite.*\n.*sales\.orders \(table",
        r"sales\.orders\.amount \(direct aggregation; totals\.overwrite\.finance\.totals\)",
        r"orders-lineage\.html: ",
        r"order_id = 2208, customer = Eco, .*amount = 36023\.00",
        r"offsets +orders-2026-11-04\.csv",
        r"row id 1277: 1 version\n",
        rf"Read by\n +finance/totals .*\n +wrote {BATCH} to finance\.totals",
        r"^Continuous\.$",
        r"^status 1$",
        r"~ order_id = 1042, .*amount = 63\.74 → 1063\.74",
        r"writes\.html: rests on \d+ entries",
        rf"proof of {BATCH}: proof\.json",
    ),
    "jobs.md": (
        r"sales\.orders_live",
        r"orders\.yaml is valid",
        r"^sales/orders_import +\w+",
        r'"schema": "odi\.jobs/1"',
        r"sales/orders",
    ),
    "lineage.md": (
        r"order_changes\.upsert\.sales\.orders \(upsert; 1 batch, 70 rows",
        r"orders_import\.append\.sales\.orders \(append; 4 batches, 1,600 rows",
        r"did you mean sales\.orders",
        r'"schema": "odi\.lineage/1"',
        r"^flowchart LR$",
        r"^status 4$",
    ),
    "listener.md": (r"spark\.openlineage\.transport\.location .*/spool/[\w-]+\.jsonl$",),
    "offsets.md": (r"4 of kind files", r"^Continuous\.$", r'"schema": "odi\.offsets/1"'),
    "read.md": (
        r"2 batches, 400 inserted, 1 updated, 0 deleted\n< order_id = 1042, .*63\.74",
        r"> order_id = 1042, .*1063\.74",
        r'"schema": "odi\.read/1"',
        r"audit +finance\.totals +\d+ +\S+ +current +0",
        r"billing +sales\.orders +\d+ +\S+ +current +0",
        r"'_change', '_row_id', '_last_updated_sequence_number', '_batch'",
        r"^\d+ 1605$",
    ),
    "relay.md": (
        r"default: [\d,]+ events sent",
        r"ledger: at (\d+) of \1, all sent",
        r'"schema": "odi\.relay\.status/1"',
    ),
    "reports.md": (
        r"ledger: \d+ entries, root [0-9a-f]{64}, verified",
        r"finance/totals +stable",
        r"sales\.orders,upsert,5,,\w+",
        r"foreign\.html: rests on \d+ entries",
        r'"schema": "odi\.report/1"',
    ),
    "sql.md": (
        r"sales/orders_import +5 +1600",
        r'"rows": \[\["ODI-V01", "sales\.orders"\]\]',
        r"SELECT jobb FROM batches\n +\^",
        r"^status 2$",
    ),
    "trace.md": (
        rf"born in batch {BATCH} \(exact\)",
        r"last changed by a write without a batch \(exact\)",
        r'"values": \{"order_id": 1042, "amount": "1063\.74"\}',
        r"row id 41: 3 versions",
        r"amount: 63\.74 → 1063\.74",
        rf"deleted by batch {BATCH} \(exact\)",
        r"did you mean order_id",
        r"does not keep each row's source record",
        r"^status 2$",
    ),
}
"""What each page's commands must say: numbers of the demo's story, which do not change."""

FOLDED = {"history.md", "offsets.md", "reports.md"}
"""Pages whose wide tables are shown narrower than they are printed, or shown in their form only."""
CHANGING = {
    r"b-[0-9a-f]{32}": "BATCH",
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}": "UUID",
    r"\d{4}-\d\d-\d\dT[\d:.]+(Z|\+00:00)": "TIME",
    r"\d{17,}": "SNAPSHOT",
    r"local-\d+": "APPLICATION",
    r"\d{4}-\d\d-\d\d(?= )": "DAY",
    r"\b(%s|root)\b": "USER",
    r"\s+": " ",
}
"""What is different each time."""

pytestmark = pytest.mark.timeout(600)


def script(page: Path) -> str:
    """Return what a page has its reader type, in order, as one shell script."""
    typed = []
    blocks = re.findall(
        r"^```(sh|python|sql)\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    for language, text in blocks:
        if language == "sh":
            typed.append(text)
        elif language == "sql":
            typed.append(f"odi-audit sql <<'END_OF_BLOCK'\n{text}END_OF_BLOCK\n")
        elif "odi.run(" not in text:
            typed.append(f"python - <<'END_OF_BLOCK'\n{text}END_OF_BLOCK\n")
    return "".join(typed)


def samples(page: Path) -> list[str]:
    """Return what a page shows of the answers, cut where it leaves something out."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    lines = re.findall(r"^ {4}(.*)$", text, re.MULTILINE)
    return [part for line in lines for part in map(str.strip, plain(line).split("…")) if part]


def plain(text: str) -> str:
    """Return a text without what is different each time."""
    for pattern, word in CHANGING.items():
        text = re.sub(pattern.replace("%s", re.escape(getpass.getuser())), word, text)
    return text


@contextmanager
def unchanged(lake: Path, kept: Path) -> Iterator[None]:
    """Put the ledger back as it was: other tests look at the same lake, in any order."""
    kept.mkdir()
    heads = set((lake / "heads").iterdir())
    files = [lake / name for name in ("ledger.db", "ledger.db-wal")]
    before = [shutil.copy2(file, kept) for file in files if file.exists()]
    assert before
    yield
    for file in (*files, lake / "ledger.db-shm", *(set((lake / "heads").iterdir()) - heads)):
        file.unlink(missing_ok=True)
    for copy in before:
        shutil.copy2(copy, lake)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_every_command_of_a_page_works_and_says_what_the_page_says(
    page: Path, demo: Demo, tmp_path: Path
) -> None:
    put_on_path(tmp_path / "bin")
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    typed = script(page)
    assert "ODI_LAKE=demo-lake" in typed
    with unchanged(demo.here / "demo-lake", tmp_path / "kept"):
        done = subprocess.run(
            ["/bin/sh", "-eu", "-c", typed],
            cwd=demo.here,
            env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stdout
    assert "Traceback" not in done.stdout
    for words in WORDS[page.name]:
        assert re.search(words, done.stdout, re.MULTILINE), (words, done.stdout)
    if page.name not in FOLDED:
        said = plain(done.stdout)
        for shown in samples(page):
            assert shown in said, (shown, done.stdout)
