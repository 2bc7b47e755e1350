"""Many folders that are one source to a reader: a folder for each day becomes one node.

Owns what is folded: file sources whose names differ in their digits only, and that the same jobs
read. Must never fold what any edge tells apart; everything is shown where all of it is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from lineage.graph.model import RECENT_MAX, Edge, Mark, Node, NodeKind, Share
from lineage.graph.select import Selection, Step
from lineage.naming import DatasetName

FOLDED_MIN = 5
"""Fewer are read more quickly than explained."""
_DIGITS = re.compile(r"\d+")


def folded(nodes: Mapping[str, Node], chosen: Selection) -> tuple[Mapping[str, Node], Selection]:
    """Return nodes and selection with each such group as one node; ``members`` says how many."""
    groups: dict[tuple[str, str, frozenset[str]], list[Node]] = {}
    readers: dict[str, set[str]] = {}
    for source, target in chosen.edges:
        readers.setdefault(source, set()).add(target)
    for node in nodes.values():
        if node.kind is NodeKind.FILES and node.dataset is not None:
            masked = _DIGITS.sub("*", node.dataset.name)
            key = (node.dataset.namespace, masked, frozenset(readers.get(node.id, ())))
            groups.setdefault(key, []).append(node)
    new: dict[str, Node] = {}
    place: dict[str, str] = {}
    for (namespace, masked, _), members in groups.items():
        if len(members) >= FOLDED_MIN:
            made = _node(DatasetName(namespace=namespace, name=masked), members)
            new[made.id] = made
            place |= {member.id: made.id for member in members}
    if not new:
        return nodes, chosen
    kept = {key: node for key, node in nodes.items() if key not in place}
    return {**kept, **new}, _moved(chosen, place)


def _node(name: DatasetName, members: Sequence[Node]) -> Node:
    first = min(member.id for member in members)
    return replace(
        members[0],
        # By its first member: groups that look alike have different ones.
        id=f"folders:{first.removeprefix('dataset:')}",
        name=name.name,
        dataset=name,
        share=_joined([member.share for member in members]),
        members=len(members),
    )


def _moved(chosen: Selection, place: Mapping[str, str]) -> Selection:
    edges: dict[tuple[str, str], list[Edge]] = {}
    for (source, target), edge in chosen.edges.items():
        key = (place.get(source, source), target)
        columns = tuple(
            replace(item, input=place.get(item.input, item.input)) for item in edge.columns
        )
        unique = {replace(item, first="", last=""): item for item in columns}
        moved = replace(edge, source=key[0], columns=tuple(unique.values()))
        edges.setdefault(key, []).append(moved)
    steps: dict[Step, None] = {}
    for step in chosen.steps:
        moved_step = replace(step, input=place.get(step.input or "", step.input))
        steps[moved_step] = None
    distance: dict[str, int] = {}
    for node, far in chosen.distance.items():
        distance.setdefault(place.get(node, node), far)
    return replace(
        chosen,
        distance=distance,
        edges={key: _edge(found) for key, found in edges.items()},
        steps=tuple(steps),
    )


def _edge(found: Sequence[Edge]) -> Edge:
    if len(found) == 1:
        return found[0]
    columns = {replace(item, first="", last=""): item for edge in found for item in edge.columns}
    return replace(
        found[0],
        share=_joined([edge.share for edge in found]),
        columns=tuple(columns.values()),
    )


def _joined(shares: Sequence[Share]) -> Share:
    states: dict[str, int] = {}
    for share in shares:
        for state, count in share.states.items():
            states[state] = states.get(state, 0) + count
    rows = [share.rows for share in shares if share.rows is not None]
    marks = sorted({mark for share in shares for mark in share.recent}, key=_entry, reverse=True)
    ends = [mark for share in shares for mark in (share.first, share.last) if mark is not None]
    return Share(
        runs=sum(share.runs for share in shares),
        batches=sum(share.batches for share in shares),
        rows=sum(rows) if rows else None,
        first=min(ends, key=_entry, default=None),
        last=max(ends, key=_entry, default=None),
        states=dict(sorted(states.items())),
        recent=tuple(marks[:RECENT_MAX]),
    )


def _entry(mark: Mark) -> int:
    return mark.entry
