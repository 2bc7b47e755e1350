"""Predicates over columns: what is true of a row, and what a file's statistics can rule out.

Owns SQL's three truths: a comparison with null is unknown, and only rows for which the whole is
true are kept. Values stand beside the columns that they are compared with, in the column's own
type; negation is pushed into the leaves by whoever builds them. Must never prune more than the
exact answer would.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from functools import reduce
from typing import TypeAlias, TypeVar
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotNull,
    Or,
    Reference,
    StartsWith,
)
from pyiceberg.expressions.literals import (
    DateLiteral,
    TimeLiteral,
    TimestampLiteral,
    literal,
)
from pyiceberg.types import (
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

from odi_audit.catalog.projection import arrow_type

Value: TypeAlias = bool | int | float | Decimal | str | bytes | date | datetime | time | UUID
"""A date or a time of day is kept as such; a moment as microseconds since 1970."""

_Part = TypeVar("_Part")

COMPARISONS = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
NEGATED = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
# Typed loosely: their models take arguments by place, which type checkers cannot see.
_Make: TypeAlias = Callable[..., BooleanExpression]
_NULL: tuple[_Make, _Make] = (IsNull, NotNull)
_STARTS: _Make = StartsWith
_IN: _Make = In
_PRUNING: dict[str, _Make] = {
    "=": EqualTo,
    "<": LessThan,
    "<=": LessThanOrEqual,
    ">": GreaterThan,
    ">=": GreaterThanOrEqual,
}
_ROW_GROUPS = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_IN_FILE = (IntegerType, LongType, StringType, DateType, TimestampType, TimestamptzType)
"""Types whose Parquet statistics order as their values do. Floats leave NaN out of theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A column of the table, by its id; ``name`` is its whole dotted name."""

    id: int
    name: str
    type: PrimitiveType | None
    """None for a struct, a list or a map: those are null or not, and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Always:
    """True or false for every row."""

    value: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare:
    """``term op value``, with an operator of :data:`COMPARISONS`."""

    term: Term
    op: str
    value: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Null:
    """Whether a column is null (or, negated, is not)."""

    term: Term
    negated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Nan:
    """Whether a number is NaN (or, negated, is not)."""

    term: Term
    negated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Among:
    """Whether a column is one of some values, at least one (or, negated, none of them)."""

    term: Term
    values: tuple[Value, ...]
    negated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Like:
    """Whether a text fits a pattern with ``%`` and ``_`` (or, negated, does not)."""

    term: Term
    pattern: str
    negated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Both:
    """Every part is true."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Either:
    """Some part is true."""

    parts: tuple[Predicate, ...]


Predicate: TypeAlias = Always | Compare | Null | Nan | Among | Like | Both | Either


def terms(predicate: Predicate) -> dict[int, Term]:
    """Return the columns that a predicate looks at, by their ids."""
    if isinstance(predicate, Both | Either):
        return {key: term for part in predicate.parts for key, term in terms(part).items()}
    return {} if isinstance(predicate, Always) else {predicate.term.id: predicate.term}


# -- exact -----------------------------------------------------------------------------------


def matches(predicate: Predicate, columns: Mapping[int, pa.Array], rows_count: int) -> pa.Array:
    """Return for each row whether the predicate is true, false, or null for unknown.

    ``columns`` are in the types of the table, by field id.
    """
    match predicate:
        case Always(value=value):
            return pa.repeat(pa.scalar(value), rows_count)
        case Both(parts=parts):
            return reduce(pc.and_kleene, (matches(part, columns, rows_count) for part in parts))
        case Either(parts=parts):
            return reduce(pc.or_kleene, (matches(part, columns, rows_count) for part in parts))
        case Null(term=term, negated=negated):
            column = columns[term.id]
            return column.is_valid() if negated else column.is_null()
        case _:
            column = columns[predicate.term.id]
            plain = column.storage if isinstance(column, pa.ExtensionArray) else column
            return _true(predicate, plain)


def _true(predicate: Compare | Nan | Among | Like, column: pa.Array) -> pa.Array:
    match predicate:
        case Compare(term=term, op=op, value=value):
            return _compare(term, op, value, column)
        case Nan(negated=negated):
            found = pc.is_nan(column)
        case Among(term=term, values=values, negated=negated):
            chosen = pa.array([_scalar(term, value).as_py() for value in values], column.type)
            # Arrow finds no null in a list of values; SQL says unknown.
            found = pc.if_else(column.is_valid(), pc.is_in(column, value_set=chosen), None)
        case Like(pattern=pattern, negated=negated):
            found = pc.match_like(column, pattern)
    return pc.invert(found) if negated else found


def _compare(term: Term, op: str, value: Value, column: pa.Array) -> pa.Array:
    if isinstance(term.type, FloatType | DoubleType):
        # As SQL has it, a float is compared as a double, and NaN is greater than every number.
        wide = column.cast(pa.float64())
        found = COMPARISONS[op](wide, pa.scalar(value, pa.float64()))
        return pc.or_(found, pc.is_nan(wide)) if op in {">", ">="} else found
    return COMPARISONS[op](column, _scalar(term, value))


def _scalar(term: Term, value: Value) -> pa.Scalar:
    if term.type is None:
        raise TypeError(f"{term.name} has no values to compare with")
    if isinstance(value, UUID):
        return pa.scalar(value.bytes, pa.binary(16))
    if isinstance(term.type, IntegerType | LongType):
        return pa.scalar(value, pa.int64())
    return pa.scalar(value, arrow_type(term.type))


# -- pruning ---------------------------------------------------------------------------------


def pruning(predicate: Predicate) -> BooleanExpression:
    """Return an expression that is true wherever the predicate may be, for a file's statistics."""
    match predicate:
        case Always(value=value):
            return AlwaysTrue() if value else AlwaysFalse()
        case Both(parts=parts):
            return _balanced(And, [pruning(part) for part in parts])
        case Either(parts=parts):
            return _balanced(Or, [pruning(part) for part in parts])
        case Null(term=term, negated=negated) if term.type is not None and "." not in term.name:
            # Not within a struct: where that is null, so is a field that is required in it.
            return _NULL[negated](Reference(term.name))
        case Like(term=term, pattern=pattern, negated=False):
            prefix = _prefix(pattern)
            return _STARTS(Reference(term.name), literal(prefix)) if prefix else AlwaysTrue()
        case Compare(term=term, op=op, value=value) if op in _PRUNING and _ordered(term, op):
            return _PRUNING[op](Reference(term.name), _literal(term, value))
        case Among(term=term, values=values, negated=False) if _ordered(term, "="):
            return _IN(Reference(term.name), {_literal(term, value) for value in values})
    return AlwaysTrue()


