"""How fast the relay sends, and what memory it needs for it.

Owns the measurement of the relay alone: a made-up ledger of ordinary batches, sent into a file and
to a backend that answers at once, in a process of its own whose memory is looked at on the way.
Must never be a test: time is no proof.

    python -m benchmarks.relay FOLDER --entries 100000 --to file
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

from benchmarks.backends import backend
from lineage.relay.ahead import Ahead
from lineage.relay.destinations import Destination, destinations_of
from lineage.relay.operate import new_holder
from lineage.relay.relay import Manner, Relay
from lineage.relay.sources import LedgerSource
from lineage.relay.state_open import open_state
from odi_audit.canonical import Json, JsonObject
from odi_audit.clock import SystemClock
from odi_audit.ids import JobName, RunId, SnapshotId, TableUuid, batch_id, batch_run_id
from odi_audit.ledger import create_ledger, open_ledger
from odi_audit.ledger.port import Ledger
from odi_audit.model.entries import Draft, Kind
from odi_audit.model.offsets import kafka
from odi_audit.model.tables import TableRef
from odi_audit.settings_models import LineageSettings

JOB = JobName("bench/orders")
RUN = RunId("5f8a3f1e-0000-4000-8000-000000000001")
TABLE = TableRef(uuid=TableUuid("6f1f9d3e-0000-4000-8000-000000000001"), name="bench.orders")
LOCATION = "file:///lake/warehouse/bench/orders"
ENTRIES_OF_A_BATCH = 3
GROUP_BATCHES = 1_000
COLUMNS = 12
SAMPLES = 40
PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20


def fill(ledger: Ledger, entries: int) -> None:
    """Append a table's creation and batches of a stream: intent, staged, landed."""
    ledger.append(_created())
    at = ledger.head().size
    while at < entries:
        group = min(GROUP_BATCHES, -(-(entries - at) // ENTRIES_OF_A_BATCH))
        ledger.append(*_batches(at, group))
        at += group * ENTRIES_OF_A_BATCH


def measure(folder: Path, *, to: str, entries: int) -> JsonObject:
    """Send a whole ledger, in a process of its own, from a state that has sent nothing yet."""
    order = [sys.executable, "-m", "benchmarks.relay", str(folder)]
    order += ["--to", to, "--entries", str(entries)]
    told = subprocess.run(order, stdout=subprocess.PIPE, check=True).stdout
    found: JsonObject = json.loads(told)
    return found


def _send(folder: Path, to: str, entries: int) -> JsonObject:
    url = f"sqlite:///{folder / 'ledger.db'}"
    with ExitStack() as held:
        destination = _destination(to, folder, held)
        ledger = held.enter_context(closing(open_ledger(url, clock=SystemClock(), read_only=True)))
        store = open_state(url)
        assert store is not None
        held.enter_context(closing(store))
        store.begin(destination.name, destination.address, {})
        memory = _Memory(min(entries, ledger.head().size))
        relay = Relay(
            destination,
            [Ahead(LedgerSource(ledger, stop=entries), url, busy_timeout_s=30.0)],
            store,
            holder=new_holder(),
            now=SystemClock(),
            manner=Manner(settle_s=0.1),
            chance=random.Random(7),
            progress=memory.look,
        )
        spent = time.process_time()
        began = time.perf_counter()
        outcome = relay.run(threading.Event())
        took = time.perf_counter() - began
    assert outcome.left == 0 and outcome.letters == 0, outcome
    return {
        "entries": memory.total,
        "events": outcome.sent,
        "seconds": round(took, 2),
        "events_per_s": round(outcome.sent / took, 1),
        "cpu_s": round(time.process_time() - spent, 2),
        **memory.to_json(),
    }


class _Memory:
    """Looks at the resident memory of this process at even steps of the way."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.seen: list[float] = []
        self._next = 0

    def look(self, done: int, _total: int) -> None:
        if done >= self._next:
            self._next = done + max(self.total // SAMPLES, 1)
            self.seen.append(_resident_mib())

    def to_json(self) -> JsonObject:
        """Compare the second half of the way with the moment at which a tenth was done."""
        early = self.seen[max(len(self.seen) // 10, 1)]
        late = max(self.seen[len(self.seen) // 2 :])
        return {
            "rss_mib_early": round(early, 1),
            "rss_mib_late": round(late, 1),
            "rss_growth_mib": round(late - early, 1),
        }


def _destination(to: str, folder: Path, held: ExitStack) -> Destination:
    if to == "file":
        path = folder / "events.jsonl"
        path.unlink(missing_ok=True)
        return destinations_of(LineageSettings(transport="file", file=path))[0]
    url = held.enter_context(backend())
    return destinations_of(LineageSettings(transport="http", url=url))[0]


# -- a ledger as a stream of Kafka appends makes it ------------------------------------------------


def _created() -> Draft:
    fields: list[Json] = [
        {"id": number, "name": f"c{number}", "required": False, "type": "string"}
        for number in range(1, COLUMNS + 1)
    ]
    schema: JsonObject = {"type": "struct", "schema-id": 0, "fields": fields}
    return Draft(
        kind=Kind.TABLE_CREATED,
        job=JOB,
        table=TABLE,
        facts={
            "operation": "create_table",
            "location": LOCATION,
            "format_version": 3,
            "schema": schema,
        },
    )


def _batches(first: int, count: int) -> Iterator[Draft]:
    for number in range(count):
        yield from _batch(first + number * ENTRIES_OF_A_BATCH)


def _batch(index: int) -> Iterator[Draft]:
    start, end = index * 500, (index + ENTRIES_OF_A_BATCH) * 500
    offsets = kafka(
        {"orders": {0: (start, end), 1: (start, end)}},
        bootstrap="broker:9092",
        topic_ids={"orders": "T1"},
        exact_count=True,
    )
    batch = batch_id(
        job=JOB, source=offsets.source, start=offsets.start(), end=offsets.end(), generation=0
    )
    run = RunId(batch_run_id(batch, index))
    common: dict[str, Json] = {
        "offsets": offsets.to_json(), "source": offsets.source, "generation": 0,
        "principal": "bench", "code": "1.0.0",
    }  # fmt: skip
    yield Draft(
        kind=Kind.INTENT,
        job=JOB,
        run=run,
        batch=batch,
        table=TABLE,
        facts=_intent(common, first=index == 1),
    )
    staged: JsonObject = {
        "tables": [
            {"table_uuid": TABLE.uuid, "name": TABLE.name, "base": None,
             "counts": {"rows": 1500, "null_keys": 0}}
        ]
    }  # fmt: skip
    yield Draft(
        kind=Kind.STAGED, job=JOB, run=run, batch=batch, table=TABLE, intent=index, facts=staged
    )
    yield Draft(
        kind=Kind.LANDED,
        job=JOB,
        run=run,
        batch=batch,
        table=TABLE,
        intent=index,
        settles=True,
        facts=_landed(common, index),
    )


def _intent(common: dict[str, Json], *, first: bool) -> JsonObject:
    # The same plan is kept once, as the committer does.
    columns = {"column_lineage": _COLUMN_LINEAGE} if first else {"column_lineage_at": 1}
    operation: dict[str, Json] = {
        "op": "append", "table": TABLE.name, "table_uuid": TABLE.uuid,
        "arguments": {"op": "append", "table": TABLE.name, "contract": {"key": ["c1"]}},
        **columns,
    }  # fmt: skip
    return {
        **common,
        "operations": [operation],
        "owner": "bench/1",
        "host": "bench",
        "parent_run": RUN,
        "catalog": {"name": "lake", "type": "jdbc", "uri": "jdbc:sqlite:/lake/catalog.db"},
        "engine": {"name": "spark", "version": "4.1.3", "odi_audit": "1.0.0"},
        "tables": [
            {"table_uuid": TABLE.uuid, "location": LOCATION, "format_version": 3,
             "schema_id": 0, "schema_at": 0}
        ],
    }  # fmt: skip


_COLUMN_LINEAGE: JsonObject = {
    "inputs": [
        {"namespace": "kafka://broker:9092", "name": "orders", "kind": "TOPIC",
         "fields": [["value", "binary"]]}
    ],
    "fields": {
        f"c{number}": [
            {"input": 0, "field": "value", "type": "DIRECT", "subtype": "TRANSFORMATION"}
        ]
        for number in range(1, COLUMNS + 1)
    },
    "dataset": [],
    "unknown": [],
}  # fmt: skip


def _landed(common: dict[str, Json], index: int) -> JsonObject:
    return {
        **common,
        "operation": "append",
        "snapshot": SnapshotId(str(2**62 + index)),
        "sequence_number": index,
        "first_row_id": index * 500,
        "added_rows": 1500,
        "schema_id": 0,
        "committed_at": "2026-11-01T00:00:00.000000Z",
        "counts": {
            "added-records": 1500, "total-records": index * 500, "added-data-files": 2,
            "added-files-size": 70_000,
        },
    }  # fmt: skip


def _resident_mib() -> float:
    """Return the memory of this process and of those that it started."""
    return sum(_pages(pid) for pid in [os.getpid(), *_children()]) * PAGE_MIB


def _children() -> list[int]:
    tasks = Path("/proc/self/task").iterdir()
    return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]


def _pages(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0  # it has just ended


def make_ledger(folder: Path, entries: int) -> None:
    """Make the ledger that is sent, in an empty folder."""
    url = f"sqlite:///{folder / 'ledger.db'}"
    with closing(create_ledger(url, clock=SystemClock())) as ledger:
        fill(ledger, entries)


def main() -> None:
    """Send once and print how it went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--entries", type=int, required=True)
    parser.add_argument("--to", choices=("file", "http"), required=True)
    asked = parser.parse_args()
    if not (asked.folder / "ledger.db").exists():
        make_ledger(asked.folder, asked.entries)
    print(json.dumps(_send(asked.folder, asked.to, asked.entries)))


if __name__ == "__main__":
    main()
