"""Avro values in the columns of a table: which type fits which column.

Owns the conversions, all of which keep the value: what would be cut, rounded or read in another
sense is a misfit with its reason. Must never look at bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from jobs.formats.avro_schema import DIGITS_MAX, AvroType, members, natural, promoted, suggested
from jobs.formats.decoded import Unreadable
from jobs.formats.types import is_bytes, is_list, is_text

if TYPE_CHECKING:
    import pyarrow as pa

Fit: TypeAlias = Callable[["pa.Array"], "pa.Array"]
MISFIT = (ValueError, Unreadable)
"""What a conversion raises where a value does not fit; Arrow's own errors are among them."""


def fitting(source: AvroType, kind: pa.DataType) -> Fit:
    """Return what puts values of a type into a column.

    Raises:
        Unreadable: no value of the type fits the column.
    """
    from pyarrow import types

    if source.kind == "optional":
        assert source.items is not None
        return fitting(source.items, kind)
    if source.kind == "null":
        return _nulls(kind)
    if types.is_struct(kind):
        return _structs(source, kind)
    if is_list(kind):
        return _lists(source, kind)
    if types.is_map(kind):
        return _maps(source, kind)
    made = _leaf(natural(source), kind)
    if made is None:
        raise Unreadable(f"{source} does not fit a column of type {kind}")
    return made


def lacking(
    found: Iterable[tuple[str, AvroType]], known: Iterable[pa.Field], prefix: str = ""
) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the fields that records hold and a table does not, also inside of columns."""
    from pyarrow import types

    columns = {item.name: item.type for item in known}
    for name, source in found:
        kind, inner = columns.get(name), _bare(source)
        if kind is None:
            wanted = suggested(source)
            if wanted is not None:
                yield prefix + name, wanted
            continue
        while is_list(kind) or types.is_map(kind):
            if inner.kind != ("map" if types.is_map(kind) else "array") or inner.items is None:
                break
            kind = kind.item_type if types.is_map(kind) else kind.value_type
            inner = _bare(inner.items)
        if types.is_struct(kind) and (parts := _parts(inner)):
            yield from lacking(parts, kind, f"{prefix}{name}.")


def widened(source: AvroType, kind: pa.DataType, values: pa.Array) -> pa.DataType | None:
    """Return the type to which a column can be widened so that values fit it; None: to none."""
    import pyarrow as pa

    wider: list[pa.DataType] = []
    if pa.types.is_int32(kind):
        wider = [pa.int64()]
    elif pa.types.is_float32(kind):
        wider = [pa.float64()]
    elif pa.types.is_decimal(kind):
        # A table can get more digits before the point, none behind it.
        digits = range(kind.precision + 1, DIGITS_MAX + 1)
        wider = [pa.decimal128(count, kind.scale) for count in digits]
    for other in wider:
        try:
            fitting(source, other)(values)
        except MISFIT:
            continue
        return other
    return None


def _bare(source: AvroType) -> AvroType:
    return source.items if source.kind == "optional" and source.items is not None else source


def _parts(source: AvroType) -> tuple[tuple[str, AvroType], ...]:
    """Return the fields of a type that is read as a struct."""
    if source.kind == "union" and promoted(source) is None:
        return members(source)
    return source.fields


# -- single values ---------------------------------------------------------------------------------


def _leaf(base: pa.DataType, kind: pa.DataType) -> Fit | None:
    from pyarrow import types

    if types.is_integer(base):
        if types.is_decimal(kind):
            return lambda values: _cast(_cast(values, _decimal(kind.scale)), kind)
        return _to(kind) if types.is_integer(kind) or types.is_floating(kind) else None
    if types.is_floating(base):
        if types.is_float32(kind) and types.is_float64(base):
            return lambda values: _halved(values, kind)
        return _to(kind) if types.is_floating(kind) else None
    if types.is_timestamp(base):
        if types.is_int64(kind) and base.unit == "ns":
            return _to(kind)  # the number itself
        same = types.is_timestamp(kind) and (kind.tz is None) == (base.tz is None)
        return _to(kind) if same else None
    if types.is_time(base):
        if is_text(kind):
            return _texts_of_times(kind)
        return _to(kind) if types.is_time(kind) else None
    for holds, allowed in (
        (types.is_boolean, types.is_boolean),
        (types.is_decimal, types.is_decimal),
        (types.is_date, types.is_date),
        (is_bytes, is_bytes),
        (is_text, lambda to: is_text(to) or types.is_date(to) or types.is_timestamp(to)),
    ):
        if holds(base):
            return _to(kind) if allowed(kind) else None
    return None


def _to(kind: pa.DataType) -> Fit:
    return lambda values: _cast(values, kind)


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values if values.type == kind else values.cast(kind)


def _decimal(scale: int) -> pa.DataType:
    import pyarrow as pa

    return pa.decimal128(DIGITS_MAX, scale)


def _halved(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Put doubles into a column of floats where they are the same numbers."""
    import pyarrow.compute as pc

    made = values.cast(kind)
    same = pc.or_(pc.equal(made.cast(values.type), values), pc.is_nan(values))
    if not pc.all(same, min_count=0).as_py():
        raise Unreadable("a double has more digits than a float column holds")
    return made


