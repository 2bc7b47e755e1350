"""A process of its own that uses a ledger, for tests of several processes at once."""

from __future__ import annotations

import os
import sys
import time

from odi_audit.clock import SystemClock
from odi_audit.errors import LedgerConflict
from odi_audit.ids import BatchId
from odi_audit.ledger import create_ledger, open_ledger
from odi_audit.model.entries import Draft, Kind
from tests.contract.ledger.places import JOB, ORDERS, batch


def main(command: str, url: str, *rest: str) -> None:
    if command == "create":
        create_ledger(url, clock=SystemClock()).close()
        return
    ledger = open_ledger(url, clock=SystemClock())
    if command == "append":
        name, count = rest[0], int(rest[1])
        for number in range(count):
            ledger.append(
                Draft(kind=Kind.INTENT, job=JOB, batch=BatchId(f"b-{name}-{number}")),
                Draft(kind=Kind.READ, job=JOB, facts={"who": name, "n": number}),
            )
    elif command == "land":
        sys.stdin.readline()
        try:
            ledger.append(Draft(kind=Kind.LANDED, job=JOB, batch=batch(7), table=ORDERS))
            print("landed")
        except LedgerConflict as problem:
            print(problem.code)
    elif command == "hold":
        ledger.hold(rest[0])
        print("holding", flush=True)
        time.sleep(120)
    elif command == "hold-fork":
        ledger.hold(rest[0])
        child = os.fork()
        if child == 0:
            time.sleep(120)
            os._exit(0)
        print(child, flush=True)
        time.sleep(120)
    ledger.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
