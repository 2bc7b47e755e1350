"""Columns of a file in the shape of the table: by field id, promoted, defaults filled in.

Owns schema evolution for what is read. A column is found by its id alone, at every depth, so a
renamed one keeps its values and one that was dropped and added anew does not get them back. Must
never lose a null: an absent list is not an empty one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
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
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from odi_audit.errors import NotSupported, StorageError

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

_PLAIN: dict[type[IcebergType], pa.DataType] = {
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    DateType: pa.date32(),
    TimeType: pa.time64("us"),
    TimestampType: pa.timestamp("us"),
    TimestamptzType: pa.timestamp("us", "UTC"),
    TimestampNanoType: pa.timestamp("ns"),
    TimestamptzNanoType: pa.timestamp("ns", "UTC"),
    StringType: pa.string(),
    BinaryType: pa.binary(),
    UUIDType: pa.uuid(),
    UnknownType: pa.null(),
}


def arrow_type(kind: IcebergType) -> pa.DataType:
    """Return the one Arrow type that a type of the table is read as."""
    match kind:
        case StructType():
            return pa.struct([_arrow_field(part) for part in kind.fields])
        case ListType():
            return pa.list_(_arrow_field(kind.element_field))
        case MapType():
            return pa.map_(_arrow_field(kind.key_field), _arrow_field(kind.value_field))
        case DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case FixedType():
            return pa.binary(len(kind))
    if type(kind) not in _PLAIN:
        raise NotSupported(f"columns of type {kind} cannot be read here")
    return _PLAIN[type(kind)]


def project(
    columns: Mapping[str, pa.Array],
    rows_count: int,
    have: Schema,
    want: Schema,
    constants: Mapping[int, object],
) -> list[pa.Array]:
    """Return the columns of ``want`` out of those of a file with the schema ``have``, in order.

    ``constants`` are the values of columns that the file leaves to its partition.
    """
    stored = {part.field_id: part for part in have.fields}
    made = []
    for part in want.fields:
        found = stored.get(part.field_id)
        if found is None:
            made.append(_absent(part, rows_count, constants))
        else:
            made.append(_shaped(columns[found.name], found.field_type, part.field_type))
    return made


def leaves(parts: Sequence[NestedField], columns: Sequence[pa.Array]) -> dict[int, pa.Array]:
    """Return columns and the fields of structs in them, by field id; a null struct's are null."""
    made: dict[int, pa.Array] = {}
    for part, column in zip(parts, columns, strict=True):
        made[part.field_id] = column
        if isinstance(part.field_type, StructType):
            inner = part.field_type.fields
            made |= leaves(inner, [pc.struct_field(column, place) for place in range(len(inner))])
    return made


def _arrow_field(part: NestedField) -> pa.Field:
    return pa.field(part.name, arrow_type(part.field_type), nullable=not part.required)


def _absent(part: NestedField, count: int, constants: Mapping[int, object]) -> pa.Array:
    value = constants.get(part.field_id, part.initial_default)
    if value is None and part.required:
        raise StorageError(f"a file lacks the required column {part.name}, which has no default")
    kind = arrow_type(part.field_type)
    return pa.repeat(pa.scalar(value, kind), count)


def _shaped(array: pa.Array, have: IcebergType, want: IcebergType) -> pa.Array:
    match have, want:
        case StructType(), StructType():
            return _struct(array, have, want)
        case ListType(), ListType():
            whole = _whole(array)
            values = _shaped(whole.values, have.element_type, want.element_type)
            return pa.ListArray.from_arrays(
                whole.offsets, values, type=arrow_type(want), mask=whole.is_null()
            )
        case MapType(), MapType():
            whole = _whole(array)
            keys = _shaped(whole.keys, have.key_type, want.key_type)
            items = _shaped(whole.items, have.value_type, want.value_type)
            return pa.MapArray.from_arrays(
                whole.offsets, keys, items, type=arrow_type(want), mask=whole.is_null()
            )
    return _cast(array, arrow_type(want))


def _struct(array: pa.Array, have: StructType, want: StructType) -> pa.Array:
    places = {part.field_id: place for place, part in enumerate(have.fields)}
    children = []
    for part in want.fields:
        place = places.get(part.field_id)
        if place is None:
            children.append(_absent(part, len(array), {}))
        else:
            stored = have.fields[place]
            children.append(_shaped(array.field(place), stored.field_type, part.field_type))
    return pa.StructArray.from_arrays(children, fields=list(arrow_type(want)), mask=array.is_null())


def _whole(array: pa.Array) -> pa.Array:
    # A slice shares its children with the rest: `values` and `keys` would be everybody's.
    return array.take(pa.arange(0, len(array))) if array.offset else array


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if isinstance(kind, pa.ExtensionType):
        return pa.ExtensionArray.from_storage(kind, array.cast(kind.storage_type))
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(array.type):
        # Finer units than the table's own come from other writers; the table's type wins.
        return array.cast(kind, safe=False)
    return array.cast(kind)
