"""The relay's state as the rest of it sees it: positions, marks, letters, doubts, the lease.

Owns the interface and its values; there is one implementation for both engines (``state_sql``),
under one contract suite. Never part of the ledger, and all of it can be lost: then events are sent
again, from the ledger. Must never store an event's body.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from lineage.relay.sources import Item
from odi_audit.ids import RunId


class Stand(StrEnum):
    """How a letter stands."""

    PARKED = "parked"
    """Refused for good; the first of its run."""
    HELD = "held"
    """Behind a parked one of the same run."""
    RETRY = "retry"
    """Somebody asked for another try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to send to a destination; ``token`` rises with each holder."""

    destination: str
    holder: str
    token: int
    until: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """An event above the position: settled, or on its way when it was written down."""

    source: str
    key: str
    run: RunId
    settled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """An event that was refused, or that waits behind one of its run that was."""

    source: str
    key: str
    run: RunId
    state: str
    stand: Stand
    reason: str
    status: int | None
    tries: int
    first_at: str
    last_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A letter that somebody decided never to send."""

    source: str
    key: str
    run: RunId
    state: str
    refusal: str
    reason: str
    who: str
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A run of which an event may still arrive late.

    ``key`` is that event. Once the run's end is acknowledged, ``echo`` names it: it is said once
    more at ``due_at``.
    """

    run: RunId
    source: str
    key: str
    since: str
    echo: str | None = None
    due_at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is kept of a destination as a whole. ``orders`` rises when somebody asks for a retry."""

    name: str
    address: str
    sent: int = 0
    sent_at: str | None = None
    error: str | None = None
    error_at: str | None = None
    stopped: str | None = None
    orders: int = 0


@dataclass(slots=True, kw_only=True)
class Changes:
    """Everything that one round changes, written in one transaction."""

    sending: list[Item] = field(default_factory=list)
    settled: list[Item] = field(default_factory=list)
    passed: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    """By source: the new position, and the keys whose marks are of no use any more."""
    unmarked: list[Item] = field(default_factory=list)
    """No longer under way: letters that were refused once more."""
    letters: list[Letter] = field(default_factory=list)
    letters_gone: list[Item] = field(default_factory=list)
    doubts: list[Doubt] = field(default_factory=list)
    doubts_gone: list[RunId] = field(default_factory=list)
    sent: int = 0
    at: str | None = None
    error: str | None = None
    stopped: str | None = None
    going: bool = False
    """The destination answers again: ``stopped`` is cleared."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (
            self.sending or self.settled or self.passed or self.unmarked or self.letters
            or self.letters_gone
            or self.doubts or self.doubts_gone or self.sent or self.error or self.stopped
            or self.going
        )  # fmt: skip


class StateStore(Protocol):
    """The state of every destination of one lake. Each method is one transaction.

    Every error is a ``RelayStateUnavailable`` or ``RelayHeld``.
    """

    def destinations(self) -> list[Facts]:
        """Return every destination that was ever sent to."""
        ...

    def facts(self, destination: str) -> Facts | None:
        """Return what is kept of a destination."""
        ...

    def begin(self, destination: str, address: str, positions: dict[str, str]) -> None:
        """Make a destination, or start it anew at an address: what was kept of it is gone."""
        ...

    def forget(self, destination: str) -> None:
        """Remove everything that is kept of a destination."""
        ...

    def positions(self, destination: str) -> dict[str, str]:
        """Return the position in each source."""
        ...

    def marks(self, destination: str) -> list[Mark]:
        """Return the events above the positions that were settled or under way."""
        ...

    def letters(
        self, destination: str, *, stand: Stand | None = None, limit: int | None = None
    ) -> list[Letter]:
        """Return letters in the order in which they must be sent."""
        ...

    def letter_counts(self, destination: str) -> dict[RunId, int]:
        """Return how many letters each held run has."""
        ...

    def doubts(self, destination: str) -> list[Doubt]:
        """Return the runs of which an event may still arrive late."""
        ...

    def dropped(self, destination: str, limit: int) -> list[Dropped]:
        """Return what was dropped, newest first."""
        ...

    def lease(self, destination: str) -> Lease | None:
        """Return who may send now; None if nobody ever did, or the last one gave it back."""
        ...

    def acquire(self, destination: str, holder: str, now: str, until: str) -> Lease:
        """Take the lease, if it is free, has run out, or its holder is dead.

        Raises:
            RelayHeld: somebody else has it.
        """
        ...

    def renew(self, lease: Lease, until: str) -> Lease:
        """Keep the lease for longer. Raises RelayHeld if it was lost."""
        ...

    def release(self, lease: Lease) -> None:
        """Give the lease back; nothing happens if it was lost."""
        ...

    def write(self, lease: Lease, changes: Changes) -> None:
        """Write one round's changes. Raises RelayHeld, and changes nothing, if the lease is lost.

        What is written here survives the death of this process at once.
        """
        ...

    def ask_retry(self, destination: str, keys: Sequence[tuple[str, str]]) -> int:
        """Have letters, by source and key, tried again by whoever sends; return how many."""
        ...

    def drop(
        self, destination: str, keys: Sequence[tuple[str, str]], *, reason: str, who: str, at: str
    ) -> int:
        """Never send these letters, and let what is behind them go; return how many."""
        ...

    def close(self) -> None:
        """Let go of the database."""
        ...
