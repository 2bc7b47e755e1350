"""Records as they are: the value as bytes or as text, in one column.

Owns these two decoders, which refuse next to nothing. Must never change a byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobs.formats.decoded import Decoded, Reject

if TYPE_CHECKING:
    import pyarrow as pa

COLUMN = "value"


def raw(values: Sequence[bytes | None], schema: pa.Schema) -> Decoded:
    """Return each value as bytes; a tombstone is a null."""
    import pyarrow as pa

    if COLUMN not in schema.names:
        return Decoded(rows=schema.empty_table(), places=(), unknown={COLUMN: pa.binary()})
    return Decoded(rows=_rows(pa.array(values, pa.binary()), schema), places=range(len(values)))


def text(values: Sequence[bytes | None], schema: pa.Schema) -> Decoded:
    """Return each value as text; what is not UTF-8 is a reject."""
    import pyarrow as pa

    if COLUMN not in schema.names:
        return Decoded(rows=schema.empty_table(), places=(), unknown={COLUMN: pa.string()})
    texts: list[str | None] = []
    places: list[int] = []
    rejects: list[Reject] = []
    for place, value in enumerate(values):
        try:
            texts.append(None if value is None else value.decode())
        except UnicodeDecodeError as problem:
            rejects.append(Reject(place=place, reason=f"not UTF-8 at byte {problem.start}"))
        else:
            places.append(place)
    rows = _rows(pa.array(texts, pa.string()), schema)
    return Decoded(rows=rows, places=tuple(places), rejects=tuple(rejects))


def _rows(values: pa.Array, schema: pa.Schema) -> pa.Table:
    """Return values as rows; other columns, such as those of the key, are null."""
    import pyarrow as pa

    return pa.table(
        [
            values.cast(item.type) if item.name == COLUMN else pa.nulls(len(values), item.type)
            for item in schema
        ],
        schema=schema,
    )
