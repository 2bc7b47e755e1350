"""What lineage costs: commits beside a backend that is up, down, slow or refuses, and the relay.

Owns the measurement behind ``docs/benchmarks.md``. Each side is a lake of its own with its relay as
a thread of this process, all on one JVM; sides take turns in blocks of commits, and a commit is
compared only with those at the same place of the same round on the two sides whose backend is up.
How far those two differ is told beside it. Must never be a test: time is no proof.

    python -m benchmarks.lineage [--quick] [--json] [--only PART …]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

import odi_audit as odi
from benchmarks import column_lineage, relay
from benchmarks.backends import backend, nobody
from odi_audit.canonical import Json, JsonObject
from odi_audit.committer.run import Run
from odi_audit.spark.session import session_in
from odi_audit.workspace import Workspace

JOB = "bench/lineage"
TABLE = "bench.rows"
ROWS = 1_000
UP, SLOW_S = 201, 5.0
REFUSED = 422
REST_S = 1.0
"""Between blocks: until the relay of the last side has sent what it had."""
RATIO_MAX = 1.02
PARTS = ("relay", "commits", "columns")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much to measure."""

    rounds: int
    block: int
    warm: int
    rate_entries: int
    memory_entries: int
    column_rounds: int
    commit_rounds: int


FULL = Plan(
    rounds=40,
    block=4,
    warm=6,
    rate_entries=30_000,
    memory_entries=1_000_000,
    column_rounds=30,
    commit_rounds=10,
)
QUICK = Plan(
    rounds=6,
    block=3,
    warm=3,
    rate_entries=6_000,
    memory_entries=30_000,
    column_rounds=10,
    commit_rounds=3,
)


@dataclass(slots=True, kw_only=True)
class Side:
    """A lake with its relay beside it, and how long its commits took."""

    name: str
    run: Run
    offset: int = 0
    times: list[float] = field(default_factory=list)

    def commit(self) -> float:
        """Append rows once and return the seconds that it took."""
        start, self.offset = self.offset, self.offset + ROWS
        frame = self.run.spark.range(start, self.offset).select(
            fn.col("id"), fn.concat(fn.lit("n"), fn.col("id") % 100).alias("name")
        )
        began = time.perf_counter()
        self.run.append(frame, TABLE, offsets=odi.mapping("bench", {"p": (start, self.offset)}))
        return time.perf_counter() - began


def commits(folder: Path, spark: SparkSession, plan: Plan) -> list[Side]:
    """Commit on every side in turn, each first every other time; returns the sides."""
    with ExitStack() as held:
        addresses: dict[str, str | None] = {
            "off": None,
            "up": held.enter_context(backend(status=UP)),
            "up_again": held.enter_context(backend(status=UP)),
            "down": held.enter_context(nobody()),
            "slow": held.enter_context(backend(status=UP, delay_s=SLOW_S)),
            "refusing": held.enter_context(backend(status=REFUSED)),
        }
        sides = [
            held.enter_context(_side(folder, spark, name, url)) for name, url in addresses.items()
        ]
        for side in sides:
            side.run.create_table(TABLE, "id bigint, name string")
            for _ in range(plan.warm):
                side.commit()
        for number in range(plan.rounds):
            # Another order in each round: no side always follows the same one.
            turn = number % len(sides)
            order = sides[turn:] + sides[:turn]
            for side in order if number % 2 == 0 else reversed(order):
                time.sleep(REST_S)
                side.times += [side.commit() for _ in range(plan.block)]
    return sides


@contextmanager
def _side(folder: Path, spark: SparkSession, name: str, url: str | None) -> Iterator[Side]:
    Workspace.init(folder / name).close()
    overrides = {}
    if url is not None:
        overrides = {"lineage.transport": "http", "lineage.url": url, "lineage.relay": "thread"}
    lake = Workspace.find(folder / name, overrides=overrides)
    lake.use_spark(session_in(spark, lake.settings))
    with odi.run(JOB, lake=lake) as run:
        yield Side(name=name, run=run)
    lake.close()


def compared(side: Side, with_: Sequence[Side]) -> JsonObject:
    """Return a side against others, commit by commit: their mean is what it is compared with."""
    usual = [statistics.fmean(times) for times in zip(*(it.times for it in with_), strict=True)]
    ratios = sorted(a / b for a, b in zip(side.times, usual, strict=True))
    added = sorted(1000 * (a - b) for a, b in zip(side.times, usual, strict=True))
    middle = statistics.median(ratios)
    # The spread of a median: half the middle half, over the root of how many there are.
    half = (_at(ratios, 0.75) - _at(ratios, 0.25)) / 2
    return {
        "pairs": len(ratios),
        "ms": {key: round(1000 * _at(sorted(side.times), at), 1) for key, at in _SHOWN.items()},
        "ratio": round(middle, 4),
        "ratio_spread": round(1.86 * half / len(ratios) ** 0.5, 4),
        "ratio_p10": round(_at(ratios, 0.1), 4),
        "ratio_p90": round(_at(ratios, 0.9), 4),
        "added_ms": round(statistics.median(added), 1),
    }


