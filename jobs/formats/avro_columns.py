"""Avro records as columns: each type of a schema, read for all records at once.

Owns the walk over a schema: field by field, and inside a field branch by branch. Values come out in
the type that holds them unchanged (``avro_schema.natural``). Must never decide what fits a table.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from typing import TYPE_CHECKING

from jobs.formats import avro_lists as lists
from jobs.formats.avro_bytes import Cursor, i64, pieces, spread_of, take, u64
from jobs.formats.avro_schema import (
    DIGITS_MAX,
    INSTANTS,
    LOCALS,
    TIMES,
    AvroType,
    members,
    natural,
    promoted,
)

if TYPE_CHECKING:
    import pyarrow as pa

_DAY = {"ms": 86_400_000, "us": 86_400_000_000}
_EXACT = Context(prec=400)
"""Python's own context would round at 28 digits."""


def read(kind: AvroType, cursor: Cursor) -> pa.Array:
    """Read a value of a type at each place, and move behind it."""
    return _READERS[kind.kind](kind, cursor)


def fields(kind: AvroType, cursor: Cursor, *, alone: str = "value") -> dict[str, pa.Array]:
    """Read the fields of a record; what is no record is a field of the name ``alone``."""
    parts = kind.fields if kind.kind == "record" else ((alone, kind),)
    return {name: read(inner, cursor) for name, inner in parts}


def broken(cursor: Cursor) -> dict[int, str]:
    """Return which records were found broken, once all of each has been read, and forget it."""
    import pyarrow.compute as pc

    cursor.fail(pc.less(cursor.at, cursor.end), "the record is longer than its schema says")
    found = {place: f"the record is broken: {told}" for place, told in cursor.block.bad.items()}
    cursor.block.bad.clear()
    return found


# -- values of one size or length ------------------------------------------------------------------


def _null(_: AvroType, cursor: Cursor) -> pa.Array:
    import pyarrow as pa

    return pa.nulls(len(cursor))


def _boolean(_: AvroType, cursor: Cursor) -> pa.Array:
    import pyarrow.compute as pc

    start, end = cursor.fixed(1)
    found = pc.if_else(pc.less(start, end), take(cursor.block.bytes, start).cast("int64"), i64(0))
    cursor.fail(pc.greater(found, i64(1)), "a boolean is neither 0 nor 1")
    return pc.equal(found, i64(1))


def _int(kind: AvroType, cursor: Cursor) -> pa.Array:
    import pyarrow as pa

    found = cursor.ints()
    if kind.logical == "date":
        return found.cast(pa.date32())
    return _clock(found.cast("int64"), kind, cursor) if kind.logical in TIMES else found


def _long(kind: AvroType, cursor: Cursor) -> pa.Array:
    found = cursor.longs()
    if kind.logical in INSTANTS or kind.logical in LOCALS:
        return found.view(natural(kind))
    return _clock(found, kind, cursor) if kind.logical in TIMES else found


def _clock(found: pa.Array, kind: AvroType, cursor: Cursor) -> pa.Array:
    import pyarrow.compute as pc

    unit = TIMES[kind.logical or ""]
    wrong = pc.or_(pc.less(found, i64(0)), pc.greater_equal(found, i64(_DAY[unit])))
    if cursor.fail(wrong, "a time of day lies outside of the day"):
        found = pc.if_else(wrong, i64(0), found)
    return (found.cast("int32") if unit == "ms" else found).view(natural(kind))


def _float(_: AvroType, cursor: Cursor) -> pa.Array:
    import pyarrow.compute as pc

    word = cursor.words()
    cursor.fixed(4)
    return pc.bit_wise_and(word, u64(0xFFFFFFFF)).cast("uint32").view("float32")


def _double(_: AvroType, cursor: Cursor) -> pa.Array:
    word = cursor.words()
    cursor.fixed(8)
    return word.view("float64")


def _enum(kind: AvroType, cursor: Cursor) -> pa.Array:
    import pyarrow as pa

    places = _choice(cursor, len(kind.symbols), "an enum has no such symbol")
    return take(pa.array(kind.symbols, pa.string()), places)


def _bytes(kind: AvroType, cursor: Cursor) -> pa.Array:
    start, end = cursor.spans()
    if kind.logical == "decimal":
        return _decimals(kind, cursor, start, end)
    return pieces(cursor.block, start, end)


def _fixed(kind: AvroType, cursor: Cursor) -> pa.Array:
    import pyarrow as pa

    start, end = cursor.fixed(kind.size)
    if kind.logical == "decimal":
        return _decimals(kind, cursor, start, end)
    found = pieces(cursor.block, start, end)
    if kind.logical == "uuid":
        texts = [value.hex() for value in found.to_pylist()]
        made = [f"{x[:8]}-{x[8:12]}-{x[12:16]}-{x[16:20]}-{x[20:]}" for x in texts]
        return pa.array(made, pa.string())
    return found


