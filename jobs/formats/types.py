"""Arrow's types: what kind each is, and what a column of it is called in a table.

Owns the one translation into Spark's words. Must never name a type that Iceberg does not have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from odi_audit.model.tables import quote

if TYPE_CHECKING:
    import pyarrow as pa

_NUMBERS = ("int", "bigint", "float", "double")
"""Of records that show several of these, the last holds them all."""
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


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


def together(samples: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return the columns that samples of records show, each with the type that holds them all.

    Of two types of which neither holds the other the first one stays: what is of the other does
    not fit, and is told apart record by record.
    """
    found: dict[str, str] = {}
    for sample in samples:
        for name, kind in sample.items():
            found[name] = wider_of(found[name], kind) if name in found else kind
    return found


def wider_of(one: str, other: str) -> str:
    """Return which of two types in Spark's words holds the values of both; else the first."""
    if one in _NUMBERS and other in _NUMBERS:
        return max(one, other, key=_NUMBERS.index)
    first, second = _DECIMAL.fullmatch(one), _DECIMAL.fullmatch(other)
    if first and second and first[2] == second[2]:
        return max(one, other, key=lambda kind: int(kind[8:].partition(",")[0]))
    return one


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
