"""Which tables Spark sees: the catalog asked through the JVM, not through SQL text.

Owns the walk over namespaces. Must never load a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from odi_audit.model.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMESPACE_DEPTH_MAX = 16


def tables(spark: SparkSession, catalog: str) -> list[TableName]:
    """Return every table of the catalog as Spark sees it, sorted."""
    from odi_audit.spark.jvm import Jvm  # which itself lists tables, to name near matches

    found: Any = Jvm(spark).catalog(catalog).icebergCatalog()
    return sorted(name for space in found.listNamespaces() for name in _walk(found, space, 1))


def _walk(catalog: Any, namespace: Any, depth: int) -> Iterator[TableName]:
    for identifier in catalog.listTables(namespace):
        parts = [*identifier.namespace().levels(), identifier.name()]
        yield TableName(tuple(str(part) for part in parts))
    if depth < NAMESPACE_DEPTH_MAX:
        for child in catalog.listNamespaces(namespace):
            yield from _walk(catalog, child, depth + 1)
