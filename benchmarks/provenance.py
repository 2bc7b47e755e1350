"""What it costs to keep each row's source record (``provenance="row"``).

Owns one figure of ``docs/benchmarks.md``: bytes a row on disk, and the time of an append, with and
without the two columns, in interleaved pairs of the same rows. Must never be a test.

    python -m benchmarks.provenance [--quick] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import odi_audit as odi
from odi_audit.committer.run import Run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "odi.bench.provenance/1"
COLUMNS = "id bigint NOT NULL, customer string, amount double, at timestamp"
PARTITIONS = 12
"""As many as a busy topic has; their names are dictionary-encoded."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="3 pairs of 200,000 rows")
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    given = parser.parse_args()
    pairs, rows = (3, 200_000) if given.quick else (10, 1_000_000)
    with tempfile.TemporaryDirectory() as folder, odi.Workspace.init(Path(folder)) as lake:
        data = measure(lake, pairs, rows)
    if given.json:
        sys.stdout.write(json.dumps({"schema": SCHEMA, "data": data}) + "\n")
    else:
        for name, value in data.items():
            sys.stdout.write(f"{name:<24}{value}\n")


def measure(lake: odi.Workspace, pairs: int, rows: int) -> dict[str, object]:
    """Append the same rows to a table of each kind, in turn."""
    with odi.run("bench/provenance", lake=lake) as run:
        run.create_table("bench.batch", COLUMNS)
        run.create_table("bench.row", COLUMNS, provenance="row")
        _append(run, "bench.batch", "warm", rows // 10)
        _append(run, "bench.row", "warm", rows // 10)
        batch_s, row_s, batch_bytes, row_bytes = [], [], 0, 0
        for number in range(pairs):
            for table in ("bench.batch", "bench.row")[:: 1 if number % 2 else -1]:
                took, size = _append(run, table, str(number), rows)
                if table == "bench.batch":
                    batch_s.append(took)
                    batch_bytes += size
                else:
                    row_s.append(took)
                    row_bytes += size
    total = pairs * rows
    return {
        "rows": total,
        "bytes_per_row_batch": round(batch_bytes / total, 2),
        "bytes_per_row_row": round(row_bytes / total, 2),
        "bytes_added_per_row": round((row_bytes - batch_bytes) / total, 2),
        "append_ratio": round(
            statistics.median(b / a for a, b in zip(batch_s, row_s, strict=True)), 4
        ),
        "machine": f"{os.cpu_count()} cores",
    }


def _append(run: Run, table: str, name: str, rows: int) -> tuple[float, int]:
    """Return how long an append took, and the bytes that it added."""
    frame = _rows(run.spark, rows)
    if table == "bench.row":
        frame = odi.with_source(
            frame, partition=f"concat('orders-', id % {PARTITIONS})", offset=f"id div {PARTITIONS}"
        )
    start = time.perf_counter()
    receipt = run.append(frame, table, offsets=odi.once(f"{table} {name}"))
    return time.perf_counter() - start, receipt.landing.counts["added-files-size"]


def _rows(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count).selectExpr(
        "id",
        "concat('customer-', id % 5000) AS customer",
        "rand(7) * 1000 AS amount",
        "timestamp'2026-01-01' + make_interval(0, 0, 0, 0, 0, 0, id % 86400) AS at",
    )


if __name__ == "__main__":
    main()
