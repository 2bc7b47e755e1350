"""Columns and partition transforms, as a spec writes them and as Spark's DDL takes them.

Owns the part of Spark's type language that Iceberg tables have, so that a mistyped type is told
with its line before anything is started. Must never import Spark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from jobs.spec.problems import did_you_mean
from odi_audit.model.tables import quote

COLUMNS_MAX = 5_000
TYPE_DEPTH_MAX = 16
PRIMITIVES = (
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary",
    "date", "timestamp", "timestamp_ntz",
)  # fmt: skip
ALIASES = {
    "integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint", "real": "float",
    "bool": "boolean", "text": "string", "varchar": "string", "char": "string", "bytes": "binary",
    "bytea": "binary", "datetime": "timestamp", "timestamptz": "timestamp",
    "timestamp_ltz": "timestamp", "number": "decimal", "numeric": "decimal", "json": "string",
    "uuid": "string", "serial": "int", "bigserial": "bigint", "list": "array", "record": "struct",
}  # fmt: skip
"""Words of other systems, and what to write here."""
_TYPES = (*PRIMITIVES, "decimal", "array", "map", "struct")
_WORD = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)")
_NAME = re.compile(r"\s*(`(?:[^`]|``)+`|[^\s`<>(),:'\"]+)")
_COMMENT = re.compile(r"\s*comment\s+'((?:[^'\\]|\\.)*)'", re.IGNORECASE)
_NOT_NULL = re.compile(r"\s*not\s+null\b", re.IGNORECASE)
_DECIMAL = re.compile(r"\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BY_TIME = {"year": "years", "month": "months", "day": "days", "hour": "hours"}
ODD_NAME = re.compile(r"[\s`<>(),:'\"]")
"""Letters for which a column's name needs quotes."""
_TERM = re.compile(r"\s*([A-Za-z_]+)\s*\(\s*(.*?)\s*\)\s*", re.DOTALL)


class ColumnProblem(ValueError):
    """Columns that cannot be read; ``column`` names the one, where it is known."""

    def __init__(self, message: str, column: str | None = None) -> None:
        super().__init__(message)
        self.column = column


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: its name, Spark's type in one spelling, and whether null is refused."""

    name: str
    type: str
    required: bool = False
    comment: str | None = None

    @property
    def definition(self) -> str:
        """What stands behind the name."""
        text = self.type + (" not null" if self.required else "")
        return text if self.comment is None else f"{text} comment '{self.comment}'"


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a source, in their order."""

    items: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(column.name for column in self.items)

    @property
    def ddl(self) -> str:
        """The columns as Spark's DDL."""
        return ", ".join(f"{shown(column.name)} {column.definition}" for column in self.items)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTerm:
    """A column, or a transform of one, by which a table is partitioned."""

    column: str
    transform: str = "identity"
    width: int | None = None

    @property
    def sql(self) -> str:
        """The term as Spark's DDL takes it."""
        # Dots tell fields of structs, which partition as columns do.
        parts = self.column.split(".")
        whole = all(_PLAIN.fullmatch(part) for part in parts)
        name = self.column if whole else quote(self.column)
        if self.transform == "identity":
            return name
        return f"{self.transform}({name if self.width is None else f'{self.width}, {name}'})"


def shown(name: str) -> str:
    """Return a column's name as DDL takes it, quoted where it must be."""
    return name if _PLAIN.fullmatch(name) else quote(name)


def columns(given: object) -> Columns:
    """Read ``order_id bigint not null, amount decimal(10,2)``, or a mapping of name to type.

    Raises:
        ColumnProblem: a type is not known, a name stands twice, or there is no column.
    """
    if isinstance(given, Columns):
        return given
    if isinstance(given, str):
        found = _parsed(given)
    elif isinstance(given, Mapping):
        found = [_defined(str(name), text) for name, text in given.items()]
    else:
        raise ColumnProblem('expected columns such as "order_id bigint, amount decimal(10,2)"')
    if not found:
        raise ColumnProblem("there is no column; leave the key out to take what the source has")
    if len(found) > COLUMNS_MAX:
        raise ColumnProblem(f"over {COLUMNS_MAX} columns")
    seen: set[str] = set()
    for column in found:
        if column.name.lower() in seen:
            raise ColumnProblem(f"column {column.name} stands twice (case is ignored)", column.name)
        seen.add(column.name.lower())
    return Columns(tuple(found))


def partition_term(given: object) -> PartitionTerm:
    """Read ``days(ts)``, ``bucket(16, id)``, ``truncate(4, name)`` or a column's name."""
    if isinstance(given, PartitionTerm):
        return given
    if not isinstance(given, str) or not given.strip():
        raise ValueError("write a column, or a transform such as days(ts) or bucket(16, id)")
    match = _TERM.fullmatch(given)
    if match is None:
        return PartitionTerm(column=column_name(given))
    transform, inner = match[1].lower(), match[2]
    transform = _BY_TIME.get(transform, transform)
    if transform in _BY_TIME.values():
        return PartitionTerm(column=column_name(inner), transform=transform)
    if transform not in {"bucket", "truncate"}:
        known = (*_BY_TIME.values(), "bucket", "truncate")
        raise ValueError(
            f"found transform {transform!r}; allowed: {', '.join(known)}"
            + did_you_mean(transform, known)
        )
    width, comma, name = (part.strip() for part in inner.partition(","))
    if not comma or not width.isdigit() or not 1 <= int(width) <= 1_000_000:
        raise ValueError(f"found {given!r}; write {transform}(16, column), the number first")
    return PartitionTerm(column=column_name(name), transform=transform, width=int(width))


