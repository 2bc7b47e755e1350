"""The envelope of a change event: what it says apart from the row.

Owns the names and forms of the control columns, and the order of changes: by the position in the
database's log, not by arrival. Must never look at the row itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from jobs.formats.decoded import Unreadable

if TYPE_CHECKING:
    import pyarrow as pa

OP = "__odi_op"
"""``c`` created, ``u`` updated, ``d`` deleted, ``r`` read by a snapshot, ``t`` truncated."""
ORDER = "__odi_order"
"""Where the change lies in the source's log; of two changes of a row the greater text is newer."""
TIME = "__odi_time"
"""When the source committed it."""
UNAVAILABLE = "__odi_unavailable"
"""Names of columns whose values did not change and were not sent; null where there is none."""
OLD_KEY = "__odi_old_key"
"""Of a create that lacks values: the key that the row had before, as JSON; null where not told."""
CONTROL = (OP, ORDER, TIME, UNAVAILABLE, OLD_KEY)
NEEDED = (OP, ORDER, TIME, UNAVAILABLE)
"""Those without which a change cannot be applied."""
UNAVAILABLE_VALUE = "__debezium_unavailable_value"
NO_SOURCE = "the event does not say where it comes from (source)"


class Source(msgspec.Struct, kw_only=True, gc=False):
    """What an event says of where it comes from, as far as its order and time need it."""

    connector: Any = None
    lsn: Any = None
    file: Any = None
    pos: Any = None
    row: Any = None
    ts_us: Any = None
    ts_ms: Any = None


class Envelope(msgspec.Struct, kw_only=True):
    """What is read of an event. ``before`` is passed over: no change is made from it.

    ``status`` and ``id`` are those of a transaction's mark, which has no ``op``.
    """

    op: Any = None
    after: Any = None
    source: Source | None = None
    transaction: Any = None
    status: Any = None
    id: Any = None

    @property
    def is_mark(self) -> bool:
        """Whether it tells of the begin or the end of a transaction."""
        return self.status in {"BEGIN", "END"} and self.id is not None


def envelope_of(document: Mapping[str, Any]) -> Envelope:
    """Return the envelope that a document holds.

    Raises:
        Unreadable: what it says of its source is no object.
    """
    source = document.get("source")
    if source is not None and not isinstance(source, dict):
        raise Unreadable(NO_SOURCE)
    return Envelope(
        op=document.get("op"),
        after=document.get("after"),
        source=None if source is None else Source(**{n: source.get(n) for n in _OF_SOURCE}),
        transaction=document.get("transaction"),
        status=document.get("status"),
        id=document.get("id"),
    )


_OF_SOURCE = Source.__struct_fields__
_FILE_NUMBER = re.compile(r"\.(\d+)$")
_BINLOG = {"mysql", "mariadb"}


def control_fields() -> list[pa.Field]:
    """Return the control columns as fields of the decoded rows."""
    import pyarrow as pa

    return [
        pa.field(OP, pa.string()),
        pa.field(ORDER, pa.string()),
        pa.field(TIME, pa.timestamp("us", tz="UTC")),
        pa.field(UNAVAILABLE, pa.list_(pa.string())),
        pa.field(OLD_KEY, pa.string()),
    ]


def order_of(op: str, source: Source, transaction: Mapping[str, Any] | None) -> str:
    """Return a text that sorts as the changes of one row happened.

    PostgreSQL: the record's place in the write-ahead log. MySQL and MariaDB: the number of the
    binlog file, the event's place in it, the row in the event. Then, for both: what a snapshot
    read comes before what changed at the same place, and the order within the transaction. The
    same change sent again has the same order.

    Raises:
        Unreadable: the event does not tell its place.
    """
    rank = 0 if op == "r" else 1
    number = transaction["total_order"] if transaction else 0
    lsn = source.lsn
    if type(lsn) is int:
        return f"{lsn:016x}.{rank}.{number:08x}"
    connector = source.connector
    if connector in _BINLOG:
        return f"{_binlog(source)}.{rank}.{number:08x}"
    if connector == "postgresql":
        raise Unreadable("the event has no lsn, so its order is not known")
    raise Unreadable(f"how changes from connector {connector!r} are ordered is not known")


def micros_of(source: Source) -> int | None:
    """Return when the source committed a change, in microseconds since 1970."""
    micros = source.ts_us
    if micros is None:
        micros = None if source.ts_ms is None else source.ts_ms * 1_000
    if micros is not None and type(micros) is not int:
        raise Unreadable("the event's time is no number")
    return micros


def _binlog(source: Source) -> str:
    found = _FILE_NUMBER.search(str(source.file))
    place, row = source.pos, source.row or 0
    if found is None or type(place) is not int or type(row) is not int:
        raise Unreadable("the event has no binlog file and position, so its order is not known")
    # The text of the name would put file 1000000 before file 999999.
    return f"{int(found[1]):08x}.{place:012x}.{row:08x}"
