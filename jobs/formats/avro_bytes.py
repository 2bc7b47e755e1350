"""Avro's bytes, read many at once: the same field of thousands of records in a few calls of Arrow.

Owns the primitive values of the format, and the check that no value reaches beyond its record. A
record that is broken is noted with its reason and read on as if it held nothing. Must never read
one record at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

PAD_BYTES = 64
"""Zeros behind the last record: a word may be fetched at any place."""
BLOCK_BYTES_MAX = 2**30
"""Records are read together up to this; Arrow's texts have 32 bits for their places."""
_INT_MAX = 2**31


class Block:
    """Records that lie one behind the other, and what is wrong with some of them."""

    def __init__(self, data: bytes | pa.Buffer) -> None:
        import pyarrow as pa

        size = len(data)
        assert size <= BLOCK_BYTES_MAX
        whole = b"".join([data, bytes(PAD_BYTES - size % 8)])
        self.buffer = pa.py_buffer(whole)
        self.bytes = pa.Array.from_buffers(pa.uint8(), len(whole), [None, self.buffer])
        self.words = pa.Array.from_buffers(pa.uint64(), len(whole) // 8, [None, self.buffer])
        self.bad: dict[int, str] = {}
        """Owners of broken values, each with the first reason."""

    @cached_property
    def ends(self) -> tuple[pa.Array, pa.Array]:
        """Bytes that can be the last of a number: where they are, and how many up to each byte."""
        import pyarrow.compute as pc

        last = pc.less(self.bytes, u8(128))
        return pc.indices_nonzero(last).cast("int64"), pc.cumulative_sum(last.cast("int64"))


class Cursor:
    """Places in a block, read and moved together; ``owner`` is the record that each lies in."""

    def __init__(self, block: Block, at: pa.Array, end: pa.Array, owner: pa.Array) -> None:
        self.block = block
        self.at = at
        self.end = end
        self.owner = owner

    def __len__(self) -> int:
        return len(self.at)

    def fail(self, mask: pa.Array, reason: str) -> bool:
        """Note the records for which a mask holds; say whether there are any."""
        import pyarrow.compute as pc

        if not pc.any(mask).as_py():
            return False
        for owner in self.owner.filter(mask).to_pylist():
            self.block.bad.setdefault(owner, reason)
        return True

    def some(self, places: pa.Array) -> Cursor:
        """Return a cursor over some of the places; :meth:`rejoin` takes it back."""
        return Cursor(
            self.block,
            take(self.at, places),
            take(self.end, places),
            take(self.owner, places),
        )

    def rejoin(self, part: Cursor, spread: pa.Array) -> None:
        """Move on where a part has moved; ``spread`` has each place in it, or null."""
        import pyarrow.compute as pc

        self.at = pc.coalesce(take(part.at, spread), self.at)

    def skip(self, sizes: pa.Array) -> pa.Array:
        """Move over so many bytes; return the sizes, 0 where they reach beyond the record."""
        import pyarrow.compute as pc

        after = pc.add(self.at, sizes)
        wrong = pc.or_(pc.less(sizes, i64(0)), pc.greater(after, self.end))
        if self.fail(wrong, "the record ends in the middle of a value"):
            sizes = pc.if_else(wrong, i64(0), sizes)
            after = pc.add(self.at, sizes)
        self.at = after
        return sizes

    def words(self) -> pa.Array:
        """Return the eight bytes at each place as one number, without moving."""
        import pyarrow.compute as pc

        block = self.block
        word = pc.shift_right(self.at, i64(3))
        bits = pc.shift_left(pc.bit_wise_and(self.at, i64(7)), i64(3)).view("uint64")
        low = take(block.words, word)
        high = pc.shift_left(take(block.words, pc.add(word, i64(1))), u64(1))
        # Two shifts: one by all 64 bits would not be defined.
        high = pc.shift_left(high, pc.subtract(u64(63), bits))
        return pc.bit_wise_or(pc.shift_right(low, bits), high)

    def longs(self) -> pa.Array:
        """Read a number of up to 64 bits at each place."""
        import pyarrow.compute as pc

        first = take(self.block.bytes, self.at)
        if not len(first):
            return first.cast("int64")
        if pc.max(first).as_py() < 128:
            raw, sizes = first.cast("uint64"), i64(1)
        else:
            raw, sizes = self._long_numbers()
        after = pc.add(self.at, sizes)
        wrong = pc.greater(after, self.end)
        if self.fail(wrong, "the record ends in the middle of a value"):
            after = pc.if_else(wrong, self.at, after)
            raw = pc.if_else(wrong, u64(0), raw)
        self.at = after
        sign = pc.subtract(u64(0), pc.bit_wise_and(raw, u64(1)))
        return pc.bit_wise_xor(pc.shift_right(raw, u64(1)), sign).view("int64")

    def ints(self) -> pa.Array:
        """Read a number of up to 32 bits at each place."""
        import pyarrow.compute as pc

        found = self.longs()
        wrong = pc.or_(pc.less(found, i64(-_INT_MAX)), pc.greater_equal(found, i64(_INT_MAX)))
        if self.fail(wrong, "an int has more than 32 bits"):
            found = pc.if_else(wrong, i64(0), found)
        return found.cast("int32")

    def fixed(self, size: int) -> tuple[pa.Array, pa.Array]:
        """Move over values of one size; return where each begins and ends."""
        import pyarrow as pa

        start = self.at
        self.skip(pa.repeat(i64(size), len(self)))
        return start, self.at

    def spans(self) -> tuple[pa.Array, pa.Array]:
        """Read a length and move over so many bytes; return where they begin and end."""
        sizes = self.longs()
        start = self.at
        self.skip(sizes)
        return start, self.at

    def _long_numbers(self) -> tuple[pa.Array, pa.Array]:
        """Return numbers of any length as they are written, and their lengths."""
        import pyarrow.compute as pc

        word = self.words()
        stops = pc.bit_wise_and(pc.bit_wise_not(word), u64(0x8080808080808080))
        last = pc.bit_wise_and(stops, pc.subtract(u64(0), stops))
        # The bytes up to the last one, and of each the lower seven bits, put side by side.
        kept = pc.bit_wise_and(word, pc.subtract(last, u64(1)))
        kept = pc.bit_wise_and(kept, u64(0x7F7F7F7F7F7F7F7F))
        for shift, mask in ((1, 0x007F007F007F007F), (2, 0x00003FFF00003FFF), (4, 0x0FFFFFFF)):
            low = pc.bit_wise_and(kept, u64(mask))
            high = pc.bit_wise_and(kept, u64(mask << (8 * shift)))
            kept = pc.bit_wise_or(low, pc.shift_right(high, u64(shift)))
        # The place of the one bit that is left picks its byte of the constant.
        sizes = pc.multiply(pc.shift_right(last, u64(7)), u64(0x0102030405060708))
        sizes = pc.shift_right(sizes, u64(56)).view("int64")
        longer = pc.equal(stops, u64(0))
        if pc.any(longer).as_py():
            kept, sizes = self._longest(longer, kept, sizes)
        return kept, sizes

    def _longest(
        self, longer: pa.Array, kept: pa.Array, sizes: pa.Array
    ) -> tuple[pa.Array, pa.Array]:
        """Add the ninth and tenth byte of those numbers that have them."""
        import pyarrow.compute as pc

        ninth = take(self.block.bytes, pc.add(self.at, i64(8))).cast("uint64")
        tenth = take(self.block.bytes, pc.add(self.at, i64(9))).cast("uint64")
        more = pc.greater_equal(ninth, u64(128))
        endless = pc.and_(longer, pc.and_(more, pc.greater(tenth, u64(1))))
        self.fail(endless, "a number has more than 64 bits")
        top = pc.shift_left(pc.bit_wise_and(ninth, u64(127)), u64(56))
        sign = pc.shift_left(pc.bit_wise_and(tenth, u64(1)), u64(63))
        top = pc.bit_wise_or(top, pc.if_else(more, sign, u64(0)))
        whole = pc.bit_wise_or(kept, top)
        return (
            pc.if_else(longer, whole, kept),
            pc.if_else(longer, pc.if_else(more, i64(10), i64(9)), sizes),
        )


def pieces(block: Block, start: pa.Array, end: pa.Array) -> pa.Array:
    """Return the bytes between places as values, in order; places only go up."""
    import pyarrow as pa
    import pyarrow.compute as pc

    count = len(start)
    if not count:
        return pa.array([], pa.binary())
    # Beginning and end side by side are the offsets of twice as many values, each second a gap.
    both = pc.bit_wise_or(pc.shift_left(end, i64(32)), start)
    offsets = both.buffers()[1]
    values = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, offsets, block.buffer])
    return values if count == 1 else take(values, pa.arange(0, 2 * count, 2))


def spread_of(present: pa.Array) -> pa.Array:
    """Return, for each place, its number among those that are present; null for the others."""
    import pyarrow.compute as pc

    number = pc.subtract(pc.cumulative_sum(present.cast("int64")), i64(1))
    return pc.if_else(present, number, _null())


def take(values: pa.Array, places: pa.Array) -> pa.Array:
    """Return values at places that are known to be there."""
    import pyarrow.compute as pc

    return pc.take(values, places, boundscheck=False)


def _constant(kind: str) -> Callable[[int], pa.Scalar]:
    made: dict[int, pa.Scalar] = {}

    def of(value: int) -> pa.Scalar:
        import pyarrow as pa

        if value not in made:
            made[value] = pa.scalar(value, pa.type_for_alias(kind))
        return made[value]

    return of


i64, u64, u8 = _constant("int64"), _constant("uint64"), _constant("uint8")


def _null() -> pa.Scalar:
    import pyarrow as pa

    return pa.scalar(None, pa.int64())
