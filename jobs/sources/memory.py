"""What the ledger remembers of a job's sources, beside the positions on the present one.

Owns the question under which other names a job has read. Must never write.
"""

from __future__ import annotations

from collections.abc import Mapping

from odi_audit.ids import JobName, TableUuid
from odi_audit.ledger.port import EntryFilter, Ledger
from odi_audit.model.entries import Kind
from odi_audit.model.offsets import OffsetKind

LOOKED_AT_MAX = 100
"""Of a job's last batches: a job that has moved on has its positions on the present source."""


def elsewhere(
    ledger: Ledger, job: JobName, table: TableUuid, source: str, kind: OffsetKind
) -> list[str]:
    """Return the other sources of this kind that the job has read into the table lately.

    A plan needs them only where there is no position on ``source``: then another source has taken
    the place of the one that was read.
    """
    where = EntryFilter(kinds=(Kind.LANDED,), job=job, table=table)
    found: set[str] = set()
    for entry in ledger.find(where, limit=LOOKED_AT_MAX, newest_first=True):
        offsets = entry.facts.get("offsets")
        if isinstance(offsets, Mapping) and offsets.get("kind") == kind.value:
            found.add(str(offsets.get("source")))
    return sorted(found - {source})
