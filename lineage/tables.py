"""Tables of the lake as datasets: their names, schemas and facets.

Owns the view of a table at the moment of an entry, as far as the ledger has it. Names are those of
openlineage-spark: by location, with a symlink to the name in the catalog. Must never give a schema
or a location that the ledger did not record for that moment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING

from openlineage.client.generated.catalog_dataset import CatalogDatasetFacet
from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet
from openlineage.client.generated.ownership_dataset import Owner, OwnershipDatasetFacet
from openlineage.client.generated.schema_dataset import (
    SchemaDatasetFacet,
    SchemaDatasetFacetFields,
)
from openlineage.client.generated.storage_dataset import StorageDatasetFacet
from openlineage.client.generated.symlinks_dataset import Identifier, SymlinksDatasetFacet
from openlineage.client.generated.tags_dataset import TagsDatasetFacet, TagsDatasetFacetFields

from lineage import facts
from lineage.context import EFFECTS_MAX, Context
from lineage.facets import INTEGRATION, PRODUCER, data_source, dataset_type
from lineage.naming import UNPLACED, DatasetName, accepted, of_database, of_location
from lineage.sharing import MADE_MAX, Once, shared
from odi_audit.canonical import Json, JsonObject
from odi_audit.errors import UsageError
from odi_audit.model.entries import Entry, Kind
from odi_audit.model.tables import TableRef

if TYPE_CHECKING:
    from openlineage.client.generated.base import DatasetFacet

_SPARK_TYPES = {
    "int": "integer",
    "timestamptz": "timestamp",
    "timestamp": "timestamp_ntz",
    "timestamptz_ns": "timestamp",
    "timestamp_ns": "timestamp_ntz",
    "uuid": "string",
}
"""Iceberg's names of types that Spark, and so its listener, calls otherwise."""
_DEPTH_MAX = 50
_METADATA = "/metadata/"
_OWNER = "odi.owner"
_LOOK_BACK_MAX = 10
"""Records of a table without its shape, one after another, before the search is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableView:
    """A table as the ledger knew it at an entry."""

    ref: TableRef
    location: str | None
    schema: JsonObject
    catalog: JsonObject
    format_version: int | None
    owner: str | None

    @property
    def name(self) -> DatasetName:
        """The table's name as a dataset; by its name in the catalog where no location is known."""
        if self.location is not None:
            try:
                named = of_location(self.location)
                return DatasetName(namespace=accepted(named.namespace), name=named.name)
            except UsageError:
                pass
        return DatasetName(namespace=UNPLACED, name=self.ref.name)


def view(
    ref: TableRef,
    context: Context,
    until: int,
    *,
    intent: Entry | None = None,
    effect: Entry | None = None,
) -> TableView:
    """Return a table as of an index. ``effect`` is what was done to it, where something was."""
    about = facts.NOTHING if effect is None else effect.facts
    described = facts.NOTHING if intent is None else _described(intent, ref)
    around = facts.NOTHING if intent is None else facts.obj(intent.facts, "catalog")
    if not described:
        # A read and a foreign snapshot have no intent, and old intents say nothing of the table:
        # what was last recorded of it holds, apart from a schema of another id.
        described, last = _last_described(ref, context, until)
        around = around or (facts.NOTHING if last is None else facts.obj(last.facts, "catalog"))
    location = (
        facts.text(about, "location")
        or facts.text(described, "location")
        or _older_location(ref, context, until, intent)
    )
    changed = effect is not None and effect.kind is Kind.SCHEMA_CHANGE
    schema = facts.obj(about, "after" if changed else "schema")
    if not schema and not changed:
        schema = _schema(ref, context, until, described, facts.number(about, "schema_id"))
    creation = facts.obj(_operation(intent, ref), "arguments")
    return TableView(
        ref=ref,
        location=location,
        schema=schema,
        catalog=around,
        format_version=facts.number(about, "format_version")
        or facts.number(described, "format_version"),
        owner=facts.text(described, "owner")
        or facts.text(facts.obj(creation, "properties"), _OWNER),
    )


