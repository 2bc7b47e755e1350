"""Places of a source in their order, and ranges of them merged into what is covered.

Owns the two small values by which continuity is judged over a whole history. The order of places
is the committer's (docs/adr/0007). Must never know what a range belongs to.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from functools import total_ordering

from odi_audit.model.offsets import Place, is_after


@total_ordering
@dataclass(frozen=True, slots=True)
class Point:
    """A place, ordered as the committer orders places; None is the beginning."""

    place: Place | None

    def __lt__(self, other: Point) -> bool:
        if self.place is None or other.place is None:
            return self.place is None and other.place is not None
        return is_after(other.place, self.place)


@dataclass(slots=True)
class Cover:
    """Ranges that are in the table for good, merged; an unbroken line is one range."""

    starts: list[Point] = field(default_factory=list)
    ends: list[Point] = field(default_factory=list)

    def add(self, start: Point, end: Point) -> None:
        """Take in one more range."""
        if self.ends and self.ends[-1].place == start.place:
            # By far most batches go on where the last one ended.
            self.ends[-1] = max(end, start)
            return
        low = bisect_left(self.ends, start)
        high = low
        while high < len(self.starts) and self.starts[high] <= end:
            start = min(start, self.starts[high])
            end = max(end, self.ends[high])
            high += 1
        self.starts[low:high] = [start]
        self.ends[low:high] = [end]

    def holds(self, start: Point, end: Point) -> bool:
        """Say whether a range is in it without a hole."""
        at = bisect_left(self.ends, end)
        return at < len(self.starts) and self.starts[at] <= start
