"""What an answer costs: a cold trace, the counting of live rows, lookups in a large ledger.

Owns the measurement of the query side. Where Spark can give the same answer both sides run in
turn, on the same table, and the answers are compared; only ratios speak for themselves on a busy
machine. Both kinds of cold process find their Python compiled, as an installed package is. Must
never be a test: time is no proof.

    python -m benchmarks.trace [--quick] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import odi_audit as odi
from benchmarks import ledger as ledger_bench
from odi_audit.model.tables import parse
from odi_audit.query.batches import list_batches
from odi_audit.query.detail import batch_detail
from odi_audit.query.writes import Writes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from odi_audit.committer.run import Run
    from odi_audit.ledger.port import Ledger
    from odi_audit.workspace import Workspace

COLUMNS = "id bigint NOT NULL, customer string, amount double, at timestamp"
JOB = "bench/trace"
TABLE, SMALL = "bench.orders", "bench.small"
UPDATES_EVERY = 20
LOOKUPS = 30
LEDGER_GROUP = 1_000
"""Entries of one moment in the filled ledger: far more than a real one has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much to measure."""

    rows: int
    batches: int
    small_rows: int
    small_batches: int
    cold_ours: int
    cold_spark: int
    warm: int
    ledger_batches: int
    ledger_small: int


FULL = Plan(
    rows=20_000_000,
    batches=200,
    small_rows=1_000_000,
    small_batches=40,
    cold_ours=7,
    cold_spark=3,
    warm=5,
    ledger_batches=1_000_000,
    ledger_small=1_000,
)
QUICK = Plan(
    rows=1_000_000,
    batches=40,
    small_rows=100_000,
    small_batches=10,
    cold_ours=3,
    cold_spark=1,
    warm=3,
    ledger_batches=20_000,
    ledger_small=1_000,
)


# -- the tables --------------------------------------------------------------------------------


def build(run: Run, table: str, rows: int, batches: int) -> None:
    """Fill a table: appends, an update after every twenty batches, compactions at half and end."""
    run.create_table(table, COLUMNS)
    step = rows // batches
    for number in range(batches):
        start = number * step
        offsets = odi.mapping(table, {"p": (start, start + step)})
        run.append(_rows(run.spark, start, start + step), table, offsets=offsets)
        if number % UPDATES_EVERY == UPDATES_EVERY - 1:
            where = f"id >= {start} AND id < {start + step} AND id % 100 = 7"
            run.update(table, where=where, set={"amount": "amount + 1"})
        if number in {batches // 2, batches - batches // 10}:
            run.compact(table)


def _rows(spark: SparkSession, start: int, end: int) -> DataFrame:
    return spark.range(start, end, 1, 1).selectExpr(
        "id",
        "concat('customer-', id % 10000) AS customer",
        "(id % 1000) * 1.5D AS amount",
        "timestamp_seconds(1700000000 + id % 86400) AS at",
    )


# -- cold processes ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Cold:
    """Runs commands, each in a new process, with all of Python compiled beforehand."""

    lake: Path
    folder: Path

    def ours(self, *command: str) -> tuple[float, str]:
        """Time one command of ours."""
        words = ["-m", "odi_audit.cli", *command, "--lake", str(self.lake), "--json"]
        return self._timed(words)

    def spark(self, conf: dict[str, str], table: str, wanted: int) -> tuple[float, str]:
        """Time a PySpark process for the same answer."""
        place = self.folder / "conf.json"
        place.write_text(json.dumps(conf))
        return self._timed(["-m", "benchmarks.cold_spark", str(place), table, str(wanted)])

    def _timed(self, words: list[str]) -> tuple[float, str]:
        kept = {key: value for key, value in os.environ.items() if key not in _NO_BYTECODE}
        environment = {**kept, "PYTHONPYCACHEPREFIX": str(self.folder / "compiled")}
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, *words], env=environment, capture_output=True, text=True, check=False
        )
        took = time.perf_counter() - start
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr[-2000:]}")
        return took, done.stdout


_NO_BYTECODE = {"PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"}


def cold_traces(cold: Cold, conf: dict[str, str], plan: Plan) -> dict[str, object]:
    """Time both sides in turn, on rows all over the table; each row's answers must agree."""
    ours: list[float] = []
    spark: list[float] = []
    asked = [(2 * n + 1) * plan.rows // (2 * plan.cold_ours) // 100 * 100 + 7 for n in range(99)]
    cold.ours("trace", TABLE, "--where", f"id = {asked[0]}")
    cold.spark(conf, f"lake.{TABLE}", asked[0])
    for number in range(plan.cold_ours):
        took, answer = cold.ours("trace", TABLE, "--where", f"id = {asked[number]}")
        ours.append(took)
        if number < plan.cold_spark:
            took, other = cold.spark(conf, f"lake.{TABLE}", asked[number])
            spark.append(took)
            _agree(json.loads(answer)["data"]["rows"][0], json.loads(other))
    small = [
        cold.ours("trace", SMALL, "--where", f"id = {7 + 100 * n}")[0]
        for n in range(plan.cold_ours)
    ]
    return {
        "cold_trace_ratio": round(statistics.median(ours) / statistics.median(spark), 4),
        "cold_trace_s": round(statistics.median(ours), 3),
        "cold_trace_s_max": round(max(ours), 3),
        "cold_spark_s": round(statistics.median(spark), 3),
        "cold_trace_small_s": round(statistics.median(small), 3),
    }


def _agree(ours: dict[str, dict[str, str]], other: dict[str, str]) -> None:
    found = {name: ours[name]["batch"] for name in ("birth", "last_change")}
    if found != other:
        raise RuntimeError(f"the answers differ: {found} and {other}")


def command_starts(cold: Cold, batch: str, rounds: int) -> float:
    """Return the slowest of the ledger's own commands, each the median of some cold starts."""
    commands = (["batches", "--limit", "5"], ["batches", "--since", "1h"], ["batch", batch])
    for command in commands:
        cold.ours(*command)
    return max(
        statistics.median(cold.ours(*command)[0] for _ in range(rounds)) for command in commands
    )


# -- live rows ---------------------------------------------------------------------------------


def attribution(lake: Workspace, plan: Plan) -> dict[str, object]:
    """Count live rows by last change, ours and Spark's warm GROUP BY in turn."""
    from odi_audit.catalog.attribution import live_by_sequence, live_rows

    spark = lake.spark()
    ours: list[float] = []
    theirs: list[float] = []
    births: list[float] = []
    for number in range(plan.warm + 2):
        state = lake.catalog().load(parse(TABLE))
        took, expected = _timed(lambda: _group_by(spark, f"lake.{TABLE}"))
        mine, found = _timed(partial(live_by_sequence, state))
        starts = sorted(info.first_row_id or 0 for info in state.snapshots)
        born, _ = _timed(partial(live_rows, state, starts=starts))
        if found != expected:
            raise RuntimeError("the counts differ from Spark's")
        if number >= 2:
            theirs.append(took)
            ours.append(mine)
            births.append(born)
    state = lake.catalog().load(parse(TABLE))
    small_state = lake.catalog().load(parse(SMALL))
    small = [_timed(lambda: live_rows(small_state))[0] for _ in range(plan.warm)]
    counted = live_rows(state)
    return {
        "attribution_ratio": round(statistics.median(ours) / statistics.median(theirs), 4),
        "attribution_s": round(statistics.median(ours), 4),
        "attribution_births_s": round(statistics.median(births), 4),
        "attribution_spark_s": round(statistics.median(theirs), 4),
        "attribution_small_s": round(statistics.median(small), 4),
        "attribution_files": counted.files_count,
        "attribution_files_read": counted.files_read_count,
        "rows": counted.rows_count,
        "snapshots": len(state.snapshots),
    }


def _group_by(spark: SparkSession, table: str) -> dict[int, int]:
    column = "_last_updated_sequence_number"
    found = spark.sql(f"SELECT {column}, count(*) FROM {table} GROUP BY {column}").collect()
    return {row[0]: row[1] for row in found}


_PEAK = """
import resource, sys
from pathlib import Path
from odi_audit.catalog.attribution import live_rows
from odi_audit.model.tables import parse
from odi_audit.workspace import Workspace
state = Workspace.find(Path(sys.argv[1])).catalog().load(parse(sys.argv[2]))
live_rows(state, starts=[0])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def attribution_peak_mib(lake: Workspace) -> float:
    """Return the peak memory of a process that does nothing but count."""
    done = subprocess.run(
        [sys.executable, "-c", _PEAK, str(lake.root), TABLE],
        capture_output=True,
        text=True,
        check=True,
    )
    return round(int(done.stdout) / 1024, 1)


# -- the ledger --------------------------------------------------------------------------------


def fill(ledger: Ledger, batches: int) -> None:
    """Append an intent and a landing for each batch, in groups that share one moment."""
    drafts = ledger_bench._drafts(0)
    for start in range(0, 2 * batches, LEDGER_GROUP):
        count = min(LEDGER_GROUP, 2 * batches - start)
        ledger.append(*[next(drafts) for _ in range(count)])


def lookups(ledger: Ledger) -> dict[str, float]:
    """Return the median milliseconds of each kind of lookup, on a ledger of many batches."""
    size = ledger.head().size
    since = ledger.get(size - 200).time
    times: dict[str, list[float]] = {"batches_since": [], "batch": [], "trace": []}
    for number in range(LOOKUPS):
        # Entries come in pairs: an intent, and the landing after it.
        index = (number * 7919 * 131) % (size // 2) * 2
        batch = ledger.get(index).batch or ""
        times["batches_since"].append(_timed(lambda: list_batches(ledger, since=since))[0])
        times["batch"].append(_timed(partial(batch_detail, ledger, None, batch))[0])
        times["trace"].append(_timed(partial(_origins, ledger, index))[0])
    return {name: round(1000 * statistics.median(found), 3) for name, found in times.items()}


def _origins(ledger: Ledger, index: int) -> None:
    writes = Writes(ledger, ledger_bench.TABLE.uuid)
    born, changed = writes.by_row_id(index * 1000 + 7), writes.by_sequence(index)
    if born is None or born != changed:
        raise RuntimeError(f"the write of entry {index} was not found")


def measure_ledger(folder: Path, batches: int, rounds: int) -> dict[str, object]:
    """Fill a ledger and measure lookups and commands on it."""
    lake = odi.Workspace.init(folder / f"ledger-{batches}")
    ledger = lake.ledger()
    fill(ledger, batches)
    found = lookups(ledger)
    batch = ledger.get(batches).batch or ""
    lake.close()
    cold = Cold(lake=lake.root, folder=folder)
    return {"lookups_ms": found, "command_start_s": round(command_starts(cold, batch, rounds), 3)}


# -- all of it ---------------------------------------------------------------------------------


def measure(plan: Plan, say: Callable[[str], None]) -> dict[str, object]:
    """Run everything; returns the ``data`` of ``odi.bench.trace/1``."""
    with _folder() as folder:
        say(f"ledgers of {plan.ledger_small:,} and {plan.ledger_batches:,} batches")
        few = measure_ledger(folder, plan.ledger_small, plan.cold_ours)
        many = measure_ledger(folder, plan.ledger_batches, plan.cold_ours)
        lake = odi.Workspace.init(folder / "lake")
        say(f"tables of {plan.small_rows:,} and {plan.rows:,} rows")
        took, _ = _timed(lambda: _build_both(lake, plan))
        say(f"built in {took:.0f} s; live rows")
        counted = attribution(lake, plan)
        counted["attribution_peak_mib"] = attribution_peak_mib(lake)
        conf = lake.spark_conf()
        lake.spark().stop()
        lake.close()
        say("cold traces")
        traced = cold_traces(Cold(lake=lake.root, folder=folder), conf, plan)
    slowest = many["lookups_ms"]
    assert isinstance(slowest, dict)
    return {
        **traced,
        **counted,
        "ledger_lookup_ms": max(slowest.values()),
        "ledger_command_start_s": many["command_start_s"],
        "growth": {
            "rows": {"from": plan.small_rows, "to": plan.rows},
            "cold_trace_s": [traced["cold_trace_small_s"], traced["cold_trace_s"]],
            "attribution_s": [counted["attribution_small_s"], counted["attribution_s"]],
            "batches": {"from": plan.ledger_small, "to": plan.ledger_batches},
            "ledger": [few, many],
        },
        "build_s": round(took, 1),
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version()},
        "date": datetime.now(UTC).date().isoformat(),
    }


def _build_both(lake: Workspace, plan: Plan) -> None:
    with odi.run(JOB, lake=lake) as run:
        build(run, SMALL, plan.small_rows, plan.small_batches)
        build(run, TABLE, plan.rows, plan.batches)


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="odi-bench-"))
    os.environ["ODI_LOG__LEVEL"] = "error"
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _timed(work: Callable[[], object]) -> tuple[float, object]:
    start = time.perf_counter()
    made = work()
    return time.perf_counter() - start, made


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a smaller table and ledger")
    parser.add_argument("--json", action="store_true", help="print odi.bench.trace/1")
    arguments = parser.parse_args()
    data = measure(
        QUICK if arguments.quick else FULL, lambda text: print(f"… {text}", file=sys.stderr)
    )
    if arguments.json:
        print(json.dumps({"schema": "odi.bench.trace/1", "data": data}))
        return
    for key, value in data.items():
        print(f"{key:24} {value}")


if __name__ == "__main__":
    main()
