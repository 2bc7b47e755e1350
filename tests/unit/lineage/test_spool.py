"""The spool: whole runs out of files that others write, kill and leave."""

from __future__ import annotations

import fcntl
import json
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from lineage import spool as module
from lineage import spool_files
from lineage.leaving import Event
from lineage.listener import events_of_run, turning
from lineage.listener_run import ListenerRun
from lineage.relay.spooled import SpoolSource
from lineage.spool import Spool, Spooled
from odi_audit.errors import UsageError
from tests.unit.lineage.conftest import History
from tests.unit.lineage.heard import application, dataset, event, run_id, text, whole, write

FILES = [dataset("file", "/in")]
LATER = 1e12


@pytest.fixture
def spool(tmp_path: Path, history: History) -> Spool:
    return Spool(tmp_path / "spool", turning(history.context))


def everything(spool: Spool, page: int = 100, position: str | None = None) -> list[Spooled]:
    found: list[Spooled] = []
    while step := spool.read(position, page):
        found += step
        position = step[-1].position
    return found


def told(found: Sequence[Spooled]) -> list[tuple[str, str]]:
    return [(event.run[-2:], event.state) for event in found]


def test_a_run_leaves_when_it_has_ended_as_its_start_and_its_end(spool: Spool) -> None:
    path = spool.folder / "p.jsonl"
    start, running, end = whole(1, inputs=FILES)
    write(path, application("START"), start, running)
    assert spool.read(None, 10) == []
    write(path, end, application("COMPLETE"))
    found = spool.read(None, 10)
    assert told(found) == [("01", "START"), ("01", "COMPLETE")]
    times = [json.loads(event.body)["eventTime"] for event in found]
    assert times == [start["eventTime"], end["eventTime"]]
    assert spool.read(found[-1].position, 10) == []


def test_runs_that_overlap_leave_in_the_order_of_their_ends(spool: Spool) -> None:
    (s1, r1, e1), (s2, r2, e2) = whole(1, inputs=FILES), whole(2, inputs=FILES)
    write(spool.folder / "p.jsonl", s1, s2, r2, r1, e2, e1)
    both = [("02", "START"), ("02", "COMPLETE"), ("01", "START"), ("01", "COMPLETE")]
    assert told(everything(spool)) == both
    assert told(everything(Spool(spool.folder, spool._turn), page=1)) == both


def test_a_line_that_is_being_written_is_left_alone(spool: Spool) -> None:
    start, running, end = whole(1, inputs=FILES)
    path = write(spool.folder / "p.jsonl", start, running)
    last = text(end)
    for cut in range(0, len(last), 97):
        with path.open("a") as file:
            file.write(last[cut : cut + 97])
        found = spool.read(None, 10)
        assert len(found) == (2 if cut + 97 >= len(last) else 0)
    assert not spool.counts


def test_a_second_end_of_a_run_is_never_sent(spool: Spool) -> None:
    """A write that failed is told as FAIL, and then as COMPLETE."""
    path = spool.folder / "p.jsonl"
    failed = event(1, "FAIL", second=2, inputs=FILES, message="[CAST_INVALID_INPUT] x")
    write(path, event(1, "START", inputs=FILES), failed)
    first = spool.read(None, 10)
    assert told(first) == [("01", "START"), ("01", "FAIL")]
    write(path, event(1, "COMPLETE", second=3, inputs=FILES))
    assert spool.read(first[-1].position, 10) == []
    afresh = Spool(spool.folder, spool._turn)
    assert afresh.read(first[-1].position, 10) == []
    assert afresh.counts == {"no-start": 1}
    assert told(everything(Spool(spool.folder, spool._turn))) == told(first)


def test_bad_lines_are_counted_once_and_never_sent(spool: Spool) -> None:
    path = write(spool.folder / "p.jsonl", *whole(1, inputs=FILES))
    with path.open("a") as file:
        file.write('{"half": \nnot json\n[]\n{"run": {"runId": 7}, "job": {"name": "x"}}\n\n')
    write(path, *whole(2, inputs=FILES))
    assert [name for name, _ in told(everything(spool))] == ["01", "01", "02", "02"]
    assert everything(spool, page=1)
    assert spool.counts == {"bad-line": 5}


def test_a_line_beyond_all_measure_is_skipped(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_files, "LINE_BYTES_MAX", 5_000)
    path = write(spool.folder / "p.jsonl", *whole(1, inputs=FILES))
    with path.open("a") as file:
        file.write("x" * 12_345 + "\n")
    write(path, *whole(2, inputs=FILES))
    assert [name for name, _ in told(everything(spool))] == ["01", "01", "02", "02"]
    assert spool.counts == {"long-line": 1}


