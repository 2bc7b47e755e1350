"""What a decoder makes of a chunk of records: rows, rejects, and fields that the table lacks.

Owns these values and the isolation of the records that spoil a chunk. Must never lose a record:
each is a row or a reject.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

REASON_LENGTH_MAX = 300
ONE_BY_ONE_BELOW = 8
"""Halves smaller than this are tried record by record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """A record that is no row: its place in the chunk, and why."""

    place: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """A chunk of records, decoded.

    ``places`` has the place in the chunk of each row. ``unknown`` are fields that records hold and
    the table does not, by their dotted name, with the Arrow type that their values suggest.
    ``wider`` are columns whose type is too narrow for some values, with a type that is not; those
    records are rejects until the column is widened. ``schemas`` are the ids, in the schema
    registry, of the schemas under which records were written, ``key_schemas`` those of their keys.
    """

    rows: pa.Table
    places: tuple[int, ...] | range
    rejects: tuple[Reject, ...] = ()
    unknown: dict[str, pa.DataType] = field(default_factory=dict)
    wider: dict[str, pa.DataType] = field(default_factory=dict)
    schemas: tuple[int, ...] = ()
    key_schemas: tuple[int, ...] = ()


class Unreadable(Exception):
    """One record, alone, that cannot be a row."""


def isolate(
    values: Sequence[bytes], parse: Callable[[Sequence[bytes]], pa.Table]
) -> tuple[list[tuple[int, pa.Table]], list[Reject]]:
    """Parse as many records at once as possible; return tables by their first place, and rejects.

    ``parse`` raises for a chunk with a bad record in it, whichever it is. A chunk with one bad
    record costs about two parses of it.
    """
    tables: list[tuple[int, pa.Table]] = []
    rejects: list[Reject] = []
    todo = [(0, len(values))]
    while todo:
        first, end = todo.pop()
        if first == end:
            continue
        try:
            table = parse(values[first:end])
            if table.num_rows != end - first:
                raise Unreadable(f"holds {table.num_rows} documents, not one")
        except (ValueError, Unreadable, NotImplementedError) as problem:
            if end - first == 1:
                rejects.append(Reject(place=first, reason=str(problem)[:REASON_LENGTH_MAX]))
                continue
            if end - first < ONE_BY_ONE_BELOW:
                todo += [(place, place + 1) for place in reversed(range(first, end))]
                continue
            middle = (first + end) // 2
            todo += [(middle, end), (first, middle)]
            continue
        tables.append((first, table))
    return tables, rejects
