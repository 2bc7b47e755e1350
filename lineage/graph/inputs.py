"""What the batches of an intent read: sources by their offsets, and what their columns rest on.

Owns the way from an intent to datasets. The names are made by the very functions that make those
of the events (``sources``, ``columns``), so that the graph and a backend agree; as a ledger says
the same thing many times, each answer is kept. Must never name a dataset that the events do not,
but for a table whose changes were read, which the offsets name by its uuid.
"""

from __future__ import annotations

import posixpath
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from lineage import columns, facts
from lineage.context import Context
from lineage.graph.lean import Lean, LeanOffsets, LeanOperation, is_there
from lineage.graph.model import NodeKind, Via, dataset_id, table_id
from lineage.naming import LOCAL, UNPLACED, DatasetName
from lineage.sources import input_dataset, sources_of
from odi_audit.canonical import JsonObject
from odi_audit.model.offsets import OffsetKind, offsets_from_json

if TYPE_CHECKING:
    from openlineage.client.generated.column_lineage_dataset import InputField

KEPT_MAX = 5_000
"""Answers kept: jobs times sources, and plans; a job with a folder for each day has many."""
_UUID_LENGTH = 36
K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A dataset that was read, with its node; ``uuid`` where it is a table of the lake."""

    via: Via
    kind: NodeKind
    name: DatasetName | None
    node: str
    uuid: str | None = None
    table: str | None = None
    snapshot: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEdge:
    """A column of the output and the one it rests on: ``input`` is a place in the plan's inputs."""

    column: str | None
    input: int
    field: str
    type: str
    subtype: str | None
    masking: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The column lineage of one operation."""

    inputs: tuple[Input, ...]
    edges: tuple[PlanEdge, ...]
    unknown: tuple[str, ...]


class Kept(Generic[K, V]):
    """A bounded memory of answers; the one not asked for longest is forgotten."""

    def __init__(self, size: int = KEPT_MAX) -> None:
        self._size = size
        self._held: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        """Return what is kept under a key."""
        found = self._held.get(key)
        if found is not None:
            self._held.move_to_end(key)
        return found

    def put(self, key: K, value: V) -> V:
        """Keep a value, and return it."""
        self._held[key] = value
        if len(self._held) > self._size:
            self._held.popitem(last=False)
        return value


class Inputs:
    """Answers for one ledger."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._sources: Kept[tuple[object, ...], tuple[Input, ...]] = Kept()
        self._plans: Kept[tuple[int, str], tuple[Plan | None]] = Kept()

    def sources(
        self, offsets: LeanOffsets | None, read: frozenset[DatasetName] = frozenset()
    ) -> Sequence[Input]:
        """Return the sources that offsets name; files go by the name that the plan ``read``."""
        if offsets is None or not offsets.source or offsets.kind == OffsetKind.ONCE:
            return ()
        if offsets.kind == OffsetKind.TABLE:
            return _changes(offsets)
        read = read if offsets.kind == OffsetKind.FILES else frozenset()
        parts = frozenset(offsets.ranges) if read else _parts(offsets)
        key = (offsets.kind, offsets.source, parts, read)
        found = self._sources.get(key)
        return found if found is not None else self._sources.put(key, _sources(offsets, read))

    def plan(self, operation: LeanOperation, intent: Lean) -> Plan | None:
        """Return an operation's column lineage; None where none was kept."""
        at = intent.index
        if not is_there(operation.column_lineage):
            if operation.column_lineage_at is None:
                return None
            at = operation.column_lineage_at
        key = (at, operation.table_uuid)
        found = self._plans.get(key)
        if found is None:
            found = self._plans.put(key, (self._plan(at, operation.table_uuid),))
        return found[0]

    def _plan(self, at: int, uuid: str) -> Plan | None:
        intent = self._context.entry(at)
        for operation in [] if intent is None else facts.objects(intent.facts, "operations"):
            if operation.get("table_uuid") == uuid:
                assert intent is not None
                held = columns.column_lineage(operation, intent, self._context)
                return None if held is None else _plan(held)
        return None


