"""How fast topics become tables: our jobs beside the other ways to do it, in interleaved rounds.

Owns the measurement behind the ingest section of ``docs/benchmarks.md``. All systems read the same
topics of one broker and write tables of the same shape into one catalog, in turn; each process is
up and has ingested some rows before anything is timed. Only ratios of rates within a round are
compared. Must never be a test: time is no proof.

    python -m benchmarks.ingest [--quick] [--json] [--only PART …]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime

from benchmarks.ingest_cdc import cdc_rounds
from benchmarks.ingest_connect import ConnectWorker, KafkaConnect
from benchmarks.ingest_flink import Flink, FlinkProcess
from benchmarks.ingest_place import PARTITIONS, Place, System, Took, message, place
from benchmarks.ingest_spark import OUR_BATCH_ROWS, SINK_BATCH_ROWS, Ours, SparkSink
from benchmarks.ingest_tables import TABLES, many_rounds

PARTS = ("spark_sink", "kafka_connect", "flink", "cdc", "tables")
WARM_TOPIC, TOPIC = "warm", "events"
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much to measure."""

    rows: int
    warm_rows: int
    rounds: int
    cdc_table_rows: int
    cdc_changes: int
    cdc_rounds: int
    tables_rows: int
    tables_rounds: int


FULL = Plan(
    rows=2_000_000,
    warm_rows=200_000,
    rounds=5,
    cdc_table_rows=2_000_000,
    cdc_changes=200_000,
    cdc_rounds=5,
    tables_rows=200_000,
    tables_rounds=3,
)
QUICK = Plan(
    rows=300_000,
    warm_rows=200_000,
    rounds=3,
    cdc_table_rows=300_000,
    cdc_changes=30_000,
    cdc_rounds=3,
    tables_rows=40_000,
    tables_rounds=2,
)


def measure(plan: Plan, say: Say, parts: Sequence[str] = PARTS) -> dict[str, object]:
    """Run everything; returns the ``data`` of ``odi.bench.ingest/1``."""
    with place() as here, ExitStack() as stack:
        data: dict[str, object] = {}
        rivals = _rivals(here, stack, parts, say)
        if rivals:
            data |= _against(here, rivals, plan, say)
        if "cdc" in parts:
            say(f"{plan.cdc_changes:,} changes into {plan.cdc_table_rows:,} rows")
            ours, theirs = cdc_rounds(
                here, rows=plan.cdc_table_rows, changes=plan.cdc_changes, rounds=plan.cdc_rounds
            )
            data["cdc_vs_merge"] = _compared(ours, theirs)
        if "tables" in parts:
            say(f"{plan.tables_rows:,} rows into {TABLES} tables, and into one")
            many, one = many_rounds(here, rows=plan.tables_rows, rounds=plan.tables_rounds)
            data["tables_200_vs_1"] = _growth(many, one)
        return data | _around(plan)


def _rivals(here: Place, stack: ExitStack, parts: Sequence[str], say: Say) -> list[System]:
    found: list[System] = []
    if "spark_sink" in parts:
        found.append(SparkSink(here))
    if "kafka_connect" in parts:
        say("Kafka Connect starts")
        worker = ConnectWorker(here)
        stack.callback(worker.remove)
        worker.start_first()
        found.append(KafkaConnect(here, worker))
    if "flink" in parts:
        say("Flink starts")
        process = FlinkProcess(here)
        stack.callback(process.remove)
        process.start_first()
        found.append(Flink(here, process))
    return found


