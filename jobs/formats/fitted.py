"""Records that are fitted into the columns of a table, whatever form they came in.

Owns the common part of decoders: bad records are isolated, nulls in required columns make rejects,
and columns that are too narrow are told with the type that they need. Must never take a record down
with another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jobs.formats.decoded import REASON_LENGTH_MAX, Decoded, Reject, isolate
from jobs.formats.json_rows import needed, widest

if TYPE_CHECKING:
    import pyarrow as pa

    Parse = Callable[[Sequence[Any], pa.Schema], pa.Table]
    """Makes a table of a schema of some records, or raises if one of them does not fit."""


def fitted(
    values: Sequence[Any],
    parse: Parse,
    schema: pa.Schema,
    *,
    unknown: Mapping[str, pa.DataType],
    strict: bool,
) -> Decoded:
    """Decode a chunk of records; ``unknown`` are the fields that the columns lack."""
    import pyarrow as pa

    loose = pa.schema([item.with_nullable(nullable=True) for item in schema])
    tables, bad = isolate(values, lambda part: parse(part, loose))
    rejects = [Reject(place=item.place, reason=_plain(item.reason)) for item in bad]
    good: list[pa.Table] = []
    places: list[int] = []
    for first, table in tables:
        rows, kept, lacking = complete(table, schema)
        good.append(rows)
        places += [first + place for place in kept]
        rejects += [
            Reject(place=first + place, reason=f"column {name} is required, and is null")
            for place, name in lacking
        ]
    wider = {} if strict else _wider([values[item.place] for item in bad], parse, loose)
    return Decoded(
        rows=pa.concat_tables(good) if good else schema.empty_table(),
        places=range(len(values)) if len(places) == len(values) else tuple(places),
        rejects=tuple(sorted(rejects, key=lambda item: item.place)),
        unknown=dict(unknown),
        wider=wider,
    )


def suggested(kind: pa.DataType) -> pa.DataType | None:
    """Return the type of a new column for values of a type; None where there is no value yet."""
    import pyarrow as pa

    if pa.types.is_null(kind):
        return None
    if pa.types.is_time(kind) or pa.types.is_large_string(kind):
        return pa.string()
    return kind


def joined(one: pa.DataType | None, other: pa.DataType | None) -> pa.DataType | None:
    """Return a type that holds values of both."""
    import pyarrow as pa

    if one is None or other is None or one == other:
        return one or other
    if all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in (one, other)):
        whole = pa.types.is_integer(one) and pa.types.is_integer(other)
        return pa.int64() if whole else pa.float64()
    return pa.string()


def complete(
    rows: pa.Table, schema: pa.Schema
) -> tuple[pa.Table, Sequence[int], list[tuple[int, str]]]:
    """Return the rows that lack nothing, where they were, and which column the others lack."""
    import pyarrow as pa
    import pyarrow.compute as pc

    lacking: dict[int, str] = {}
    for item in schema:
        if not item.nullable and rows[item.name].null_count:
            for place in pc.indices_nonzero(pc.is_null(rows[item.name])).to_pylist():
                lacking.setdefault(place, item.name)
    if not lacking:
        return rows.cast(schema), range(rows.num_rows), []
    kept = [place for place in range(rows.num_rows) if place not in lacking]
    return rows.take(pa.array(kept, pa.int64())).cast(schema), kept, list(lacking.items())


def _wider(values: Sequence[Any], parse: Parse, schema: pa.Schema) -> dict[str, pa.DataType]:
    import pyarrow as pa

    wide = widest(schema)
    if not values or wide.equals(schema):
        return {}
    tables, _ = isolate(values, lambda part: parse(part, wide))
    if not tables:
        return {}
    rows = pa.concat_tables([table for _, table in tables])
    return {
        item.name: kind
        for item in schema
        if (kind := needed(item.type, rows[item.name])) is not None
    }


def _plain(reason: str) -> str:
    return reason.splitlines()[0][:REASON_LENGTH_MAX] if reason else "it cannot be read"
