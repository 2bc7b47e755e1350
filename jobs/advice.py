"""What a commit interval costs: files, snapshots, freshness, metadata, compaction.

Owns the arithmetic, and where its numbers come from: what the job has really done, else what its
source does, else assumptions that are said. Must never change a spec: it advises.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from statistics import median
from typing import TYPE_CHECKING

from odi_audit import clock
from odi_audit.canonical import Json, JsonObject
from odi_audit.errors import UsageError
from odi_audit.ids import JobName
from odi_audit.ledger.port import EntryFilter
from odi_audit.model.entries import Entry, Kind

if TYPE_CHECKING:
    from jobs.spec.model import JobSpec
    from odi_audit.ledger.port import Ledger

DAY_S = 86_400
INTERVALS_S = (10, 30, 60, 120, 300, 900, 1_800, 3_600)
"""From nearly at once to once an hour."""
RECOMMENDED_S = (60, 120, 300)
"""Shorter costs files for freshness that few need; longer makes a crash cost more than it saves."""
FILES_PER_DAY_MAX = 10_000
"""More files than this a day, and every query pays for opening them until they are compacted."""
COMMIT_SHARE_MAX = 0.2
"""A job that spends more of its time than this on commits has none left to catch up."""
LANDED_LOOKED_AT_MAX = 500
BATCHES_MIN = 3
"""Of fewer batches nothing can be told."""
RETAINED_DAYS = 5
"""How long snapshots are kept: Iceberg's own default."""
SNAPSHOT_BYTES = 1_300
"""What a stamped snapshot takes in metadata.json, with its line in the log."""
METADATA_BYTES = 4_000
"""Metadata of a table without snapshots: schema, properties, partitions."""
SMALL_SHARE = 0.75
"""A file below this part of the size aimed at is compacted."""
PIECE_ROWS_MIN = 20_000
"""A task gets at least so many rows: fewer are not worth its start."""
ASSUMED_ROWS_PER_S, ASSUMED_ROW_BYTES, ASSUMED_TASKS, ASSUMED_COMMIT_S = 1_000.0, 100.0, 2, 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What a job has to carry, and how: over all of its tables.

    ``tasks`` write at once, each its own files; ``partitions`` are those that rows of one commit
    fall into. ``known`` says that tasks with no rows write nothing, because the rate is known.
    """

    rows_per_s: float = ASSUMED_ROWS_PER_S
    row_bytes: float = ASSUMED_ROW_BYTES
    tasks: int = ASSUMED_TASKS
    partitions: int = 1
    tables: int = 1
    commit_s: float = ASSUMED_COMMIT_S
    file_bytes: int = 128 * 1024 * 1024
    basis: tuple[str, ...] = ()
    """Where each number comes from, in sentences."""
    known: bool = False

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        body: dict[str, Json] = {name: getattr(self, name) for name in self.__slots__}
        return {**body, "basis": list(self.basis)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one interval costs, a day and all tables together."""

    every_s: int
    commits: int
    snapshots: int
    files: int
    file_bytes: int
    freshness_s: float
    """Age of the oldest row that is not visible yet, just before a commit."""
    metadata_bytes: int
    """Size of one table's metadata.json once old snapshots begin to go."""
    metadata_written_bytes: int
    """It is written anew at every commit."""
    compaction_bytes: int
    """What has to be read and written once more to make large files of small ones."""
    commit_share: float
    notes: tuple[str, ...] = ()
    recommended: bool = False

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        body: dict[str, Json] = {name: getattr(self, name) for name in self.__slots__}
        return {**body, "notes": list(self.notes)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Costs by interval, and which one is advised. ``chosen_s`` is the spec's own."""

    job: str
    rates: Rates
    chosen: Cost
    costs: tuple[Cost, ...]
    tells: tuple[str, ...] = field(default=())

    @property
    def recommended(self) -> Cost:
        """The interval that is advised."""
        return next(cost for cost in self.costs if cost.recommended)

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {
            "job": self.job,
            "rates": self.rates.to_json(),
            "chosen": self.chosen.to_json(),
            "recommended_s": self.recommended.every_s,
            "costs": [cost.to_json() for cost in self.costs],
            "tells": list(self.tells),
        }


def advise(spec: JobSpec, rates: Rates) -> Advice:
    """Say what the spec's interval costs, beside others from 10 s to 1 h, and which to take."""
    costs = [cost(rates, every) for every in INTERVALS_S]
    best = _best(costs)
    marked = tuple(replace(item, recommended=item is best) for item in costs)
    chosen = cost(rates, round(spec.batch.every.total_seconds()))
    return Advice(
        job=spec.job, rates=rates, chosen=chosen, costs=marked, tells=_tells(chosen, best)
    )


def cost(rates: Rates, every_s: int) -> Cost:
    """Return what one interval costs."""
    commits = DAY_S // every_s
    rows = rates.rows_per_s * every_s / rates.tables
    size = rows * rates.row_bytes
    writers = rates.tasks
    if rates.known:
        writers = max(1, min(rates.tasks, math.ceil(rows / PIECE_ROWS_MIN)))
    files = writers * rates.partitions
    if rates.known:
        files = max(1, min(files, math.ceil(rows)))
    files = max(files, math.ceil(size / rates.file_bytes))
    file_bytes = round(size / files)
    small = file_bytes < SMALL_SHARE * rates.file_bytes
    metadata = METADATA_BYTES + SNAPSHOT_BYTES * commits * RETAINED_DAYS
    share = rates.commit_s * rates.tables / every_s
    made = Cost(
        every_s=every_s,
        commits=commits,
        snapshots=commits * rates.tables,
        files=commits * files * rates.tables,
        file_bytes=file_bytes,
        freshness_s=every_s + rates.commit_s * rates.tables,
        metadata_bytes=metadata,
        metadata_written_bytes=metadata * commits * rates.tables,
        compaction_bytes=round(rates.rows_per_s * DAY_S * rates.row_bytes) if small else 0,
        commit_share=round(share, 4),
    )
    return replace(made, notes=_notes(made))


def rates_of(
    spec: JobSpec,
    *,
    ledger: Ledger | None = None,
    source_rows_per_s: Callable[[], float | None] | None = None,
    tasks: int | None = None,
    rows_per_s: float | None = None,
    row_bytes: float | None = None,
) -> Rates:
    """Return what a job has to carry: as given, else as it did, else as its source does.

    Raises:
        UsageError: a number that is given makes no sense.
    """
    given = {"tasks": tasks, "rows per second": rows_per_s, "bytes per row": row_bytes}
    wrong = [name for name, value in given.items() if value is not None and value <= 0]
    if wrong:
        raise UsageError(f"{', '.join(wrong)}: expected more than zero")
    found = None if ledger is None else _landed_rates(ledger, spec)
    if found is None:
        found = _assumed(None if source_rows_per_s is None else source_rows_per_s())
    found = replace(found, file_bytes=spec.target.file_size)
    told = list(found.basis)
    if tasks is not None:
        told.append(f"{tasks} tasks, as given: each writes files at every commit")
        found = replace(found, tasks=tasks, known=rows_per_s is not None)
    if rows_per_s is not None:
        told.append(f"{rows_per_s:g} rows a second, as given")
        found = replace(found, rows_per_s=rows_per_s, known=True)
    if row_bytes is not None:
        told.append(f"{row_bytes:g} bytes a row in files, as given")
        found = replace(found, row_bytes=row_bytes)
    return replace(found, basis=tuple(told))


# -- where the numbers come from -----------------------------------------------------------------


def _assumed(rows_per_s: float | None) -> Rates:
    told = []
    if rows_per_s is None:
        told.append(f"assumed: {ASSUMED_ROWS_PER_S:g} rows a second")
    else:
        told.append(f"{rows_per_s:.3g} rows a second came to the source lately")
    told.append(
        f"assumed: {ASSUMED_ROW_BYTES:g} bytes a row in files, {ASSUMED_TASKS} tasks, "
        f"{ASSUMED_COMMIT_S:g} s for a commit"
    )
    return Rates(
        rows_per_s=ASSUMED_ROWS_PER_S if rows_per_s is None else rows_per_s,
        basis=tuple(told),
        known=rows_per_s is not None,
    )


def _landed_rates(ledger: Ledger, spec: JobSpec) -> Rates | None:
    """Return what the job's last batches did; None where there are too few to tell."""
    where = EntryFilter(kinds=(Kind.LANDED,), job=JobName(spec.job))
    aside = None if spec.dead_letter is None else spec.dead_letter.table
    landed = [
        entry
        for entry in ledger.find(where, limit=LANDED_LOOKED_AT_MAX, newest_first=True)
        if entry.table is not None and entry.table.name != aside and _count(entry, "rows")
    ]
    batches = {entry.batch: entry.time for entry in reversed(landed)}
    if len(batches) < BATCHES_MIN:
        return None
    times = sorted(clock.from_text(time) for time in batches.values())
    span = (times[-1] - times[0]).total_seconds()
    first = min(landed, key=lambda entry: entry.index).batch
    rows = sum(_count(entry, "rows") for entry in landed if entry.batch != first)
    if span <= 0 or not rows:
        return None
    size = sum(_count(entry, "bytes") for entry in landed)
    whole = sum(_count(entry, "rows") for entry in landed)
    files = [_count(entry, "files") for entry in landed]
    tables = len({entry.table.uuid for entry in landed if entry.table is not None})
    seconds = _commit_seconds(ledger, landed)
    told = f"{len(batches)} batches of this job, landed within {timedelta(seconds=round(span))}"
    return Rates(
        rows_per_s=rows / span,
        row_bytes=size / whole if size else ASSUMED_ROW_BYTES,
        tasks=max(1, round(median(files))),
        tables=tables,
        commit_s=seconds / max(1, len(landed) / len(batches)),
        basis=(told,),
        known=True,
    )


def _commit_seconds(ledger: Ledger, landed: Sequence[Entry]) -> float:
    """Return how long a batch takes from its staged files to its record, at the median."""
    found: list[float] = []
    for entry in landed[:20]:
        if entry.batch is None:
            continue
        entries = ledger.batch_entries(entry.batch)
        staged = [one.time for one in entries if one.kind is Kind.STAGED]
        last = [one.time for one in entries if one.kind is Kind.LANDED]
        if staged and last:
            span = clock.from_text(last[-1]) - clock.from_text(staged[-1])
            found.append(max(0.0, span.total_seconds()))
    return median(found) if found else ASSUMED_COMMIT_S


_COUNTS = {"rows": "added-records", "bytes": "added-files-size", "files": "added-data-files"}


def _count(entry: Entry, what: str) -> int:
    counts = entry.facts.get("counts")
    value = counts.get(_COUNTS[what]) if isinstance(counts, dict) else None
    return value if isinstance(value, int) else 0


# -- what to take ----------------------------------------------------------------------------------


def _best(costs: Sequence[Cost]) -> Cost:
    usual = [item for item in costs if item.every_s in RECOMMENDED_S]
    fine = [
        item
        for item in usual
        if item.files <= FILES_PER_DAY_MAX and item.commit_share <= COMMIT_SHARE_MAX
    ]
    return fine[0] if fine else usual[-1]


def _notes(item: Cost) -> tuple[str, ...]:
    notes = []
    if item.commit_share > 1:
        notes.append("commits take longer than the interval: the job would fall behind")
    elif item.commit_share > COMMIT_SHARE_MAX:
        notes.append(f"{item.commit_share:.0%} of the time goes into commits")
    if item.files > FILES_PER_DAY_MAX:
        notes.append(f"over {FILES_PER_DAY_MAX:,} files a day: compact at least daily")
    return tuple(notes)


def _tells(chosen: Cost, best: Cost) -> tuple[str, ...]:
    if chosen.every_s in RECOMMENDED_S or RECOMMENDED_S[0] <= chosen.every_s <= RECOMMENDED_S[-1]:
        if not chosen.notes:
            return ("the interval of the spec is within what is usual: 1 to 5 minutes",)
        return (f"every: {_short(best.every_s)} costs less: {'; '.join(chosen.notes)}",)
    less = chosen.every_s < RECOMMENDED_S[0]
    why = "makes many small files" if less else "shows rows late, and a crash repeats more work"
    return (f"every: {_short(best.every_s)} is advised; {_short(chosen.every_s)} {why}",)


def _short(seconds: int) -> str:
    if seconds % 3600 == 0:
        return f"{seconds // 3600}h"
    return f"{seconds // 60}m" if seconds % 60 == 0 else f"{seconds}s"