_SHOWN = {"median": 0.5, "p10": 0.1, "p90": 0.9}


def measure(plan: Plan, say: Callable[[str], None], parts: Sequence[str] = PARTS) -> JsonObject:
    """Run the parts; returns the ``data`` of ``odi.bench.lineage/1``."""
    load_before = os.getloadavg()[0]
    data: dict[str, Json] = {}
    with _folder() as folder:
        if "relay" in parts:
            say(f"the relay by itself: {plan.rate_entries:,} entries into a file and over HTTP")
            data |= _relay(folder, plan, say)
        with _spark(folder) as lake:
            if "commits" in parts:
                say(f"commits beside six backends, {plan.rounds} rounds")
                data |= _commits(commits(folder, lake.spark(), plan))
            if "columns" in parts:
                say("column lineage of 200 columns, and of commits of 1M rows")
                data |= _columns(lake, plan)
    return data | {
        "machine": {
            "cpus": os.cpu_count(),
            "memory_gib": round(
                os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1
            ),
            "python": platform.python_version(),
            "load_before": round(load_before, 2),
            "load_after": round(os.getloadavg()[0], 2),
        },
        "date": datetime.now(UTC).date().isoformat(),
    }


def _commits(sides: list[Side]) -> dict[str, Json]:
    by_name = {side.name: side for side in sides}
    up, again = by_name.pop("up"), by_name.pop("up_again")
    against = {name: compared(side, (up, again)) for name, side in by_name.items()}
    # The two equal sides against each other: what the method itself cannot tell apart.
    against["up_again"] = compared(again, (up,))
    return {
        "backend_down_ratio": against["down"]["ratio"],
        "backend_slow_ratio": against["slow"]["ratio"],
        "backend_refusing_ratio": against["refusing"]["ratio"],
        "backend_up_again_ratio": against["up_again"]["ratio"],
        "backend_up_ms": round(1000 * statistics.median(up.times), 1),
        "commits": against,
    }


def _columns(lake: Workspace, plan: Plan) -> dict[str, Json]:
    columns = column_lineage.measure(
        lake, rounds=plan.column_rounds, commit_rounds=plan.commit_rounds
    )
    return {
        "column_lineage_ms_200": round(columns.plan_ms, 1),
        "column_lineage_ms_200_max": round(columns.plan_ms_max, 1),
        "column_lineage_share_1m": round(columns.commit_share, 4),
    }


def _relay(folder: Path, plan: Plan, say: Callable[[str], None]) -> dict[str, Json]:
    rates = _rates(folder, plan, say)
    slower = min(float(str(rates[to]["events_per_s"])) for to in ("file", "http"))
    return {"relay_events_per_s": slower, "relay": rates}


def _rates(folder: Path, plan: Plan, say: Callable[[str], None]) -> dict[str, JsonObject]:
    small = folder / "rate"
    small.mkdir()
    relay.make_ledger(small, plan.rate_entries)
    rates: dict[str, JsonObject] = {}
    for to in ("file", "http"):
        rates[to] = relay.measure(small, to=to, entries=plan.rate_entries)
        (small / "relay.db").unlink()
    shutil.rmtree(small)
    say(f"memory over {plan.memory_entries:,} entries")
    large = folder / "memory"
    large.mkdir()
    relay.make_ledger(large, plan.memory_entries)
    rates["memory"] = relay.measure(large, to="http", entries=plan.memory_entries)
    shutil.rmtree(large)
    return rates


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="odi-bench-"))
    os.environ["ODI_LOG__LEVEL"] = "error"
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _spark(folder: Path) -> Iterator[Workspace]:
    lake = Workspace.init(folder / "lake")
    try:
        yield lake
    finally:
        active = SparkSession.getActiveSession()
        if active is not None:
            active.stop()


def _at(ordered: list[float], part: float) -> float:
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]


def _say(text: str) -> None:
    print(f"… {text}", file=sys.stderr, flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds, smaller ledgers")
    parser.add_argument("--json", action="store_true", help="print odi.bench.lineage/1")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART",
                        help=f"some parts of {', '.join(PARTS)}")  # fmt: skip
    arguments = parser.parse_args()
    data = measure(QUICK if arguments.quick else FULL, _say, arguments.only)
    if arguments.json:
        print(json.dumps({"schema": "odi.bench.lineage/1", "data": data}))
        return
    for key, value in data.items():
        if isinstance(value, int | float):
            print(f"{key:28} {value}")


if __name__ == "__main__":
    main()