def column_name(given: object) -> str:
    """Read a column's name, with or without quotes; fields of structs are told by dots."""
    text = given.strip() if isinstance(given, str) else ""
    if text.startswith("`") and text.endswith("`") and len(text) > 2:
        return text[1:-1].replace("``", "`")
    if text.count("(") != text.count(")"):
        raise ValueError(
            f'found {given!r}: within [ ] a comma splits; write "bucket(16, id)" in quotes'
        )
    if not text or ODD_NAME.search(text):
        raise ValueError(f"found {given!r}; write a column's name, odd ones in `backquotes`")
    return text


# -- the type language ----------------------------------------------------------------------------


def _parsed(text: str) -> list[Column]:
    found: list[Column] = []
    cursor = _Cursor(text)
    while not cursor.done:
        name = cursor.name()
        found.append(_column(name, cursor))
        if not cursor.take(",") and not cursor.done:
            raise ColumnProblem(
                f"found {cursor.rest!r} after column {name}; expected a comma, not null or comment",
                name,
            )
    return found


def _defined(name: str, text: object) -> Column:
    if not isinstance(text, str) or not text.strip():
        raise ColumnProblem("write the column's type, such as bigint or decimal(10,2)", name)
    cursor = _Cursor(text)
    column = _column(name, cursor)
    if not cursor.done:
        raise ColumnProblem(f"found {cursor.rest!r} after the type", name)
    return column


def _column(name: str, cursor: _Cursor) -> Column:
    cursor.column = name
    kind = _type(cursor, 0)
    required = cursor.match(_NOT_NULL) is not None
    comment = cursor.match(_COMMENT)
    return Column(
        name=name, type=kind, required=required, comment=None if comment is None else comment[1]
    )


def _type(cursor: _Cursor, depth: int) -> str:
    if depth > TYPE_DEPTH_MAX:
        raise cursor.problem(f"types are nested over {TYPE_DEPTH_MAX} deep")
    match = cursor.match(_WORD)
    if match is None:
        raise cursor.problem(f"found {cursor.rest!r} where a type should be")
    word = match[1].lower()
    if word in PRIMITIVES:
        return word
    if word == "decimal":
        return _decimal(cursor)
    if word == "array":
        cursor.expect("<", "array<string>")
        inner = _type(cursor, depth + 1)
        cursor.expect(">", "array<string>")
        return f"array<{inner}>"
    if word == "map":
        cursor.expect("<", "map<string, bigint>")
        key = _type(cursor, depth + 1)
        cursor.expect(",", "map<string, bigint>")
        value = _type(cursor, depth + 1)
        cursor.expect(">", "map<string, bigint>")
        return f"map<{key}, {value}>"
    if word == "struct":
        return _struct(cursor, depth)
    instead = ALIASES.get(word)
    near = f" (write {instead})" if instead else did_you_mean(word, _TYPES)
    raise cursor.problem(f"found type {match[1]!r}; allowed: {', '.join(_TYPES)}{near}")


def _decimal(cursor: _Cursor) -> str:
    match = cursor.match(_DECIMAL)
    if match is None:
        raise cursor.problem("write decimal with its digits, such as decimal(10,2)")
    precision, scale = int(match[1]), int(match[2] or 0)
    if not 1 <= precision <= 38 or scale > precision:
        raise cursor.problem(f"found decimal({precision},{scale}); at most 38 digits in all")
    return f"decimal({precision},{scale})"


def _struct(cursor: _Cursor, depth: int) -> str:
    example = "struct<street: string, city: string>"
    cursor.expect("<", example)
    fields: list[str] = []
    while True:
        name = cursor.name()
        cursor.take(":")
        fields.append(f"{shown(name)}: {_type(cursor, depth + 1)}")
        if cursor.match(_NOT_NULL):
            fields[-1] += " not null"
        if not cursor.take(","):
            break
    cursor.expect(">", example)
    return f"struct<{', '.join(fields)}>"


@dataclass(slots=True)
class _Cursor:
    """A place in the text of columns."""

    text: str
    at: int = 0
    column: str | None = None

    @property
    def rest(self) -> str:
        return self.text[self.at :].strip()[:30]

    @property
    def done(self) -> bool:
        return not self.text[self.at :].strip()

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.at)
        if found is not None:
            self.at = found.end()
        return found

    def take(self, sign: str) -> bool:
        left = self.text[self.at :]
        if not left.lstrip().startswith(sign):
            return False
        self.at += len(left) - len(left.lstrip()) + len(sign)
        return True

    def expect(self, sign: str, example: str) -> None:
        if not self.take(sign):
            found = repr(self.rest) if self.rest else "the end"
            raise self.problem(f"found {found}, expected {sign!r} as in {example}")

    def name(self) -> str:
        found = self.match(_NAME)
        if found is None:
            raise self.problem(f"found {self.rest!r} where a column's name should be")
        return column_name(found[1])

    def problem(self, message: str) -> ColumnProblem:
        where = f"column {self.column}: " if self.column else ""
        return ColumnProblem(where + message, self.column)
