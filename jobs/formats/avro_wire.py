"""The wire format of a schema registry: a zero, the id of a schema in four bytes, the record.

Owns the sorting of records by their schemas, many at once. Must never read a record under a schema
that is not its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from jobs.formats.avro_bytes import Block, Cursor, i64, u64

if TYPE_CHECKING:
    import pyarrow as pa

HEADER_BYTES = 5
TOGETHER_BYTES_MAX = 2**28
"""Records that are read at once; Arrow's texts have a limit, and memory too."""


def by_schema(values: Sequence[bytes | None], bad: dict[int, str]) -> Iterator[tuple[int, Cursor]]:
    """Yield the ids of schemas, each with a cursor at the records that were written under it.

    A cursor's owners are places among the values. What has not the form is put into ``bad``, with
    the reason, by its place.
    """
    for first, part in _parts(values):
        yield from _sorted(part, first, bad)


def what_it_is(value: bytes | None) -> str:
    """Say what a value is that is not in the wire format."""
    if value is None:
        return "the record has no value (a tombstone)"
    if not value:
        return "the record is empty"
    if value[0] == 0:
        return f"the record has {len(value)} bytes, too few for the registry's wire format"
    return (
        f"the record begins with the byte 0x{value[0]:02x}, not with 0 and the id of a schema: it "
        "is not in the registry's wire format"
    )


def without(places: pa.Array, bad: dict[int, str]) -> pa.Array:
    """Return where in an array of places those are that are not bad."""
    import pyarrow as pa
    import pyarrow.compute as pc

    gone = pc.is_in(places, value_set=pa.array(sorted(bad), pa.int64()))
    return pc.indices_nonzero(pc.invert(gone))


def _sorted(
    values: Sequence[bytes | None], first: int, bad: dict[int, str]
) -> Iterator[tuple[int, Cursor]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pa.array(values, pa.large_binary())
    offsets = pa.Array.from_buffers(pa.int64(), len(found) + 1, [None, found.buffers()[1]])
    block = Block(found.buffers()[2] or b"")
    start, end = offsets[:-1], offsets[1:]
    whole = Cursor(block, start, end, pa.arange(first, first + len(found)))
    word = whole.words()
    framed = pc.and_(
        pc.greater_equal(pc.subtract(end, start), i64(HEADER_BYTES)),
        pc.equal(pc.bit_wise_and(word, u64(0xFF)), u64(0)),
    )
    if not pc.all(framed, min_count=0).as_py():
        for place in pc.indices_nonzero(pc.invert(framed)).to_pylist():
            bad[first + place] = what_it_is(values[place])
    numbers = pc.bit_wise_and(pc.shift_right(word, u64(8)), u64(2**32 - 1))
    numbers = pc.if_else(framed, numbers, pa.scalar(None, pa.uint64()))
    for number in numbers.unique().drop_null().to_pylist():
        places = pc.indices_nonzero(pc.equal(numbers, u64(number)))
        part = whole if len(places) == len(found) else whole.some(places)
        part.at = pc.add(part.at, i64(HEADER_BYTES))
        yield int.from_bytes(number.to_bytes(4, "little"), "big"), part


def _parts(values: Sequence[bytes | None]) -> Iterator[tuple[int, Sequence[bytes | None]]]:
    """Yield values in runs that can be read together, each with the place of its first."""
    if sum(map(len, filter(None, values))) <= TOGETHER_BYTES_MAX:
        yield 0, values
        return
    first, total = 0, 0
    for place, value in enumerate(values):
        size = len(value or b"")
        if total + size > TOGETHER_BYTES_MAX and place > first:
            yield first, values[first:place]
            first, total = place, 0
        total += size
    yield first, values[first:]
