"""Values of a filter, in the types of the columns that they are compared with.

Owns what a value means for a type: ``8.5`` for a decimal, ``'2026-11-01'`` for a moment. A number
that the type cannot hold is compared all the same, as arithmetic has it: nothing equals it, and
everything is below or above it. Must never round a value so that another row matches.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_FLOOR, Context, Decimal, InvalidOperation
from typing import TypeAlias, TypeVar
from uuid import UUID

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from odi_audit.catalog.predicates import Always, Compare, Null, Predicate, Term, Value

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EXACT = Context(prec=400)
"""More digits than a decimal of the format (38) with any exponent that fits in a double."""
_EXPONENT_MAX = 350
_Read = TypeVar("_Read")
_BELOW, _ABOVE = frozenset({"<", "<=", "!="}), frozenset({">", ">=", "!="})


class Misfit(Exception):
    """A value that says nothing about a column of that type. Never leaves the catalog package."""


def compared(term: Term, op: str, sort: str, text: str) -> Predicate:
    """Return what ``term op value`` means; ``sort`` is ``number``, ``text``, ``hex`` or ``name``.

    Raises:
        Misfit: such a value cannot be compared with such a column.
    """
    kind = term.type
    if isinstance(kind, IntegerType | LongType | DecimalType):
        return _number(term, op, _decimal(sort, text))
    for types, convert in _CONVERT:
        if isinstance(kind, types):
            return Compare(term=term, op=op, value=convert(kind, sort, text))
    raise Misfit("it cannot be compared")


# -- numbers ---------------------------------------------------------------------------------


def _number(term: Term, op: str, value: Decimal) -> Predicate:
    low, high, scale = _limits(term.type)
    whole = value.scaleb(scale, _EXACT).to_integral_value(ROUND_FLOOR, _EXACT)
    if not low <= whole <= high:
        always = op in (_BELOW if whole > high else _ABOVE)
        return Null(term=term, negated=True) if always else Always(value=False)
    # By way of an integer, so that it has all its digits: 8.50, not 8.5.
    below = Decimal(int(whole)).scaleb(-scale, _EXACT)
    if below != value:
        # Between two values that the column can have: nothing equals it.
        if op == "=":
            return Always(value=False)
        if op == "!=":
            return Null(term=term, negated=True)
        op = "<=" if op in _BELOW else ">"
    return Compare(term=term, op=op, value=below if scale or _is_decimal(term) else int(below))


def _is_decimal(term: Term) -> bool:
    return isinstance(term.type, DecimalType)


def _limits(kind: IcebergType | None) -> tuple[int, int, int]:
    if isinstance(kind, DecimalType):
        most = 10**kind.precision - 1
        return -most, most, kind.scale
    bits = 31 if isinstance(kind, IntegerType) else 63
    return -(2**bits), 2**bits - 1, 0


def _decimal(sort: str, text: str) -> Decimal:
    if sort not in {"number", "text"}:
        raise Misfit("write a number")
    try:
        made = Decimal(text.strip())
    except InvalidOperation:
        raise Misfit(f"{text!r} is no number") from None
    if not made.is_finite() or abs(made.adjusted()) > _EXPONENT_MAX:
        raise Misfit(f"{text} is out of all bounds")
    return made


def _float(_: IcebergType, sort: str, text: str) -> Value:
    return float(_decimal(sort, text))


# -- everything else -------------------------------------------------------------------------


def _text(_: IcebergType, sort: str, text: str) -> Value:
    if sort != "text":
        raise Misfit(f"a text is written in single quotes, like '{text}'")
    return text


def _boolean(_: IcebergType, sort: str, text: str) -> Value:
    if sort == "number" or text.lower() not in {"true", "false"}:
        raise Misfit("write true or false")
    return text.lower() == "true"


def _date(_: IcebergType, sort: str, text: str) -> Value:
    return _quoted(date.fromisoformat, sort, text, "'2026-11-01'")


def _time(_: IcebergType, sort: str, text: str) -> Value:
    made = _quoted(time.fromisoformat, sort, text, "'12:30:00'")
    if made.tzinfo is not None:
        raise Misfit("a time of day has no zone")
    return made


def _moment(kind: IcebergType, sort: str, text: str) -> Value:
    made = _quoted(datetime.fromisoformat, sort, text, "'2026-11-01' or '2026-11-01T12:30:00'")
    zoned = isinstance(kind, TimestamptzType | TimestamptzNanoType)
    if made.tzinfo is not None and not zoned:
        raise Misfit("it has no zone: leave the offset out")
    aware = made if made.tzinfo is not None else made.replace(tzinfo=UTC)
    micros = (aware - _EPOCH) // timedelta(microseconds=1)
    nano = isinstance(kind, TimestampNanoType | TimestamptzNanoType)
    return micros * 1000 if nano else micros


def _uuid(_: IcebergType, sort: str, text: str) -> Value:
    return _quoted(UUID, sort, text, "'6f1f9d3e-0000-4000-8000-000000000001'")


def _bytes(_: IcebergType, sort: str, text: str) -> Value:
    if sort != "hex" or len(text) % 2:
        raise Misfit("write bytes in hexadecimal, two digits each, like X'00ff'")
    return bytes.fromhex(text)


def _quoted(read: Callable[[str], _Read], sort: str, text: str, example: str) -> _Read:
    if sort == "text":
        try:
            return read(text.strip())
        except ValueError:
            pass
    raise Misfit(f"write it like {example}")


_Convert: TypeAlias = Callable[[IcebergType, str, str], Value]
_CONVERT: tuple[tuple[tuple[type[IcebergType], ...], _Convert], ...] = (
    ((StringType,), _text),
    ((FloatType, DoubleType), _float),
    ((BooleanType,), _boolean),
    ((DateType,), _date),
    ((TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType), _moment),
    ((TimeType,), _time),
    ((UUIDType,), _uuid),
    ((BinaryType, FixedType), _bytes),
)
