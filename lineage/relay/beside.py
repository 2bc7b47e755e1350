"""The relay beside a run: gentle, on its own connections, and gone when the run is.

Owns what the companion's thread does (docs/adr/0012-relay.md). Must never take much of a processor
that the run's own driver shares.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from lineage.relay.destinations import Destination, destinations_of
from lineage.relay.operate import begin, bench, manner_of, new_holder, sources_of
from lineage.relay.relay import Manner, Relay, follow
from odi_audit import logs
from odi_audit.clock import SystemClock
from odi_audit.errors import OdiError
from odi_audit.settings import Settings

log = logs.get_logger(__name__)

DUTY = 0.2
"""Python runs one thread at a time: so much of it at most is taken from the driver."""


def work(settings: Settings, wanted: Callable[[], bool], stop: threading.Event) -> None:
    """Relay to every destination while it is wanted, and then to the end of what there is.

    Ends at once where a destination does not answer, or another process relays. Faults are logged:
    the ledger has everything, and the next relay sends it.
    """
    manner = replace(manner_of(settings, going_on=True), wanted=wanted, duty=DUTY, stop_s=0.2)
    threads = [
        threading.Thread(
            target=_relay, args=(settings, item, manner, stop), name=f"odi-{item.name}", daemon=True
        )
        for item in destinations_of(settings.lineage)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _relay(
    settings: Settings, destination: Destination, manner: Manner, stop: threading.Event
) -> None:
    now = SystemClock()
    gentle = replace(destination, lanes=1)
    try:
        with bench(settings, now) as parts:
            begin(parts.store, gentle)

            def make() -> Relay:
                return Relay(
                    gentle,
                    sources_of(settings, parts.ledger, alone=True),
                    parts.store,
                    holder=new_holder(),
                    now=now,
                    manner=manner,
                )

            follow(make, stop, wanted=manner.wanted, patience_s=1.0)
    except OdiError as error:
        log.warning("lineage events wait", destination=destination.name, error=error.message)
