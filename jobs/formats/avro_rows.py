"""Avro records in the registry's wire format as rows, many at once, in Arrow from end to end.

Owns which records become rows. They are read under the schema of their writer, and each field goes
to the column of its name. Must never take a record down with another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from jobs.formats import avro_columns
from jobs.formats.avro_bytes import Cursor, take
from jobs.formats.avro_fit import MISFIT, Fit, fitting, lacking, widened
from jobs.formats.avro_schema import AvroType
from jobs.formats.avro_wire import by_schema, without
from jobs.formats.decoded import REASON_LENGTH_MAX, Decoded, Reject, Unreadable

if TYPE_CHECKING:
    import pyarrow as pa

Schemas: TypeAlias = Callable[[int], AvroType]
"""Returns the schema of an id; raises :class:`Unreadable` where there is none."""


class AvroDecoder:
    """Decodes Avro records into the columns of a table.

    With ``strict`` a field that the table lacks makes a reject; without, it is reported. What is no
    record goes to the column ``alone``.
    """

    def __init__(
        self, schema: pa.Schema, schemas: Schemas, *, strict: bool = False, alone: str = "value"
    ) -> None:
        import pyarrow as pa

        self._schema = schema
        self._nullable = pa.schema([item.with_nullable(nullable=True) for item in schema])
        self._schemas = schemas
        self._strict = strict
        self._alone = alone
        self._readers: dict[int, _Reader | str] = {}

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Decode a chunk of records.

        Raises:
            SourceUnavailable, SourceDenied: a schema is needed, and the registry does not give it.
        """
        import pyarrow as pa

        made = _Made()
        for number, cursor in by_schema(values, made.bad):
            self._of_schema(number, cursor, made)
        tables, places = made.tables, made.places
        rows = pa.concat_tables(tables) if tables else self._schema.empty_table()
        if len(tables) > 1:
            by_place = sorted(range(len(places)), key=places.__getitem__)
            rows = rows.take(pa.array(by_place, pa.int64()))
            places.sort()
        return Decoded(
            rows=rows,
            places=range(len(values)) if len(places) == len(values) else tuple(places),
            rejects=tuple(
                Reject(place=place, reason=reason[:REASON_LENGTH_MAX])
                for place, reason in sorted(made.bad.items())
            ),
            unknown=made.unknown,
            wider={} if self._strict else made.wider,
            schemas=tuple(sorted(made.schemas)),
        )

    def _of_schema(self, number: int, cursor: Cursor, made: _Made) -> None:
        reader = self._readers.get(number)
        if reader is None:
            reader = self._readers[number] = self._reader(number)
        if isinstance(reader, str):
            made.bad |= dict.fromkeys(cursor.owner.to_pylist(), reader)
            return
        made.schemas.add(number)
        if reader.lacking and self._strict:
            name = next(iter(reader.lacking))
            reason = f"field {name} is no column of the table"
            made.bad |= dict.fromkeys(cursor.owner.to_pylist(), reason)
            return
        for name, kind in reader.lacking.items():
            made.unknown.setdefault(name, kind)
        reader.read(cursor, made)

    def _reader(self, number: int) -> _Reader | str:
        """Return the reader of a schema, or why there is none."""
        try:
            return _Reader(self._schemas(number), self._schema, self._nullable, self._alone)
        except Unreadable as problem:
            return f"schema {number}: {problem}"


@dataclass(slots=True)
class _Made:
    """What has been made of a chunk so far."""

    tables: list[pa.Table] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    bad: dict[int, str] = field(default_factory=dict)
    unknown: dict[str, pa.DataType] = field(default_factory=dict)
    wider: dict[str, pa.DataType] = field(default_factory=dict)
    schemas: set[int] = field(default_factory=set)


class _Reader:
    """Reads records of one schema into the columns of a table."""

    def __init__(
        self, source: AvroType, schema: pa.Schema, nullable: pa.Schema, alone: str
    ) -> None:
        self._source = source
        self._alone = alone
        self._schema = schema
        self._nullable = nullable
        found = source.fields if source.kind == "record" else ((alone, source),)
        self._fields = dict(found)
        self.lacking = dict(lacking(found, schema))
        self._fits: dict[str, Fit | str] = {}
        for item in schema:
            if item.name in self._fields:
                try:
                    self._fits[item.name] = fitting(self._fields[item.name], item.type)
                except Unreadable as problem:
                    self._fits[item.name] = str(problem)

    def read(self, cursor: Cursor, made: _Made) -> None:
        import pyarrow as pa

        columns = avro_columns.fields(self._source, cursor, alone=self._alone)
        owner, bad = cursor.owner, avro_columns.broken(cursor)
        if bad:
            made.bad |= bad
            kept = without(owner, bad)
            owner = take(owner, kept)
            columns = {name: take(column, kept) for name, column in columns.items()}
        bad = {}
        rows = [self._column(item, columns.get(item.name), len(owner), bad, made)
                for item in self._schema]  # fmt: skip
        table = pa.table(rows, schema=self._nullable)
        if bad:
            owners = owner.to_pylist()
            made.bad |= {owners[place]: reason for place, reason in bad.items()}
            kept = without(pa.arange(0, len(owner)), bad)
            table, owner = table.take(kept), take(owner, kept)
        if len(owner):
            made.tables.append(table.cast(self._schema))
            made.places += owner.to_pylist()

    def _column(
        self, item: pa.Field, found: pa.Array | None, count: int, bad: dict[int, str], made: _Made
    ) -> pa.Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        fit = self._fits.get(item.name)
        if found is None or fit is None:
            column = pa.nulls(count, item.type)
        elif isinstance(fit, str):
            for place in pc.indices_nonzero(found.is_valid()).to_pylist():
                bad.setdefault(place, f"column {item.name}: {fit}")
            column = pa.nulls(count, item.type)
        else:
            column = self._fitted(item, fit, found, bad, made)
        if not item.nullable and column.null_count:
            for place in pc.indices_nonzero(column.is_null()).to_pylist():
                bad.setdefault(place, f"column {item.name} is required, and is null")
        return column

    def _fitted(
        self, item: pa.Field, fit: Fit, found: pa.Array, bad: dict[int, str], made: _Made
    ) -> pa.Array:
        """Convert a column; a value that does not fit is null in it, and its record is bad."""
        import pyarrow as pa

        try:
            return fit(found)
        except MISFIT:
            pass
        done: list[pa.Array] = []
        misfits: list[int] = []
        todo = [(0, len(found))]
        while todo:
            first, end = todo.pop()
            try:
                done.append(fit(found[first:end]))
            except MISFIT as problem:
                if end - first > 1:
                    middle = (first + end) // 2
                    todo += [(middle, end), (first, middle)]
                    continue
                bad.setdefault(first, f"column {item.name}: {problem}")
                misfits.append(first)
                done.append(pa.nulls(1, item.type))
        wanted = widened(self._fields[item.name], item.type, found.take(pa.array(misfits)))
        if wanted is not None:
            before = made.wider.get(item.name)
            if before is None or _width(wanted) > _width(before):
                made.wider[item.name] = wanted
        return pa.concat_arrays(done)


def _width(kind: pa.DataType) -> int:
    import pyarrow as pa

    return int(kind.precision if pa.types.is_decimal(kind) else kind.bit_width)
