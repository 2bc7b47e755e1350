"""Values of a change event as columns of a table: which value fits which column.

Owns what a value of each type looks like in a record, and how many of them become a column. A
value that would be changed on the way is an error, never a rounding. Must never import pyspark.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from jobs.formats.debezium_wires import ANY_SCALE, DATES, DECIMAL, MOMENTS, TIMES, Wire
from jobs.formats.decoded import Unreadable
from jobs.formats.types import is_bytes, is_list, is_text

if TYPE_CHECKING:
    import pyarrow as pa

    from jobs.formats.json_rows import Times

Values: TypeAlias = Sequence[Any]
"""What a parser made of the values of one field."""
Maker: TypeAlias = Callable[[Values], "pa.Array"]
BAD_VALUE = (ValueError, TypeError, OverflowError, ArithmeticError, Unreadable)
"""What a maker raises for values that do not fit; Arrow's own errors are among them."""

_UNITS = {"seconds": "s", "millis": "ms", "micros": "us"}
_MICROS = {"ms": 1_000, "us": 1}
_FLOATS = {"float", "double", "float32", "float64"}
_INTEGERS = {"int8", "int16", "int32", "int64"}
_DIGITS_MAX = 38
_EXACT = Context(prec=200)
"""Python's own context would round at 28 digits."""


def maker(kind: pa.DataType, wire: Wire | None, times: Times) -> Maker:
    """Return what makes a column of a type from values of a field.

    ``wire`` None: the record tells no types, so that the column's own decides. ``times`` then says
    what a number in a column of moments counts.
    """
    from pyarrow import types

    for fits, make in (
        (types.is_boolean, _of_booleans),
        (types.is_integer, _of_integers),
        (types.is_floating, _of_floats),
        (types.is_decimal, _of_decimals),
        (types.is_date, _of_dates),
        (types.is_timestamp, _of_moments),
        (types.is_time, _of_times),
        (is_text, _of_texts),
        (is_bytes, _of_bytes),
        (is_list, _of_lists),
        (types.is_map, _of_maps),
        (types.is_struct, _of_structs),
    ):
        if fits(kind):
            return make(kind, wire, times)
    return _misfit(kind, wire)


def widened(
    kind: pa.DataType, wire: Wire | None, times: Times, values: Values
) -> pa.DataType | None:
    """Return the type to which a column can be widened so that values fit it; None: to none."""
    import pyarrow as pa

    wider: list[pa.DataType] = []
    if pa.types.is_int32(kind):
        wider = [pa.int64()]
    elif pa.types.is_decimal(kind):
        # A table can get more digits before the point, none behind it.
        digits = range(kind.precision + 1, _DIGITS_MAX + 1)
        wider = [pa.decimal128(count, kind.scale) for count in digits]
    for other in wider if values else ():
        try:
            maker(other, wire, times)(values)
        except BAD_VALUE:
            continue
        return other
    return None


# -- one kind of column each ----------------------------------------------------------------------


def _misfit(kind: pa.DataType, wire: Wire | None) -> Maker:
    """Make nothing but nulls: no value of the field fits the column."""

    def make(values: Values) -> pa.Array:
        import pyarrow as pa

        if all(value is None for value in values):
            return pa.nulls(len(values), kind)
        raise Unreadable(f"{wire or 'the value'} does not fit a column of type {kind}")

    return make


def _of_booleans(kind: pa.DataType, wire: Wire | None, _: Times) -> Maker:
    import pyarrow as pa

    return _of_inferred(kind, (pa.bool_(),), wire, {"boolean"})


def _of_integers(kind: pa.DataType, wire: Wire | None, _: Times) -> Maker:
    import pyarrow as pa

    return _of_inferred(kind, (pa.int64(),), wire, _INTEGERS)


def _of_floats(kind: pa.DataType, wire: Wire | None, _: Times) -> Maker:
    import pyarrow as pa

    return _of_inferred(kind, (pa.float64(), pa.int64()), wire, {*_INTEGERS, *_FLOATS})


def _of_inferred(
    kind: pa.DataType, allowed: tuple[pa.DataType, ...], wire: Wire | None, kinds: set[str]
) -> Maker:
    if wire is not None and wire.kind not in kinds:
        return _misfit(kind, wire)

    def make(values: Values) -> pa.Array:
        import pyarrow as pa

        # Arrow would cut 1.5 to 1 if told the type at once: let it say what it sees.
        found = pa.array(values)
        if found.type not in allowed and not pa.types.is_null(found.type):
            raise Unreadable(f"found {found.type}, expected {kind}")
        return found.cast(kind)

    return make


