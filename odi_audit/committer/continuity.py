"""Continuity: does a batch start where the last one ended?

Owns the one rule, for every kind of source: no gap, no overlap, and the source is still the same.
Pure: positions come in, an error or a verdict comes out. Must never read the ledger itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from odi_audit.errors import OffsetGap, OffsetOverlap, Refused, SourceChanged
from odi_audit.ledger.port import Position
from odi_audit.model.offsets import OffsetKind, Offsets, Range, is_after

SHOWN_MAX = 5
"""How many partitions an error names; the rest is a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What continuity says of a batch that may go on.

    ``moves`` is False for a replay of an old part: it must not turn the position back. A replay
    that reaches beyond it, or that reads what has taken the source's place, moves it.
    ``gap`` is the refusal that was overridden because the caller accepts the gap.
    """

    moves: bool
    gap: Refused | None = None


def check(
    offsets: Offsets,
    positions: Mapping[str, Position],
    *,
    replay: bool,
    accept_gap: bool,
    where: str,
    may_skip: bool = False,
) -> Verdict:
    """Compare a batch's offsets with where the last landed batches left the source.

    ``may_skip``: the table gets only some of the rows, so that batches may be missing in it.

    Raises:
        SourceChanged: a topic was recreated, or a file changed after it was read.
        OffsetOverlap: part of it has been read already; replay it explicitly if meant.
        OffsetGap: part of the source was skipped; accept the gap explicitly if meant.
    """
    problems = [
        (kind, partition, part, positions[partition])
        for partition, part in offsets.ranges.items()
        if partition in positions
        for kind in [_compare(offsets, partition, part, positions[partition])]
        if kind is not None
    ]
    changed = [item for item in problems if item[0] == "changed"]
    if changed and not replay:
        raise _error(SourceChanged, offsets, changed, where, _changed_hint(offsets))
    overlaps = [item for item in problems if item[0] == "overlap"]
    if overlaps and not replay:
        raise _error(
            OffsetOverlap,
            offsets,
            overlaps,
            where,
            "if the source is to be read again on purpose, pass generation=1 (or higher)",
        )
    gaps = [] if may_skip else [item for item in problems if item[0] == "gap"]
    gap = None
    if gaps:
        gap = _error(
            OffsetGap,
            offsets,
            gaps,
            where,
            'read the missing part first, or pass accept_gap="why it may be missing"',
        )
        if not accept_gap:
            raise gap
    back = any(_goes_back(part, last) for _, _, part, last in overlaps)
    return Verdict(moves=not back, gap=gap)


def _compare(offsets: Offsets, partition: str, part: Range, last: Position) -> str | None:
    if offsets.kind is OffsetKind.FILES:
        return "overlap" if part.end == last.end else "changed"
    if not offsets.kind.ordered:
        return None
    identity = offsets.identity.get(partition)
    if identity is not None and last.identity is not None and identity != last.identity:
        return "changed"
    if part.start == last.end:
        return None
    if part.start is None:
        return "overlap"
    return "gap" if is_after(part.start, last.end) else "overlap"


def _goes_back(part: Range, last: Position) -> bool:
    return part.end != last.end and not is_after(part.end, last.end)


def _error(
    kind: type[Refused],
    offsets: Offsets,
    problems: list[tuple[str, str, Range, Position]],
    where: str,
    hint: str,
) -> Refused:
    lines = [
        f"{partition}: batch starts at {part.start}, batch {last.batch} ended at {last.end}"
        if offsets.kind.ordered and kind is not SourceChanged
        else f"{partition}: was {last.identity or last.end} in batch {last.batch}, "
        f"is {offsets.identity.get(partition) or part.end}"
        for _, partition, part, last in problems[:SHOWN_MAX]
    ]
    more = f" and {len(problems) - SHOWN_MAX} more" if len(problems) > SHOWN_MAX else ""
    what = {
        OffsetGap: "leave a gap",
        OffsetOverlap: "overlap what has landed",
        SourceChanged: "come from a source that is not the one it was",
    }[kind]
    return kind(
        f"offsets of {offsets.source} for {where} {what}: " + "; ".join(lines) + more,
        hint=hint,
        source=offsets.source,
        partitions=[partition for _, partition, _, _ in problems[:SHOWN_MAX]],
    )


def _changed_hint(offsets: Offsets) -> str:
    if offsets.kind is OffsetKind.FILES:
        return "give the new content a new file name, or pass generation=1 to read it again"
    return "the topic was recreated: start a new job name for it, or pass generation=1"
