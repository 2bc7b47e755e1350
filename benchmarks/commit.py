"""What the audit costs: audited commits against bare Spark, in interleaved pairs.

Owns the measurement behind ``docs/benchmarks.md``. Both sides of a pair run in one process, one
after the other, on tables of the same shape and the same rows, so that a busy machine slows both;
only ratios and differences within pairs are reported. Must never be a test: time is no proof.

    python -m benchmarks.commit [--quick] [--json]
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
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

import odi_audit as odi
from odi_audit.committer.run import Run
from odi_audit.ids import BatchId, JobName, TableUuid, batch_run_id
from odi_audit.model import tables
from odi_audit.model.entries import Draft, Kind
from odi_audit.model.stamps import Stamps
from odi_audit.model.tables import TableRef
from odi_audit.spark.jvm import Jvm
from odi_audit.spark.live import load

COLUMNS = "id bigint NOT NULL, customer string, amount double, at timestamp"
JOB = "bench/commit"
UPSERT_ROWS = 100_000
LEDGER_CHUNK = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much to measure."""

    pairs_1k: int
    pairs_1m: int
    pairs_upsert: int
    upsert_table_rows: int
    pairs_growth: int
    history: int
    warm: int


FULL = Plan(
    pairs_1k=40,
    pairs_1m=20,
    pairs_upsert=16,
    upsert_table_rows=2_000_000,
    pairs_growth=40,
    history=2_000,
    warm=5,
)
QUICK = Plan(
    pairs_1k=12,
    pairs_1m=6,
    pairs_upsert=3,
    upsert_table_rows=500_000,
    pairs_growth=12,
    history=500,
    warm=3,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Times in seconds of both sides, pair by pair."""

    bare: list[float]
    audited: list[float]

    def ratio(self) -> float:
        """The median of the pairs' ratios."""
        return statistics.median(a / b for a, b in zip(self.audited, self.bare, strict=True))

    def added_ms(self) -> float:
        """The median of the pairs' differences."""
        return 1000 * statistics.median(a - b for a, b in zip(self.audited, self.bare, strict=True))

    def to_json(self) -> dict[str, object]:
        """Medians and spread, in milliseconds."""
        return {
            "pairs": len(self.bare),
            "bare_ms": _spread(self.bare),
            "audited_ms": _spread(self.audited),
            "ratio": round(self.ratio(), 4),
            "added_ms": round(self.added_ms(), 1),
        }


class Bench:
    """One lake, and pairs of tables in it."""

    def __init__(self, run: Run, plan: Plan) -> None:
        self.run = run
        self.plan = plan
        self.spark: SparkSession = run.spark
        self._next_id = 0
        self._offset = 0

    def rows(self, count: int) -> DataFrame:
        """Return rows with ids that no other write of this process has."""
        start, self._next_id = self._next_id, self._next_id + count
        return self.spark.range(start, start + count).select(
            fn.col("id"),
            fn.concat(fn.lit("customer-"), fn.col("id") % 10_000).alias("customer"),
            ((fn.col("id") % 1000) * 1.5).alias("amount"),
            fn.timestamp_seconds(fn.lit(1_700_000_000) + fn.col("id") % 86_400).alias("at"),
        )

    def pair_of_tables(self, name: str) -> tuple[str, str]:
        """Make a bare and an audited table of the same shape."""
        for side in ("bare", "audited"):
            self.run.create_table(f"bench.{name}_{side}", COLUMNS)
        return f"bench.{name}_bare", f"bench.{name}_audited"

    def append_bare(self, table: str, rows: int) -> None:
        """Append as Spark does."""
        self.rows(rows).writeTo(f"lake.{table}").append()

    def append_audited(self, table: str, rows: int) -> None:
        """Append through the committer."""
        start, self._offset = self._offset, self._offset + rows
        offsets = odi.mapping(f"bench-{table}", {"p": (start, self._offset)})
        self.run.append(self.rows(rows), table, offsets=offsets, accept_gap="shared counter")

    def pairs(self, bare: Callable[[], None], audited: Callable[[], None], count: int) -> Pairs:
        """Time both sides ``count`` times, in turn, each first every other time."""
        for _ in range(self.plan.warm):
            bare()
            audited()
        times: dict[str, list[float]] = {"bare": [], "audited": []}
        sides = [("bare", bare), ("audited", audited)]
        for number in range(count):
            for name, side in sides if number % 2 == 0 else reversed(sides):
                times[name].append(_timed(side))
        return Pairs(bare=times["bare"], audited=times["audited"])


def append_pairs(bench: Bench, rows: int, count: int) -> Pairs:
    """Appends of ``rows`` rows."""
    bare, audited = bench.pair_of_tables(f"append_{rows}")
    return bench.pairs(
        lambda: bench.append_bare(bare, rows), lambda: bench.append_audited(audited, rows), count
    )


def upsert_pairs(bench: Bench) -> Pairs:
    """Upserts of 100k rows, half of them new, into a large table."""
    bare, audited = bench.pair_of_tables("upsert")
    size = bench.plan.upsert_table_rows
    base = bench.rows(size)
    base.writeTo(f"lake.{bare}").append()
    bench.run.append(base, audited, offsets=odi.once("base"))
    step = UPSERT_ROWS // 2
    counters = {"bare": 0, "audited": 0}

    def changes(side: str) -> DataFrame:
        counters[side] += 1
        low = size + (counters[side] - 2) * step
        return bench.spark.range(low, low + UPSERT_ROWS).select(
            fn.col("id"),
            fn.concat(fn.lit("changed-"), fn.col("id") % 10_000).alias("customer"),
            fn.lit(1.0).alias("amount"),
            fn.timestamp_seconds(fn.lit(1_700_000_000)).alias("at"),
        )

    def bare_side() -> None:
        changes("bare").createOrReplaceTempView("changes")
        bench.spark.sql(
            f"MERGE INTO lake.{bare} t USING changes s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    def audited_side() -> None:
        frame = changes("audited")
        bench.run.upsert(frame, audited, key=["id"], offsets=odi.once(str(counters["audited"])))

    return bench.pairs(bare_side, audited_side, bench.plan.pairs_upsert)


def growth_pairs(bench: Bench) -> tuple[Pairs, Pairs]:
    """Appends of 1,000 rows to tables with 10 and with many earlier batches, interleaved."""
    few = bench.pair_of_tables("few")
    many = bench.pair_of_tables("many")
    for (bare, audited), history in ((few, 10), (many, bench.plan.history)):
        fill(bench, bare, history, stamped=False)
        fill(bench, audited, history, stamped=True)
    collected = {pair: Pairs(bare=[], audited=[]) for pair in (few, many)}
    for number in range(bench.plan.warm + bench.plan.pairs_growth):
        for (bare, audited), pairs in collected.items():
            sides: list[tuple[list[float], Callable[[str, int], None], str]] = [
                (pairs.bare, bench.append_bare, bare),
                (pairs.audited, bench.append_audited, audited),
            ]
            for kept, append, table in sides if number % 2 == 0 else reversed(sides):
                took = _timed(partial(append, table, 1000))
                if number >= bench.plan.warm:
                    kept.append(took)
    return collected[few], collected[many]


def fill(bench: Bench, table: str, count: int, *, stamped: bool) -> None:
    """Give a table ``count`` earlier snapshots, with stamps and ledger entries if audited."""
    live = load(Jvm(bench.spark), "lake", tables.parse(table))
    transaction = live.java.newTransaction()
    drafts: list[Draft] = []
    for number in range(count):
        append = transaction.newFastAppend()
        if stamped:
            batch = BatchId(f"b-{uuid.uuid4().hex}")
            for key, value in _stamps(batch, number).to_summary().items():
                append.set(key, value)
            drafts += _entries(batch, live.ref.uuid, table, number)
        append.commit()
    transaction.commitTransaction()
    for start in range(0, len(drafts), LEDGER_CHUNK):
        bench.run.parts.ledger.append(*drafts[start : start + LEDGER_CHUNK])


def measure(plan: Plan, say: Callable[[str], None]) -> dict[str, object]:
    """Run everything; returns the ``data`` of ``odi.bench.commit/1``."""
    with _bench(plan) as bench:
        say("appends of 1,000 rows")
        small = append_pairs(bench, 1_000, plan.pairs_1k)
        say("appends of 1M rows")
        large = append_pairs(bench, 1_000_000, plan.pairs_1m)
        say(f"upserts of {UPSERT_ROWS:,} rows into {plan.upsert_table_rows:,}")
        upsert = upsert_pairs(bench)
        say(f"appends after 10 and after {plan.history:,} batches")
        few, many = growth_pairs(bench)
    return {
        "append_1m_ratio": round(large.ratio(), 4),
        "append_1k_added_ms": round(small.added_ms(), 1),
        "upsert_ratio": round(upsert.ratio(), 4),
        # Of the ratios, not of the added times: those are so small that their quotient is noise.
        "growth_ratio": round(many.ratio() / few.ratio(), 4),
        "growth_added_ms": {"few": round(few.added_ms(), 1), "many": round(many.added_ms(), 1)},
        "history_batches": plan.history,
        "append_1k": small.to_json(),
        "append_1m": large.to_json(),
        "upsert": upsert.to_json(),
        "growth_few": few.to_json(),
        "growth_many": many.to_json(),
        "machine": {
            "cpus": os.cpu_count(),
            "memory_gib": round(
                os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1
            ),
            "python": platform.python_version(),
        },
        "date": datetime.now(UTC).date().isoformat(),
    }


@contextmanager
def _bench(plan: Plan) -> Iterator[Bench]:
    folder = Path(tempfile.mkdtemp(prefix="odi-bench-"))
    os.environ["ODI_LOG__LEVEL"] = "error"
    try:
        lake = odi.Workspace.init(folder / "lake")
        with odi.run(JOB, lake=lake) as run:
            yield Bench(run, plan)
    finally:
        active = SparkSession.getActiveSession()
        if active is not None:
            active.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _stamps(batch: BatchId, number: int) -> Stamps:
    return Stamps(
        job=JobName(JOB),
        run=batch_run_id(batch, number),
        batch=batch,
        operation="append",
        source="bench-history",
        offsets=odi.mapping("bench-history", {"p": (number, number + 1)}).to_stamp(),
        intent=number,
        principal="bench",
        code="odi-audit bench",
    )


def _entries(batch: BatchId, table: TableUuid, name: str, number: int) -> list[Draft]:
    offsets = odi.mapping("bench-history", {"p": (number, number + 1)}).to_json()
    ref = TableRef(uuid=table, name=name)
    return [
        Draft(
            kind=Kind.LANDED,
            job=JobName(JOB),
            batch=batch,
            table=ref,
            facts={"operation": "append", "snapshot": str(number), "offsets": offsets},
        )
    ]


def _timed(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _say(text: str) -> None:
    print(f"… {text}", file=sys.stderr, flush=True)


def _spread(times: list[float]) -> dict[str, float]:
    ordered = sorted(1000 * value for value in times)
    return {
        "median": round(statistics.median(ordered), 1),
        "p10": round(ordered[len(ordered) // 10], 1),
        "p90": round(ordered[-1 - len(ordered) // 10], 1),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer and smaller pairs")
    parser.add_argument("--json", action="store_true", help="print odi.bench.commit/1")
    arguments = parser.parse_args()
    data = measure(QUICK if arguments.quick else FULL, _say)
    if arguments.json:
        print(json.dumps({"schema": "odi.bench.commit/1", "data": data}))
        return
    for key in ("append_1m_ratio", "append_1k_added_ms", "upsert_ratio", "growth_ratio"):
        print(f"{key:22} {data[key]}")


if __name__ == "__main__":
    main()