def _of_decimals(kind: pa.DataType, wire: Wire | None, _: Times) -> Maker:
    if wire is None or wire.kind in {"string", *_INTEGERS}:
        return lambda values: _decimals(values, kind, _number)
    if wire.logical == DECIMAL:
        scale = int(wire.parameters.get("scale", 0))
        return lambda values: _decimals(values, kind, lambda value: _unscaled(value, scale))
    if wire.logical == ANY_SCALE:
        return lambda values: _decimals(
            values, kind, lambda value: _unscaled(value["value"], value["scale"])
        )
    if wire.kind in _FLOATS:
        return lambda values: _decimals(values, kind, _number)
    return _misfit(kind, wire)


def _decimals(values: Values, kind: pa.DataType, one: Callable[[Any], Decimal]) -> pa.Array:
    import pyarrow as pa

    made = [None if value is None else one(value) for value in values]
    return pa.array(made, kind)


def _number(value: object) -> Decimal:
    # The shortest text of a float is what the database wrote.
    if isinstance(value, float):
        return Decimal(repr(value))
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise Unreadable(f"found {type(value).__name__}, expected a number or its text")
    try:
        number = Decimal(value)
    except ArithmeticError:
        raise Unreadable(
            f"{value[:40] if isinstance(value, str) else value!r} is no number; decimals as bytes "
            "need records with schemas, or decimal.handling.mode=string"
        ) from None
    if not number.is_finite():
        raise Unreadable(f"{value!r} is no number that a table can hold")
    return number


def _unscaled(value: object, scale: int) -> Decimal:
    number = int.from_bytes(_bytes(value), "big", signed=True)
    return _EXACT.scaleb(Decimal(number), -scale)


