"""Counting while the ledger is read: what stands behind a node or an edge, in a few numbers.

Owns the mutable side of the graph. Entries come newest first, so that what is met first is the
last. Must never grow with the number of batches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from lineage.graph.inputs import Plan
from lineage.graph.lean import Lean
from lineage.graph.model import RECENT_MAX, ColumnEdge, Mark, NodeKind, Share, Via
from lineage.naming import DatasetName

LANDED = "landed"
Seen: TypeAlias = tuple[Lean, str, int | None]
"""An entry, how it ended, and its rows: made into a mark only if it is one that is shown."""


@dataclass(slots=True)
class Tally:
    """Numbers of one node or edge."""

    runs: int = 0
    batches: int = 0
    rows: int = 0
    counted: bool = False
    first: Seen | None = None
    last: Seen | None = None
    states: dict[str, int] = field(default_factory=dict)
    recent: list[Seen] = field(default_factory=list)

    def add(self, seen: Seen) -> None:
        """Count one more, older than all before."""
        _, state, rows = seen
        self.runs += 1
        self.states[state] = self.states.get(state, 0) + 1
        if state == LANDED:
            self.batches += 1
            if rows is not None:
                self.rows += rows
                self.counted = True
        if self.last is None:
            self.last = seen
        self.first = seen
        if len(self.recent) < RECENT_MAX:
            self.recent.append(seen)

    def join(self, other: Tally) -> None:
        """Take in the numbers of another one, whose entries may lie anywhere between."""
        self.runs += other.runs
        self.batches += other.batches
        self.rows += other.rows
        self.counted = self.counted or other.counted
        for state, count in other.states.items():
            self.states[state] = self.states.get(state, 0) + count
        ends = [seen for seen in (self.first, other.first, self.last, other.last) if seen]
        self.first = min(ends, key=_index, default=None)
        self.last = max(ends, key=_index, default=None)
        self.recent = sorted(self.recent + other.recent, key=_index, reverse=True)[:RECENT_MAX]

    def share(self) -> Share:
        """Return the numbers as a value."""
        return Share(
            runs=self.runs,
            batches=self.batches,
            rows=self.rows if self.counted else None,
            first=None if self.first is None else mark_of(self.first),
            last=None if self.last is None else mark_of(self.last),
            states=dict(sorted(self.states.items())),
            recent=tuple(map(mark_of, self.recent)),
        )


@dataclass(slots=True, kw_only=True)
class JobTally:
    """A job: an operation of it on its tables."""

    kind: NodeKind
    namespace: str
    name: str
    job: str | None
    operation: str
    upkeep: bool
    streaming: bool = False
    tally: Tally = field(default_factory=Tally)


@dataclass(slots=True, kw_only=True)
class TableTally:
    """A table, as its newest entries name it.

    ``guessed``: only batches that read it name it so far, and these by its first name.
    """

    name: str
    guessed: bool = False
    names: set[str] = field(default_factory=set)
    location: str | None = None
    named: DatasetName | None = None
    snapshot: str | None = None
    dropped: Lean | None = None
    tally: Tally = field(default_factory=Tally)


@dataclass(slots=True)
class DatasetTally:
    """Anything else that was read."""

    kind: NodeKind
    name: DatasetName


@dataclass(slots=True)
class ReadTally:
    """A job's reading of a dataset: by its batches, and by what its runs confirmed to have read."""

    tally: Tally = field(default_factory=Tally)
    by_run: Tally = field(default_factory=Tally)
    via: set[Via] = field(default_factory=set)


@dataclass(slots=True)
class _PlanSpan:
    plan: Plan
    first: str
    last: str


@dataclass(slots=True)
class WriteTally:
    """A job's writing to a table, with every plan by which it did."""

    tally: Tally = field(default_factory=Tally)
    plans: dict[int, _PlanSpan] = field(default_factory=dict)
    untold: set[str] = field(default_factory=set)
    blind: int = 0

    def columns(self, plan: Plan | None, time: str, changed: list[str] | None) -> None:
        """Take note of a batch's plan; without one, ``changed`` says which columns it touched."""
        if plan is None:
            self.blind += changed is None
            self.untold.update(changed or ())
            return
        span = self.plans.get(id(plan))
        if span is None:
            self.plans[id(plan)] = _PlanSpan(plan, time, time)
        else:
            span.first = time

    def edges(
        self, node_of: dict[int, list[str]]
    ) -> tuple[tuple[ColumnEdge, ...], tuple[str, ...]]:
        """Return the columns of all plans, each edge once, and the columns that are unknown."""
        found: dict[tuple[str, ...], ColumnEdge] = {}
        unknown = set(self.untold)
        for key, span in self.plans.items():
            unknown.update(span.plan.unknown)
            for edge in span.plan.edges:
                node = node_of[key][edge.input]
                same = (edge.column or "", node, edge.field, edge.type, edge.subtype or "")
                held = found.get(same)
                found[same] = ColumnEdge(
                    column=edge.column,
                    input=node,
                    field=edge.field,
                    type=edge.type,
                    subtype=edge.subtype,
                    masking=edge.masking or (held is not None and held.masking),
                    first=min(span.first, held.first) if held else span.first,
                    last=max(span.last, held.last) if held else span.last,
                )
        return tuple(found[key] for key in sorted(found)), tuple(sorted(unknown))


def _index(seen: Seen) -> int:
    return seen[0].index


def mark_of(seen: Seen) -> Mark:
    """Return an entry as it is shown."""
    entry, state, rows = seen
    return Mark(
        entry=entry.index,
        time=entry.time,
        batch=entry.batch,
        state=state,
        rows=rows,
        snapshot=entry.facts.snapshot or entry.facts.to_snapshot,
        by=entry.facts.principal,
    )
