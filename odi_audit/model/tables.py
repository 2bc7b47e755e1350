"""Table names: how they are written, quoted and told apart.

Owns parsing and quoting. A name has one or more namespace parts and a last part; a part may hold
capitals, quotes and letters of any script, but no control characters. Must never touch a catalog.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from odi_audit.errors import BadTableName
from odi_audit.ids import TableUuid

PART_LENGTH_MAX = 255
"""What the JDBC catalog's columns hold."""
_FORBIDDEN = frozenset("/\\")
"""Characters that would change the table's folder in the warehouse."""


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """The parts of a table's name, without the catalog."""

    parts: tuple[str, ...]

    @property
    def namespace(self) -> tuple[str, ...]:
        """All parts but the last."""
        return self.parts[:-1]

    def __str__(self) -> str:
        return ".".join(_shown(part) for part in self.parts)

    def sql(self, catalog: str) -> str:
        """Return the name quoted for Spark SQL, with its catalog in front."""
        return ".".join(quote(part) for part in (catalog, *self.parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRef:
    """A table as the ledger knows it: the uuid never changes, the name may."""

    uuid: TableUuid
    name: str


def quote(part: str) -> str:
    """Quote one identifier for Spark SQL."""
    return "`" + part.replace("`", "``") + "`"


def parse(text: str) -> TableName:
    """Read ``sales.orders`` or ``sales.`Odd.Name```.

    Raises:
        BadTableName: no namespace, an empty part, an unclosed quote, or a forbidden character.
    """
    parts = _split(text)
    if len(parts) < 2:
        raise BadTableName(
            f"table name {text!r} has no namespace: expected namespace.table",
            hint="write it like sales.orders",
        )
    for part in parts:
        _check(part, text)
    return TableName(tuple(parts))


def _split(text: str) -> list[str]:
    parts: list[str] = []
    current: list[str] = []
    quoted = False
    position = 0
    while position < len(text):
        char = text[position]
        if char == "`":
            if quoted and text[position + 1 : position + 2] == "`":
                current.append("`")
                position += 1
            else:
                quoted = not quoted
        elif char == "." and not quoted:
            parts.append("".join(current))
            current = []
        else:
            current.append(char)
        position += 1
    if quoted:
        raise BadTableName(f"table name {text!r} has a quote that is not closed")
    parts.append("".join(current))
    return parts


def _check(part: str, text: str) -> None:
    if not part.strip() or part != part.strip():
        raise BadTableName(f"table name {text!r} has an empty part or a space at an end")
    if len(part) > PART_LENGTH_MAX:
        raise BadTableName(f"table name part {part[:20]!r}… is over {PART_LENGTH_MAX} characters")
    if part in {".", ".."} or any(
        char in _FORBIDDEN or unicodedata.category(char) == "Cc" for char in part
    ):
        raise BadTableName(
            f"table name {text!r} holds a slash, a backslash or a control character, "
            "which cannot be part of a folder's name"
        )


def _shown(part: str) -> str:
    return quote(part) if any(char in ".` " for char in part) else part
