"""The fact that an intent keeps of a plan (docs/lineage-events.md, "Column lineage").

Owns its form and its bounds. Must never hold a value, a literal or the text of an expression: names
of columns and of datasets, and kinds of edges, are all that is kept (docs/adr/0008).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from odi_audit.canonical import Json, JsonObject
from odi_audit.spark.plan.reader import Read, TooLarge
from odi_audit.spark.plan.values import DIRECT, Column, Dataset, Edges, Kind, Leaf

EDGES_MAX = 20_000
"""Edges of one fact: some two megabytes, and more than anybody can look at."""
REASONS_MAX = 8

Place = tuple[Dataset, tuple[tuple[str, str], ...]]


def fact(
    columns: Mapping[str, Column],
    rows: Edges,
    read: Read,
    *,
    more_rows: Mapping[tuple[Dataset, str], frozenset[Kind]] | None = None,
    unknown_rows: frozenset[str] = frozenset(),
) -> JsonObject:
    """Return the fact for the named columns of a table.

    ``more_rows`` are edges from datasets that are no leaf of the plan: the table itself.

    Raises:
        TooLarge: there are more edges than are worth keeping.
    """
    beside = dict(more_rows or {})
    places = _places(read.leaves, {dataset for dataset, _ in beside})
    inputs = _Inputs(read.leaves, list(places))
    known = {name: column for name, column in columns.items() if not column.unknown}
    fields = {
        name: inputs.edges(column.edges) for name, column in sorted(known.items()) if column.edges
    }
    dataset = _sorted([*inputs.edges(rows), *inputs.beside(beside)])
    if sum(map(len, fields.values())) + len(dataset) > EDGES_MAX:
        raise TooLarge
    made: dict[str, Json] = {
        "inputs": [_input(place, shape) for place, shape in places.items()],
        "fields": fields,
        "dataset": dataset,
        "unknown": sorted(name for name, column in columns.items() if column.unknown),
    }
    reasons = unknown_rows.union(*(column.unknown for column in columns.values()))
    if unknown_rows:
        made["unknown_rows"] = True
    if reasons:
        made["reasons"] = sorted(reasons)[:REASONS_MAX]
    return made


def unknown_fact(columns: Iterable[str], reason: str) -> JsonObject:
    """Return the fact of a write whose plan could not be read."""
    return {
        "inputs": [],
        "fields": {},
        "dataset": [],
        "unknown": sorted(columns),
        "unknown_rows": True,
        "reasons": [reason],
    }


def _places(leaves: Sequence[Leaf], beside: set[Dataset]) -> dict[Dataset, dict[str, str]]:
    """Return the datasets in a lasting order, each with the columns that the plan saw."""
    shapes: dict[Dataset, dict[str, str]] = {item: {} for item in beside}
    for leaf in leaves:
        for dataset in leaf.datasets:
            shapes.setdefault(dataset, {}).update(leaf.columns)
    return {item: shapes[item] for item in sorted(shapes, key=_order)}


def _order(dataset: Dataset) -> tuple[str, ...]:
    return (dataset.namespace, dataset.name, dataset.snapshot or "", dataset.kind)


def _input(dataset: Dataset, shape: Mapping[str, str]) -> JsonObject:
    made: dict[str, Json] = {
        "namespace": dataset.namespace,
        "name": dataset.name,
        "kind": dataset.kind,
    }
    if shape:
        made["fields"] = [[name, kind] for name, kind in shape.items()]
    for key in ("table", "table_uuid", "snapshot"):
        value = getattr(dataset, key)
        if value is not None:
            made[key] = value
    return made


class _Inputs:
    """Edges by the places of their datasets."""

    def __init__(self, leaves: Sequence[Leaf], places: Sequence[Dataset]) -> None:
        self._place = {dataset: place for place, dataset in enumerate(places)}
        self._leaves = [[self._place[item] for item in leaf.datasets] for leaf in leaves]

    def edges(self, edges: Edges) -> list[JsonObject]:
        return _sorted(
            _edge(place, origin.column, kind)
            for origin, kinds in edges.items()
            for place in self._leaves[origin.leaf]
            for kind in kinds
        )

    def beside(self, edges: Mapping[tuple[Dataset, str], frozenset[Kind]]) -> list[JsonObject]:
        return [
            _edge(self._place[dataset], column, kind)
            for (dataset, column), kinds in edges.items()
            for kind in kinds
        ]


def _edge(place: int, column: str, kind: Kind) -> JsonObject:
    made: dict[str, Json] = {
        "input": place,
        "field": column,
        "type": kind.type,
        "subtype": kind.subtype,
    }
    return made | {"masking": True} if kind.masking else made


def _sorted(edges: Iterable[JsonObject]) -> list[JsonObject]:
    unique = {
        (
            int(str(item["input"])),
            str(item["field"]),
            item["type"] != DIRECT,
            str(item["subtype"]),
            bool(item.get("masking")),
        ): item
        for item in edges
    }
    return [unique[key] for key in sorted(unique)]
