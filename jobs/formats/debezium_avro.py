"""Change events in Avro, in a registry's wire format, as Kafka Connect's converter writes them.

Owns the step from bytes to documents and their types, for values and keys, many at once. Connect's
own types stand in the schema beside Avro's (``connect.name``). Must never decide what a change
means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from jobs.formats import avro_columns
from jobs.formats.avro_rows import Schemas
from jobs.formats.avro_schema import AvroType
from jobs.formats.avro_wire import by_schema
from jobs.formats.debezium_envelope import Envelope, envelope_of
from jobs.formats.debezium_json import Fields
from jobs.formats.debezium_wires import DECIMAL, Wire, is_known
from jobs.formats.decoded import Unreadable

if TYPE_CHECKING:
    import pyarrow as pa

Row: TypeAlias = Mapping[str, Any]
ReadKey: TypeAlias = Callable[[bytes], tuple[Row, Fields]]

_PLAIN = {
    "int": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "fixed": "bytes",
    "enum": "string",
    "record": "struct",
}
_COMPARED = frozenset({"int", "long", "boolean", "string", "enum"})
_LOGICAL = {
    "decimal": DECIMAL,
    "date": "org.apache.kafka.connect.data.Date",
    "time-millis": "org.apache.kafka.connect.data.Time",
    "time-micros": "io.debezium.time.MicroTime",
    "timestamp-millis": "org.apache.kafka.connect.data.Timestamp",
    "timestamp-micros": "io.debezium.time.MicroTimestamp",
    "timestamp-nanos": "io.debezium.time.NanoTimestamp",
    "local-timestamp-millis": "org.apache.kafka.connect.data.Timestamp",
    "local-timestamp-micros": "io.debezium.time.MicroTimestamp",
    "local-timestamp-nanos": "io.debezium.time.NanoTimestamp",
}
"""Connect's types for Avro's own, where a schema does not name Connect's."""


