"""The answer to where a row comes from, as a value.

Owns the confidence of an answer, and how several answers become one. Must never turn more than one
possible write into a single one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from odi_audit.canonical import Json, JsonObject, digits
from odi_audit.ids import BatchId, JobName, RunId, SnapshotId

CANDIDATES_MAX = 20
"""Batches that an answer names one by one; it says how many there are."""
COPIED_NOTE = "copied into another file since"


class Confidence(StrEnum):
    """How far an answer can be relied on."""

    EXACT = "exact"
    FILE = "file"
    CANDIDATES = "candidates"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The write that a row comes from. ``batch`` is None for a foreign write.

    With the confidence ``candidates`` the write is one of ``candidates``: the newest of them,
    ``candidates_count`` being how many there are.
    """

    confidence: Confidence
    batch: BatchId | None = None
    job: JobName | None = None
    run: RunId | None = None
    operation: str | None = None
    source: str | None = None
    offsets: JsonObject | None = None
    source_facts: JsonObject | None = None
    snapshot: SnapshotId | None = None
    sequence_number: int | None = None
    time: str | None = None
    principal: str | None = None
    code: str | None = None
    entry: int | None = None
    foreign: bool = False
    note: str | None = None
    candidates: tuple[BatchId, ...] = ()
    candidates_count: int = 0

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        body: dict[str, Json] = {name: getattr(self, name) for name in self.__slots__}
        body["confidence"] = self.confidence.value
        body["sequence_number"] = digits(self.sequence_number)
        body["candidates"] = list(self.candidates)
        return body


def merged(origins: Sequence[Origin], note: str | None = None, *, complete: bool = True) -> Origin:
    """Return one answer for a row that comes from one of several writes.

    Where all of them are the same write, that is the answer. ``complete`` says that no other write
    can be meant than those given.
    """
    if not origins:
        return unknown(note or "nothing on record says where the row comes from")
    first = origins[0]
    if complete and all(origin == first for origin in origins):
        return first
    newest_first = sorted(origins, key=lambda origin: origin.sequence_number or 0, reverse=True)
    named = [origin.batch for origin in newest_first if origin.batch is not None]
    within = [batch for origin in newest_first for batch in origin.candidates]
    batches = tuple(dict.fromkeys([*named, *within]))
    more = [note or "rows equal to this one came from more than one write"]
    strangers = sum(origin.foreign for origin in origins)
    if strangers:
        more.append(f"{strangers} foreign writes may be meant too")
    if any(origin.confidence is Confidence.UNKNOWN for origin in origins):
        more.append("some of what may be meant is not on record")
    if not complete:
        more.append("a write that is not on record may be meant too")
    if not batches:
        return unknown("; ".join(more))
    return Origin(
        confidence=Confidence.CANDIDATES,
        note="; ".join(more),
        candidates=batches[:CANDIDATES_MAX],
        candidates_count=max(
            len(batches), max((origin.candidates_count for origin in origins), default=0)
        ),
    )


def copied(origin: Origin) -> Origin:
    """Return an answer that also says that the row's file is not the one it came in."""
    if origin.confidence is not Confidence.FILE:
        return origin
    return replace(origin, note="; ".join(filter(None, (origin.note, COPIED_NOTE))))


def unknown(note: str) -> Origin:
    """Return that there is no telling, and why."""
    return Origin(confidence=Confidence.UNKNOWN, note=note)
