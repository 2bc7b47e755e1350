"""Keys of staged files: read once more, by themselves, where that is cheaper than watching them.

Owns the check that no two rows of a few data files share a key. Only the key columns are read,
with pyarrow, and only their row count bounds the memory. Must never read anything but the files
that it is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odi_audit.canonical import Json, encode

if TYPE_CHECKING:
    import pyarrow as pa

_FIELD_ID = b"PARQUET:field_id"
_EXACT_IN_JSON_MAX = 2**53 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyProblems:
    """What is wrong with the keys of some rows; ``samples`` are some of them, as JSON."""

    null_keys: int
    duplicate_keys: int
    samples: list[str]

    @property
    def none(self) -> bool:
        """Whether every key is there once."""
        return not (self.null_keys or self.duplicate_keys)


def check(
    paths: Sequence[str],
    key: Mapping[str, int],
    *,
    properties: Mapping[str, str],
    samples_max: int,
) -> KeyProblems:
    """Look for null and repeated keys in Parquet files.

    ``key`` maps the key's columns to their field ids: a column's name in a file may be another,
    because Parquet's own writers allow fewer characters. ``properties`` are the catalog's, for
    files that are not on this machine.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not paths:
        return KeyProblems(null_keys=0, duplicate_keys=0, samples=[])
    rows = pa.concat_tables([_read(path, key, properties) for path in paths])
    missing = rows.column(0).is_null()
    for position in range(1, rows.num_columns):
        missing = pc.or_(missing, rows.column(position).is_null())
    nulls = rows.filter(missing)
    groups = rows.filter(pc.invert(missing)).group_by(list(key)).aggregate([([], "count_all")])
    repeated = groups.filter(pc.greater(groups.column("count_all"), 1))
    too_many = (pc.sum(repeated.column("count_all")).as_py() or 0) - repeated.num_rows
    return KeyProblems(
        null_keys=nulls.num_rows,
        duplicate_keys=too_many,
        samples=_samples(nulls, repeated.select(list(key)), samples_max),
    )


def _read(path: str, key: Mapping[str, int], properties: Mapping[str, str]) -> pa.Table:
    if "://" not in path:
        return _columns(path.removeprefix("file:"), key)
    from pyiceberg.io import load_file_io

    with load_file_io(dict(properties), location=path).new_input(path).open() as stream:
        return _columns(stream, key)


def _columns(source: object, key: Mapping[str, int]) -> pa.Table:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(source)
    stored = {int(field.metadata[_FIELD_ID]): field.name for field in file.schema_arrow}
    names = [stored[number] for number in key.values()]
    return file.read(columns=names).select(names).rename_columns(list(key))


def _samples(nulls: pa.Table, repeated: pa.Table, samples_max: int) -> list[str]:
    found = [*repeated.slice(0, samples_max).to_pylist(), *nulls.slice(0, samples_max).to_pylist()]
    return [
        encode({name: _shown(value) for name, value in row.items()}).decode()
        for row in found[:samples_max]
    ]


def _shown(value: object) -> Json:
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int) and abs(value) <= _EXACT_IN_JSON_MAX:
        return value
    return str(value)
