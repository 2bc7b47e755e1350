"""A job's readings of a table, on record as those of every consumer are.

Owns the entry: who read which snapshots for which batch. It is written when the batch has landed;
one that a crash left out is written at the next start, for the run that landed it. The position is
not this entry's but the batch's. Must never record a reading of a batch that has not landed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from odi_audit.canonical import Json
from odi_audit.catalog.state import SnapshotInfo, TableState, history
from odi_audit.committer.records import without_values
from odi_audit.ids import RunId, SnapshotId
from odi_audit.ledger.port import EntryFilter
from odi_audit.model.entries import Draft, Kind
from odi_audit.query.consumers import Mode, confirming, reads, writes_between

if TYPE_CHECKING:
    from odi_audit.committer.run import Run
    from odi_audit.ledger.port import Position
    from odi_audit.model.entries import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a job reads of a table, batch after batch."""

    consumer: str
    mode: Mode
    where: str | None

    def recorded(self, run: Run, state: TableState, position: Position, rows: int | None) -> bool:
        """Record the reading of the batch that a position is of; False where it is on record."""
        ledger = run.parts.ledger
        start = None if position.start is None else str(position.start)
        with confirming(ledger, state.ref, self.consumer):
            for read in reads(ledger, state.ref.uuid, job=run.job):
                same = (read.from_snapshot, read.to_snapshot) == (start, str(position.end))
                if same and read.entry > position.index and read.consumer == self.consumer:
                    return False
            landed = ledger.get(position.index)
            intent = landed if landed.intent is None else ledger.get(landed.intent)
            ledger.append(
                Draft(
                    kind=Kind.READ,
                    job=run.job,
                    run=_run_of(intent) or run.run_id,
                    table=state.ref,
                    facts=self._facts(run, state, position, intent, rows),
                )
            )
        return True

    def _facts(
        self, run: Run, state: TableState, position: Position, intent: Entry, rows: int | None
    ) -> dict[str, Json]:
        start, end = _info(state, position.start), _info(state, position.end)
        masked = None if self.where is None else without_values({"where": self.where})["where"]
        since = None if start is None else start.sequence_number
        return {
            "consumer": self.consumer,
            "mode": self.mode.value,
            "columns": [column.name for column in state.columns],
            "where": masked,
            "principal": run.parts.principal,
            "began": intent.index,
            "began_at": intent.time,
            "form": "spark",
            "from_snapshot": None if position.start is None else str(position.start),
            "from_sequence": since,
            "to_snapshot": str(position.end),
            "to_sequence": None if end is None else end.sequence_number,
            "to_time": None if end is None else end.time,
            "batches": None
            if end is None or self.mode is Mode.STABLE
            else writes_between(history(state), since, end.sequence_number),
            "rows": rows,
        }


def last_batch_rows(run: Run, position: Position) -> int | None:
    """Return how many rows a landed batch wrote, as the ledger has it."""
    where = EntryFilter(kinds=(Kind.LANDED,), batch=position.batch)
    counts = [entry.facts.get("counts") for entry in run.parts.ledger.find(where)]
    found = [item.get("added-records") for item in counts if isinstance(item, dict)]
    numbers = [number for number in found if isinstance(number, int)]
    return sum(numbers) if numbers else None


def _info(state: TableState, place: object) -> SnapshotInfo | None:
    return None if place is None else state.snapshot(SnapshotId(str(place)))


def _run_of(intent: Entry) -> RunId | None:
    found = intent.facts.get("parent_run")
    return RunId(found) if isinstance(found, str) else None