def table_facets(table: TableView, snapshot: str | None) -> dict[str, DatasetFacet]:
    """Return the facets that a table has whether it is read or written."""
    named = table.name
    made: dict[str, DatasetFacet] = {
        "dataSource": data_source(named.namespace),
        "datasetType": dataset_type("TABLE"),
        "storage": _storage(),
        "symlinks": _symlinks(symlink(table, table.ref.name)),
    }
    if table.schema:
        made["schema"] = _schemas.get((table.schema,), None, partial(schema_facet, table.schema))
    if snapshot is not None:
        made["version"] = DatasetVersionDatasetFacet(datasetVersion=snapshot, producer=PRODUCER)
    if facts.text(table.catalog, "name") is not None:
        made["catalog"] = _catalog(
            *(facts.text(table.catalog, key) for key in ("name", "type", "uri", "warehouse"))
        )
    if table.owner is not None:
        made["ownership"] = _ownership(table.owner)
    if table.format_version is not None:
        made["tags"] = _format_tag(table.format_version)
    return made


def schema_facet(schema: JsonObject) -> SchemaDatasetFacet:
    """Return an Iceberg schema as a facet, types named as Spark names them."""
    return shared(
        SchemaDatasetFacet(
            fields=[
                _field(facts.text(item, "name") or "", item.get("type"), item, place)
                for place, item in enumerate(facts.objects(schema, "fields"), 1)
            ],
            producer=PRODUCER,
        )
    )


_schemas: Once[SchemaDatasetFacet] = Once()


# -- what the ledger knows of a table -----------------------------------------------------------


def _described(intent: Entry, ref: TableRef) -> JsonObject:
    for item in facts.objects(intent.facts, "tables"):
        if item.get("table_uuid") == ref.uuid:
            return item
    return facts.NOTHING


def _operation(intent: Entry | None, ref: TableRef) -> JsonObject:
    if intent is None:
        return facts.NOTHING
    for item in facts.objects(intent.facts, "operations"):
        if item.get("table_uuid") == ref.uuid or item.get("table") == ref.name:
            return item
    return facts.NOTHING


def _last_described(ref: TableRef, context: Context, until: int) -> tuple[JsonObject, Entry | None]:
    kinds = (Kind.LANDED, Kind.SCHEMA_CHANGE, Kind.TABLE_CREATED)
    # Nearly always the last one tells; only then is it worth to look at more of them.
    for limit in (1, _LOOK_BACK_MAX):
        for effect in context.effects(ref.uuid, until, *kinds, limit=limit):
            intent = None if effect.intent is None else context.entry(effect.intent)
            described = {} if intent is None else _after(effect, intent, ref)
            if described:
                return described, intent
    return facts.NOTHING, None


def _after(effect: Entry, intent: Entry, ref: TableRef) -> dict[str, Json]:
    """Return a table's shape as an effect left it."""
    described = dict(_described(intent, ref))
    if effect.kind is not Kind.LANDED:
        schema = _held(effect, ref)
        described |= {"schema": schema, "schema_id": schema.get("schema-id")}
        described.pop("schema_at", None)
        for key in ("location", "format_version"):
            described.setdefault(key, effect.facts.get(key))
    return described


def _older_location(
    ref: TableRef, context: Context, until: int, intent: Entry | None
) -> str | None:
    """Find the location in ledgers whose intents do not have it yet."""
    for created in context.effects(ref.uuid, until, Kind.TABLE_CREATED, limit=1):
        location = facts.text(created.facts, "location")
        if location is not None:
            return location
    if intent is None:
        return None
    for entry in context.attempt(intent, until):
        if entry.kind is not Kind.STAGED:
            continue
        for item in facts.objects(entry.facts, "tables"):
            metadata = facts.text(item, "base_metadata")
            if item.get("table_uuid") == ref.uuid and metadata is not None:
                head, found, _ = metadata.rpartition(_METADATA)
                return head if found else None
    return None


def _schema(
    ref: TableRef,
    context: Context,
    until: int,
    described: JsonObject,
    wanted: int | None,
) -> JsonObject:
    """Return the schema of an id; without an id, the one that was current at the intent."""
    current = facts.number(described, "schema_id")
    wanted = current if wanted is None else wanted
    if wanted is not None and wanted == current:
        held = facts.obj(described, "schema")
        at = facts.number(described, "schema_at")
        if not held and at is not None and at <= until:
            held = _held(context.entry(at), ref)
        if held:
            return held
    kinds = (Kind.SCHEMA_CHANGE, Kind.TABLE_CREATED)
    for entry in context.effects(ref.uuid, until, *kinds, limit=EFFECTS_MAX):
        held = _held(entry, ref)
        if held and wanted in {None, held.get("schema-id")}:
            return held
    return facts.NOTHING