def _texts_of_times(kind: pa.DataType) -> Fit:
    import pyarrow as pa

    return lambda values: values.cast(pa.time64("us")).cast(kind)


def _nulls(kind: pa.DataType) -> Fit:
    import pyarrow as pa

    return lambda values: pa.nulls(len(values), kind)


# -- values made of others -------------------------------------------------------------------------


def _structs(source: AvroType, kind: pa.DataType) -> Fit:
    import pyarrow as pa
    import pyarrow.compute as pc

    parts = dict(_parts(source))
    if source.kind not in {"record", "union"} or (source.kind == "union" and not parts):
        raise Unreadable(f"{source} does not fit a column of type {kind}")
    fits = [
        (item, fitting(parts[item.name], item.type) if item.name in parts else None)
        for item in kind
    ]

    def fit(values: pa.Array) -> pa.Array:
        absent = values.is_null()
        made = []
        for item, one in fits:
            column = (
                pa.nulls(len(values), item.type)
                if one is None
                else one(pc.struct_field(values, [item.name]))
            )
            _check_nulls(item, column, absent)
            made.append(column)
        return pa.StructArray.from_arrays(made, fields=list(kind), mask=absent)

    return fit


def _lists(source: AvroType, kind: pa.DataType) -> Fit:
    import pyarrow as pa

    if source.kind != "array" or source.items is None:
        raise Unreadable(f"{source} does not fit a column of type {kind}")
    one = fitting(source.items, kind.value_type)
    make = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray

    def fit(values: pa.Array) -> pa.Array:
        items = one(values.flatten())
        _check_nulls(kind.value_field, items)
        whole = "int64" if pa.types.is_large_list(kind) else "int32"
        offsets = _offsets(values).cast(whole)
        return make.from_arrays(offsets, items, type=kind, mask=values.is_null())

    return fit


def _maps(source: AvroType, kind: pa.DataType) -> Fit:
    import pyarrow as pa

    if source.kind != "map" or source.items is None or not is_text(kind.key_type):
        raise Unreadable(f"{source} does not fit a column of type {kind}")
    one = fitting(source.items, kind.item_type)

    def fit(values: pa.Array) -> pa.Array:
        # A slice's children are those of the whole: take it out of there first.
        own = values.take(pa.arange(0, len(values)))
        items = one(own.items)
        _check_nulls(kind.item_field, items)
        return pa.MapArray.from_arrays(
            own.offsets,
            own.keys.cast(kind.key_type),
            items,
            type=kind,
            mask=own.is_null(),
        )

    return fit


def _offsets(values: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    sizes = pc.list_value_length(values).fill_null(0).cast("int64")
    return pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(sizes)])


def _check_nulls(item: pa.Field, column: pa.Array, absent: pa.Array | None = None) -> None:
    import pyarrow.compute as pc

    if item.nullable or not column.null_count:
        return
    empty = column.is_null()
    if absent is None or pc.any(pc.and_not(empty, absent)).as_py():
        raise Unreadable(f"{item.name} is required, and is null")
