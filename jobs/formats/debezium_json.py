"""Change events in JSON, with and without schemas: from bytes to documents and their types.

Owns the two forms in which Kafka Connect's JSON converter writes a record. A schema stands in
every record, ten times as long as the change itself: it is read once, and known again by its
bytes. Must never decide what a change means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from jobs.formats.debezium_envelope import Envelope, envelope_of
from jobs.formats.debezium_wires import Wire, wire_of
from jobs.formats.decoded import Unreadable

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMAS_MAX = 64
"""Schemas that are remembered at once; a topic has a new one after each change of its table."""
_PAYLOAD = b',"payload":'
_INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fields:
    """The types of a row's fields, as a schema says them."""

    types: Mapping[str, Wire] = field(default_factory=dict)


ANY = Fields()
"""Of records that say no types."""


class JsonFront:
    """Reads JSON; remembers the schemas that it has seen."""

    def __init__(self) -> None:
        self._values = _Schemas(row="after")
        self._keys = _Schemas(row=None)

    def change(self, data: bytes) -> tuple[Envelope, Fields]:
        """Read of a value what a change is made from: the rest is passed over.

        Raises:
            Unreadable: it is no JSON object.
        """
        return self._values.change(data)

    def key(self, data: bytes) -> tuple[dict[str, Any], Fields]:
        """Read a key.

        Raises:
            Unreadable: it is no JSON object.
        """
        return self._keys.read(data)


class _Bare(Envelope, kw_only=True):
    """An event that may stand in a record beside its schema."""

    payload: Any = msgspec.UNSET


_read_bare = msgspec.json.Decoder(_Bare).decode


class _Schemas:
    """What stands before the payload, and the types that it tells."""

    def __init__(self, *, row: str | None) -> None:
        self._row = row
        self._known: dict[bytes, Fields] = {}
        self._last: tuple[bytes, Fields] = (b"", ANY)

    def read(self, data: bytes) -> tuple[dict[str, Any], Fields]:
        import orjson

        try:
            payload, fields = self._behind_schema(data)
            if payload is not None:
                return _object(orjson.loads(payload)), fields
            document = _object(orjson.loads(data))
        except orjson.JSONDecodeError as problem:
            raise Unreadable(f"the record is no JSON: {problem}") from problem
        if "schema" in document and "payload" in document:
            return self._learnt(data, document)
        return document, ANY

    def change(self, data: bytes) -> tuple[Envelope, Fields]:
        try:
            payload, fields = self._behind_schema(data)
            if payload is not None:
                return _read_bare(payload), fields
            found = _read_bare(data)
            if found.payload is msgspec.UNSET:
                return found, ANY
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass  # what is wrong with it is said where it is read as a whole
        document, fields = self.read(data)
        return envelope_of(document), fields

    def _behind_schema(self, data: bytes) -> tuple[memoryview | None, Fields]:
        """Return the payload behind a schema that was seen before; None where there is none."""
        if not data.startswith(b'{"schema":'):
            return None, ANY
        prefix, fields = self._last
        if not prefix or not data.startswith(prefix):
            prefix, fields = self._seen(data)
        return (memoryview(data)[len(prefix) : -1] if prefix else None), fields

    def _seen(self, data: bytes) -> tuple[bytes, Fields]:
        for prefix, fields in self._known.items():
            if data.startswith(prefix):
                self._last = (prefix, fields)
                return self._last
        return b"", ANY

    def _learnt(self, data: bytes, document: dict[str, Any]) -> tuple[dict[str, Any], Fields]:
        import orjson

        payload = _object(document["payload"])
        if document["schema"] is None:
            return payload, ANY
        whole = wire_of(document["schema"])
        if self._row is None:
            fields = Fields(types=whole.fields)
        else:
            row = whole.fields.get(self._row)
            fields = Fields(types={} if row is None else row.fields)
        end = data.find(_PAYLOAD) + len(_PAYLOAD)
        try:
            alone = orjson.loads(data[:end] + b"null}") == {**document, "payload": None}
        except orjson.JSONDecodeError:
            alone = False
        # Only where what stands before the payload is the schema and nothing else.
        if alone and len(document) == len({"schema", "payload"}):
            if len(self._known) >= SCHEMAS_MAX:
                self._known.pop(next(iter(self._known)))
            self._known[data[:end]] = fields
            self._last = (data[:end], fields)
        return payload, fields


def inferred(values: Iterable[Any]) -> pa.DataType | None:
    """Return the type of a column for values that were seen; None where all are null."""
    import pyarrow as pa

    found: pa.DataType | None = None
    for value in values:
        kind = _type_of(value)
        if kind is None or kind == found:
            continue
        if found is None:
            found = kind
        elif {found, kind} == {pa.int64(), pa.float64()}:
            found = pa.float64()
        else:
            return pa.string()
    return found


def _type_of(value: Any) -> pa.DataType | None:
    import pyarrow as pa

    match value:
        case None:
            return None
        case bool():
            return pa.bool_()
        case int():
            return pa.int64() if abs(value) <= _INT64_MAX else pa.decimal128(38, 0)
        case float():
            return pa.float64()
        case list():
            return pa.list_(inferred(value) or pa.string())
        case dict():
            return pa.struct(
                [(name, _type_of(item) or pa.string()) for name, item in value.items()]
            )
        case _:
            return pa.string()


def _object(found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise Unreadable("the record is no JSON object")
    return found