def snapshot_read(operation: LeanOperation, place: int, read: Input) -> str | None:
    """Return which snapshot of an input a batch read, where that was recorded.

    A plan that is kept by an earlier intent has that batch's snapshots; this one's stand beside.
    """
    if is_there(operation.column_lineage):
        return read.snapshot
    told = operation.column_lineage_read
    return told[place] if place < len(told) else None


def _parts(offsets: LeanOffsets) -> frozenset[str] | None:
    """Return what of the partitions' names decides which datasets they are of."""
    if offsets.kind == OffsetKind.KAFKA:
        return frozenset(name.rpartition("-")[0] for name in offsets.ranges)
    if offsets.kind == OffsetKind.FILES:
        return frozenset(posixpath.dirname(name) for name in offsets.ranges)
    return None


def _sources(offsets: LeanOffsets, names: frozenset[DatasetName]) -> tuple[Input, ...]:
    body: JsonObject = {
        "kind": offsets.kind,
        "source": offsets.source,
        "ranges": {name: msgspec.json.decode(raw) for name, raw in offsets.ranges.items()},
    }
    try:
        read = offsets_from_json(body)
    except (KeyError, TypeError, ValueError):
        return ()
    found = []
    for source in sources_of(read, names):
        dataset = input_dataset(source)
        name = DatasetName(namespace=dataset.namespace, name=dataset.name)
        found.append(
            Input(
                via=Via.OFFSETS,
                kind=_kind(source.kind, name),
                name=name,
                node=dataset_id(name),
            )
        )
    return tuple(found)


def _changes(offsets: LeanOffsets) -> Sequence[Input]:
    """Return the tables whose changes were read, each up to the snapshot that was its end."""
    found = []
    for uuid, raw in offsets.ranges.items():
        ends = msgspec.json.decode(raw) if len(uuid) == _UUID_LENGTH else None
        if isinstance(ends, list) and len(ends) == 2:
            named = offsets.source.removeprefix("table:")
            found.append(
                Input(
                    via=Via.OFFSETS,
                    kind=NodeKind.TABLE,
                    name=None,
                    node=table_id(uuid),
                    uuid=uuid,
                    table=named,
                    snapshot=str(ends[1]),
                )
            )
    return found


def _plan(held: columns.ColumnLineage) -> Plan:
    items = facts.objects(held.fact, "inputs")
    inputs = tuple(_plan_input(name, item) for name, item in zip(held.names, items, strict=True))
    places = {(name.namespace, name.name): place for place, name in enumerate(held.names)}
    facet = columns.facet(held)
    fields: Mapping[str | None, Sequence[InputField]] = {}
    if facet is not None:
        fields = {name: item.inputFields for name, item in facet.fields.items()}
        fields = {**fields, None: facet.dataset or []}
    edges = [
        PlanEdge(
            column=column,
            input=places[item.namespace, item.name],
            field=item.field,
            type=one.type,
            subtype=one.subtype,
            masking=one.masking is True,
        )
        for column, found in fields.items()
        for item in found
        for one in item.transformations or []
    ]
    return Plan(inputs=inputs, edges=tuple(edges), unknown=tuple(held.unknown))


def _plan_input(name: DatasetName, item: JsonObject) -> Input:
    uuid = facts.text(item, "table_uuid")
    return Input(
        via=Via.COLUMNS,
        kind=NodeKind.TABLE if uuid is not None else _kind(facts.text(item, "kind"), name),
        name=name,
        node=dataset_id(name) if uuid is None else table_id(uuid),
        uuid=uuid,
        table=facts.text(item, "table"),
        snapshot=facts.text(item, "snapshot"),
    )


def _kind(word: str | None, name: DatasetName) -> NodeKind:
    scheme = name.namespace.partition(":")[0]
    if word == "TOPIC" or scheme == "kafka":
        return NodeKind.TOPIC
    if word == "FILE":
        return NodeKind.FILES
    if word == "STREAM":
        return NodeKind.STREAM
    if name.namespace == UNPLACED:
        return NodeKind.SOURCE
    if word == "TABLE":
        return NodeKind.DATABASE
    return NodeKind.FILES if scheme in {LOCAL, "s3", "gs"} else NodeKind.SOURCE
