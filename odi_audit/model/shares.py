"""Shares: which part of a batch's offsets a table gets, and what that part must follow.

Owns the value and its form in the ledger. A batch over many tables reads its source once; each
table may get the rows of some partitions only, or only some rows of all. Must never decide
whether a batch continues another: that is continuity's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from odi_audit.canonical import Json, JsonObject
from odi_audit.model.offsets import Offsets


class Follows(StrEnum):
    """What a table's part of a batch must start at the end of.

    ``table``: the last batch on this table. ``job``: the job's last whole batch, for a table that
    gets only some rows, so that a batch without any for it is no gap. ``nothing``: a side table,
    such as dead letters, which may leave out batches; it must not go back.
    """

    TABLE = "table"
    JOB = "job"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A table's part of a batch's offsets; ``partitions`` None: all of them."""

    partitions: tuple[str, ...] | None = None
    follows: Follows = Follows.TABLE

    def of(self, offsets: Offsets) -> Offsets:
        """Return the part of a batch's offsets that this table gets."""
        return offsets if self.partitions is None else offsets.only(self.partitions)

    def to_json(self) -> dict[str, Json]:
        """Return what the intent keeps of it: nothing where it is the whole."""
        body: dict[str, Json] = {}
        if self.partitions is not None:
            body["partitions"] = sorted(self.partitions)
        if self.follows is not Follows.TABLE:
            body["follows"] = self.follows.value
        return body


WHOLE = Share()


def share_of(intent: JsonObject, table_uuid: str) -> Share:
    """Read a table's share from the facts of its intent."""
    operations = intent.get("operations")
    for operation in operations if isinstance(operations, Sequence) else ():
        if isinstance(operation, dict) and operation.get("table_uuid") == table_uuid:
            partitions = operation.get("partitions")
            return Share(
                partitions=tuple(str(name) for name in partitions)
                if isinstance(partitions, Sequence)
                else None,
                follows=Follows(str(operation.get("follows", Follows.TABLE.value))),
            )
    return WHOLE
