"""A look at a spec's plain values that never fails.

Owns the way in which rules read a document that other problems may have made half valid. What is
not there, or is of another kind, is nothing. Must never raise on a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jobs.spec.columns import Columns, columns, partition_term
from jobs.spec.document import Value
from jobs.spec.problems import Path


@dataclass(frozen=True, slots=True)
class Complaint:
    """A rule that does not hold: at which key, and what to do."""

    path: Path
    message: str


@dataclass(frozen=True, slots=True)
class View:
    """Values of a document by their path."""

    root: Mapping[str, Value]

    def get(self, *path: str) -> Value:
        """Return a value, or None."""
        current: Value = dict(self.root)
        for part in path:
            if not isinstance(current, dict):
                return None
            current = current.get(part)
        return current

    def has(self, *path: str) -> bool:
        """Say whether a key is there with a value."""
        return self.get(*path) is not None

    def text(self, *path: str) -> str | None:
        """Return a text, or None."""
        found = self.get(*path)
        return str(found) if isinstance(found, str) else None

    def names(self, *path: str) -> list[str]:
        """Return the texts of a list, or of one text; what is no text is left out."""
        found = self.get(*path)
        if isinstance(found, str):
            return [str(found)]
        return (
            [str(one) for one in found if isinstance(one, str)] if isinstance(found, list) else []
        )

    def columns(self, *path: str) -> Columns | None:
        """Return columns that can be read, or None."""
        found = self.get(*path)
        try:
            return None if found is None else columns(found)
        except ValueError:
            return None

    def partition_columns(self, *path: str) -> list[tuple[Path, str]]:
        """Return the columns of partition terms that can be read, each with its path."""
        found = self.get(*path)
        terms = [found] if isinstance(found, str) else found
        made: list[tuple[Path, str]] = []
        for index, term in enumerate(terms if isinstance(terms, list) else []):
            place: Path = (*path, index) if isinstance(found, list) else path
            try:
                made.append((place, partition_term(term).column))
            except ValueError:
                continue
        return made
