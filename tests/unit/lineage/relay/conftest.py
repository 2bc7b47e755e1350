"""A ledger, the relay's state beside it, and a receiver that answers as Marquez does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lineage.relay.destinations import Destination
from lineage.relay.relay import Outcome, Relay
from lineage.relay.state_sql import SqlState
from odi_audit.ledger import SqlLedger
from tests.support.marquez import Receiver, receiver
from tests.support.relaying import (
    events_in,
    forever,
    http,
    judge,
    new_ledger,
    relay_of,
    state_beside,
)


@dataclass(slots=True, kw_only=True)
class Stage:
    """Everything that a test of the relay needs; ``send`` is one whole relay."""

    folder: Path
    ledger: SqlLedger
    store: SqlState
    backend: Receiver

    @property
    def there(self) -> Destination:
        return http(self.backend.url)

    def relay(self, destination: Destination | None = None, **more: Any) -> Relay:
        return relay_of(destination or self.there, self.ledger, self.store, **more)

    def send(self, destination: Destination | None = None, **more: Any) -> Outcome:
        return self.relay(destination, **more).run(forever())

    # A request that was cut off in its middle is none.
    def taken(self) -> list[tuple[int | None, str, str]]:
        return [
            (arrival.index, arrival.run, arrival.state)
            for arrival in self.backend.arrivals
            if arrival.taken and arrival.run
        ]

    def judge(self, *, never_back: bool = True) -> None:
        judge(events_in(self.ledger), self.taken(), self.backend.states, never_back=never_back)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with receiver() as backend:
        made = Stage(
            folder=tmp_path,
            ledger=new_ledger(tmp_path, 12),
            store=state_beside(tmp_path / "ledger.db"),
            backend=backend,
        )
        yield made
        made.store.close()
        made.ledger.close()
