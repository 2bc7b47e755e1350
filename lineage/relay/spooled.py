"""The listener's spool as a source of the relay.

Owns the fit of one to the other. Must never decide what is sent (``lineage.listener``), nor remove
what some destination has not had.
"""

from __future__ import annotations

from pathlib import Path

from lineage.context import LedgerContext
from lineage.listener import turning
from lineage.relay.sources import Item, Lag, Step
from lineage.spool import NAME, Spool, Spooled
from odi_audit.ledger.port import Ledger


class SpoolSource:
    """Runs of openlineage-spark, linked to those of the ledger; one event is one step."""

    name = NAME

    def __init__(self, folder: Path, ledger: Ledger) -> None:
        self._spool = Spool(folder, turning(LedgerContext(ledger)))

    def head(self) -> str:
        """Return the position at the end of what there is now."""
        return self._spool.end()

    def lag(self, position: str | None) -> Lag:
        """Say how many events follow a position."""
        events, first = self._spool.waiting(position)
        return Lag(entries=events, oldest_at=first)

    def read(self, position: str | None, limit: int) -> list[Step]:
        """Return the next events, each a step of its own."""
        return [
            Step(after=found.position, items=(_item(found),))
            for found in self._spool.read(position, limit)
        ]

    def fetch(self, key: str) -> Item | None:
        """Make one event again; None where its file is gone."""
        found = self._spool.again(key)
        return None if found is None else _item(found)

    def freeze(self) -> None:
        """Read no further than what there is now."""
        self._spool.freeze()

    def close(self) -> None:
        """Nothing is held."""

    def forget(self, *positions: str | None) -> list[str]:
        """Remove what is behind the position of every destination."""
        return self._spool.forget(*positions)


def _item(found: Spooled) -> Item:
    return Item(source=NAME, key=found.key, run=found.run, state=found.state, body=found.body)
