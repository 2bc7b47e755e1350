"""Breaks in the reading of a source, as values.

Owns what a gap, an overlap, a rewind and a replay say, and which of them are findings. Must never
read the ledger.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from odi_audit.canonical import Json, JsonObject
from odi_audit.ids import BatchId, JobName, TableUuid
from odi_audit.model.offsets import OffsetKind, Place


class EventKind(StrEnum):
    """What was not simply the next part of a source."""

    GAP = "gap"
    OVERLAP = "overlap"
    REPLAY = "replay"
    REWIND = "rewind"
    CHANGED = "changed"


class Standing(StrEnum):
    """Whether anybody answers for an event. ``open``: nobody does."""

    OPEN = "open"
    ACCEPTED = "accepted"
    RECORDED = "recorded"
    FILLED = "filled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One break in the line of a partition.

    ``start`` and ``end`` are the part in question: what is missing (gap), what was read again
    (overlap, replay), what the position went back over (rewind). ``before`` and ``after`` are the
    batches at its edges.
    """

    kind: EventKind
    standing: Standing
    job: JobName
    table: str
    table_uuid: TableUuid
    source: str
    partition: str
    start: Place | None
    end: Place
    before: BatchId | None
    after: BatchId | None
    entry: int
    time: str
    principal: str | None = None
    reason: str | None = None
    filled_by: BatchId | None = None

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        body: dict[str, Json] = {name: getattr(self, name) for name in self.__slots__}
        return {**body, "kind": self.kind.value, "standing": self.standing.value}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLine:
    """Where one partition began and stands now."""

    partition: str
    first: Place | None
    last: Place | None
    batches_count: int
    last_batch: BatchId | None

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    """One job's reading of one source into one table.

    Of sources that are sets (files, keys) only the number of their parts is kept.
    """

    job: JobName
    table: str
    table_uuid: TableUuid
    source: str
    kind: OffsetKind
    partitions_count: int
    batches_count: int
    partitions: tuple[PartitionLine, ...]

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        body: dict[str, Json] = {name: getattr(self, name) for name in self.__slots__}
        return {
            **body,
            "kind": self.kind.value,
            "partitions": [line.to_json() for line in self.partitions],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuity:
    """What was looked at, and every break in it, in the order of the ledger."""

    lines: tuple[SourceLine, ...]
    events: tuple[Event, ...]
    unreadable_count: int
    """Landed batches whose ranges are not in the ledger (recovered from a digest)."""

    def findings(self, *, strict: bool = False) -> tuple[Event, ...]:
        """Return the events that nobody answers for; under ``strict`` all that are not filled."""
        return tuple(
            event
            for event in self.events
            if event.standing is Standing.OPEN or (strict and event.standing is not Standing.FILLED)
        )

    def to_json(self, *, strict: bool = False) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {
            "continuous": not self.findings(strict=strict),
            "findings_count": len(self.findings(strict=strict)),
            "unreadable_count": self.unreadable_count,
            "sources": [line.to_json() for line in self.lines],
            "events": [event.to_json() for event in self.events],
        }
