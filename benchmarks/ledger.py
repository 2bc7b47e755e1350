"""What the ledger costs: durable entries a second, proofs and opening at a million entries.

``python -m benchmarks.ledger --json`` prints ``odi.bench.ledger/1``. The ledger is filled through
the ordinary append, in large groups; every number is measured on what a user would call.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from odi_audit.canonical import JsonObject
from odi_audit.clock import SystemClock
from odi_audit.ids import JobName, RunId, TableUuid, batch_id, batch_run_id
from odi_audit.ledger import SqlLedger, create_ledger, note, open_ledger
from odi_audit.ledger.proof import prove_batch
from odi_audit.model.entries import Draft, Kind
from odi_audit.model.tables import TableRef

SIZE = 1_000_000
QUICK_SIZE = 50_000
GROUP = 5_000
DURABLE_SECONDS = 5.0
PROOFS = 200
OPENINGS = 30
JOB = JobName("bench/orders")
TABLE = TableRef(uuid=TableUuid("6f1f9d3e-0000-4000-8000-000000000001"), name="bench.orders")
KEY = note.signing_key("example.org/bench", bytes(range(32)))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_SIZE} entries, not {SIZE}")
    parser.add_argument("--url", help="ledger to fill, empty; else a file in a temporary folder")
    options = parser.parse_args()
    size = QUICK_SIZE if options.quick else SIZE
    with tempfile.TemporaryDirectory(prefix="odi-bench-") as folder:
        data = measure(options.url or f"sqlite:///{folder}/ledger.db", size)
    if options.json:
        print(json.dumps({"schema": "odi.bench.ledger/1", "data": data}))
    else:
        for name, value in data.items():
            print(f"{name:32} {value}")


def measure(url: str, size: int) -> JsonObject:
    """Return every measurement on one ledger."""
    with closing(create_ledger(url, clock=SystemClock())) as ledger:
        small = durable_rate(ledger)
        fill_rate = fill(ledger, size)
        large = durable_rate(ledger)
        proofs = proof_costs(ledger)
        batches = batch_proof_costs(ledger)
        scan_ms = _timed(ledger.open_intents)
        total = ledger.head().size
    opens = sorted(
        _timed(lambda: open_ledger(url, clock=SystemClock()).close()) for _ in range(OPENINGS)
    )
    path = Path(url.removeprefix("sqlite://"))
    return {
        "entries": total,
        "durable_entries_per_s_small": round(small, 1),
        "durable_entries_per_s": round(large, 1),
        "disk_syncs_per_s": round(sync_rate(), 1),
        "fill_entries_per_s": round(fill_rate, 1),
        "proof_ms_median": round(statistics.median(ms for ms, _ in proofs), 3),
        "proof_ms_max": round(max(ms for ms, _ in proofs), 3),
        "proof_bytes_max": max(count for _, count in proofs),
        "batch_proof_ms_median": round(statistics.median(ms for ms, _ in batches), 3),
        "batch_proof_ms_max": round(max(ms for ms, _ in batches), 3),
        "batch_proof_bytes_max": max(count for _, count in batches),
        "open_ms_median": round(statistics.median(opens), 3),
        "open_ms_max": round(opens[-1], 3),
        "open_intents_ms_first": round(scan_ms, 3),
        "size_bytes": path.stat().st_size if path.is_file() else None,
        "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}",
    }


def durable_rate(ledger: SqlLedger) -> float:
    """Append one entry at a time, each durable before the next, for a few seconds."""
    drafts = _drafts(ledger.head().size)
    count, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < DURABLE_SECONDS:
        ledger.append(next(drafts))
        count += 1
    if count % 2:
        ledger.append(next(drafts))
    return count / elapsed


def sync_rate() -> float:
    """Return how often this disk can make 8 KiB durable: no ledger is faster than that."""
    with tempfile.NamedTemporaryFile() as stream:
        count, start = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start) < 1.0:
            stream.write(bytes(8192))
            stream.flush()
            os.fdatasync(stream.fileno())
            count += 1
    return count / elapsed


def fill(ledger: SqlLedger, size: int) -> float:
    """Append up to ``size`` entries in large groups."""
    at = first = ledger.head().size
    start = time.perf_counter()
    while at < size:
        drafts = _drafts(at)
        group = min(GROUP, size - at + (size - at) % 2)
        ledger.append(*[next(drafts) for _ in range(group)])
        at += group
        if sys.stderr.isatty():
            sys.stderr.write(f"\rfilling: {at} of {size} ")
    sys.stderr.write("\n")
    return (at - first) / (time.perf_counter() - start)


def proof_costs(ledger: SqlLedger) -> list[tuple[float, int]]:
    """Return time and size of single inclusion proofs, as JSON with entry and head."""
    head = ledger.head()
    signed = note.sign_head(head, KEY)
    found: list[tuple[float, int]] = []
    for number in range(PROOFS):
        index = (number * 7919 * 131) % head.size
        start = time.perf_counter()
        path = ledger.inclusion_proof(index, head.size)
        entry = ledger.get(index)
        spent = (time.perf_counter() - start) * 1000
        document = {
            "index": index,
            "entry": entry.to_bytes().decode(),
            "path": [step.hex() for step in path],
            "head": signed,
        }
        found.append((spent, len(json.dumps(document))))
    return found


def batch_proof_costs(ledger: SqlLedger) -> list[tuple[float, int]]:
    """Return time and size of whole batch proofs, self-check included."""
    found: list[tuple[float, int]] = []
    size = ledger.head().size
    batch = ledger.get(0).batch
    assert batch is not None
    prove_batch(ledger, batch, KEY, None)  # Seals once; what follows uses that head.
    for number in range(PROOFS // 4):
        entry = ledger.get((number * 7919 * 131) % size)
        if entry.batch is None:
            continue
        start = time.perf_counter()
        document = prove_batch(ledger, entry.batch, KEY, None)
        found.append(((time.perf_counter() - start) * 1000, len(json.dumps(document))))
    return found


def _drafts(first: int) -> Iterator[Draft]:
    """Yield intent and landed entries, as a stream of batches makes them, from an even index."""
    index = first
    while True:
        start, end = index * 500, index * 500 + 1000
        batch = batch_id(job=JOB, source="kafka://bench", start=start, end=end, generation=0)
        offsets: JsonObject = {
            "kind": "kafka",
            "source": "kafka://bench",
            "ranges": {"orders-0": [start, end], "orders-1": [start, end]},
            "identity": {"orders-0": "0a1b2c3d", "orders-1": "0a1b2c3d"},
        }
        common: JsonObject = {"offsets": offsets, "principal": "bench", "code": "1.0.0"}
        yield Draft(kind=Kind.INTENT, job=JOB, batch=batch, facts={**common, "owner": "bench/1"})
        yield Draft(
            kind=Kind.LANDED,
            job=JOB,
            run=RunId(batch_run_id(batch, index)),
            batch=batch,
            table=TABLE,
            intent=index,
            settles=True,
            facts={
                **common,
                "operation": "append",
                "snapshot": str(2**62 + index),
                "sequence_number": index,
                "first_row_id": index * 1000,
                "added_rows": 1000,
                "schema_id": 0,
            },
        )
        index += 2


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


if __name__ == "__main__":
    main()
