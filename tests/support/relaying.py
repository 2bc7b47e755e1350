"""What the tests of the relay share: ledgers of many batches, destinations, a judge of arrivals.

The judge knows nothing of the relay: it compares what arrived with what the ledger's entries say.
"""

from __future__ import annotations

import random
import threading
import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lineage.context import LedgerContext
from lineage.events import events_of
from lineage.relay.destinations import Destination, destinations_of
from lineage.relay.operate import new_holder
from lineage.relay.relay import Manner, Relay
from lineage.relay.sources import LedgerSource
from lineage.relay.state_open import open_state
from lineage.relay.state_sql import SqlState
from odi_audit.clock import SystemClock
from odi_audit.committer import records
from odi_audit.ids import BatchId, JobName, RunId, TableUuid
from odi_audit.ledger import SqlLedger, create_ledger
from odi_audit.ledger.port import Ledger
from odi_audit.model.entries import Draft, Kind
from odi_audit.model.runs import Outcome
from odi_audit.model.tables import TableRef
from odi_audit.settings_models import LineageSettings

ORDERS = TableRef(uuid=TableUuid("11111111-0000-4000-8000-000000000001"), name="sales.orders")
JOB = JobName("sales/orders")
ENDS = {"COMPLETE": "COMPLETED", "FAIL": "FAILED", "ABORT": "ABORTED"}
QUICK = Manner(settle_s=0.05, retry_s_max=0.02, give_up_after=40)
"""No test waits for seconds where a hundredth does."""


def new_ledger(folder: Path, batches: int = 0) -> SqlLedger:
    made = create_ledger(f"sqlite:///{folder / 'ledger.db'}", clock=SystemClock())
    fill(made, range(batches))
    return made


def fill_in_a_run(ledger: Ledger, numbers: Sequence[int]) -> None:
    """Record a run with these batches; some runs fail, some are taken for dead before they end."""
    run = RunId(str(uuid.UUID(int=2**127 + numbers[0], version=4)))
    [started] = ledger.append(Draft(kind=Kind.RUN_STARTED, job=JOB, run=run))
    fill(ledger, numbers, run=run)
    outcome = Outcome.FAILED if numbers[0] % 3 == 2 else Outcome.COMPLETED
    ends = [Outcome.DIED, outcome] if numbers[0] % 4 == 2 else [outcome]
    for place, how in enumerate(ends):
        ledger.append(replace(records.run_ended(started, how, reason="so"), settles=not place))


def fill(ledger: Ledger, numbers: Iterable[int], *, run: RunId | None = None) -> None:
    """Record batches: most land, each fifth is refused, each seventh abandoned."""
    for number in numbers:
        opened = intend(ledger, number, run=run)
        ledger.append(
            Draft(
                kind=Kind.STAGED, job=JOB, run=opened.run, batch=opened.batch, intent=opened.index
            )
        )
        settle(ledger, opened, number)


def intend(ledger: Ledger, number: int, *, run: RunId | None = None) -> Any:
    batch = BatchId(f"b-{number:032x}")
    operations = [{"op": "append", "table": ORDERS.name, "table_uuid": ORDERS.uuid}]
    facts: dict[str, Any] = {"operations": operations, **({"parent_run": run} if run else {})}
    return ledger.append(Draft(kind=Kind.INTENT, job=JOB, batch=batch, facts=facts))[0]


def settle(ledger: Ledger, opened: Any, number: int) -> None:
    kind = Kind.REFUSED if number % 5 == 4 else Kind.ABANDONED if number % 7 == 6 else Kind.LANDED
    facts: dict[str, Any] = {"reason": "as told", "code": "ODI-G03"}
    if kind is Kind.LANDED:
        facts = {"operation": "append", "snapshot": str(2**62 + number), "counts": {}}
    ledger.append(
        Draft(
            kind=kind,
            job=JOB,
            run=opened.run,
            batch=opened.batch,
            table=ORDERS if kind is Kind.LANDED else None,
            intent=opened.index,
            settles=True,
            facts=facts,
        )
    )


def events_in(ledger: Ledger) -> list[tuple[int, str, str]]:
    """Return (index, run, state) of every event that the ledger's entries give."""
    context = LedgerContext(ledger)
    return [
        (event.index, event.run, event.state)
        for entry in ledger.scan()
        for event in events_of(entry, context)
    ]


def judge(
    expected: Sequence[tuple[int, str, str]],
    arrived: Sequence[tuple[int | None, str, str]],
    states: dict[str, str],
    *,
    never_back: bool = True,
) -> None:
    """Fail unless everything arrived, nothing came out of order, and every run's state is right.

    ``arrived`` is in the order in which a backend took events. ``never_back``: nothing but an end
    comes after an end; only a request that was late on the network may break that.
    """
    missing = set(expected) - set(arrived)
    assert not missing, sorted(missing)[:5]
    assert not set(arrived) - set(expected)
    wanted, came = defaultdict(list), defaultdict(list)
    for _, run, state in expected:
        wanted[run].append(state)
    for _, run, state in arrived:
        if state not in came[run]:
            came[run].append(state)
        if never_back and came[run][-1] in ENDS:
            assert state in ENDS, (run, state, "after the end")
    for run, told in wanted.items():
        assert came[run] == list(dict.fromkeys(told)), run
        assert states[run] == ENDS.get(told[-1], "RUNNING"), (run, told)


def http(url: str, **more: Any) -> Destination:
    return destinations_of(LineageSettings(transport="http", url=url, **more))[0]


def to_file(path: Path) -> Destination:
    return destinations_of(LineageSettings(transport="file", file=path))[0]


def state_beside(ledger_path: Path) -> SqlState:
    made = open_state(f"sqlite:///{ledger_path}")
    assert made is not None
    return made


def relay_of(destination: Destination, ledger: Ledger, store: SqlState, **more: Any) -> Relay:
    """Return a relay over a ledger, the destination begun."""
    if store.facts(destination.name) is None:
        store.begin(destination.name, destination.address, {})
    more.setdefault("manner", QUICK)
    more.setdefault("holder", new_holder())
    return Relay(
        destination,
        more.pop("sources", None) or [LedgerSource(ledger)],
        store,
        now=SystemClock(),
        chance=random.Random(7),
        **more,
    )


def forever() -> threading.Event:
    """An event that nobody sets."""
    return threading.Event()