def test_a_run_that_no_event_can_be_made_of_stops_nothing(tmp_path: Path, history: History) -> None:
    def turn(run: ListenerRun) -> Sequence[Event]:
        if run.run == run_id(1):
            raise ValueError("no")
        return events_of_run(run, history.context)

    spool = Spool(tmp_path / "spool", turn)
    write(spool.folder / "p.jsonl", *whole(1, inputs=FILES), *whole(2, inputs=FILES))
    assert told(everything(spool)) == [("02", "START"), ("02", "COMPLETE")]
    assert spool.counts == {"unusable": 1}


@pytest.mark.parametrize("seed", range(8))
def test_any_way_of_reading_gives_every_event_once_and_in_order(
    seed: int, tmp_path: Path, history: History
) -> None:
    """Files grow, readers come and go, pages are small; a plain record says what must come."""
    chance = random.Random(seed)
    turn = turning(history.context)
    queues = {
        f"p{file}": [whole(file * 100 + number, inputs=FILES) for number in range(12)]
        for file in range(3)
    }
    must = sorted(run["run"]["runId"] for queue in queues.values() for run, *_ in queue)
    open_runs: dict[str, list[list[dict[str, object]]]] = {name: [] for name in queues}
    folder = tmp_path / "spool"
    spool = Spool(folder, turn)
    found: list[Spooled] = []
    position: str | None = None
    while any(queues.values()) or any(open_runs.values()) or spool.waiting(position)[0]:
        name = chance.choice(sorted(queues))
        if queues[name] and chance.random() < 0.4:
            open_runs[name].append(queues[name].pop())
        if open_runs[name]:
            run = chance.choice(open_runs[name])
            write(folder / f"{name}.jsonl", run.pop(0))
            open_runs[name] = [left for left in open_runs[name] if left]
        if chance.random() < 0.2:
            spool = Spool(folder, turn)
        if chance.random() < 0.3:
            for given in spool.read(position, chance.randint(1, 4)):
                if chance.random() < 0.1:
                    break  # the rest is not acknowledged, and comes again
                found.append(given)
                position = given.position
    assert sorted(given.run for given in found if given.state == "START") == must
    ends = [given.run for given in found if given.state == "COMPLETE"]
    assert sorted(ends) == must
    for run in must:
        assert [given.state for given in found if given.run == run] == ["START", "COMPLETE"]
    assert len({given.key for given in found}) == len({given.position for given in found}) == 72


def test_an_event_can_be_made_again_by_its_key(spool: Spool) -> None:
    write(spool.folder / "p.jsonl", *whole(1, inputs=FILES), *whole(2, inputs=FILES))
    for given in everything(spool):
        again = spool.again(given.key)
        assert again is not None
        assert (again.key, again.body) == (given.key, given.body)
    assert spool.again("q:0.1.0") is None


def test_a_text_that_is_no_position_is_refused(spool: Spool) -> None:
    for wrong in ("7", "[]", '{"p": 1}', "{"):
        with pytest.raises(UsageError, match="no position in a spool"):
            spool.read(wrong, 1)


# -- files come and go -----------------------------------------------------------------------------


