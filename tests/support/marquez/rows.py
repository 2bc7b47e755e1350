"""What Marquez has tables for, as values that change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.support.marquez.rules import Doc

Name: TypeAlias = tuple[str, str]
"""A namespace and a name."""
Column: TypeAlias = tuple[str, str, str]
"""A dataset's namespace, its name, and a field of it."""


class Broken(Exception):
    """An event that fails on the way; what was done before stays."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Facets(dict[str, Any]):
    """Facets as they are shown: of each name the one of the latest event, by the event's time."""

    def __init__(self) -> None:
        super().__init__()
        self.times: dict[str, str] = {}

    def store(self, facets: Doc, now: str) -> None:
        """Add facets one after the other, as rows of a table."""
        for name, facet in facets.items():
            if _has_nul(facet):
                raise Broken(500)
            if now >= self.times.get(name, ""):
                self[name], self.times[name] = without_nulls(facet), now


@dataclass(slots=True, kw_only=True)
class Version:
    """A version of a dataset; ``run`` is None where a read was the first to name it."""

    uuid: str
    dataset: Name
    run: str | None
    created: str
    fields: list[Doc]
    lifecycle: str
    facets: Facets = field(default_factory=Facets)


@dataclass(slots=True, kw_only=True)
class Dataset:
    name: Name
    created: str
    updated: str
    source: str = "default"
    description: str | None = None
    deleted: bool = False
    current: str | None = None
    fields: dict[str, Doc] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Job:
    name: Name
    simple: str
    parent: str | None
    type: str
    created: str
    updated: str
    location: str | None = None
    description: str | None = None
    facets: Facets = field(default_factory=Facets)
    version: str | None = None
    versions: dict[str, tuple[frozenset[Name], frozenset[Name]]] = field(default_factory=dict)
    inputs: frozenset[Name] = frozenset()
    outputs: frozenset[Name] = frozenset()
    runs: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Run:
    id: str
    job: Name
    created: str
    updated: str
    state: str = "NEW"
    told: bool = False
    """Whether an event was of this run; else it is known as a parent only."""
    started: str | None = None
    ended: str | None = None
    nominal: tuple[str | None, str | None] = (None, None)
    facets: Facets = field(default_factory=Facets)
    job_version: str | None = None
    inputs: dict[str, Facets] = field(default_factory=dict)
    """Each version that was read, and the input facets that came with it."""
    outputs: dict[str, Facets] = field(default_factory=dict)


def _has_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\x00" in value
    if isinstance(value, dict):
        return any(_has_nul(key) or _has_nul(item) for key, item in value.items())
    return isinstance(value, list) and any(_has_nul(item) for item in value)


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value
