"""Keys of staged files: read once more, by themselves, where that is cheaper than watching them.

Owns the check that no two rows of a few data files share a key. Only the key columns are read,
with pyarrow, and only their row count bounds the memory. Must never read anything but the files
that it is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odi_audit.canonical import encode

if TYPE_CHECKING:
    import pyarrow as pa


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
    key: Sequence[str],
    *,
    properties: Mapping[str, str],
    samples_max: int,
) -> KeyProblems:
    """Look for null and repeated keys in Parquet files.

    ``properties`` are the catalog's, for files that are not on this machine.
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


def _read(path: str, key: Sequence[str], properties: Mapping[str, str]) -> pa.Table:
    import pyarrow.parquet as pq

    if "://" not in path:
        return pq.ParquetFile(path.removeprefix("file:")).read(columns=list(key))
    from pyiceberg.io import load_file_io

    with load_file_io(dict(properties), location=path).new_input(path).open() as stream:
        return pq.ParquetFile(stream).read(columns=list(key))


def _samples(nulls: pa.Table, repeated: pa.Table, samples_max: int) -> list[str]:
    found = [*repeated.slice(0, samples_max).to_pylist(), *nulls.slice(0, samples_max).to_pylist()]
    return [
        encode(
            {name: None if value is None else str(value) for name, value in row.items()}
        ).decode()
        for row in found[:samples_max]
    ]
