"""Column lineage: from the fact that the committer keeps of a plan to OpenLineage's facet.

Owns the reading of ``column_lineage`` (docs/lineage-events.md has its form). Must never invent an
edge: a column whose origin is not known is tagged as unknown and has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from openlineage.client.generated.column_lineage_dataset import (
    ColumnLineageDatasetFacet,
    Fields,
    InputField,
    Transformation,
)
from openlineage.client.generated.schema_dataset import (
    SchemaDatasetFacet,
    SchemaDatasetFacetFields,
)
from openlineage.client.generated.tags_dataset import TagsDatasetFacet, TagsDatasetFacetFields

from lineage import facts
from lineage.context import Context
from lineage.facets import INTEGRATION, PRODUCER
from lineage.naming import DatasetName, accepted
from lineage.sharing import Once, shared
from lineage.sources import Source, input_dataset
from lineage.tables import table_facets, view
from odi_audit.canonical import Json, JsonObject
from odi_audit.ids import TableUuid
from odi_audit.model.entries import Entry
from odi_audit.model.tables import TableRef

if TYPE_CHECKING:
    from openlineage.client.generated.base import InputDataset


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnLineage:
    """What is known of one table's columns in one batch, and of the datasets that they rest on."""

    fact: JsonObject
    names: tuple[DatasetName, ...]

    @property
    def unknown(self) -> list[str]:
        """Columns of the output whose origin could not be told."""
        return sorted(facts.texts(self.fact, "unknown"))


def column_lineage(operation: JsonObject, intent: Entry, context: Context) -> ColumnLineage | None:
    """Return the column lineage of one operation of an intent; None where none was kept."""
    fact = facts.obj(operation, "column_lineage")
    at = facts.number(operation, "column_lineage_at")
    if not fact and at is not None and at < intent.index:
        # The same plan as before: kept once, in the entry that had it first.
        fact = _held(context.entry(at), operation)
        fact = _with_snapshots(fact, facts.items(operation, "column_lineage_read"))
    if not fact:
        return None
    names = tuple(
        DatasetName(
            namespace=accepted(facts.text(item, "namespace") or ""),
            name=facts.text(item, "name") or "",
        )
        for item in facts.objects(fact, "inputs")
    )
    return ColumnLineage(fact=fact, names=names)


def facet(lineage: ColumnLineage) -> ColumnLineageDatasetFacet | None:
    """Return the facet of the output; None where no column's origin is known."""
    parts = (lineage.fact.get("fields"), lineage.fact.get("dataset"))
    return _facets.get(parts, lineage.names, lambda: _facet(lineage))


_facets: Once[ColumnLineageDatasetFacet | None] = Once()


def _facet(lineage: ColumnLineage) -> ColumnLineageDatasetFacet | None:
    known = {
        column: Fields(inputFields=edges, transformationType=_type(edges))
        for column in sorted(facts.obj(lineage.fact, "fields"))
        if (edges := _edges(lineage, facts.objects(facts.obj(lineage.fact, "fields"), column)))
    }
    whole = _edges(lineage, facts.objects(lineage.fact, "dataset"))
    if not known and not whole:
        return None
    return shared(ColumnLineageDatasetFacet(fields=known, dataset=whole or None, producer=PRODUCER))


def inputs(lineage: ColumnLineage, context: Context, until: int) -> list[InputDataset]:
    """Return the datasets that the columns rest on, each with its schema where it is known.

    Marquez draws an edge between columns only where the input is there with its schema.
    """
    made: list[InputDataset] = []
    for name, item in zip(lineage.names, facts.objects(lineage.fact, "inputs"), strict=True):
        if not name.name:
            continue
        uuid, snapshot = facts.text(item, "table_uuid"), facts.text(item, "snapshot")
        dataset = input_dataset(Source(name=name, kind=None if uuid else facts.text(item, "kind")))
        assert dataset.facets is not None
        if uuid is not None:
            ref = TableRef(uuid=TableUuid(uuid), name=facts.text(item, "table") or name.name)
            known = table_facets(view(ref, context, until), snapshot)
            dataset.facets = {**known, **dataset.facets}
        fields = facts.items(item, "fields")
        if fields and "schema" not in dataset.facets:
            dataset.facets["schema"] = _schemas.get((fields,), None, partial(_schema, fields))
        made.append(dataset)
    return made


_schemas: Once[SchemaDatasetFacet] = Once()


def _schema(pairs: Sequence[Json]) -> SchemaDatasetFacet:
    fields = [
        SchemaDatasetFacetFields(name=str(pair[0]), type=str(pair[1]), fields=None)
        for pair in pairs
        if isinstance(pair, list | tuple) and len(pair) == 2
    ]
    return shared(SchemaDatasetFacet(fields=fields, producer=PRODUCER))


def unknown_tags(names: Iterable[str], present: TagsDatasetFacet | None) -> TagsDatasetFacet:
    """Return the tags of a dataset with the columns added whose origin could not be told."""
    given = [] if present is None else list(present.tags or [])
    given += [
        TagsDatasetFacetFields(key="lineage", value="unknown", source=INTEGRATION, field=name)
        for name in names
    ]
    return TagsDatasetFacet(tags=given, producer=PRODUCER)


def _held(entry: Entry | None, operation: JsonObject) -> JsonObject:
    for item in [] if entry is None else facts.objects(entry.facts, "operations"):
        if item.get("table_uuid") == operation.get("table_uuid"):
            return facts.obj(item, "column_lineage")
    return facts.NOTHING


def _with_snapshots(fact: JsonObject, snapshots: Sequence[Json]) -> JsonObject:
    """Return a fact that was kept earlier with the snapshots that this batch read."""
    inputs: list[Json] = []
    for place, item in enumerate(facts.objects(fact, "inputs")):
        bare = {key: value for key, value in item.items() if key != "snapshot"}
        snapshot = snapshots[place] if place < len(snapshots) else None
        inputs.append(bare if snapshot is None else {**bare, "snapshot": snapshot})
    return {**fact, "inputs": inputs} if inputs else fact


def _edges(lineage: ColumnLineage, items: Iterable[JsonObject]) -> list[InputField]:
    edges: dict[tuple[int, str], list[Transformation]] = {}
    for item in items:
        place, field = facts.number(item, "input"), facts.text(item, "field")
        if place is None or field is None or not 0 <= place < len(lineage.names):
            continue
        edges.setdefault((place, field), []).append(
            Transformation(
                type=facts.text(item, "type") or "DIRECT",
                subtype=facts.text(item, "subtype"),
                description=facts.text(item, "description"),
                masking=True if facts.flag(item, "masking") else None,
            )
        )
    return [
        InputField(
            namespace=lineage.names[place].namespace,
            name=lineage.names[place].name,
            field=field,
            transformations=sorted(
                found, key=lambda one: (one.type, one.subtype or "", one.description or "")
            ),
        )
        for (place, field), found in sorted(edges.items())
    ]


def _type(edges: Iterable[InputField]) -> str | None:
    """Return the one word that Marquez answers with: what the direct edges have in common."""
    direct = {
        one.subtype for edge in edges for one in edge.transformations or [] if one.type == "DIRECT"
    }
    if len(direct) == 1:
        return direct.pop()
    return "TRANSFORMATION" if direct else None
