"""The raw half of a dual table: every record as it came, byte by byte.

Owns its columns. Tombstones, marks of transactions and records that cannot be read are in it too:
from it the curated table can be made again. Must never change a byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from jobs.tasks.rows import AT, HEADERS, KEY, NEWS, OFFSET, PARTITION, PASSED, TOPIC, VALUE
from odi_audit.errors import NotSupported

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = {
    "topic": "string",
    "partition": "string NOT NULL",
    "offset": "bigint NOT NULL",
    "at": "timestamp",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<name: string, value: binary>>",
}
"""In Spark's words; ``partition`` is named as in the batch's offsets."""
_FROM = dict(zip(COLUMNS, (TOPIC, PARTITION, OFFSET, AT, KEY, VALUE, HEADERS), strict=True))


def raw_rows(frame: DataFrame) -> DataFrame:
    """Return every record of a frame as a row of the raw table.

    Raises:
        NotSupported: the source gives no bytes.
    """
    if not set(_FROM.values()) <= set(frame.columns):
        raise NotSupported(
            "target.raw keeps records as they came, and this source gives no bytes",
            hint="leave target.raw out, or read from kafka",
        )
    record = F.col(NEWS).isNull() | (F.col(NEWS) == PASSED)
    return frame.filter(record).select(*[F.col(given).alias(name) for name, given in _FROM.items()])