def _against(here: Place, rivals: list[System], plan: Plan, say: Say) -> dict[str, object]:
    say(f"{plan.rows:,} messages are written")
    here.fill(WARM_TOPIC, plan.warm_rows)
    here.fill(TOPIC, plan.rows)
    systems: list[System] = [Ours(here), *rivals]
    for system in systems:
        here.timed(system, WARM_TOPIC, plan.warm_rows)
        say(f"{system.name} is warm")
    rounds: dict[str, list[Took]] = {system.name: [] for system in systems}
    for number in range(plan.rounds):
        # Each goes first in its turn: what the machine does meanwhile hits nobody always.
        shift = number % len(systems)
        for system in systems[shift:] + systems[:shift]:
            took = here.timed(system, TOPIC, plan.rows)
            rounds[system.name].append(took)
            say(f"round {number + 1}: {system.name} {took.rate:,.0f} rows/s")
    ours = rounds["ours"]
    return {
        **{f"vs_{rival.name}": _compared(ours, rounds[rival.name]) for rival in rivals},
        "rates": {name: _rates(took) for name, took in rounds.items()},
    }


def _compared(ours: list[Took], theirs: list[Took]) -> dict[str, object]:
    """Return how many times as fast we are; above 1 we are faster."""
    ratios = [our.rate / their.rate for our, their in zip(ours, theirs, strict=True)]
    return {
        "ratio": round(statistics.median(ratios), 3),
        "spread": [round(min(ratios), 3), round(max(ratios), 3)],
        "rounds": len(ratios),
        "cpu_ratio": round(
            statistics.median(t.cpu_s / o.cpu_s for o, t in zip(ours, theirs, strict=True)), 3
        ),
        "ours_rows_s": _rates(ours)["median"],
        "theirs_rows_s": _rates(theirs)["median"],
    }


def _growth(many: list[Took], one: list[Took]) -> dict[str, object]:
    ratios = [wide.seconds / narrow.seconds for wide, narrow in zip(many, one, strict=True)]
    added = [
        1000 * (wide.seconds - narrow.seconds) / (TABLES - 1)
        for wide, narrow in zip(many, one, strict=True)
    ]
    return {
        "ratio": round(statistics.median(ratios), 3),
        "spread": [round(min(ratios), 3), round(max(ratios), 3)],
        "rounds": len(ratios),
        "tables": TABLES,
        "rows": many[0].rows,
        "seconds_many": round(statistics.median(took.seconds for took in many), 2),
        "seconds_one": round(statistics.median(took.seconds for took in one), 2),
        "added_ms_per_table": round(statistics.median(added), 1),
    }


def _rates(took: list[Took]) -> dict[str, float]:
    rates = sorted(item.rate for item in took)
    cpu = statistics.median(1e6 * item.cpu_s / item.rows for item in took)
    return {
        "median": round(statistics.median(rates)),
        "min": round(rates[0]),
        "max": round(rates[-1]),
        "cpu_s_per_1m_rows": round(cpu, 2),
    }


def _around(plan: Plan) -> dict[str, object]:
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "rows": plan.rows,
        "message_bytes": len(message(plan.rows - 1)),
        "partitions": PARTITIONS,
        "batch_rows": {"ours": OUR_BATCH_ROWS, "spark_sink": SINK_BATCH_ROWS},
        "machine": {
            "cpus": os.cpu_count(),
            "memory_gib": round(pages / 2**30, 1),
            "python": platform.python_version(),
            "load_1m": round(os.getloadavg()[0], 2),
        },
        "date": datetime.now(UTC).date().isoformat(),
    }


def _say(text: str) -> None:
    print(f"… {text}", file=sys.stderr, flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer and smaller rounds")
    parser.add_argument("--json", action="store_true", help="print odi.bench.ingest/1")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="some parts only")
    arguments = parser.parse_args()
    data = measure(QUICK if arguments.quick else FULL, _say, arguments.only)
    if arguments.json:
        print(json.dumps({"schema": "odi.bench.ingest/1", "data": data}))
        return
    for key, value in data.items():
        if isinstance(value, dict) and "ratio" in value:
            print(f"{key:20} {value['ratio']}  (from {value['spread'][0]} to {value['spread'][1]})")


if __name__ == "__main__":
    main()
