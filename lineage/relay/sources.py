"""What there is to send: sources of events, read from a position onwards.

Owns the small interface and its implementation over the ledger. A source is read in steps: a
position moves from one to the next, and only forwards. Must never hold more than was asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from lineage.context import LedgerContext
from lineage.events import events_of
from odi_audit.checks import Bug
from odi_audit.errors import EntryNotFound, LedgerBroken
from odi_audit.ids import RunId
from odi_audit.ledger.port import Ledger
from odi_audit.model.entries import Entry

ENDS = frozenset({"COMPLETE", "FAIL", "ABORT"})
"""States that end a run; a backend that goes by arrival must hear one of them last."""
LEDGER = "ledger"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One event to be sent. (``source``, ``key``) tells it from every other, on every making.

    ``fault`` says why it could not be made; then there is no body, and it can only be parked.
    """

    source: str
    key: str
    run: RunId
    state: str
    body: bytes
    fault: str | None = None

    @property
    def ends(self) -> bool:
        """Whether it ends its run."""
        return self.state in ENDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Events that are read together, and the position when all of them are settled."""

    after: str
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How much of a source lies behind a position, and since when the oldest of it waits."""

    entries: int
    oldest_at: str | None


class Source(Protocol):
    """Where events come from; positions are texts that only the source can read."""

    name: str

    def head(self) -> str:
        """Return the position at the end of what there is now."""
        ...

    def lag(self, position: str | None) -> Lag:
        """Say how much follows a position."""
        ...

    def read(self, position: str | None, limit: int) -> list[Step] | None:
        """Return the next steps after a position, at most ``limit``; none at the end.

        None says that there are more, but they are not made yet.
        """
        ...

    def fetch(self, key: str) -> Item | None:
        """Make one event again; None where the source no longer has it."""
        ...

    def freeze(self) -> None:
        """Read no further than what there is now."""
        ...

    def close(self) -> None:
        """Let go of what was held for reading on; it may be read again all the same."""
        ...


class LedgerSource:
    """The events of a ledger; a position is the index of the next entry."""

    name = LEDGER

    def __init__(
        self, ledger: Ledger, *, start: int = 0, stop: int | None = None, only_ends: bool = False
    ) -> None:
        """Read entries from ``start`` to before ``stop``; ``only_ends`` leaves the rest out."""
        self._ledger = ledger
        self._context = LedgerContext(ledger)
        self._start = start
        self._stop = stop
        self.only_ends = only_ends

    def head(self) -> str:
        """Return the position at the end of what there is now."""
        return str(self.end())

    def lag(self, position: str | None) -> Lag:
        """Say how much follows a position."""
        at, end = self.index(position), self.end()
        if at >= end:
            return Lag(entries=0, oldest_at=None)
        return Lag(entries=end - at, oldest_at=self._ledger.get(at).time)

    def read(self, position: str | None, limit: int) -> list[Step]:
        """Return the next entries' events.

        Raises:
            LedgerBroken: the ledger is shorter than what was sent from it.
        """
        at, end = self.index(position), self.end()
        if self._stop is None and at > end:
            raise LedgerBroken(
                f"events of {at} entries were sent, but the ledger has {end}: an older copy was "
                "put in its place",
                hint="odi-audit ledger verify",
                sent=at,
                size=end,
            )
        return [self._step(entry) for entry in self._ledger.scan(at, min(at + limit, end))]

    def fetch(self, key: str) -> Item | None:
        """Make one event again."""
        index, _, place = key.partition(".")
        try:
            made = self._items(self._ledger.get(int(index)))
        except EntryNotFound:
            return None
        return next((item for item in made if item.key == f"{index}.{place}"), None)

    def freeze(self) -> None:
        """Read no further than what there is now."""
        self._stop = self.end()

    def close(self) -> None:
        """Nothing is held."""

    def index(self, position: str | None) -> int:
        """Return the index of the entry that a position stands before."""
        return self._start if position is None else int(position)

    def end(self) -> int:
        """Return the index after the last entry that is read."""
        size = self._ledger.head().size
        return size if self._stop is None else min(size, self._stop)

    def _step(self, entry: Entry) -> Step:
        self._context.remember(entry)
        items = self._items(entry)
        if self.only_ends:
            items = [item for item in items if item.ends]
        return Step(after=str(entry.index + 1), items=tuple(items))

    def _items(self, entry: Entry) -> list[Item]:
        try:
            made = events_of(entry, self._context)
        except (Bug, ValueError, TypeError, KeyError, AttributeError) as problem:
            # One entry that no event can be made of must not stop all that follow.
            return [
                Item(
                    source=LEDGER,
                    key=f"{entry.index}.0",
                    run=RunId(entry.run or ""),
                    state="",
                    body=b"",
                    fault=f"no event can be made of entry {entry.index}: {problem}",
                )
            ]
        return [
            Item(source=LEDGER, key=event.key, run=event.run, state=event.state, body=event.body)
            for event in made
        ]
