"""A catalog behind Iceberg's REST protocol, read by pyiceberg.

Owns the walk through its namespaces, and what its errors mean. Must never create, change or drop
anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    NoSuchIcebergTableError,
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
)
from requests.exceptions import RequestException

from odi_audit.errors import CatalogUnavailable

if TYPE_CHECKING:
    from pyiceberg.table import Table

NAMESPACE_DEPTH_MAX = 16
"""Deeper nesting than any catalog of ours makes; ends a walk that a broken server would not."""
DOCTOR = "odi-audit doctor"


class RestTables:
    """The tables of one REST catalog."""

    def __init__(self, name: str, properties: Mapping[str, str], place: str) -> None:
        self.name = name
        self._place = place
        with self._answers():
            # Never pyiceberg's load_catalog: it would mix in the user's own configuration files.
            self._catalog = RestCatalog(name, **properties)

    def names(self) -> Iterator[tuple[str, ...]]:
        """Yield the parts of every table's name."""
        with self._answers():
            yield from self._walk((), 0)

    def _walk(self, namespace: tuple[str, ...], depth: int) -> Iterator[tuple[str, ...]]:
        if namespace:
            yield from map(tuple, self._catalog.list_tables(namespace))
        if depth < NAMESPACE_DEPTH_MAX:
            for inner in self._catalog.list_namespaces(namespace):
                yield from self._walk(tuple(inner), depth + 1)

    def load(self, parts: tuple[str, ...], properties: Mapping[str, str]) -> Table | None:  # noqa: ARG002 - the server gives them
        """Return a table, with its metadata read; None where there is none of that name."""
        with self._answers():
            try:
                found: Table = self._catalog.load_table(parts)
            except (NoSuchTableError, NoSuchNamespaceError, NoSuchIcebergTableError):
                return None
            return found

    def close(self) -> None:
        """Let go of the catalog's connections."""
        self._catalog.close()

    @contextmanager
    def _answers(self) -> Iterator[None]:
        try:
            yield
        except (RequestException, RESTError) as problem:
            raise CatalogUnavailable(
                f"{self._place} did not answer: {type(problem).__name__}", hint=DOCTOR
            ) from problem
