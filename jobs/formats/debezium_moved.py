"""Rows under a new key: which key a row had before, as a header of its create says it.

Owns the header, the forms in which a connector writes it, and the text by which the control column
holds it. It is asked only for creates that lack values. Must never guess: what cannot be read is
no key.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from jobs.formats.debezium_json import ANY, Fields, JsonFront
from jobs.formats.debezium_types import BAD_VALUE, maker
from jobs.formats.decoded import Unreadable

if TYPE_CHECKING:
    import pyarrow as pa

    from jobs.formats.json_rows import Times
    from jobs.tasks.records import Records

HEADER = "__debezium.oldkey"
_OF_REGISTRY = b"\0"
"""How bytes begin that are in a registry's wire format."""


class KeyFront(Protocol):
    """Reads the bytes of a record's key."""

    def key(self, data: bytes) -> tuple[Mapping[str, Any], Fields]:
        """Return the key, and the types of its fields."""
        ...


class _Written(str):
    """A number with a fraction, digit for digit: a float would round it."""

    __slots__ = ()


def old_key(
    records: Records, place: int, front: KeyFront, schema: pa.Schema, times: Times
) -> str | None:
    """Return the key that a created row had before, as a JSON object of the table's columns.

    None where the record does not say it, or not in a form that is known. Connect's own converter
    of headers writes JSON without types whatever the form of the keys: the record's own key then
    tells the types, as both are of one table.
    """
    given = records.header(place, HEADER)
    if given is None:
        return None
    try:
        row, fields = _read(given, front)
        own = records.keys[place]
        if fields is ANY and own is not None:
            fields = front.key(own)[1]
        made = {
            name: _value(value, schema.field(name).type, fields, name, times)
            for name, value in row.items()
            if name in schema.names
        }
    except BAD_VALUE:
        return None
    if not made or None in made.values():
        return None
    return json.dumps(made, default=_as_text, ensure_ascii=False)


def _read(data: bytes, front: KeyFront) -> tuple[Mapping[str, Any], Fields]:
    if data.startswith(_OF_REGISTRY):
        return front.key(data)
    # Connect's converter leaves line breaks in texts as they are, which strict JSON forbids.
    document = json.loads(data, strict=False, parse_float=_Written)
    if isinstance(document, dict) and {"schema", "payload"} <= document.keys():
        return JsonFront().key(data)
    if not isinstance(document, dict):
        raise Unreadable("the old key is no JSON object")
    return document, ANY


def _value(value: Any, kind: pa.DataType, fields: Fields, name: str, times: Times) -> Any:
    """Return a value of the key as the table's column holds it."""
    from pyarrow import types

    wire = fields.types.get(name)
    if isinstance(value, _Written) and types.is_floating(kind):
        return float(value)
    plain = isinstance(value, _Written | int) and types.is_decimal(kind)
    if wire is not None and not plain:
        try:
            return maker(kind, wire, times)([value])[0].as_py()
        except BAD_VALUE:
            pass  # written as the header's converter does, and not as the key's
    return maker(kind, None, times)([str(value) if plain else value])[0].as_py()


def _as_text(value: Any) -> str:
    """Return what JSON has no form for, as Spark reads it from JSON."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
