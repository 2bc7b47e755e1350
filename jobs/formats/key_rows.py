"""Keys of plain records as columns, beside those of their values.

Owns what a key's bytes are as columns, and how they meet the columns of the value. A field that
both have with different values makes a reject: neither is the right one for sure. Must never take a
record down with another.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from jobs.formats.decoded import REASON_LENGTH_MAX, Decoded, Reject
from jobs.formats.fitted import complete
from jobs.formats.json_rows import JsonDecoder, why_not
from jobs.formats.typed_rows import ArrowDecoder
from jobs.formats.types import spark_type, wider_of

if TYPE_CHECKING:
    import pyarrow as pa

COLUMN = "_key"
"""The column of a key that is no object: a text, bytes, a number."""

Decode: TypeAlias = Callable[[Sequence[bytes]], Decoded]


class JsonKeys:
    """Decodes keys in JSON: the fields of an object are columns, anything else is one column."""

    def __init__(self, schema: pa.Schema, *, strict: bool = False) -> None:
        import pyarrow as pa

        # Values in Avro can fill columns that JSON cannot.
        self._others = {item.name for item in schema if why_not(pa.schema([item])) is not None}
        fit = pa.schema([item for item in schema if item.name not in self._others])
        self._decoder = JsonDecoder(fit, strict=strict)

    def decode(self, keys: Sequence[bytes]) -> Decoded:
        """Decode some keys."""
        return _as_objects(keys, self._object, self._decoder)

    def _object(self, key: bytes) -> bytes:
        trimmed = key.strip()
        whole = trimmed[:1] == b"{"
        if whole and not self._others:
            return trimmed
        # Read in full: a part of a key must not pass for a field beside it.
        read = json.loads(key.decode(), parse_constant=_no_number)
        if not whole:
            return b'{"%s":%s}' % (COLUMN.encode(), trimmed)
        for name in self._others & set(read):
            raise ValueError(f"column {name} is of a type that a key in JSON cannot fill")
        return trimmed


class TextKeys:
    """Decodes keys that are texts into one column."""

    def __init__(self, schema: pa.Schema, *, strict: bool = False) -> None:
        import pyarrow as pa

        mine = pa.schema([item for item in schema if item.name == COLUMN])
        self._decoder = JsonDecoder(mine, strict=strict)

    def decode(self, keys: Sequence[bytes]) -> Decoded:
        """Decode some keys."""
        return _as_objects(keys, _text, self._decoder)


class RawKeys:
    """Keeps keys as they are, in one column."""

    def __init__(self, schema: pa.Schema, *, strict: bool = False) -> None:
        self._decoder = ArrowDecoder(schema, strict=strict)

    def decode(self, keys: Sequence[bytes]) -> Decoded:
        """Decode some keys."""
        import pyarrow as pa

        return self._decoder.decode(pa.table({COLUMN: pa.array(keys, pa.binary())}))


def of_keys(keys: Sequence[bytes | None], decode: Decode) -> Decoded:
    """Decode the keys of records; a record without a key is neither among the rows nor a reject."""
    at = [place for place, key in enumerate(keys) if key is not None]
    made = decode([key for key in keys if key is not None])
    return replace(
        made,
        places=tuple(at[place] for place in made.places),
        rejects=tuple(
            Reject(place=at[item.place], reason=_told(item.reason)) for item in made.rejects
        ),
    )


def together(values: Decoded, keys: Decoded, schema: pa.Schema) -> Decoded:
    """Return records with the columns of their values and of their keys.

    Both are decoded into the schema's columns, each of which may be null there; whether one is
    required is asked of what they make together.
    """
    import pyarrow as pa

    rejects = {item.place: item.reason for item in (*keys.rejects, *values.rejects)}
    row_of = {place: row for row, place in enumerate(keys.places)}
    kept = [row for row, place in enumerate(values.places) if place not in rejects]
    places = [values.places[row] for row in kept]
    rows = schema.empty_table()
    if len(schema):
        mine = values.rows.take(pa.array(kept, pa.int64()))
        other = keys.rows.take(pa.array([row_of.get(place) for place in places], pa.int64()))
        rows, good, bad = _joined(mine, other, schema)
        rejects |= {places[row]: reason for row, reason in bad.items()}
        places = [places[row] for row in good]
    whole = len(places) == len(values.places) and isinstance(values.places, range)
    return Decoded(
        rows=rows,
        places=values.places if whole else tuple(places),
        rejects=tuple(Reject(place=at, reason=rejects[at]) for at in sorted(rejects)),
        unknown=_widest(values.unknown, keys.unknown),
        wider=_widest(values.wider, keys.wider),
        schemas=values.schemas,
        key_schemas=keys.schemas,
    )


# -- one key ---------------------------------------------------------------------------------------


def _as_objects(
    keys: Sequence[bytes], document: Callable[[bytes], bytes], decoder: JsonDecoder
) -> Decoded:
    """Decode keys, each as the JSON object that a function makes of it."""
    documents: list[bytes] = []
    at: list[int] = []
    rejects: list[Reject] = []
    for place, key in enumerate(keys):
        try:
            documents.append(document(key))
            at.append(place)
        except UnicodeDecodeError as problem:
            rejects.append(Reject(place=place, reason=f"not UTF-8 at byte {problem.start}"))
        except json.JSONDecodeError as problem:
            rejects.append(Reject(place=place, reason=f"no JSON: {problem}"))
        except (ValueError, RecursionError) as problem:
            rejects.append(Reject(place=place, reason=str(problem)))
    made = decoder.decode(documents)
    rejects += [Reject(place=at[item.place], reason=item.reason) for item in made.rejects]
    return replace(made, places=tuple(at[place] for place in made.places), rejects=tuple(rejects))


def _text(key: bytes) -> bytes:
    return json.dumps({COLUMN: key.decode()}, ensure_ascii=False).encode()


def _no_number(word: str) -> None:
    raise ValueError(f"no JSON: {word} is no number")


def _told(reason: str) -> str:
    return f"key: {reason.removeprefix('the record ')}"[:REASON_LENGTH_MAX]


# -- both together ---------------------------------------------------------------------------------


def _joined(
    mine: pa.Table, other: pa.Table, schema: pa.Schema
) -> tuple[pa.Table, Sequence[int], dict[int, str]]:
    """Return the rows that are good, where they were among all, and why the others are not."""
    import pyarrow as pa

    bad: dict[int, str] = {}
    columns: list[pa.ChunkedArray] = []
    names = set(other.column_names)
    for item in schema:
        value = mine[item.name] if item.name in mine.column_names else None
        key = other[item.name] if item.name in names else None
        if key is None or key.null_count == len(key):
            key = None
        if value is None or (key is not None and value.null_count == len(value)):
            value, key = key, None
        if value is None:
            columns.append(pa.nulls(mine.num_rows, item.type))
            continue
        if key is not None:
            for row in _different(value, key):
                bad.setdefault(row, f"column {item.name}: the key and the value differ")
            value = _filled(value, key)
        columns.append(value)
    nullable = pa.schema([item.with_nullable(nullable=True) for item in schema])
    whole = pa.table(columns, schema=nullable)
    good = [row for row in range(whole.num_rows) if row not in bad]
    rows, kept, lacking = complete(whole.take(pa.array(good, pa.int64())) if bad else whole, schema)
    bad |= {good[row]: f"column {name} is required, and is null" for row, name in lacking}
    return rows, [good[row] for row in kept], bad


def _different(value: pa.ChunkedArray, key: pa.ChunkedArray) -> list[int]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_nested(value.type):
        pairs = enumerate(zip(value.to_pylist(), key.to_pylist(), strict=True))
        return [row for row, (one, two) in pairs if None not in (one, two) and one != two]
    found: list[int] = pc.indices_nonzero(pc.not_equal(value, key)).to_pylist()
    return found


def _filled(value: pa.ChunkedArray, key: pa.ChunkedArray) -> pa.ChunkedArray:
    import pyarrow.compute as pc

    return pc.if_else(value.is_valid(), value, key) if value.null_count else value


def _widest(
    one: Mapping[str, pa.DataType], other: Mapping[str, pa.DataType]
) -> dict[str, pa.DataType]:
    made = {**one, **{name: kind for name, kind in other.items() if name not in one}}
    for name in set(one) & set(other):
        if wider_of(spark_type(one[name]), spark_type(other[name])) != spark_type(one[name]):
            made[name] = other[name]
    return made