def _string(_: AvroType, cursor: Cursor) -> pa.Array:
    import pyarrow as pa

    start, end = cursor.spans()
    found = pieces(cursor.block, start, end)
    try:
        return found.cast(pa.string())
    except pa.ArrowInvalid:
        values = found.to_pylist()
        wrong = pa.array([not _is_text(value) for value in values], pa.bool_())
        cursor.fail(wrong, "a text is not UTF-8")
        return pa.array([value if _is_text(value) else b"" for value in values]).cast(pa.string())


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _decimals(kind: AvroType, cursor: Cursor, start: pa.Array, end: pa.Array) -> pa.Array:
    """Make decimals of the bytes between places: a number, most significant byte first."""
    import pyarrow as pa
    import pyarrow.compute as pc

    sizes = pc.subtract(end, start)
    if not len(sizes):
        return pa.array([], natural(kind))
    empty = pc.equal(sizes, i64(0))
    cursor.fail(empty, "a decimal has no bytes")
    if pc.max(sizes).as_py() > 8:
        return _long_decimals(kind, cursor, pieces(cursor.block, start, end))
    word = Cursor(cursor.block, start, end, cursor.owner).words()
    for shift, mask in ((8, 0x00FF00FF00FF00FF), (16, 0x0000FFFF0000FFFF), (32, 0xFFFFFFFF)):
        low = pc.shift_left(pc.bit_wise_and(word, u64(mask)), u64(shift))
        word = pc.bit_wise_or(low, pc.bit_wise_and(pc.shift_right(word, u64(shift)), u64(mask)))
    unused = pc.shift_left(pc.subtract(i64(8), pc.max_element_wise(sizes, i64(1))), i64(3))
    numbers = pc.shift_right(word.view("int64"), unused)
    numbers = pc.if_else(empty, i64(0), numbers).cast(pa.decimal128(DIGITS_MAX, 0))
    return pa.Array.from_buffers(natural(kind), len(numbers), numbers.buffers())


def _long_decimals(kind: AvroType, cursor: Cursor, values: pa.Array) -> pa.Array:
    import pyarrow as pa

    found = [int.from_bytes(value, "big", signed=True) for value in values.to_pylist()]
    beyond = [abs(number) >= 10**DIGITS_MAX for number in found]
    cursor.fail(pa.array(beyond, pa.bool_()), f"a decimal has more than {DIGITS_MAX} digits")
    made = [
        None if too_long else _EXACT.scaleb(Decimal(number), -kind.scale)
        for number, too_long in zip(found, beyond, strict=True)
    ]
    return pa.array(made, natural(kind))


# -- values made of others -------------------------------------------------------------------------


def _record(kind: AvroType, cursor: Cursor) -> pa.Array:
    import pyarrow as pa

    count = len(cursor)
    made = fields(kind, cursor)
    if not made:
        return pa.Array.from_buffers(pa.struct([]), count, [None])
    return pa.StructArray.from_arrays(list(made.values()), list(made))


def _optional(kind: AvroType, cursor: Cursor) -> pa.Array:
    import pyarrow.compute as pc

    assert kind.items is not None
    branch = _choice(cursor, 2, "a union has no such branch")
    present = pc.not_equal(branch, i64(kind.null_at))
    return _of_branch(kind.items, cursor, present)


def _of_branch(kind: AvroType, cursor: Cursor, present: pa.Array) -> pa.Array:
    """Read values where they are present; null elsewhere."""
    import pyarrow.compute as pc

    if pc.all(present).as_py():
        return read(kind, cursor)
    part = cursor.some(pc.indices_nonzero(present))
    made = read(kind, part)
    spread = spread_of(present)
    cursor.rejoin(part, spread)
    return take(made, spread)


def _union(kind: AvroType, cursor: Cursor) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    branch = _choice(cursor, len(kind.branches), "a union has no such branch")
    masks = [pc.equal(branch, i64(at)) for at in range(len(kind.branches)) if at != kind.null_at]
    made = [
        _of_branch(inner, cursor, mask)
        for (_, inner), mask in zip(members(kind), masks, strict=True)
    ]
    one = promoted(kind)
    if one is not None:
        return pc.coalesce(*(values.cast(one) for values in made))
    absent = pc.equal(branch, i64(kind.null_at))
    return pa.StructArray.from_arrays(made, [name for name, _ in members(kind)], mask=absent)


def _array(kind: AvroType, cursor: Cursor) -> pa.Array:
    import pyarrow as pa

    assert kind.items is not None
    offsets, values = lists.read_items(kind.items, cursor, read)
    return pa.ListArray.from_arrays(offsets, values)


def _map(kind: AvroType, cursor: Cursor) -> pa.Array:
    import pyarrow as pa

    assert kind.items is not None
    pair = AvroType(kind="record", fields=(("key", AvroType(kind="string")), ("value", kind.items)))
    offsets, pairs = lists.read_items(pair, cursor, read)
    return pa.MapArray.from_arrays(offsets, pairs.field(0), pairs.field(1))


def _choice(cursor: Cursor, count: int, reason: str) -> pa.Array:
    """Read a number below a count: a branch of a union, a symbol of an enum."""
    import pyarrow.compute as pc

    found = cursor.longs()
    wrong = pc.or_(pc.less(found, i64(0)), pc.greater_equal(found, i64(count)))
    return pc.if_else(wrong, i64(0), found) if cursor.fail(wrong, reason) else found


_READERS: dict[str, Callable[[AvroType, Cursor], pa.Array]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _float,
    "double": _double,
    "bytes": _bytes,
    "string": _string,
    "enum": _enum,
    "fixed": _fixed,
    "record": _record,
    "array": _array,
    "map": _map,
    "optional": _optional,
    "union": _union,
}
