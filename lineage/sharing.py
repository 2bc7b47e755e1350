"""Facets that many events have: made once, and turned into JSON once.

Owns the mark on such a facet, and the memory of what was made of a document of the ledger. Half of
an event is the same in every event of a table; to make it anew each time was most of the cost of
an event. Must never be used for a facet that somebody changes afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, NamedTuple, TypeVar

F = TypeVar("F")
MADE_MAX = 500
"""What is kept of one kind: tables and plans in use at a time are far fewer."""
OPEN_MAX = 100
"""Of intents, which may be large: those of the batches that are under way side by side."""
_MARK = "odi_made"


class Plain(NamedTuple):
    """A facet as JSON, its texts, and whether a number in it has a fraction."""

    value: Any
    texts: set[str]
    fractions: bool


class Made:
    """What was made of a shared facet so far.

    ``plain`` is its JSON; ``body`` its bytes as orjson takes them, and ``ordinary`` whether there
    is nothing odd in them, by the secrets that were known at ``secrets``.
    """

    __slots__ = ("body", "ordinary", "plain", "secrets")

    def __init__(self) -> None:
        self.plain: Plain | None = None
        self.body: Any = None
        self.ordinary = False
        self.secrets = -1


def shared(facet: F) -> F:
    """Say that a facet stands in many events and is not changed any more; returns it."""
    object.__setattr__(facet, _MARK, Made())
    return facet


def made_of(facet: Any) -> Made | None:
    """Return what was made of a shared facet, to be looked at or filled; None if not shared."""
    made: Made | None = getattr(facet, _MARK, None)
    return made


def forget(facet: Any) -> None:
    """Say that a facet was changed after all: what was made of it is to be made anew."""
    if getattr(facet, _MARK, None) is not None:
        object.__setattr__(facet, _MARK, Made())


class Once(Generic[F]):
    """Remembers what was made of documents, by which objects they are and not by what they say.

    The documents are kept as long as what was made of them, so no other can take their place.
    """

    def __init__(self, most: int = MADE_MAX) -> None:
        self._most = most
        self._made: dict[Hashable, tuple[tuple[object, ...], F]] = {}

    def get(self, documents: tuple[object, ...], about: Hashable, make: Callable[[], F]) -> F:
        """Return what ``make`` returned for these documents and ``about`` the first time."""
        key = (*map(id, documents), about)
        found = self._made.get(key)
        if found is None:
            if len(self._made) >= self._most:
                self._made.clear()
            found = self._made[key] = (documents, make())
        return found[1]
