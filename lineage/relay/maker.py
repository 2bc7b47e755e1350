"""The process that makes events for a relay in another one; see :mod:`lineage.relay.ahead`.

Owns nothing that lasts: it reads the ledger, answers one page after another on its standard output
and ends with its standard input, so it never outlives the relay. Must never write anywhere else.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
from contextlib import closing, suppress

from lineage.relay.ahead import Order, packed
from lineage.relay.sources import LedgerSource
from odi_audit import redact
from odi_audit.clock import SystemClock
from odi_audit.ledger import open_ledger

COLLECT_AT = (50_000, 50, 100)


def main() -> None:
    """Make events until nobody asks any more."""
    # What is remembered is looked through at every full collection, and lives on: do that seldom.
    gc.set_threshold(*COLLECT_AT)
    # Ctrl-C is for the relay, which ends this process in its own time.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as answers:
        # Whatever prints, prints to the log: the answers are alone on their pipe.
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        asked = sys.stdin.buffer
        order: Order = pickle.load(asked)  # noqa: S301 - from the process that started this one
        for secret in order.secrets:
            redact.register(secret)
        ledger = open_ledger(
            order.url, clock=SystemClock(), read_only=True, busy_timeout_s=order.busy_timeout_s
        )
        with closing(ledger), suppress(BrokenPipeError, EOFError):
            source = LedgerSource(ledger, only_ends=order.only_ends)
            while True:
                start, stop = pickle.load(asked)  # noqa: S301 - as above
                pickle.dump(packed(source.read(str(start), stop - start)), answers)
                answers.flush()


if __name__ == "__main__":
    main()
