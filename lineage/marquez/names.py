"""How Marquez keeps the names of events.

Owns the rules by which it changes a name. Must never reach anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

Name: TypeAlias = tuple[str, str]
"""A namespace and a name, of a job or of a dataset."""
_REPLACED = re.compile(r"[^a-z:/A-Z0-9\-_.@+]")
_AMBIGUOUS = re.compile(r"^\d|:|#")


def namespace_of(namespace: str) -> str:
    """Return a namespace as Marquez lists it: with an underscore for what it does not like."""
    return _REPLACED.sub("_", namespace)


def listed(name: Name) -> Name:
    """Return a dataset's name as the graph has it."""
    return namespace_of(name[0]), name[1]


def job_of(event: Mapping[str, Any]) -> Name:
    """Return the name of an event's job, with that of its parent before it."""
    job = event["job"]
    name = str(job["name"])
    parent = parent_of(event)
    if parent is not None:
        name = f"{parent[1]}.{name.removeprefix(parent[1] + '.')}"
    return namespace_of(str(job["namespace"])), name


def parent_of(event: Mapping[str, Any]) -> Name | None:
    """Return the name of the parent's job; it is kept in the namespace of the child."""
    facet = (event["run"].get("facets") or {}).get("parent")
    if facet is None:
        return None
    own, name = str(event["job"]["name"]), str(facet["job"]["name"])
    if name == own and "." in name:
        name = name.rpartition(".")[0]
    return namespace_of(str(event["job"]["namespace"])), name


def can_be_asked_for(name: Name) -> bool:
    """Say whether a node of this name can be asked for in the graph.

    A node's id is cut at its colons, except where a digit or ``//`` follows: the id of a name
    that begins with a digit, or has a colon in it, is cut in the wrong place.
    """
    return _AMBIGUOUS.search(name[1]) is None
