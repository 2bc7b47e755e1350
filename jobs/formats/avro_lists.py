"""Avro's arrays and maps: blocks of items, read for all records at once.

Owns how items of many lists are found and put in order. Numbers are found all at once; of other
items the first of each list is read, then the second, and so on. Must never trust a count: a list
cannot have more items than its record has bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from jobs.formats.avro_bytes import Cursor, i64, spread_of, take
from jobs.formats.avro_schema import AvroType, natural

if TYPE_CHECKING:
    import pyarrow as pa

Read: TypeAlias = Callable[[AvroType, Cursor], "pa.Array"]
EMPTY_ITEMS_MAX = 65_536
"""Items of no bytes (null) in one list: nothing else bounds their count."""
_SIZES = {"boolean": 1, "float": 4, "double": 8}
_VARYING = frozenset({"int", "long", "enum"})


def read_items(kind: AvroType, cursor: Cursor, read: Read) -> tuple[pa.Array, pa.Array]:
    """Read the items at each place; return the offsets of the lists, and all items in order."""
    import pyarrow.compute as pc

    total = len(cursor)
    going = _Fewer(cursor)
    slots: list[pa.Array] = []
    found: list[pa.Array] = []
    while len(going.cursor):
        counts = _counts(kind, going.cursor)
        counts = going.keep(pc.greater(counts, i64(0)), counts)
        if len(counts):
            parts, values = _block(kind, going.cursor, counts, read)
            slots += [take(going.slots, places) for places in parts]
            found += values
    going.rejoin()
    return _in_order(kind, total, slots, found)


class _Fewer:
    """A cursor of which ever fewer places are read on; ``slots`` says which these are."""

    def __init__(self, cursor: Cursor) -> None:
        import pyarrow as pa

        self.cursor = cursor
        self.slots = pa.arange(0, len(cursor))
        self._steps: list[tuple[Cursor, Cursor, pa.Array]] = []

    def keep(self, mask: pa.Array, beside: pa.Array) -> pa.Array:
        """Read on only where a mask holds; returns the same part of what stands beside."""
        import pyarrow.compute as pc

        if pc.all(mask).as_py():
            return beside
        kept = pc.indices_nonzero(mask)
        part = self.cursor.some(kept)
        self._steps.append((self.cursor, part, spread_of(mask)))
        self.cursor, self.slots = part, take(self.slots, kept)
        return take(beside, kept)

    def rejoin(self) -> None:
        """Move the first cursor to where its parts have come."""
        for outer, part, spread in reversed(self._steps):
            outer.rejoin(part, spread)


def _counts(kind: AvroType, cursor: Cursor) -> pa.Array:
    """Read how many items come next; 0 where a list ends."""
    import pyarrow.compute as pc

    counts = cursor.longs()
    sized = pc.less(counts, i64(0))
    if pc.any(sized).as_py():
        # A count below zero is followed by the size of the block, for readers that skip it.
        part = cursor.some(pc.indices_nonzero(sized))
        part.longs()
        cursor.rejoin(part, spread_of(sized))
        counts = pc.abs(counts)
    most = pc.subtract(cursor.end, cursor.at)
    if _is_empty(kind):
        most = pc.max_element_wise(most, i64(EMPTY_ITEMS_MAX))
    wrong = pc.or_(pc.less(counts, i64(0)), pc.greater(counts, most))
    if cursor.fail(wrong, "a list has more items than its record has bytes"):
        counts = pc.if_else(wrong, i64(0), counts)
    return counts


def _block(
    kind: AvroType, cursor: Cursor, counts: pa.Array, read: Read
) -> tuple[list[pa.Array], list[pa.Array]]:
    """Read one block at each place; return items, and for each the place of its list."""
    size = kind.size if kind.kind == "fixed" else _SIZES.get(kind.kind)
    if size:
        return _of_one_size(kind, cursor, counts, size, read)
    if kind.kind in _VARYING:
        return _numbers(kind, cursor, counts, read)
    return _one_by_one(kind, cursor, counts, read)


def _of_one_size(
    kind: AvroType, cursor: Cursor, counts: pa.Array, size: int, read: Read
) -> tuple[list[pa.Array], list[pa.Array]]:
    import pyarrow.compute as pc

    start = cursor.at
    counts = pc.divide(cursor.skip(pc.multiply(counts, i64(size))), i64(size))
    parents, within = _ragged(counts)
    at = pc.add(take(start, parents), pc.multiply(within, i64(size)))
    part = Cursor(cursor.block, at, take(cursor.end, parents), take(cursor.owner, parents))
    return [parents], [read(kind, part)]


def _numbers(
    kind: AvroType, cursor: Cursor, counts: pa.Array, read: Read
) -> tuple[list[pa.Array], list[pa.Array]]:
    import pyarrow.compute as pc

    ends, rank = cursor.block.ends
    before = take(rank, pc.subtract(cursor.at, i64(1)))
    last = pc.subtract(pc.add(before, counts), i64(1))
    wrong = pc.greater_equal(last, i64(len(ends)))
    after = pc.add(take(ends, pc.if_else(wrong, i64(0), last)), i64(1))
    wrong = pc.or_(wrong, pc.greater(after, cursor.end))
    start = cursor.at
    if cursor.fail(wrong, "the record ends in the middle of a value"):
        counts = pc.if_else(wrong, i64(0), counts)
        after = pc.if_else(wrong, start, after)
    parents, within = _ragged(counts)
    ahead = pc.subtract(pc.add(take(before, parents), within), i64(1))
    at = pc.if_else(
        pc.equal(within, i64(0)),
        take(start, parents),
        pc.add(take(ends, pc.max_element_wise(ahead, i64(0))), i64(1)),
    )
    cursor.at = after
    part = Cursor(cursor.block, at, take(cursor.end, parents), take(cursor.owner, parents))
    return [parents], [read(kind, part)]


def _one_by_one(
    kind: AvroType, cursor: Cursor, counts: pa.Array, read: Read
) -> tuple[list[pa.Array], list[pa.Array]]:
    import pyarrow.compute as pc

    going = _Fewer(cursor)
    parents: list[pa.Array] = []
    found: list[pa.Array] = []
    done = 0
    while len(counts):
        parents.append(going.slots)
        found.append(read(kind, going.cursor))
        done += 1
        counts = going.keep(pc.greater(counts, i64(done)), counts)
    going.rejoin()
    return parents, found


def _ragged(counts: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return for each item the place of its list, and its number in it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    offsets = _offsets(counts)
    total = offsets[-1].as_py()
    lists = pa.LargeListArray.from_arrays(offsets, pa.nulls(total))
    parents = pc.list_parent_indices(lists)
    return parents, pc.subtract(pa.arange(0, total), take(offsets, parents))


def _offsets(counts: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(counts)])


def _in_order(
    kind: AvroType, total: int, slots: list[pa.Array], found: list[pa.Array]
) -> tuple[pa.Array, pa.Array]:
    import pyarrow as pa
    import pyarrow.compute as pc

    owners = pa.concat_arrays([pa.arange(0, total), *slots])
    # Every list is counted once more than it has items: first, and so in order.
    counts = pc.subtract(owners.value_counts().field(1), i64(1))
    offsets = _offsets(counts).cast("int32")
    if not found:
        return offsets, pa.array([], natural(kind))
    values = pa.concat_arrays(found)
    if len(found) > 1:
        values = take(values, pc.sort_indices(pa.concat_arrays(slots)))
    return offsets, values


def _is_empty(kind: AvroType) -> bool:
    if kind.kind == "record":
        return all(_is_empty(inner) for _, inner in kind.fields)
    return kind.kind == "null" or (kind.kind == "fixed" and kind.size == 0)
