"""Another table of the lake as a source of a job: its changes, its new rows, or all its rows.

Owns which snapshots come next. The position is that of the job's own batches, so a batch and how
far it has read land together; that the table was read is recorded as of every consumer. Must never
skip a snapshot: where one has expired, or is not what the reading takes, the job stops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from jobs.formats.debezium_envelope import OP, ORDER, TIME, UNAVAILABLE
from jobs.sources.base import Choices, Lag, Limits, Plan
from jobs.sources.corrected import tell
from jobs.sources.table_reads import Reading, last_batch_rows
from jobs.sources.table_steps import cut, lost, moment_of, rows_of, steps_of
from odi_audit import logs
from odi_audit.canonical import digest
from odi_audit.catalog.state import SnapshotInfo, TableState, ancestors, head, history
from odi_audit.errors import NotSupported, SourceChanged, TableNotFound
from odi_audit.ids import SnapshotId
from odi_audit.model.offsets import OffsetKind, Offsets, Range
from odi_audit.model.tables import parse, quote
from odi_audit.query.consumers import Mode, Pending, check_consumer
from odi_audit.query.lookup import source_name
from odi_audit.query.places import resolve_place
from odi_audit.query.writes import is_compaction
from odi_audit.reading import access_of
from odi_audit.readings import BATCH, HANDED_ON, ChangeReading
from odi_audit.spark.changes import at_snapshot

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from jobs.runner.outcome import Done
    from jobs.spec.model import JobSpec
    from jobs.spec.sources import IcebergSource
    from odi_audit.committer.run import Run
    from odi_audit.ledger.port import Position
    from odi_audit.spark.live import LiveTable

log = logs.get_logger(__name__)

_OPS = {"insert": "c", "update_after": "u", "delete": "d"}


class TableFeed:
    """The table of one spec."""

    def __init__(self, spec: JobSpec, *, source: IcebergSource | None = None) -> None:
        given = source or spec.source
        assert given.type == "iceberg"
        self._spec = spec
        self._table: IcebergSource = given
        self._name = parse(given.table)
        self.changes = given.read == "changes"
        self._reading = Reading(
            consumer=check_consumer(given.consumer or spec.job),
            mode=Mode.STABLE if given.read == "rows" else Mode.CHANGES,
            where=given.where,
        )
        self._run: Run | None = None
        self._known_as = str(self._name)
        self._target_known_as = spec.target.table

    def prepare(self, run: Run) -> None:
        """See that the table is there, and record what a killed run read and did not record.

        Raises:
            TableNotFound: it is not there.
            NotSupported: the spec asks for what a table has not.
        """
        if self._spec.target.provenance == "row":
            raise NotSupported(
                "target.provenance: row: rows of a table have no offset",
                hint="write provenance: batch; odi-audit trace follows rows through tables",
            )
        self._run = run
        self._known_as = _known_as(run, str(self._name))
        if self._spec.target.table is not None:
            self._target_known_as = _known_as(run, self._spec.target.table)
        self._record(run)

    def identity(self) -> str:
        """Return the name under which the ledger keeps how far the table was read.

        Once it is prepared that is the table's first one on record, whatever it is called now.
        """
        return f"table:{self._known_as}"

    def plan(
        self,
        run: Run,
        positions: Mapping[str, Position],
        limits: Limits,
        *,
        choices: Choices,
        elsewhere: Sequence[str] = (),  # noqa: ARG002 - a feed's signature
        waited_s: float = float("inf"),
    ) -> Plan | None:
        """Return the snapshots behind the position, or None while none is due.

        Raises:
            SourceChanged: the table is another one, or what came cannot be read as asked.
            EntryNotFound: the place to start at is not there.
        """
        state = self._state(run)
        last = positions.get(state.ref.uuid)
        if last is None and positions and not choices.generation:
            raise self._another(state, positions)
        end = head(state)
        if end is None:
            return None
        if self._table.read == "rows":
            return self._whole(state, end, last, choices)
        anew = bool(choices.generation) and (
            (last is None and bool(positions)) or (last is not None and lost(state, last))
        )
        start = None if anew else self._start(run, state, last)
        if last is not None and start == end:
            return None
        steps = steps_of(state, start, end)
        if self._table.read == "appends" and start is not None:
            self._only_appends(state, start, steps)
        taken, rows = cut(state, start, end, steps, limits)
        more = taken != end
        if last is not None and not more and rows < limits.rows and waited_s < limits.seconds:
            return None
        return Plan(
            offsets=self._offsets(state, start, taken),
            rows=rows,
            more=more,
            generation=choices.generation if anew else 0,
        )

    def columns(self, run: Run, plan: Plan) -> dict[str, str]:
        """Return the columns of the table, as the plan's last snapshot has them."""
        schema = self._at(run, self._part(plan).end).schema
        return {item.name: item.dataType.simpleString() for item in schema.fields}

    def frame(self, run: Run, plan: Plan, table: LiveTable | None) -> DataFrame:  # noqa: ARG002
        """Return the rows of a plan; changes come with what they did, when, and in which order."""
        part = self._part(plan)
        if part.start is None:
            rows = self._filtered(self._at(run, part.end))
            return self._told(run, rows, F.lit("c"), part) if self.changes else rows
        if part.start == part.end:
            rows = self._at(run, part.end).limit(0)
            return self._told(run, rows, F.lit("c"), part) if self.changes else rows
        if self.changes:
            return self._changed(run, part)
        return self._filtered(
            run.spark.read.option("start-snapshot-id", str(part.start))
            .option("end-snapshot-id", str(part.end))
            .table(self._name.sql(run.parts.settings.catalog.name))
        )

    def landed(self, done: Done) -> None:
        """Record that the batch's part of the table was read."""
        assert self._run is not None, "prepare comes first"
        self._record(self._run, rows=done.records)
        if self._spec.target.mode == "replace":
            tell(self._run, self._spec, done)

    def lag(self, run: Run, positions: Mapping[str, Position]) -> Lag:
        """Return the rows that snapshots behind the position wrote."""
        state = self._state(run)
        last, end = positions.get(state.ref.uuid), head(state)
        if end is None or (last is not None and (str(last.end) == end or lost(state, last))):
            return Lag()
        start = self._start(run, state, last)
        return Lag(rows={str(self._name): rows_of(state, start, end, steps_of(state, start, end))})

    # -- snapshots ----------------------------------------------------------------------------

    def _state(self, run: Run) -> TableState:
        return run.parts.catalog().load(self._name)

    def _start(self, run: Run, state: TableState, last: Position | None) -> SnapshotId | None:
        if last is not None:
            if lost(state, last):
                raise self._expired(state, last)
            return SnapshotId(str(last.end))
        given = self._table.start
        if given.at is not None:
            return None if given.at == "earliest" else head(state)
        named = given.snapshot or given.tag or given.batch
        place = named if named is not None else str(given.timestamp and given.timestamp.isoformat())
        return resolve_place(run.parts.ledger, state, place).id

    def _whole(
        self, state: TableState, end: SnapshotId, last: Position | None, choices: Choices
    ) -> Plan | None:
        """Plan all rows, unless nothing came since the last time but what the job wrote itself."""
        window = self._window()
        same = last is not None and last.identity == window
        if same and not choices.generation:
            assert last is not None
            news = takewhile(lambda info: info.id != str(last.end), ancestors(state, end))
            if all(is_compaction(info) or info.batch == last.batch for info in news):
                return None
        info = state.snapshot(end)
        total = "" if info is None else info.summary.get("total-records", "")
        return Plan(
            offsets=Offsets(
                kind=OffsetKind.TABLE,
                source=self.identity(),
                ranges={state.ref.uuid: Range(None, end)},
                identity={state.ref.uuid: window},
            ),
            rows=int(total) if total.isdigit() else 0,
            generation=choices.generation if same else 0,
        )

    def _window(self) -> str:
        """Return what tells one correction from another: which rows, and what is made of them."""
        transform, target = self._spec.transform, self._spec.target
        return digest(
            {
                "where": self._table.where,
                "transform": None if transform is None else transform.model_dump(mode="json"),
                "target": self._target_known_as,
                "replaces": target.where,
            }
        )[:16]

    def _offsets(self, state: TableState, start: SnapshotId | None, end: SnapshotId) -> Offsets:
        return Offsets(
            kind=OffsetKind.TABLE,
            source=self.identity(),
            ranges={state.ref.uuid: Range(start, end)},
        )

    def _part(self, plan: Plan) -> Range:
        return next(iter(plan.offsets.ranges.values()))

    def _only_appends(
        self, state: TableState, start: SnapshotId, steps: Sequence[SnapshotInfo]
    ) -> None:
        wrong = [info for info in steps if info.operation != "append" and not is_compaction(info)]
        known = any(info.id == start for info in history(state))
        if known and not wrong:
            return
        told = (
            f"snapshot {wrong[0].id} of {wrong[0].time} is a {wrong[0].operation}"
            + ("" if wrong[0].batch is None else f" (batch {wrong[0].batch})")
            if known
            else f"it was rolled back behind snapshot {start}, up to which it was read"
        )
        raise SourceChanged(
            f"table {self._name} is read by its appends, but {told}: rows that went or changed "
            "would stay in what is made of it",
            hint="write source.read: changes with target.mode: mirror; or put right what was made "
            "of it and begin behind it under a new job name: source.start",
            source=self.identity(),
        )

    def _expired(self, state: TableState, last: Position) -> SourceChanged:
        kept = history(state)
        oldest = (
            "" if not kept else f"; the oldest that is kept is {kept[-1].id} of {kept[-1].time}"
        )
        return SourceChanged(
            f"table {self._name} was read up to snapshot {last.end} in batch {last.batch}, which "
            f"has expired: what changed since then cannot be told{oldest}",
            hint="to read every row anew, pass --generation 1 (or higher); rows that were deleted "
            "meanwhile then stay. Keep snapshots for longer than a job may stand still",
            source=self.identity(),
        )

    def _another(self, state: TableState, positions: Mapping[str, Position]) -> SourceChanged:
        return SourceChanged(
            f"table {self._name} is not the one that was read: its id was {min(positions)} and is "
            f"{state.ref.uuid}: another one has its name",
            hint="to read the new one from its beginning, pass --generation 1 (or higher)",
            source=self.identity(),
        )

    # -- rows ---------------------------------------------------------------------------------

    def _at(self, run: Run, snapshot: object) -> DataFrame:
        name = run.parts.settings.catalog.name
        return at_snapshot(run.spark, name, self._name, SnapshotId(str(snapshot)))

    def _filtered(self, rows: DataFrame) -> DataFrame:
        return rows if self._table.where is None else rows.where(self._table.where)

    def _changed(self, run: Run, part: Range) -> DataFrame:
        state = self._state(run)
        start, end = (state.snapshot(SnapshotId(str(place))) for place in (part.start, part.end))
        if start is None or end is None:
            gone = part.start if start is None else part.end
            raise SourceChanged(
                f"snapshot {gone} of {self._name} expired between planning and reading",
                hint="start the job again",
            )
        reading = ChangeReading(
            access_of(run.parts, run),
            state,
            Pending(start=start, end=end, position=None),
            self._reading.consumer,
            columns=None,
            where=self._table.where,
            as_="spark",
        )
        rows = self._with_old_keys(reading.to_spark())
        change, row_id, sequence = HANDED_ON
        op = F.create_map(*[F.lit(text) for pair in _OPS.items() for text in pair])[F.col(change)]
        told = self._told(run, rows, op, part, moment=moment_of(state, start, end, sequence))
        return told.drop(change, row_id, sequence, BATCH)

    def _with_old_keys(self, rows: DataFrame) -> DataFrame:
        """Leave out what rows were before, but delete the old key of a row that has another now."""
        change, row_id, _ = HANDED_ON
        kept = rows.filter(F.col(change) != "update_before")
        key = self._spec.target.key
        if not isinstance(key, tuple) or not key or self._spec.transform is not None:
            return kept
        keys = [F.col(quote(name)) for name in key]
        after = rows.filter(F.col(change) == "update_after").select(
            F.col(row_id).alias("__odi_id"), F.struct(*keys).alias("__odi_now")
        )
        before = rows.filter(F.col(change) == "update_before").join(
            after, F.col(row_id) == F.col("__odi_id")
        )
        moved = before.filter(~F.struct(*keys).eqNullSafe(F.col("__odi_now")))
        gone = moved.drop("__odi_id", "__odi_now").withColumn(change, F.lit("delete"))
        return kept.unionByName(gone)

    def _told(
        self, run: Run, rows: DataFrame, op: Column, part: Range, moment: Column | None = None
    ) -> DataFrame:
        """Add the control columns: of two changes of a key that of the later batch is newer."""
        last = run.parts.ledger.job_positions(run.job, self.identity())
        index = max((position.index for position in last.values()), default=-1) + 1
        if moment is None:
            info = self._state(run).snapshot(SnapshotId(str(part.end)))
            moment = F.lit(None if info is None else info.time).cast("timestamp")
        made = rows.withColumns({OP: op, TIME: moment})
        # Where a row went and came back with the same key, its coming is the newer one.
        rank = F.when(F.col(OP) == "d", F.lit("0")).otherwise(F.lit("1"))
        return made.withColumns(
            {
                ORDER: F.concat(F.lit(f"{index:016x}."), rank),
                UNAVAILABLE: F.lit(None).cast("array<string>"),
            }
        )

    # -- the record ---------------------------------------------------------------------------

    def _record(self, run: Run, rows: int | None = None) -> None:
        state = self._state(run)
        found = run.parts.ledger.job_positions(run.job, self.identity(), [state.ref.uuid])
        last = found.get(state.ref.uuid)
        if last is None:
            return
        counted = last_batch_rows(run, last) if rows is None else rows
        if self._reading.recorded(run, state, last, counted):
            log.info("reading recorded", table=str(self._name), consumer=self._reading.consumer)


def _known_as(run: Run, table: str) -> str:
    try:
        return source_name(run.parts.ledger, run.parts.catalog().load(parse(table)).ref)
    except TableNotFound:
        return table