def hold(path: Path) -> subprocess.Popen[bytes]:
    """A process that holds the lock of a spool file, as a driver does."""
    code = (
        "import fcntl,sys,time\nf=open(sys.argv[1],'a')\nfcntl.flock(f,fcntl.LOCK_EX)\n"
        "print('held',flush=True)\ntime.sleep(600)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(path.with_suffix(".lock"))], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"held\n"
    return child


def test_a_file_goes_when_its_process_is_dead_and_every_receiver_has_all_of_it(
    tmp_path: Path, history: History
) -> None:
    now = [0.0]
    spool = Spool(tmp_path / "spool", turning(history.context), now=lambda: now[0])
    path = write(spool.folder / "p.jsonl", *whole(1, inputs=FILES))
    changed = path.stat().st_mtime
    driver = hold(path)
    try:
        found = everything(spool)
        now[0] = changed + 3_600
        assert spool.forget(found[-1].position) == []
    finally:
        driver.kill()
        driver.wait()
    now[0] = changed + 30
    assert spool.forget(found[-1].position) == [], "its JVM may still write"
    now[0] = changed + 120
    assert spool.forget(found[-1].position, found[0].position) == []
    assert spool.forget(found[-1].position, None) == []
    assert spool.forget(found[-1].position) == ["p"]
    assert list(spool.folder.iterdir()) == []
    assert spool.read(found[-1].position, 10) == []


def test_a_file_that_nobody_holds_counts_as_ended_after_a_quiet_day(
    tmp_path: Path, history: History
) -> None:
    now = [0.0]
    spool = Spool(tmp_path / "spool", turning(history.context), now=lambda: now[0])
    path = write(spool.folder / "p.jsonl", *whole(1, inputs=FILES))
    position = everything(spool)[-1].position
    now[0] = path.stat().st_mtime + 86_000
    assert spool.forget(position) == []
    now[0] += 1_000
    assert spool.forget(position) == ["p"]


def test_what_a_killed_process_left_half_done_is_counted_and_goes(
    tmp_path: Path, history: History
) -> None:
    spool = Spool(tmp_path / "spool", turning(history.context), now=lambda: LATER)
    path = write(spool.folder / "p.jsonl", *whole(1, inputs=FILES), whole(2, inputs=FILES)[0])
    with path.open("a") as file:
        file.write(text(whole(2, inputs=FILES)[2])[:200])
    path.with_suffix(".lock").touch()
    found = everything(spool)
    assert told(found) == [("01", "START"), ("01", "COMPLETE")]
    assert spool.forget(found[-1].position) == ["p"]
    assert spool.counts == {"torn-line": 1, "unended": 1}


def test_a_file_that_grows_is_cut_and_its_parts_go_while_its_process_lives(
    tmp_path: Path, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_files, "PART_BYTES_MAX", 20_000)
    spool = Spool(tmp_path / "spool", turning(history.context))
    path = spool.folder / "p.jsonl"
    path.parent.mkdir()
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found: list[Spooled] = []
        position: str | None = None
        written_bytes, held_bytes_max, cuts = 0, 0, 0
        slow = whole(999, inputs=FILES)
        write(path, slow[0])
        for number in range(40):
            write(path, *whole(number, inputs=FILES))
            written_bytes += len(text(*whole(number, inputs=FILES)))
            if number == 20:
                write(path, *slow[1:])
            found += everything(spool, 3, position)
            position = found[-1].position
            spool.forget(position)
            cuts += not path.exists()
            if number > 21:
                held_bytes_max = max(held_bytes_max, spool.size_bytes())
            if number % 7 == 0:
                spool = Spool(spool.folder, spool._turn)
    assert cuts >= 3
    assert held_bytes_max < written_bytes / 3
    assert [str(given.run) for given in found].count(run_id(999)) == 2, "it spans a cut"
    assert len({given.key for given in found}) == len(found) == 82
    assert spool.again(found[-1].key) is not None
    assert spool.again(found[0].key) is None, "that part is gone"


def test_parts_go_also_where_nothing_is_ever_sent(
    tmp_path: Path, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_files, "PART_BYTES_MAX", 10_000)
    spool = Spool(tmp_path / "spool", turning(history.context))
    for number in range(60):
        write(spool.folder / "p.jsonl", *whole(number))
        assert spool.read(None, 10) == []
        spool.forget(None)
    assert spool.size_bytes() < 40_000
    assert spool.counts == {"left-out": 60}


def test_runs_that_never_end_do_not_hold_a_file_for_ever(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OPEN_RUNS_MAX", 5)
    starts = [whole(number, inputs=FILES)[0] for number in range(20)]
    write(spool.folder / "p.jsonl", *starts, *whole(30, inputs=FILES))
    found = everything(spool)
    assert told(found) == [("30", "START"), ("30", "COMPLETE")]
    low = json.loads(found[-1].position)["p"][0]
    assert low > len(text(*starts[:10]))
    assert spool.counts["unended"] == 16


# -- as a source of the relay ----------------------------------------------------------------------


def test_the_relay_reads_it_step_by_step(spool: Spool, history: History) -> None:
    source = SpoolSource(spool.folder, history.ledger)
    write(spool.folder / "p.jsonl", *whole(1, inputs=FILES), *whole(2), *whole(3, inputs=FILES))
    lag = source.lag(None)
    assert (lag.entries, lag.oldest_at) == (4, "2026-11-16T14:00:01.250Z")
    steps = source.read(None, 3)
    assert [[item.state for item in step.items] for step in steps] == [
        ["START"],
        ["COMPLETE"],
        ["START"],
    ]
    assert source.lag(steps[-1].after).entries == 1
    source.freeze()
    write(spool.folder / "p.jsonl", *whole(4, inputs=FILES))
    rest = source.read(steps[-1].after, 10)
    assert [item.run[-2:] for step in rest for item in step.items] == ["03"]
    assert source.lag(rest[-1].after).entries == 0
    again = source.fetch(steps[0].items[0].key)
    assert again == steps[0].items[0]
    assert SpoolSource(spool.folder, history.ledger).lag(source.head()).entries == 0


def test_memory_stays_flat_over_a_long_file(tmp_path: Path, history: History) -> None:
    import tracemalloc

    spool = Spool(tmp_path / "spool", turning(history.context))
    for start in range(0, 3_000, 500):
        runs = [doc for number in range(start, start + 500) for doc in whole(number)]
        write(spool.folder / "p.jsonl", *runs)
    size = spool.size_bytes()
    tracemalloc.start()
    assert spool.read(None, 100) == []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size > 15_000_000
    assert peak < size / 4
