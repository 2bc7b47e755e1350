"""Matching rows that have no ids: by their key, or by all their values.

Owns the digests of keys and rows, and the pairing by them. Sixteen bytes for each key and row are
kept, never the values. Must never pair a row with two others: equal rows are counted, not merged.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from odi_audit.catalog.files import KEPT
from odi_audit.catalog.rows import LINEAGE_COLUMNS, ROW_ID

PAIR = "_pair"
_KEY, _VALUES = "_key_digest", "_values_digest"
_DIGEST_BYTES = 16
"""128 bits: no collision by chance in any table that can be read."""
_DIGEST = pa.binary(_DIGEST_BYTES)

Matcher: TypeAlias = Callable[[pa.Table, pa.Table], tuple[pa.Table, pa.Table]]
"""Takes the digests of both sides; returns them without what is equal, with their pairs."""


def digests(batches: Iterable[tuple[pa.RecordBatch, pa.Table]], key: Sequence[str]) -> pa.Table:
    """Return, for rows with their values, what :data:`Matcher` needs to know of each."""
    parts: list[pa.Table] = []
    for batch, about in batches:
        names = [name for name in batch.schema.names if name not in LINEAGE_COLUMNS]
        made = about.append_column(_VALUES, _digests(batch, names))
        parts.append(made.append_column(_KEY, _digests(batch, list(key)) if key else made[_VALUES]))
    if parts:
        return pa.concat_tables(parts)
    kinds = {PAIR: pa.int64(), _VALUES: _DIGEST, _KEY: _DIGEST}
    return pa.schema([*KEPT, *kinds.items()]).empty_table()


def by_key(old: pa.Table, new: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Pair rows of one key. Equal ones fall out; where a key is there twice, so may pairs be."""
    kept_old, kept_new = _without_equals(old, new, ids_tell=False)
    waiting: defaultdict[bytes, list[int]] = defaultdict(list)
    for place, digest in enumerate(kept_old[_KEY].to_pylist()):
        waiting[digest].append(place)
    for places in waiting.values():
        places.reverse()
    left: list[int | None] = [None] * len(kept_old)
    right: list[int | None] = [None] * len(kept_new)
    pair = 0
    for place, digest in enumerate(kept_new[_KEY].to_pylist()):
        if waiting[digest]:
            left[waiting[digest].pop()] = right[place] = pair
            pair += 1
    return _numbered(kept_old, left), _numbered(kept_new, right)


def by_values(old: pa.Table, new: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Take out equal rows of which at least one has no id; two ids that differ are two rows."""
    return _without_equals(old, new, ids_tell=True)


def _without_equals(old: pa.Table, new: pa.Table, *, ids_tell: bool) -> tuple[pa.Table, pa.Table]:
    nameless: defaultdict[tuple[bytes, bytes], list[int]] = defaultdict(list)
    named: defaultdict[tuple[bytes, bytes], list[int]] = defaultdict(list)
    for place, (row_id, key, values) in enumerate(_known(old)):
        waiting = nameless if row_id is None or not ids_tell else named
        waiting[key, values].append(place)
    gone_old: set[int] = set()
    gone_new: set[int] = set()
    for place, (row_id, key, values) in enumerate(_known(new)):
        fits = nameless.get((key, values))
        if not fits and row_id is None:
            fits = named.get((key, values))
        if fits:
            gone_old.add(fits.pop())
            gone_new.add(place)
    return _without(old, gone_old), _without(new, gone_new)


def _known(table: pa.Table) -> Iterable[tuple[int | None, bytes, bytes]]:
    columns = (table[name].to_pylist() for name in (ROW_ID, _KEY, _VALUES))
    return zip(*columns, strict=True)


def _without(table: pa.Table, gone: set[int]) -> pa.Table:
    return table.filter(pa.array([place not in gone for place in range(len(table))], pa.bool_()))


def _numbered(table: pa.Table, pairs: Sequence[int | None]) -> pa.Table:
    place = table.schema.get_field_index(PAIR)
    return table.set_column(place, PAIR, pa.array(pairs, pa.int64()))


def _digests(batch: pa.RecordBatch, names: Sequence[str]) -> pa.Array:
    columns = [_exact(batch.column(name)).to_pylist() for name in names]
    made = [
        hashlib.blake2b(repr(row).encode(), digest_size=_DIGEST_BYTES).digest()
        for row in zip(*columns, strict=True)
    ]
    return pa.array(made, _DIGEST)


def _exact(column: pa.Array) -> pa.Array:
    # Python's times end at microseconds.
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        return pc.cast(column, pa.int64())
    return column
