"""Facts of a record as columns of its row: topic, offset, time, key, headers, and its source.

Owns the names and types of these columns. Must never clash with a column of the record: each
begins with an underscore.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from odi_audit.model.provenance import OFFSET, PARTITION

if TYPE_CHECKING:
    import pyarrow as pa

    from jobs.tasks.records import Records

SPARK_TYPES: Mapping[str, str] = {
    "_topic": "string",
    "_partition": "int",
    "_offset": "bigint",
    "_timestamp": "timestamp",
    "_key": "binary",
    "_headers": "array<struct<name: string, value: binary>>",
    PARTITION: "string",
    OFFSET: "bigint",
}
"""Each fact's column and its type in Spark's words."""


def columns(names: Sequence[str], records: Records, places: Sequence[int]) -> list[pa.Array]:
    """Return the named facts of the records at these places."""
    return [_MAKERS[name](records, places) for name in names]


def _topic(records: Records, places: Sequence[int]) -> pa.Array:
    return _same(records.topic, len(places))


def _partition(records: Records, places: Sequence[int]) -> pa.Array:
    import pyarrow as pa

    return pa.array([records.partition] * len(places), pa.int32())


def _offset(records: Records, places: Sequence[int]) -> pa.Array:
    import pyarrow as pa

    offsets = records.offsets
    if len(places) == len(offsets):
        return pa.array(offsets, pa.int64())
    return pa.array([offsets[place] for place in places], pa.int64())


def _timestamp(records: Records, places: Sequence[int]) -> pa.Array:
    import pyarrow as pa

    millis = [records.millis[place] for place in places]
    return pa.array(millis, pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))


def _key(records: Records, places: Sequence[int]) -> pa.Array:
    import pyarrow as pa

    return pa.array([records.keys[place] for place in places], pa.binary())


def _headers(records: Records, places: Sequence[int]) -> pa.Array:
    import pyarrow as pa

    return pa.array(
        [
            [{"name": name, "value": value} for name, value in records.headers[place]]
            for place in places
        ],
        pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())])),
    )


def _source_partition(records: Records, places: Sequence[int]) -> pa.Array:
    return _same(records.name, len(places))


def _same(text: str, count: int) -> pa.Array:
    import pyarrow as pa

    return pa.repeat(pa.scalar(text), count)


_MAKERS: Mapping[str, Callable[[Records, Sequence[int]], pa.Array]] = {
    "_topic": _topic,
    "_partition": _partition,
    "_offset": _offset,
    "_timestamp": _timestamp,
    "_key": _key,
    "_headers": _headers,
    PARTITION: _source_partition,
    OFFSET: _offset,
}
