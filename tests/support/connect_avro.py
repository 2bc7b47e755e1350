"""Records as Kafka Connect's Avro converter writes them, made from its JSON with schemas.

The converter itself is in no registry; its rules are short: a struct is a record, an optional field
a union with null, and Connect's own types stand beside Avro's.
"""

from __future__ import annotations

import base64
import io
from typing import Any

import fastavro

_PLAIN = {
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "float32": "float",
    "double": "double",
    "float64": "double",
    "boolean": "boolean",
    "string": "string",
    "bytes": "bytes",
}
_DATA = "org.apache.kafka.connect.data."
_LOGICAL = {
    _DATA + "Decimal": "decimal",
    _DATA + "Date": "date",
    _DATA + "Time": "time-millis",
    _DATA + "Timestamp": "timestamp-millis",
}


def avro_schema(connect: dict[str, Any]) -> Any:
    """Return the Avro schema of a schema of Connect."""
    return _schema(connect, set())


def _schema(connect: dict[str, Any], defined: set[str]) -> Any:
    kind, name = connect["type"], connect.get("name")
    made: dict[str, Any]
    if kind == "struct":
        if name in defined:
            return _maybe(connect, name)
        defined.add(name)
        made = {"type": "record", "name": name, "connect.name": name}
        made["fields"] = [
            {"name": item["field"], "type": _schema(item, defined)} for item in connect["fields"]
        ]
        return _maybe(connect, made)
    if kind == "array":
        return _maybe(connect, {"type": "array", "items": _schema(connect["items"], defined)})
    if kind == "map":
        return _maybe(connect, {"type": "map", "values": _schema(connect["values"], defined)})
    made = {"type": _PLAIN[kind]}
    if kind in {"int8", "int16"}:
        made["connect.type"] = kind
    if name is not None:
        made |= {"connect.version": connect.get("version", 1), "connect.name": name}
    parameters = connect.get("parameters")
    if parameters:
        made["connect.parameters"] = parameters
    if name in _LOGICAL:
        made["logicalType"] = _LOGICAL[name]
    if name == _DATA + "Decimal":
        made["scale"] = int(parameters["scale"])
        made["precision"] = int(parameters.get("connect.decimal.precision", 64))
    return _maybe(connect, made if len(made) > 1 else made["type"])


def _maybe(connect: dict[str, Any], made: Any) -> Any:
    return ["null", made] if connect.get("optional") else made


def on_the_wire(number: int, connect: dict[str, Any], payload: Any) -> bytes:
    """Return a record of Connect in the registry's wire format, under the schema of an id."""
    out = io.BytesIO()
    schema = fastavro.parse_schema(_without_logical(avro_schema(connect)))
    fastavro.schemaless_writer(out, schema, _value(connect, payload))
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


def _value(connect: dict[str, Any], value: Any) -> Any:
    if value is None:
        return None
    if connect["type"] == "bytes":
        return base64.b64decode(value)
    if connect["type"] == "struct":
        return {item["field"]: _value(item, value.get(item["field"])) for item in connect["fields"]}
    if connect["type"] == "array":
        return [_value(connect["items"], item) for item in value]
    if connect["type"] == "map":
        return {key: _value(connect["values"], item) for key, item in value.items()}
    return value


def _without_logical(given: Any) -> Any:
    # The writer is given what goes on the wire, not dates and decimals of Python.
    if isinstance(given, list):
        return [_without_logical(item) for item in given]
    if isinstance(given, dict):
        return {key: _without_logical(item) for key, item in given.items() if key != "logicalType"}
    return given