def _bytes(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise Unreadable(f"found {type(value).__name__}, expected bytes in base64")
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise Unreadable("the text is not base64, as bytes must be") from None


def _of_dates(kind: pa.DataType, wire: Wire | None, _: Times) -> Maker:
    if wire is not None and wire.logical not in DATES and wire.kind != "string":
        return _misfit(kind, wire)

    def make(values: Values) -> pa.Array:
        import pyarrow as pa

        found = pa.array(values)
        if pa.types.is_int64(found.type):
            return found.cast(pa.int32()).cast(pa.date32()).cast(kind)
        if pa.types.is_null(found.type) or pa.types.is_string(found.type):
            return found.cast(kind)
        raise Unreadable(f"found {found.type}, expected days since 1970 or an ISO date")

    return make


def _of_moments(kind: pa.DataType, wire: Wire | None, times: Times) -> Maker:
    unit = _UNITS.get(times) if wire is None else MOMENTS.get(wire.logical or "")
    if wire is not None and unit is None and wire.kind != "string":
        return _misfit(kind, wire)

    def make(values: Values) -> pa.Array:
        import pyarrow as pa

        found = pa.array(values)
        if pa.types.is_int64(found.type):
            if unit is None:
                raise Unreadable(
                    "a number in a column of moments: seconds, millis or micros is not said; send "
                    "records with schemas, or declare the unit"
                )
            return found.cast(pa.timestamp(unit, tz=kind.tz)).cast(kind)
        if pa.types.is_null(found.type):
            return found.cast(kind)
        if pa.types.is_timestamp(found.type):
            return found.cast(kind)  # Avro's readers return moments as such
        if not pa.types.is_string(found.type):
            raise Unreadable(f"found {found.type}, expected a moment")
        return _read_moments(found, kind)

    return make


def _read_moments(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Read ISO 8601 texts; one with a zone goes into a column without one as of UTC."""
    import pyarrow as pa

    if kind.tz is not None:
        return texts.cast(kind)
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        return texts.cast(pa.timestamp(kind.unit, tz="UTC")).cast(kind)


def _of_times(kind: pa.DataType, wire: Wire | None, _: Times) -> Maker:
    unit = None if wire is None else TIMES.get(wire.logical or "")
    if unit is None:
        return _misfit(kind, wire)

    def make(values: Values) -> pa.Array:
        import pyarrow as pa

        found = pa.array(values, pa.int64())
        base = pa.time32("ms") if unit == "ms" else pa.time64(unit)
        return (found.cast(pa.int32()) if unit == "ms" else found).cast(base).cast(kind)

    return make


def _of_texts(kind: pa.DataType, wire: Wire | None, _: Times) -> Maker:
    unit = None if wire is None else TIMES.get(wire.logical or "")
    if unit is not None:
        return lambda values: _clock(values, unit, kind)
    if wire is not None and wire.kind != "string":
        return _misfit(kind, wire)

    def make(values: Values) -> pa.Array:
        import pyarrow as pa

        return pa.array(values, kind)

    return make


def _clock(values: Values, unit: str, kind: pa.DataType) -> pa.Array:
    """Write times of day as texts that sort."""
    import pyarrow as pa

    made: list[str | None] = []
    for value in values:
        if value is None:
            made.append(None)
            continue
        micros, lost = divmod(value, 1_000) if unit == "ns" else (value * _MICROS[unit], 0)
        if lost or not 0 <= micros <= 86_400_000_000:
            raise Unreadable(f"{value} is no time of day in microseconds")
        seconds, micros = divmod(micros, 1_000_000)
        made.append(f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{micros:06}")
    return pa.array(made, kind)


def _of_bytes(kind: pa.DataType, wire: Wire | None, _: Times) -> Maker:
    if wire is not None and (wire.kind != "bytes" or wire.logical == DECIMAL):
        return _misfit(kind, wire)

    def make(values: Values) -> pa.Array:
        import pyarrow as pa

        return pa.array([None if value is None else _bytes(value) for value in values], kind)

    return make


def _of_lists(kind: pa.DataType, wire: Wire | None, times: Times) -> Maker:
    if wire is not None and (wire.kind != "array" or wire.items is None):
        return _misfit(kind, wire)
    inner = maker(kind.value_type, None if wire is None else wire.items, times)

    def make(values: Values) -> pa.Array:
        import pyarrow as pa

        ends, flat = _flattened(values, list)
        large = pa.types.is_large_list(kind)
        offsets = pa.array(ends, pa.int64() if large else pa.int32())
        return (pa.LargeListArray if large else pa.ListArray).from_arrays(
            offsets, inner(flat), type=kind
        )

    return make


def _of_maps(kind: pa.DataType, wire: Wire | None, times: Times) -> Maker:
    if wire is not None and wire.kind != "map":
        return _misfit(kind, wire)
    keys = maker(kind.key_type, None if wire is None else wire.keys, times)
    items = maker(kind.item_type, None if wire is None else wire.items, times)

    def make(values: Values) -> pa.Array:
        import pyarrow as pa

        ends, flat = _flattened(values, dict)
        pairs = [pair for value in values if value is not None for pair in value.items()]
        assert len(pairs) == len(flat)
        offsets = pa.array(ends, pa.int32())
        return pa.MapArray.from_arrays(
            offsets, keys([key for key, _ in pairs]), items([item for _, item in pairs])
        ).cast(kind)

    return make


def _flattened(
    values: Values, wanted: type[list[Any]] | type[dict[str, Any]]
) -> tuple[list[int | None], list[Any]]:
    """Return where each list begins, as Arrow takes it (None: no list), and all their items."""
    starts: list[int | None] = []
    flat: list[Any] = []
    for value in values:
        if value is None:
            starts.append(None)
            continue
        if not isinstance(value, wanted):
            raise Unreadable(f"found {type(value).__name__}, expected {wanted.__name__}")
        starts.append(len(flat))
        flat.extend(value)
    return [*starts, len(flat)], flat


def _of_structs(kind: pa.DataType, wire: Wire | None, times: Times) -> Maker:
    if wire is not None and wire.kind != "struct":
        return _misfit(kind, wire)
    makers = [
        (item, maker(item.type, None if wire is None else wire.fields.get(item.name), times))
        for item in kind
    ]

    def make(values: Values) -> pa.Array:
        import pyarrow as pa

        for value in values:
            if value is not None and not isinstance(value, dict):
                raise Unreadable(f"found {type(value).__name__}, expected an object")
        rows = [value or {} for value in values]
        return pa.StructArray.from_arrays(
            [make_one([row.get(item.name) for row in rows]) for item, make_one in makers],
            fields=[item for item, _ in makers],
            mask=pa.array([value is None for value in values], pa.bool_()),
        )

    return make
