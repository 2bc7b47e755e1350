"""The road of one batch: plan, intend, stage, gate, publish, record.

Owns the order of the steps and what happens when one of them fails. One function decides
(``commit``); publishing has its own file (``publishing``). Must never publish what the ledger
does not know of, and must never settle an intent whose outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from odi_audit import logs
from odi_audit.canonical import JsonObject, digest
from odi_audit.committer import continuity, gate, records
from odi_audit.committer.operations import Operation, takes_rows, with_provenance, work
from odi_audit.committer.parts import Parts
from odi_audit.committer.publishing import Publisher
from odi_audit.committer.staging import Staged, check_shape, stage
from odi_audit.committer.surroundings import surroundings
from odi_audit.errors import (
    BatchReused,
    CommitConflict,
    OdiError,
    OffsetsMissing,
    Refused,
    UsageError,
)
from odi_audit.ids import BatchId, JobName, RunId, batch_id
from odi_audit.ledger.port import Position
from odi_audit.model.entries import Entry
from odi_audit.model.offsets import Offsets, table_state
from odi_audit.model.receipts import Landing, Receipt
from odi_audit.model.stamps import Stamps
from odi_audit.spark import publish
from odi_audit.spark.jvm import Jvm
from odi_audit.spark.live import LiveTable, load
from odi_audit.spark.stage import TableMoved

log = logs.get_logger(__name__)

STAGE_STARTS_FACTOR = 20
"""To look at a table again costs next to nothing, so staging may begin that much more often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What a caller asks for: operations on tables, for one part of a source."""

    job: JobName
    parent_run: RunId
    operations: tuple[Operation, ...]
    offsets: Offsets | None
    generation: int = 0
    accept_gap: str | None = None
    stream: JsonObject | None = None


def commit(parts: Parts, batch: Batch) -> Receipt:
    """Take a batch down the whole road; afterwards it is landed, refused, or left to reconcile.

    Raises:
        Refused (ODI-G…): main is as it was; the reason is in the ledger.
        BatchReused: the same offsets have landed with other work.
        CommitConflict, WriteFailed, StorageError, CatalogUnavailable: not published; try again.
        OutcomeUnknown: run ``odi-audit reconcile``.
    """
    _check_request(parts, batch)
    jvm = Jvm(parts.spark())
    targets = [
        load(jvm, parts.settings.catalog.name, operation.table) for operation in batch.operations
    ]
    planned = _plan(parts, batch, targets)
    earlier = _landed_before(parts, planned.batch, batch, targets)
    if all(earlier):
        return _told_so(planned, [entry for entry in earlier if entry], targets)
    parts.reach("planned")
    left = [
        (operation, target)
        for operation, target, entry in zip(batch.operations, targets, earlier, strict=True)
        if entry is None
    ]
    works = [(target.ref, work(operation)) for operation, target in left]
    todo = [(with_provenance(item, target, planned.offsets), target) for item, target in left]
    more = surroundings(parts, jvm, [target for _, target in left], stream=batch.stream)
    opened = parts.ledger.append(records.intent(planned, works, **more))[0]
    parts.reach("intended")
    names = ", ".join(target.ref.name for _, target in todo)
    with logs.bound(job=planned.job, run=opened.run, batch=planned.batch, table=names):
        done = [entry for entry in earlier if entry]
        return _Attempt(parts, batch, planned, opened).run(todo, done)


class _Attempt:
    """One attempt at a batch, from its intent on."""

    def __init__(self, parts: Parts, batch: Batch, planned: records.Planned, opened: Entry) -> None:
        self._parts = parts
        self._batch = batch
        self._planned = planned
        self._opened = opened
        self._staged: list[Staged] = []

    def run(self, todo: list[tuple[Operation, LiveTable]], done: list[Entry]) -> Receipt:
        publisher = Publisher(self._parts, self._opened, self._stamps, self._restage)
        try:
            moves = self._stage_all([(op, target.refreshed()) for op, target in todo], publisher)
            self._parts.reach("staged")
            self._record_staged(moves)
            self._parts.reach("gated")
            outcomes = publisher.publish_all(self._staged, moves)
        except Refused as refusal:
            if not (publisher.settled or publisher.landed_some):
                self._refuse(refusal)
            raise
        except OdiError as error:
            if not (publisher.settled or publisher.landed_some or publisher.unknown):
                self._parts.ledger.append(records.abandoned(self._opened, error.record))
                self._discard()
            raise
        landings = [records.landing_of_entry(entry) for entry in done] + outcomes.landings
        log.info(
            "landed" if outcomes.fresh else "landed before",
            tables=[landing.table.name for landing in landings],
            snapshots=[landing.snapshot for landing in landings],
        )
        return _receipt(self._planned, self._opened, landings, fresh=outcomes.fresh, targets=todo)

    def _stage_all(
        self, todo: list[tuple[Operation, LiveTable]], publisher: Publisher
    ) -> dict[str, bool]:
        moves: dict[str, bool] = {}
        for operation, target in todo:
            publisher.look_for_unrecorded(target)
            moves[target.ref.uuid] = self._continues(target, publisher)
            check_shape(operation, target)
        if self._batch.generation:
            self._parts.ledger.append(records.replay(self._opened))
        for operation, target in todo:
            with logs.bound(table=str(operation.table)):
                self._staged.append(self._stage_where_it_is(operation, target, publisher))
                self._gate(self._staged[-1])
        return moves

    def _stage_where_it_is(
        self, operation: Operation, target: LiveTable, publisher: Publisher
    ) -> Staged:
        limit = self._parts.settings.limits.stage_attempts_max * STAGE_STARTS_FACTOR
        for _ in range(limit):
            try:
                return self._stage(operation, target)
            except TableMoved:
                # Nothing was written yet: look at the new state as at the old one.
                target = target.refreshed()
                publisher.look_for_unrecorded(target)
                self._continues(target, publisher, again=True)
                check_shape(operation, target)
        raise CommitConflict(
            f"{operation.name} on {operation.table}: the table moved {limit} times before "
            "staging could begin",
            hint="start the job again when fewer writers are busy on the table",
            attempts=limit,
        )

    def _continues(self, target: LiveTable, publisher: Publisher, *, again: bool = False) -> bool:
        offsets = self._planned.offsets
        positions: dict[str, Position] = self._parts.ledger.positions(
            self._planned.job, target.ref.uuid, offsets.source, list(offsets.ranges)
        )
        positions |= publisher.unrecorded_positions(target, offsets.source)
        if publisher.is_there(target):
            # A copy of this job was faster with this very batch: publishing will say so.
            positions = {k: v for k, v in positions.items() if v.batch != self._planned.batch}
        verdict = continuity.check(
            offsets,
            positions,
            replay=self._batch.generation > 0,
            accept_gap=self._batch.accept_gap is not None,
            where=target.ref.name,
        )
        if verdict.gap is not None and not again:
            self._parts.ledger.append(
                records.gap_accepted(
                    self._opened, target.ref, verdict.gap, self._batch.accept_gap or ""
                )
            )
        return verdict.moves

    def _stage(self, operation: Operation, target: LiveTable) -> Staged:
        try:
            return stage(operation, target, self._stamps(operation))
        except Refused as refusal:
            limit = self._parts.settings.limits.refusal_samples_max
            gate.explain(operation, refusal, samples_max=limit)
            raise

    def _restage(self, staged: Staged, target: LiveTable) -> Staged:
        # Main moved: the work is done again on the new head, and checked again.
        check_shape(staged.operation, target)
        again = self._stage(staged.operation, target)
        publish.discard(staged.target, staged.snapshot)
        self._gate(again)
        return again

    def _gate(self, staged: Staged) -> None:
        gate.check(
            staged,
            self._planned.offsets,
            self._stamps(staged.operation),
            self._parts.settings,
        )

    def _stamps(self, operation: Operation) -> Stamps:
        assert self._opened.run is not None
        planned = self._planned
        return Stamps(
            job=planned.job,
            run=self._opened.run,
            batch=planned.batch,
            operation=operation.name,
            source=planned.offsets.source,
            offsets=planned.offsets.to_stamp(generation=planned.generation),
            intent=self._opened.index,
            principal=planned.principal,
            code=planned.code,
        )

    def _record_staged(self, moves: Mapping[str, bool]) -> None:
        tables: list[JsonObject] = [
            {
                "table_uuid": staged.target.ref.uuid,
                "name": staged.target.ref.name,
                "operation": staged.operation.name,
                "base": staged.target.head,
                "base_metadata": staged.target.metadata_location,
                "snapshot": staged.snapshot.id,
                "document": staged.snapshot.text,
                "counts": staged.counts,
                "moves_position": moves[staged.target.ref.uuid],
            }
            for staged in self._staged
        ]
        self._parts.ledger.append(records.staged(self._opened, tables))

    def _refuse(self, refusal: Refused) -> None:
        branches: list[JsonObject] = []
        limits = self._parts.settings.limits
        for staged in self._staged:
            name = f"odi_refused_{self._planned.batch[2:10]}_{self._opened.index}"
            kept = limits.refused_branch_days > 0 and publish.keep_for_inspection(
                staged.stage, name, limits.refused_branch_days
            )
            if kept:
                branches.append(
                    {
                        "table": staged.target.ref.name,
                        "branch": name,
                        "days": limits.refused_branch_days,
                        "snapshot": staged.snapshot.id,
                    }
                )
            else:
                publish.discard(staged.target, staged.snapshot)
        found = records.found(refusal)
        self._parts.ledger.append(records.refused(self._opened, refusal, branches, **found))
        if branches:
            refusal.facts["branch"] = str(branches[0]["branch"])
        log.warning("refused", code=refusal.code, reason=refusal.message)

    def _discard(self) -> None:
        for staged in self._staged:
            publish.discard(staged.target, staged.snapshot)


def _check_request(parts: Parts, batch: Batch) -> None:
    limit = parts.settings.limits.batch_tables_max
    names = [str(operation.table) for operation in batch.operations]
    if not names:
        raise UsageError("the batch has no operation: nothing to commit")
    if len(names) > limit:
        raise UsageError(f"the batch has {len(names)} tables, at most {limit} are allowed")
    if len(set(names)) != len(names):
        raise UsageError(
            "a batch may touch each table once; "
            + ", ".join(sorted({name for name in names if names.count(name) > 1}))
            + " stands in it more than once"
        )
    if batch.generation < 0:
        raise UsageError(f"generation is {batch.generation}, it starts at 0")
    if batch.offsets is None and any(takes_rows(item) for item in batch.operations):
        raise OffsetsMissing(
            f"rows for {', '.join(names)} came without offsets, so a retry could not be told from "
            "new work",
            hint="pass offsets=odi.files(paths), odi.kafka(…), odi.mapping(…), or "
            'odi.once("a name for this work")',
        )


def _plan(parts: Parts, batch: Batch, targets: list[LiveTable]) -> records.Planned:
    offsets = batch.offsets or table_state(
        ",".join(target.ref.name for target in targets),
        ",".join(str(target.head) for target in targets),
        {"works": [work(operation) for operation in batch.operations]},
    )
    return records.Planned(
        job=batch.job,
        batch=batch_id(
            job=batch.job,
            source=offsets.source,
            start=offsets.start(),
            end=offsets.end(),
            generation=batch.generation,
        ),
        offsets=offsets,
        generation=batch.generation,
        principal=parts.principal,
        code=parts.code,
        owner=parts.owner,
        parent_run=batch.parent_run,
    )


def _landed_before(
    parts: Parts, planned: BatchId, batch: Batch, targets: list[LiveTable]
) -> list[Entry | None]:
    found: list[Entry | None] = []
    for operation, target in zip(batch.operations, targets, strict=True):
        entry = parts.ledger.landed(planned, target.ref.uuid)
        if entry is not None and not _same_work(entry, operation):
            raise BatchReused(
                f"batch {planned} has landed on {target.ref.name} with another operation "
                f"({entry.facts.get('operation')}) than this one ({operation.name})",
                hint="give the second operation offsets of its own, or put both into run.batch()",
            )
        if entry is not None and parts.ledger.undone(planned, target.ref.uuid) is not None:
            raise BatchReused(
                f"batch {planned} had landed on {target.ref.name} and was taken out again",
                hint=f"to land the same offsets again, pass generation={batch.generation + 1}",
            )
        found.append(entry)
    return found


def _same_work(entry: Entry, operation: Operation) -> bool:
    # A record that was recovered from stamps knows the operation, not its arguments.
    recorded = entry.facts.get("work")
    if recorded is None:
        return entry.facts.get("operation") == operation.name
    return recorded == digest(work(operation))


def _told_so(planned: records.Planned, entries: list[Entry], targets: list[LiveTable]) -> Receipt:
    run = entries[0].run
    assert run is not None
    names = ", ".join(target.ref.name for target in targets)
    with logs.bound(job=planned.job, run=run, batch=planned.batch, table=names):
        log.info("landed before", intent=entries[0].intent)
        confidence = _confidence(targets)
    return Receipt(
        job=planned.job,
        run=run,
        batch=planned.batch,
        intent=entries[0].intent if entries[0].intent is not None else entries[0].index,
        fresh=False,
        confidence=confidence,
        landings=tuple(records.landing_of_entry(entry) for entry in entries),
    )


def _receipt(
    planned: records.Planned,
    opened: Entry,
    landings: list[Landing],
    *,
    fresh: bool,
    targets: list[tuple[Operation, LiveTable]],
) -> Receipt:
    assert opened.run is not None
    return Receipt(
        job=planned.job,
        run=opened.run,
        batch=planned.batch,
        intent=opened.index,
        fresh=fresh,
        confidence=_confidence([target for _, target in targets]),
        landings=tuple(landings),
    )


def _confidence(targets: list[LiveTable]) -> str:
    weak = [target for target in targets if target.confidence != "exact"]
    for target in weak:
        log.warning(
            "table is not format v3: rows can be traced to files only",
            table=target.ref.name,
            format_version=target.format_version,
            upgrade=f"ALTER TABLE {target.name.sql(target.catalog)} "
            "SET TBLPROPERTIES ('format-version'='3')",
        )
    return "file" if weak else "exact"
