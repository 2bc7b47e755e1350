"""What a Kafka source is told and asks: which topics, where to begin, what is there now.

Owns the values between kafka_admin, which asks the broker, and kafka_plan, which decides. Must
never import a client of Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from odi_audit.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermarks:
    """What a partition holds now: from ``begin`` to before ``end``."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic as it is now. ``id`` is None where the broker is too old to give one."""

    name: str
    id: str | None
    partitions: Mapping[int, Watermarks]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The topics that a job follows, as they are now."""

    id: str
    bootstrap: str
    topics: Mapping[str, Topic]

    @property
    def source(self) -> str:
        """The name under which the ledger keeps positions on this cluster."""
        return f"kafka://{self.id}"


@dataclass(frozen=True, kw_only=True)
class Subscription:
    """Which topics a job follows: those named, or those whose whole name fits a pattern."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.topics) == (self.pattern is not None):
            raise UsageError("a Kafka source names its topics, or gives a pattern for them")
        try:
            _ = self._regex
        except re.error as error:
            raise UsageError(f"pattern {self.pattern!r} cannot be read: {error}") from error

    def follows(self, topic: str) -> bool:
        """Say whether a topic of this name is followed."""
        if topic in self.exclude:
            return False
        return topic in self.topics or (
            self._regex is not None and self._regex.fullmatch(topic) is not None
        )

    @cached_property
    def _regex(self) -> re.Pattern[str] | None:
        return None if self.pattern is None else re.compile(self.pattern)


class StartAt(StrEnum):
    """Where a job begins on a topic that it has never read."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIMESTAMP = "timestamp"
    OFFSETS = "offsets"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The start rule.

    ``places`` are offsets by partition (``orders-0``): as given by the spec for ``offsets`` (a
    partition that is not named starts at its beginning), as answered by the broker for
    ``timestamp``.
    """

    at: StartAt = StartAt.EARLIEST
    places: Mapping[str, int] = field(default_factory=dict)


EARLIEST = Start()
