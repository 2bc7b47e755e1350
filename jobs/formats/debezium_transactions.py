"""What change events and marks say of their transactions, and nothing else of them.

Owns the cheap reading that a cut at transactions needs: rows are passed over, in JSON by the
parser, in Avro by the columns that are never made into values. Must never decide where to cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from jobs.formats import avro_columns
from jobs.formats.avro_rows import Schemas
from jobs.formats.avro_wire import by_schema
from jobs.formats.debezium_avro import as_written
from jobs.formats.decoded import Unreadable

if TYPE_CHECKING:
    import pyarrow as pa

    from jobs.formats.avro_schema import AvroType


class About(msgspec.Struct, kw_only=True, gc=False):
    """The transaction of a change, and which of its table's changes in it this one is."""

    id: Any = None
    data_collection_order: Any = None


class Origin(msgspec.Struct, kw_only=True, gc=False):
    """The table of a change, and where it lies in the log."""

    schema: Any = None
    db: Any = None
    table: Any = None
    lsn: Any = None


class Collection(msgspec.Struct, kw_only=True, gc=False):
    """How many changes a transaction has in one table."""

    data_collection: str
    event_count: int


class Told(msgspec.Struct, kw_only=True):
    """A record: a change with its transaction, or a mark with its status; or neither."""

    transaction: About | None = None
    source: Origin | None = None
    status: Any = None
    id: Any = None
    data_collections: list[Collection] | None = None


class _Framed(Told, kw_only=True):
    """A record that may stand beside its schema."""

    payload: Told | None | msgspec.UnsetType = msgspec.UNSET


Tell: TypeAlias = Callable[[Sequence[bytes | None]], list[Told | None]]
"""Reads values, many at once; None: it cannot be read."""

NOTHING = Told()
"""Of a tombstone."""

_read_json = msgspec.json.Decoder(_Framed).decode


def from_json(values: Sequence[bytes | None]) -> list[Told | None]:
    """Read values in JSON, with and without schemas."""
    return [NOTHING if value is None else _of_json(value) for value in values]


def _of_json(value: bytes) -> Told | None:
    try:
        found = _read_json(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    payload = found.payload
    return found if payload is msgspec.UNSET else payload


class FromAvro:
    """Reads values in Avro, in a registry's wire format; remembers schemas."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self._known: dict[int, AvroType] = {}

    def __call__(self, values: Sequence[bytes | None]) -> list[Told | None]:
        """Read values.

        Raises:
            SourceUnavailable, SourceDenied: a schema is needed, and the registry does not give it.
        """
        found: list[Told | None] = [NOTHING if value is None else None for value in values]
        for number, cursor in by_schema(values, {}):
            kind = self._kind(number)
            if kind is None:
                continue
            columns = avro_columns.fields(kind, cursor)
            broken = avro_columns.broken(cursor)
            told = _told(columns, len(cursor))
            for place, one in zip(cursor.owner.to_pylist(), told, strict=True):
                if place not in broken:
                    found[place] = one
        return found

    def _kind(self, number: int) -> AvroType | None:
        # What is not known is asked for again: a schema may come late to the registry.
        if number not in self._known:
            try:
                whole = self._schemas(number)
            except Unreadable:
                return None
            if whole.kind != "record":
                return None
            self._known[number] = as_written(whole)
        return self._known[number]


def _told(columns: Mapping[str, pa.Array], count: int) -> Iterator[Told | None]:
    abouts = _structs(columns, "transaction", ("id", "data_collection_order"), count)
    origins = _structs(columns, "source", Origin.__struct_fields__, count)
    known: dict[Any, Origin | None] = {None: None}
    marks = [_plain(columns, name, count) for name in ("status", "id", "data_collections")]
    for about, origin, status, one, tables in zip(abouts, origins, *marks, strict=True):
        if origin not in known:
            known[origin] = _origin(origin)
        counts = None
        if tables is not None:
            try:
                counts = msgspec.convert(tables, list[Collection])
            except msgspec.ValidationError:
                yield None
                continue
        yield Told(
            transaction=about and About(id=about[0], data_collection_order=about[1]),
            source=known[origin],
            status=status,
            id=one,
            data_collections=counts,
        )


def _origin(told: Any) -> Origin:
    return Origin(schema=told[0], db=told[1], table=told[2], lsn=told[3])


def _plain(columns: Mapping[str, pa.Array], name: str, count: int) -> list[Any]:
    return list(columns[name].to_pylist()) if name in columns else [None] * count


def _structs(
    columns: Mapping[str, pa.Array], name: str, fields: Sequence[str], count: int
) -> list[tuple[Any, ...] | None]:
    """Return some fields of a column of records; None where there is no record."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = columns.get(name)
    if column is None or column.null_count == count or not pa.types.is_struct(column.type):
        return [None] * count
    held = {field.name for field in column.type if not pa.types.is_nested(field.type)}
    parts = [
        pc.struct_field(column, [field]).to_pylist() if field in held else [None] * count
        for field in fields
    ]
    rows: list[tuple[Any, ...] | None] = list(zip(*parts, strict=True))
    if column.null_count:
        there = column.is_valid().to_pylist()
        rows = [row if is_there else None for row, is_there in zip(rows, there, strict=True)]
    return rows
