"""JSON records as rows, parsed many at once by Arrow.

Owns which JSON value fits which column. Conversions that lose something are rejects, never
roundings: a text is no number, 12.345 does not fit two decimals. Must never take a record down
with another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, cast

from jobs.formats.decoded import REASON_LENGTH_MAX, Decoded, Reject, isolate

if TYPE_CHECKING:
    import pyarrow as pa

Times = Literal["text", "seconds", "millis", "micros"]
_PER_SECOND = {"seconds": "s", "millis": "ms", "micros": "us"}
DECIMAL_PRECISION_MAX = 38
FLOAT_MAX = 3.4028234663852886e38
_ROW = re.compile(r" in row \d+")


class JsonDecoder:
    """Decodes JSON objects into the columns of a table.

    ``times`` says how moments are written: ISO 8601 texts, or numbers since 1970. With
    ``strict`` a field that the table lacks makes a reject; without, it is reported.
    """

    def __init__(self, schema: pa.Schema, *, times: Times = "text", strict: bool = False) -> None:
        import pyarrow as pa
        import pyarrow.json as pj

        self._schema = schema
        self._wire = _wire_schema(schema, times)
        self._times = times
        self._strict = strict
        self._options = pj.ParseOptions(
            explicit_schema=self._wire,
            unexpected_field_behavior="error" if strict else "infer",
        )
        self._required = [item.name for item in schema if not item.nullable]
        self._floats = [item.name for item in schema if _has_floats(item.type)]
        self._nullable = pa.schema([item.with_nullable(nullable=True) for item in schema])
        self._unknown: dict[str, pa.DataType] = {}

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Decode a chunk of records."""
        import pyarrow as pa

        documents, at, rejects, sure = _documents(values)
        tables, bad = isolate(documents[:sure], self._parse)
        for place in range(sure, len(documents)):
            parsed, problems = isolate(documents[place : place + 1], self._parse)
            tables += [(place, table) for _, table in parsed]
            bad += [Reject(place=place, reason=item.reason) for item in problems]
        wider = self._wider([documents[item.place] for item in bad]) if bad else {}
        rejects += [Reject(place=at[item.place], reason=_plain(item.reason)) for item in bad]
        unknown, self._unknown = self._unknown, {}
        good: list[pa.Table] = []
        places: list[int] = []
        for first, table in tables:
            rows, kept, lacking = self._complete(table)
            good.append(rows)
            if rows.num_rows == len(values):
                return Decoded(rows=rows, places=range(len(values)), unknown=unknown)
            places += [at[first + place] for place in kept]
            rejects += [
                Reject(place=at[first + place], reason=f"column {name} is required, and is null")
                for place, name in lacking
            ]
        rows = pa.concat_tables(good) if good else self._schema.empty_table()
        return Decoded(
            rows=rows,
            places=tuple(places),
            rejects=tuple(sorted(rejects, key=lambda item: item.place)),
            unknown=unknown,
            wider=wider,
        )

    def _wider(self, documents: Sequence[bytes]) -> dict[str, pa.DataType]:
        """Return the columns that must be widened for records which fit otherwise."""
        if self._strict:
            return {}
        wide = widest(self._schema)
        if wide.equals(self._schema):
            return {}
        made = JsonDecoder(wide, times=self._times).decode(documents)
        return {
            item.name: kind
            for item in self._schema
            if (kind := needed(item.type, made.rows[item.name])) is not None
        }

    def _parse(self, documents: Sequence[bytes]) -> pa.Table:
        import pyarrow as pa
        import pyarrow.json as pj

        data = b"\n".join(documents)
        # One block: no document is cut at its end, whatever line breaks it has inside.
        options = pj.ReadOptions(use_threads=False, block_size=len(data) + 1)
        source = pa.BufferReader(data)
        table = pj.read_json(source, parse_options=self._options, read_options=options)
        if table.num_rows == len(documents):
            for name, kind in _unknown(table.schema, self._wire):
                self._unknown.setdefault(name, kind)
        for name in self._floats:
            _check_range(name, table[name])
        columns = [_converted(table[item.name], item.type, self._times) for item in self._schema]
        # Every column is nullable here: nulls in required ones make rejects, not errors.
        return pa.table(columns, schema=self._nullable)

    def _complete(self, rows: pa.Table) -> tuple[pa.Table, Iterable[int], list[tuple[int, str]]]:
        import pyarrow as pa
        import pyarrow.compute as pc

        lacking: dict[int, str] = {}
        for name in self._required:
            if rows[name].null_count:
                for place in pc.indices_nonzero(pc.is_null(rows[name])).to_pylist():
                    lacking.setdefault(place, name)
        if not lacking:
            return rows.cast(self._schema), range(rows.num_rows), []
        kept = [place for place in range(rows.num_rows) if place not in lacking]
        return rows.take(pa.array(kept, pa.int64())).cast(self._schema), kept, list(lacking.items())


def _documents(
    values: Sequence[bytes | None],
) -> tuple[Sequence[bytes], Sequence[int], list[Reject], int]:
    """Return what may be JSON objects, the place of each, the rest as rejects, and a number.

    So many of the first documents may be parsed together: each begins and ends as an object does,
    so none can be completed by the next one, and as many rows as documents means a row from each.
    """
    if _all_objects(values):
        return cast("Sequence[bytes]", values), range(len(values)), [], len(values)
    found: list[tuple[int, bytes]] = []
    odd: list[tuple[int, bytes]] = []
    rejects: list[Reject] = []
    for place, value in enumerate(values):
        trimmed = (value or b"").strip()
        if trimmed[:1] != b"{":
            rejects.append(Reject(place=place, reason=_what_it_is(value, trimmed)))
        else:
            (found if trimmed[-1:] == b"}" else odd).append((place, trimmed))
    both = found + odd
    return [value for _, value in both], [place for place, _ in both], rejects, len(found)


