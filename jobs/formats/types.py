"""Arrow's types: what kind each is, and what a column of it is called in a table.

Owns the one translation into Spark's words. Must never name a type that Iceberg does not have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odi_audit.model.tables import quote

if TYPE_CHECKING:
    import pyarrow as pa


def spark_type(kind: pa.DataType) -> str:
    """Return a type as Spark's DDL writes it; what is not known becomes a text."""
    import pyarrow as pa

    types = pa.types
    if types.is_boolean(kind):
        return "boolean"
    if types.is_integer(kind):
        return "int" if kind.bit_width < 64 and not types.is_uint32(kind) else "bigint"
    if types.is_floating(kind):
        return "float" if kind.bit_width == 32 else "double"
    if types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if types.is_date(kind):
        return "date"
    if types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if types.is_binary(kind) or types.is_large_binary(kind):
        return "binary"
    if types.is_list(kind) or types.is_large_list(kind):
        return f"array<{spark_type(kind.value_type)}>"
    if types.is_map(kind):
        return f"map<{spark_type(kind.key_type)}, {spark_type(kind.item_type)}>"
    if types.is_struct(kind) and kind.num_fields:
        fields = ", ".join(f"{quote(item.name)}: {spark_type(item.type)}" for item in kind)
        return f"struct<{fields}>"
    return "string"


def is_text(kind: pa.DataType) -> bool:
    """Say whether a column holds texts."""
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Say whether a column holds bytes."""
    from pyarrow import types

    sized = types.is_fixed_size_binary(kind)
    return bool(sized or types.is_binary(kind) or types.is_large_binary(kind))


def is_list(kind: pa.DataType) -> bool:
    """Say whether a column holds lists."""
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind))