def row_groups(predicate: Predicate, names: Mapping[int, str]) -> pc.Expression:
    """Return the same for the row groups of one file.

    ``names`` are the file's columns that have the table's own types, by field id; a predicate on
    any other column rules nothing out.
    """
    match predicate:
        case Both(parts=parts):
            return _balanced(operator.and_, [row_groups(part, names) for part in parts])
        case Either(parts=parts):
            return _balanced(operator.or_, [row_groups(part, names) for part in parts])
        case Compare(term=term, op=op, value=value) if _in_file(term, names) and op in _ROW_GROUPS:
            made: pc.Expression = _ROW_GROUPS[op](pc.field(names[term.id]), _scalar(term, value))
            return made
        case Among(term=term, values=values, negated=False) if _in_file(term, names):
            return pc.field(names[term.id]).isin([_scalar(term, value) for value in values])
    return pc.scalar(True)  # noqa: FBT003 - Arrow's own name for it


def _balanced(join: Callable[[_Part, _Part], _Part], parts: Sequence[_Part]) -> _Part:
    # One after another would be as deep as there are parts, and whoever walks it does so by
    # recursion.
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return join(_balanced(join, parts[:middle]), _balanced(join, parts[middle:]))


def _in_file(term: Term, names: Mapping[int, str]) -> bool:
    return term.id in names and isinstance(term.type, _IN_FILE)


def _ordered(term: Term, op: str) -> bool:
    # A literal would be rounded to a float; and NaN, which is greater than all, is in no bound.
    # Nanoseconds have no literal in pyiceberg.
    if isinstance(term.type, FloatType | TimestampNanoType | TimestamptzNanoType):
        return False
    return not (isinstance(term.type, DoubleType) and op in {">", ">="})


def _literal(term: Term, value: Value) -> object:
    if isinstance(term.type, DateType) and isinstance(value, date):
        return DateLiteral((value - date(1970, 1, 1)).days)
    if isinstance(term.type, TimeType) and isinstance(value, time):
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return TimeLiteral(seconds * 1_000_000 + value.microsecond)
    if isinstance(term.type, TimestampType | TimestamptzType) and isinstance(value, int):
        return TimestampLiteral(value)
    made: object = literal(value)  # type: ignore[type-var]
    return made


def _prefix(pattern: str) -> str:
    kept = ""
    for sign in pattern:
        if sign in "%_\\":
            break
        kept += sign
    return kept
