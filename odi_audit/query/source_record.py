"""Source records: which record of the source a row came from, where its table keeps that.

Owns the reading of the two columns of ``model.provenance`` and the check that they agree with the
batch that the trace names. Must never name a record for a table that did not opt in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from odi_audit.canonical import Json, JsonObject
from odi_audit.catalog.state import TableState
from odi_audit.errors import UsageError
from odi_audit.model import provenance
from odi_audit.model.offsets import offsets_from_json
from odi_audit.query.origin import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    """One record of a source.

    ``brought_by`` is the batch whose offsets hold it: that of the row's last change, or of its
    birth. None: neither does, so a change between the two brought it, or a foreign write made it
    up.
    """

    source: str | None
    partition: str
    offset: int
    brought_by: Origin | None

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {
            "source": self.source,
            "partition": self.partition,
            "offset": str(self.offset),
            "batch": None if self.brought_by is None else self.brought_by.batch,
        }


def check_kept(state: TableState) -> None:
    """Refuse the question for a table that keeps no source records.

    Raises:
        UsageError: it does not.
    """
    if state.properties.get(provenance.PROPERTY) != provenance.ROW:
        raise UsageError(
            f"table {state.ref.name} does not keep each row's source record: rows are traced to "
            "their batch and its offsets",
            hint='new tables opt in: run.create_table(…, provenance="row")',
            table=state.ref.name,
        )


def source_record(
    values: Mapping[str, Json], *, birth: Origin, last_change: Origin
) -> SourceRecord | None:
    """Return the record that a row names; None where it names none."""
    partition, offset = values.get(provenance.PARTITION), values.get(provenance.OFFSET)
    if not isinstance(partition, str) or not isinstance(offset, int | str):
        return None
    place = int(offset)
    # An update leaves the columns as they were: the record then belongs to an older write.
    brought = next((item for item in (last_change, birth) if _holds(item, partition, place)), None)
    return SourceRecord(
        source=None if brought is None else brought.source,
        partition=partition,
        offset=place,
        brought_by=brought,
    )


def _holds(origin: Origin, partition: str, offset: int) -> bool:
    body = origin.offsets
    if body is None or "ranges" not in body:
        return False
    return provenance.holds(offsets_from_json(body), partition, offset)
