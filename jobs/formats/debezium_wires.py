"""Types of Kafka Connect: what a field of a change event is, as its schema says it.

Owns the logical types of Connect and of Debezium, and the column that each becomes where a table
is made or gets a column. Must never look at a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jobs.formats.decoded import Unreadable

if TYPE_CHECKING:
    import pyarrow as pa

_CONNECT = "org.apache.kafka.connect.data."
_TIME = "io.debezium.time."
_DATA = "io.debezium.data."
DECIMAL = _CONNECT + "Decimal"
ANY_SCALE = _DATA + "VariableScaleDecimal"
DATES = {_CONNECT + "Date", _TIME + "Date"}
MOMENTS = {
    _CONNECT + "Timestamp": "ms",
    _TIME + "Timestamp": "ms",
    _TIME + "MicroTimestamp": "us",
    _TIME + "NanoTimestamp": "ns",
}
"""Wall clock times as numbers since 1970, as if in UTC."""
ZONED = _TIME + "ZonedTimestamp"
TIMES = {
    _CONNECT + "Time": "ms",
    _TIME + "Time": "ms",
    _TIME + "MicroTime": "us",
    _TIME + "NanoTime": "ns",
}
"""Times of day as numbers since midnight."""
_DIGITS_MAX = 38
_SCALE_OF_ANY = 18
"""Digits behind the point where the source fixes none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """The type of a field in a record: Connect's type, and the logical type over it."""

    kind: str
    logical: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    items: Wire | None = None
    keys: Wire | None = None
    fields: Mapping[str, Wire] = field(default_factory=dict)

    def __str__(self) -> str:
        """Name it as messages do."""
        return self.kind if self.logical is None else f"{self.kind} ({self.logical})"


def wire_of(schema: Mapping[str, Any]) -> Wire:
    """Read a schema as Connect's JSON converter writes it.

    Raises:
        Unreadable: it has not that form.
    """
    try:
        kind = schema["type"]
        return Wire(
            kind=str(kind),
            logical=schema.get("name")
            if kind != "struct" or is_known(str(schema.get("name")))
            else None,
            parameters=schema.get("parameters") or {},
            items=wire_of(schema["items" if kind == "array" else "values"])
            if kind in {"array", "map"}
            else None,
            keys=wire_of(schema["keys"]) if kind == "map" else None,
            fields={item["field"]: wire_of(item) for item in schema["fields"]}
            if kind == "struct"
            else {},
        )
    except (KeyError, TypeError, AttributeError) as problem:
        raise Unreadable("the record's schema is not one of Kafka Connect") from problem


def suggested(wire: Wire) -> pa.DataType:
    """Return the type of a column that holds every value of a field."""
    import pyarrow as pa

    if wire.logical == DECIMAL:
        digits = int(wire.parameters.get("connect.decimal.precision", _DIGITS_MAX))
        return pa.decimal128(min(digits, _DIGITS_MAX), int(wire.parameters.get("scale", 0)))
    if wire.logical == ANY_SCALE:
        return pa.decimal128(_DIGITS_MAX, _SCALE_OF_ANY)
    if wire.logical in DATES:
        return pa.date32()
    if wire.logical in MOMENTS:
        return pa.timestamp("us")
    if wire.logical == ZONED:
        return pa.timestamp("us", tz="UTC")
    if wire.logical in TIMES:
        return pa.string()
    if wire.items is not None and wire.keys is not None:
        return pa.map_(suggested(wire.keys), suggested(wire.items))
    if wire.items is not None:
        return pa.list_(suggested(wire.items))
    if wire.kind == "struct":
        return pa.struct([(name, suggested(inner)) for name, inner in wire.fields.items()])
    return _plain_type(wire.kind)


def is_known(name: str) -> bool:
    """Say whether the name of a struct means a logical type: a table's own has the table's name."""
    return name.startswith(_DATA)


def _plain_type(kind: str) -> pa.DataType:
    import pyarrow as pa

    return {
        "boolean": pa.bool_(),
        "int8": pa.int32(),
        "int16": pa.int32(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "float": pa.float32(),
        "float32": pa.float32(),
        "double": pa.float64(),
        "float64": pa.float64(),
        "bytes": pa.binary(),
    }.get(kind, pa.string())