class AvroFront:
    """Reads Avro; remembers the schemas that it has seen, and which it has used.

    ``keys`` reads keys, where they are not in Avro.
    """

    def __init__(self, schemas: Schemas, *, keys: ReadKey | None = None) -> None:
        self._values = _Side(schemas, row="after", skipped=frozenset({"before"}))
        self._keys = _Side(schemas, row=None)
        self._other_keys = keys

    def load(self, values: Sequence[bytes | None], keys: Sequence[bytes | None]) -> None:
        """Read many records at once; what was read before is forgotten."""
        self._values.load(values)
        if self._other_keys is None:
            self._keys.load(keys)

    def change(self, data: bytes) -> tuple[Envelope, Fields]:
        """Return of a value what a change is made from.

        Raises:
            Unreadable: it is no record in the wire format, or not one of its schema.
        """
        document, fields = self._values.read(data)
        return envelope_of(document), fields

    def key(self, data: bytes) -> tuple[Row, Fields]:
        """Return a key.

        Raises:
            Unreadable: it is no record in the wire format, or not one of its schema.
        """
        return (self._other_keys or self._keys.read)(data)

    def used(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the ids of the schemas of values, and of keys, that were read last."""
        return tuple(sorted(self._values.used)), tuple(sorted(self._keys.used))


class _Side:
    """Values or keys: what has been read of them, by their bytes."""

    def __init__(
        self, schemas: Schemas, *, row: str | None, skipped: frozenset[str] = frozenset()
    ) -> None:
        self._schemas = schemas
        self._row = row
        self._skipped = skipped
        self._known: dict[int, _Known | str] = {}
        self._read: dict[bytes, tuple[Row, Fields] | str] = {}
        self.used: set[int] = set()

    def read(self, data: bytes) -> tuple[Row, Fields]:
        found = self._read.get(data)
        if found is None:
            self._take([data])
            found = self._read[data]
        if isinstance(found, str):
            raise Unreadable(found)
        return found

    def load(self, values: Sequence[bytes | None]) -> None:
        self._read, self.used = {}, set()
        # The same key comes again and again.
        self._take(list(dict.fromkeys(value for value in values if value is not None)))

    def _take(self, values: Sequence[bytes]) -> None:
        bad: dict[int, str] = {}
        for number, cursor in by_schema(values, bad):
            known = self._known.get(number)
            if known is None:
                known = self._known[number] = self._learnt(number)
            if isinstance(known, str):
                bad |= dict.fromkeys(cursor.owner.to_pylist(), known)
                continue
            self.used.add(number)
            columns = avro_columns.fields(known.kind, cursor)
            broken = avro_columns.broken(cursor)
            bad |= broken
            rows = _rows(known.kind.fields, columns, len(cursor), self._skipped)
            for place, row in zip(cursor.owner.to_pylist(), rows, strict=True):
                if place not in broken:
                    self._read[values[place]] = (row, known.fields)
        for place, reason in bad.items():
            self._read[values[place]] = reason

    def _learnt(self, number: int) -> _Known | str:
        """Return how records of a schema are read, or why they cannot be."""
        try:
            whole = self._schemas(number)
        except Unreadable as problem:
            return f"schema {number}: {problem}"
        if whole.kind != "record":
            return f"schema {number} is no record but a {whole}"
        types = {name: wire_of_avro(inner) for name, inner in whole.fields}
        if self._row is not None:
            types = dict(types[self._row].fields) if self._row in types else {}
        return _Known(kind=as_written(whole), fields=Fields(types=types))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A schema that was read, without logical types, and the types of a row's fields."""

    kind: AvroType
    fields: Fields


def wire_of_avro(kind: AvroType) -> Wire:
    """Return Connect's type for a type of Avro."""
    if kind.kind == "optional":
        assert kind.items is not None
        return wire_of_avro(kind.items)
    connect = kind.connect
    logical = connect.get("connect.name") or _LOGICAL.get(kind.logical or "")
    if kind.kind == "record" and not is_known(str(logical or kind.name)):
        logical = None  # the name of the table
    elif kind.kind == "record":
        logical = logical or kind.name
    parameters = dict(connect.get("connect.parameters") or {})
    if kind.logical == "decimal":
        parameters.setdefault("scale", str(kind.scale))
        parameters.setdefault("connect.decimal.precision", str(kind.precision))
    return Wire(
        kind=str(connect.get("connect.type") or _PLAIN.get(kind.kind, kind.kind)),
        logical=None if logical is None else str(logical),
        parameters=parameters,
        items=None if kind.items is None else wire_of_avro(kind.items),
        keys=Wire(kind="string") if kind.kind == "map" else None,
        fields={name: wire_of_avro(inner) for name, inner in kind.fields},
    )


def as_written(kind: AvroType) -> AvroType:
    """Return a type whose values come as they are on the wire: numbers, bytes, texts."""
    return replace(
        kind,
        logical=None,
        items=None if kind.items is None else as_written(kind.items),
        fields=tuple((name, as_written(inner)) for name, inner in kind.fields),
        branches=tuple(as_written(inner) for inner in kind.branches),
    )


def _rows(
    fields: Sequence[tuple[str, AvroType]],
    columns: Mapping[str, pa.Array],
    count: int,
    skipped: frozenset[str] = frozenset(),
) -> list[dict[str, Any]]:
    kept = [(name, inner) for name, inner in fields if name not in skipped]
    if not kept:
        return [{} for _ in range(count)]
    names = [name for name, _ in kept]
    values = [_values(inner, columns[name]) for name, inner in kept]
    return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]


def _plain_values(kind: AvroType, column: pa.Array) -> list[Any]:
    import pyarrow.compute as pc

    # Most of what an event says of its source is the same in all of them.
    if kind.kind in _COMPARED and not column.null_count:
        first = column[0]
        if pc.all(pc.equal(column, first)).as_py():
            return [first.as_py()] * len(column)
    return list(column.to_pylist())


def _values(kind: AvroType, column: pa.Array) -> list[Any]:
    """Return a column as the values that a parser of documents would give."""
    if column.null_count == len(column):
        return [None] * len(column)
    if kind.kind == "optional":
        assert kind.items is not None
        return _values(kind.items, column)
    if kind.kind == "map":
        return [None if value is None else dict(value) for value in column.to_pylist()]
    if kind.kind != "record":
        return _plain_values(kind, column)
    parts = {name: column.field(place) for place, (name, _) in enumerate(kind.fields)}
    rows: list[Any] = _rows(kind.fields, parts, len(column))
    if column.null_count:
        present = column.is_valid().to_pylist()
        rows = [row if there else None for row, there in zip(rows, present, strict=True)]
    return rows
