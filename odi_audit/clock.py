"""Time as an argument: the clock that everything else is given.

Owns how a moment is written (UTC, ISO 8601, microseconds). Must never be called at import.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol

TEXT_LENGTH = 27


class Clock(Protocol):
    """Anything that tells the time in UTC."""

    def now(self) -> datetime:
        """Return the current moment, aware, in UTC."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the current moment, aware, in UTC."""
        return datetime.now(UTC)


def to_text(moment: datetime) -> str:
    """Write a moment as ``2026-11-16T07:32:37.123456Z``: sortable as text, always 27 long."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def from_text(text: str) -> datetime:
    """Read what :func:`to_text` wrote."""
    if len(text) == TEXT_LENGTH and text[10] == "T" and text[-1] == "Z" and text[19] == ".":
        # The same answer, without the search through formats: every entry of a ledger has a time.
        return datetime.fromisoformat(text)
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)


def from_millis(millis: int) -> datetime:
    """Turn Iceberg's milliseconds since 1970 into a moment."""
    return datetime.fromtimestamp(millis / 1000, tz=UTC)
