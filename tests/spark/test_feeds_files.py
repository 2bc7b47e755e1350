"""Files as the source of a job: every file once, in order, whatever happens to it or to the job."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import odi_audit as odi
from jobs.runner.frame_job import FrameJob
from jobs.runner.loop import Until, run_job
from jobs.runner.outcome import Ran
from jobs.sources.base import NO_CHOICES, Choices, Limits
from jobs.sources.files import FilesFeed
from jobs.spec import parse_spec
from odi_audit.errors import RuleBroken, SourceChanged, SourceUnavailable
from odi_audit.model.tables import parse
from odi_audit.query.offsets import continuity
from odi_audit.query.trace import trace
from odi_audit.query.verify import verify
from odi_audit.workspace import Workspace
from tests.support.independent import Eyes
from tests.support.killed import Killed

SPEC = """
version: 1
job: shop/orders
source: {{type: files, path: "{path}", format: {format}, settle: 0s{more}}}
batch: {{files: {files}}}
target: {{table: shop.orders{target}}}
{rest}
"""
DEAD = "dead_letter: {table: shop.dead}"


def text(path: str = "inbox", *, form: str = "csv", files: int = 1000, **more: str) -> str:
    blank = {"more": "", "target": "", "rest": DEAD}
    return SPEC.format(path=path, format=form, files=files, **(blank | more))


def run_once(
    lake: Workspace,
    folder: Path,
    spec_text: str,
    *,
    choices: Choices = NO_CHOICES,
    reach: Callable[[str], None] | None = None,
    rows: int = 10_000,
) -> Ran:
    spec = parse_spec(spec_text, {})
    more: dict[str, Any] = {} if reach is None else {"reach": reach}
    with odi.run(spec.job, lake=lake, **more) as run:
        worker = FrameJob(spec, FilesFeed(spec, folder=folder))
        return run_job(run, worker, Limits(rows=rows), until=Until(drained=True), choices=choices)


def put(folder: Path, name: str, numbers: range | list[int], age_s: int = 0) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("id,name\n" + "".join(f"{n},n{n}\n" for n in numbers))
    moment = path.stat().st_mtime - age_s
    os.utime(path, (moment, moment))
    return path


def ids(lake: Workspace, table: str = "shop.orders") -> list[int]:
    return sorted(int(row[0]) for row in Eyes.on(lake.root).rows(table))


def clean(lake: Workspace) -> None:
    assert not verify(lake.ledger(), lake.catalog())
    assert not continuity(lake.ledger()).events


def test_files_land_once_oldest_first_and_bad_lines_are_dead_letters(
    lake: Workspace, tmp_path: Path
) -> None:
    inbox = tmp_path / "inbox"
    put(inbox, "b.csv", range(10), age_s=50)
    put(inbox, "a.csv", range(10, 20), age_s=10)
    put(inbox, "_c.csv", range(90, 99))
    put(inbox, "d.csv.part", range(90, 99))
    bad = put(inbox, "bad name [1].csv", [20], age_s=5)
    bad.write_text(bad.read_text() + "21\n22,x,y\n")
    spec = text(files=1, target=", provenance: row")
    ran = run_once(lake, tmp_path, spec)
    assert (ran.batches, ran.records, ran.rejects) == (3, 23, 2)
    assert ids(lake) == list(range(21))
    dead = Eyes.on(lake.root).rows("shop.dead")
    assert {(row[3], int(row[4])) for row in dead} == {(str(bad), 3), (str(bad), 4)}
    order = [Path(names[0]).name for names in odi_batches(lake)]
    assert order[-3:] == ["b.csv", "a.csv", "bad name [1].csv"]
    assert run_once(lake, tmp_path, spec).batches == 0
    # A file that was read may go; more columns and wider numbers make the table grow.
    (inbox / "b.csv").unlink()
    (inbox / "e.csv").write_text("id,name,extra\n3000000000,n,1.5\n")
    ran = run_once(lake, tmp_path, spec)
    assert (ran.batches, ran.rejects) == (1, 0)
    assert ids(lake)[-1] == 3_000_000_000
    (found,) = trace(lake.ledger(), lake.catalog(), parse("shop.orders"), "id = 3")
    assert str(inbox / "b.csv") in json.dumps(found.to_json())
    clean(lake)


def odi_batches(lake: Workspace) -> list[list[str]]:
    from odi_audit.ledger.port import EntryFilter
    from odi_audit.model.entries import Kind

    found = lake.ledger().find(EntryFilter(kinds=(Kind.INTENT,), job="shop/orders"))  # type: ignore[arg-type]
    return [
        list(entry.facts["offsets"]["ranges"])  # type: ignore[index,call-overload]
        for entry in found
        if "offsets" in entry.facts
    ]


def test_a_file_that_changed_after_it_was_read_stops_the_job_until_somebody_decides(
    lake: Workspace, tmp_path: Path
) -> None:
    inbox = tmp_path / "in" / "deep"
    inbox.parent.mkdir()
    first = put(inbox, "a.json", [])
    first.write_text('{"id": 1, "name": "a"}\n{"id": 2, "name": "b"}\n')
    pq.write_table(pa.table({"id": [1]}), inbox / "x.parquet")
    spec = text("in/**/*.json", form="json", target=", mode: upsert, key: id", rest="")
    assert run_once(lake, tmp_path, spec).batches == 1
    os.utime(first, (1, 1))  # touched, and still the same
    assert run_once(lake, tmp_path, spec).batches == 0
    first.write_text('{"id": 1, "name": "c"}\n{"id": 2, "name": "b"}\n')  # of the same size
    with pytest.raises(SourceChanged, match=r"1 files changed after they were read: .*a\.json"):
        run_once(lake, tmp_path, spec)
    assert run_once(lake, tmp_path, spec, choices=Choices(generation=1)).batches == 1
    assert sorted(Eyes.on(lake.root).rows("shop.orders")) == [(1, "c"), (2, "b")]
    assert run_once(lake, tmp_path, spec).batches == 0
    # Without a table for dead letters a bad line refuses the batch, and the file stays unread.
    bad = inbox / "b.json"
    bad.write_text("{broken\n")
    with pytest.raises(RuleBroken, match="1 of 1 records cannot be read"):
        run_once(lake, tmp_path, spec)
    bad.write_text('{"id": 3, "name": "mended"}\n')
    assert run_once(lake, tmp_path, spec).records == 1
    # The folder under another name would bring everything a second time.
    inbox.parent.rename(tmp_path / "out")
    with pytest.raises(SourceChanged, match="the job has read files from"):
        run_once(lake, tmp_path, spec.replace("in/**", "out/**"))


def test_a_file_that_changes_between_plan_and_read_fails_the_batch_and_not_the_table(
    lake: Workspace, tmp_path: Path
) -> None:
    path = put(tmp_path / "inbox", "a.csv", range(5))
    spec = parse_spec(text(), {})
    with odi.run(spec.job, lake=lake) as run:
        worker = FrameJob(spec, FilesFeed(spec, folder=tmp_path))
        worker.prepare(run)
        plan = worker.plan(run, Limits(), choices=NO_CHOICES, waited_s=1e9)
        assert plan is not None
        path.write_text(path.read_text().replace("n3", "n4"))
        with pytest.raises(SourceUnavailable, match=r"a\.csv changed since the batch was planned"):
            worker.carry_out(run, plan)
        assert ids(lake) == []
    assert run_once(lake, tmp_path, text()).records == 5
    clean(lake)


def test_random_arrivals_and_kills_lose_no_line_and_bring_none_twice(
    lake: Workspace, tmp_path: Path
) -> None:
    dice = random.Random(11)
    inbox, spec = tmp_path / "inbox", text(files=2)
    expected: list[int] = []
    kills = 0
    for turn in range(6):
        for number in range(dice.randint(0, 3)):
            numbers = [len(expected) + n for n in range(dice.randint(0, 4))]
            put(inbox, f"{dice.random()}-{number}.csv", numbers, age_s=dice.randint(0, 9))
            expected += numbers
        put(inbox, f"late-{turn}.csv.tmp", [10**6])
        deadly = dice.randint(0, 12) if turn < 5 else 10**9

        def reach(_point: str, left: list[int] = [deadly]) -> None:  # noqa: B006 - per turn
            left[0] -= 1
            if left[0] < 0:
                raise Killed

        try:
            run_once(lake, tmp_path, spec, reach=reach)
        except Killed:
            kills += 1
    assert kills >= 2, "no fault fired"
    assert ids(lake) == sorted(expected)
    clean(lake)
