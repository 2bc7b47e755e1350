"""Dead letters: records that are no rows, kept as they came, with the reason.

Owns the columns of a dead-letter table and how rejects become rows of it. A reason may quote a
value, so it stands here and nowhere else. Must never drop or change a byte of a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from jobs.formats.decoded import Reject
    from jobs.tasks.records import Records

COLUMNS = (
    "job string NOT NULL, batch string NOT NULL, source string NOT NULL, "
    "partition string NOT NULL, offset bigint NOT NULL, at timestamp, reason string NOT NULL, "
    "table string, key binary, value binary, "
    "headers array<struct<name: string, value: binary>>"
)
"""In Spark's words; ``table`` is where the record would have gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What every dead letter of a batch has in common."""

    job: str
    batch: str
    source: str


def letters(
    records: Records, rejects: Sequence[Reject], origin: Origin, *, table: str, schema: pa.Schema
) -> pa.Table:
    """Return rejects as rows of a dead-letter table; ``schema`` is that of its files."""
    import pyarrow as pa

    places = [item.place for item in rejects]
    count = len(places)
    millis = [records.millis[place] for place in places]
    columns: dict[str, pa.Array] = {
        "job": pa.array([origin.job] * count),
        "batch": pa.array([origin.batch] * count),
        "source": pa.array([origin.source] * count),
        "partition": pa.array([records.name] * count),
        "offset": pa.array([records.offsets[place] for place in places], pa.int64()),
        "at": pa.array(millis, pa.timestamp("ms", tz="UTC")),
        "reason": pa.array([item.reason for item in rejects]),
        "table": pa.array([table] * count),
        "key": pa.array([records.keys[place] for place in places], pa.binary()),
        "value": pa.array([records.values[place] for place in places], pa.binary()),
        "headers": pa.array(
            [
                [{"name": name, "value": value} for name, value in records.headers[place]]
                for place in places
            ],
            pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())])),
        ),
    }
    return pa.table([columns[item.name].cast(item.type) for item in schema], schema=schema)