def _held(entry: Entry | None, ref: TableRef) -> JsonObject:
    """Return the schema that an entry keeps of a table."""
    if entry is None:
        return facts.NOTHING
    if entry.kind is Kind.INTENT:
        return facts.obj(_described(entry, ref), "schema")
    return facts.obj(entry.facts, "after" if entry.kind is Kind.SCHEMA_CHANGE else "schema")


# -- facets ----------------------------------------------------------------------------------------


@cache
def _storage() -> StorageDatasetFacet:
    return shared(
        StorageDatasetFacet(storageLayer="iceberg", fileFormat="parquet", producer=PRODUCER)
    )


def symlink(table: TableView, name: str) -> DatasetName:
    """Return a table's name in the catalog, or what it was when it was called otherwise."""
    return _symlink(facts.text(table.catalog, "type"), facts.text(table.catalog, "uri"), name)


@lru_cache(maxsize=MADE_MAX)
def _symlink(kind: str | None, uri: str | None, table: str) -> DatasetName:
    named = DatasetName(namespace="iceberg", name=table)
    if uri is not None and kind == "jdbc":
        try:
            named = of_database(uri, table)
        except UsageError:
            # A catalog in a file: the file is the namespace.
            named = DatasetName(namespace=uri.removeprefix("jdbc:"), name=table)
    elif uri is not None:
        named = DatasetName(namespace=uri, name=table)
    return DatasetName(namespace=accepted(named.namespace), name=named.name)


@lru_cache(maxsize=MADE_MAX)
def _symlinks(named: DatasetName) -> SymlinksDatasetFacet:
    link = Identifier(namespace=named.namespace, name=named.name, type="TABLE")
    return shared(SymlinksDatasetFacet(identifiers=[link], producer=PRODUCER))


@lru_cache(maxsize=MADE_MAX)
def _catalog(
    name: str | None, kind: str | None, uri: str | None, warehouse: str | None
) -> CatalogDatasetFacet:
    return shared(
        CatalogDatasetFacet(
            framework="iceberg",
            type=kind or "unknown",
            name=name or "",
            metadataUri=uri,
            warehouseUri=warehouse,
            source="spark",
            catalogProperties=None,
            producer=PRODUCER,
        )
    )


@lru_cache(maxsize=MADE_MAX)
def _ownership(owner: str) -> OwnershipDatasetFacet:
    return shared(OwnershipDatasetFacet(owners=[Owner(name=owner)], producer=PRODUCER))


@lru_cache(maxsize=MADE_MAX)
def _format_tag(version: int) -> TagsDatasetFacet:
    tag = TagsDatasetFacetFields(key="format-version", value=str(version), source=INTEGRATION)
    return shared(TagsDatasetFacet(tags=[tag], producer=PRODUCER))


def _field(
    name: str, kind: Json, item: JsonObject, place: int | None, depth: int = 0
) -> SchemaDatasetFacetFields:
    nested = _nested(kind, depth) if depth < _DEPTH_MAX and not isinstance(kind, str) else []
    return SchemaDatasetFacetFields(
        name=name,
        type=_type(kind),
        description=facts.text(item, "doc"),
        ordinal_position=place,
        fields=nested or None,
    )


def _nested(kind: Json, depth: int) -> list[SchemaDatasetFacetFields]:
    # The names of an array's and a map's inner fields are those of openlineage-spark.
    body = {"": kind}
    inner = facts.obj(body, "")
    parts: dict[str, Callable[[], list[SchemaDatasetFacetFields]]] = {
        "struct": lambda: [
            _field(facts.text(item, "name") or "", item.get("type"), item, None, depth + 1)
            for item in facts.objects(inner, "fields")
        ],
        "list": lambda: [_field("_element", inner.get("element"), facts.NOTHING, None, depth + 1)],
        "map": lambda: [
            _field("key", inner.get("key"), facts.NOTHING, None, depth + 1),
            _field("value", inner.get("value"), facts.NOTHING, None, depth + 1),
        ],
    }
    make = parts.get(str(inner.get("type")))
    return [] if make is None else make()


def _type(kind: Json) -> str:
    if not isinstance(kind, str):
        word = str(facts.obj({"": kind}, "").get("type"))
        return "array" if word == "list" else word
    if kind.startswith("fixed"):
        return "binary"
    return _SPARK_TYPES.get(kind, kind.replace(", ", ","))