def _all_objects(values: Sequence[bytes | None]) -> bool:
    import pyarrow as pa
    import pyarrow.compute as pc

    data = pa.array(values, pa.binary())
    if data.null_count:
        return False
    ends = pc.and_(pc.starts_with(data, pattern=b"{"), pc.ends_with(data, pattern=b"}"))
    return bool(pc.all(ends).as_py())


def why_not(schema: pa.Schema) -> str | None:
    """Say why records cannot be decoded into a schema this way; None where they can."""
    import pyarrow as pa

    for name, kind in _leaves(schema):
        if pa.types.is_map(kind):
            return f"column {name} is a map"
        if pa.types.is_fixed_size_binary(kind) or pa.types.is_time(kind):
            return f"column {name} is of type {kind}"
    return None


def widest(schema: pa.Schema) -> pa.Schema:
    """Return a schema with every top-level column as wide as Iceberg lets it become."""
    import pyarrow as pa

    made = schema
    for place, item in enumerate(schema):
        kind = item.type
        if pa.types.is_int32(kind):
            kind = pa.int64()
        elif pa.types.is_float32(kind):
            kind = pa.float64()
        elif pa.types.is_decimal(kind):
            kind = pa.decimal128(DECIMAL_PRECISION_MAX, kind.scale)
        made = made.set(place, item.with_type(kind))
    return made


def needed(kind: pa.DataType, values: pa.ChunkedArray) -> pa.DataType | None:
    """Return the wider type that a column needs for values that were read in the widest."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if values.type == kind or not len(values):
        return None
    if pa.types.is_float32(kind):
        beyond = pc.any(pc.greater(pc.abs(values), FLOAT_MAX)).as_py()
        return values.type if beyond else None
    try:
        values.cast(kind)
    except pa.ArrowInvalid:
        pass
    else:
        return None
    if not pa.types.is_decimal(kind):
        return values.type
    digits = max(len(value.as_tuple().digits) for value in values.to_pylist() if value is not None)
    return pa.decimal128(18 if digits <= 18 else DECIMAL_PRECISION_MAX, kind.scale)


def _wire_schema(schema: pa.Schema, times: Times) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([(item.name, _wire_type(item.type, times)) for item in schema])


def _wire_type(kind: pa.DataType, times: Times) -> pa.DataType:
    """Return the type in which a JSON value is read; texts are converted after that."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return pa.struct([(item.name, _wire_type(item.type, times)) for item in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_wire_type(kind.value_type, times))
    if pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_timestamp(kind):
        return kind if times == "text" else pa.int64()
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary(kind):
        return pa.string()
    return kind


def _converted(column: pa.ChunkedArray, kind: pa.DataType, times: Times) -> pa.ChunkedArray:
    import pyarrow as pa

    if column.type == kind:
        return column
    if pa.types.is_timestamp(kind) and pa.types.is_integer(column.type):
        return column.cast(pa.timestamp(_PER_SECOND[times], tz=kind.tz)).cast(kind)
    return column.cast(kind)


def _has_floats(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return any(pa.types.is_floating(leaf) for _, leaf in _leaves([pa.field("", kind)]))


def _check_range(name: str, column: pa.ChunkedArray) -> None:
    """Refuse a number that is too large for its column: Arrow reads it as infinite.

    Raises:
        ValueError: JSON itself has no infinite numbers.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_struct(column.type):
        for item in column.type:
            _check_range(f"{name}.{item.name}", pc.struct_field(column, item.name))
    elif pa.types.is_list(column.type):
        _check_range(name, pc.list_flatten(column))
    elif pa.types.is_floating(column.type) and pc.any(pc.is_inf(column)).as_py():
        raise ValueError(f"column {name} is too narrow for a number: it is of type {column.type}")


def _unknown(
    found: Iterable[pa.Field], known: Iterable[pa.Field], prefix: str = ""
) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the fields that records hold beyond what is known, also inside structs."""
    import pyarrow as pa

    types = {item.name: item.type for item in known}
    for item in found:
        name, wanted = f"{prefix}{item.name}", types.get(item.name)
        if wanted is None and not pa.types.is_null(item.type):
            yield name, _suggested(item.type)
        elif wanted is not None and pa.types.is_struct(wanted) and pa.types.is_struct(item.type):
            yield from _unknown(item.type, wanted, f"{name}.")


def _suggested(kind: pa.DataType) -> pa.DataType:
    """Return the type of a new column for values that were seen; a text stays a text."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        kept = [item for item in kind if not pa.types.is_null(item.type)]
        return pa.struct([(item.name, _suggested(item.type)) for item in kept])
    if pa.types.is_list(kind):
        return pa.list_(_suggested(kind.value_type))
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return pa.string()
    return kind


def _leaves(fields: Iterable[pa.Field], prefix: str = "") -> Iterator[tuple[str, pa.DataType]]:
    import pyarrow as pa

    for item in fields:
        name = f"{prefix}{item.name}"
        if pa.types.is_struct(item.type):
            yield from _leaves(item.type, f"{name}.")
        elif pa.types.is_list(item.type) or pa.types.is_large_list(item.type):
            yield from _leaves([item.type.value_field], f"{name}.")
        else:
            yield name, item.type


def _what_it_is(value: bytes | None, trimmed: bytes) -> str:
    if value is None:
        return "the record has no value (a tombstone)"
    if not trimmed:
        return "the record is empty"
    return "the record is no JSON object"


def _plain(reason: str) -> str:
    # The row number is that of a chunk, and means nothing outside of it.
    return _ROW.sub("", reason).removeprefix("JSON parse error: ")[:REASON_LENGTH_MAX]
