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

    rows = pa.table([pa.array(values, pa.binary()).cast(schema.field(COLUMN).type)], schema=schema)
    return Decoded(rows=rows, places=range(len(values)))


def text(values: Sequence[bytes | None], schema: pa.Schema) -> Decoded:
    """Return each value as text; what is not UTF-8 is a reject."""
    import pyarrow as pa

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
    rows = pa.table([pa.array(texts, pa.string()).cast(schema.field(COLUMN).type)], schema=schema)
    return Decoded(rows=rows, places=tuple(places), rejects=tuple(rejects))
