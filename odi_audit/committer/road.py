"""The road of one batch: plan, intend, stage, gate, publish, record.

Owns the order of the steps and what happens when one of them fails. One function decides
(``commit``); publishing has its own file (``publishing``). Must never publish what the ledger
does not know of, and must never settle an intent whose outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping

from odi_audit import logs
from odi_audit.canonical import JsonObject
from odi_audit.committer import column_lineage, continuity, gate, planning, records
from odi_audit.committer.absent import telling_of_renames
from odi_audit.committer.operations import (
    Operation,
    is_side,
    share_for,
    with_provenance,
    work,
)
from odi_audit.committer.parts import Parts
from odi_audit.committer.planning import Batch
from odi_audit.committer.publishing import Publisher
from odi_audit.committer.staging import NothingForIt, Staged, check_shape, stage
from odi_audit.committer.surroundings import surroundings
from odi_audit.errors import (
    CommitConflict,
    OdiError,
    Refused,
)
from odi_audit.ledger.port import Position
from odi_audit.model.entries import Entry
from odi_audit.model.receipts import Landing, Receipt
from odi_audit.model.shares import Follows
from odi_audit.model.stamps import Stamps
from odi_audit.model.tables import TableRef
from odi_audit.spark import publish
from odi_audit.spark.jvm import Jvm
from odi_audit.spark.live import LiveTable, load
from odi_audit.spark.stage import TableMoved

log = logs.get_logger(__name__)

STAGE_STARTS_FACTOR = 20
"""To look at a table again costs next to nothing, so staging may begin that much more often."""


def commit(parts: Parts, batch: Batch) -> Receipt:
    """Take a batch down the whole road; afterwards it is landed, refused, or left to reconcile.

    Raises:
        Refused (ODI-G…): main is as it was; the reason is in the ledger.
        BatchReused: the same offsets have landed with other work.
        CommitConflict, WriteFailed, StorageError, CatalogUnavailable: not published; try again.
        OutcomeUnknown: run ``odi-audit reconcile``.
    """
    planning.check_request(parts, batch)
    jvm = Jvm(parts.spark())
    catalog = parts.settings.catalog.name
    with telling_of_renames(parts.ledger):
        targets = [load(jvm, catalog, operation.table) for operation in batch.operations]
    planned = planning.plan(parts, batch, targets)
    earlier = planning.landed_before(parts, planned.batch, batch, targets)
    if all(entry or is_side(op) for op, entry in zip(batch.operations, earlier, strict=True)):
        # Side tables are published before the others: what they had to get, they have.
        return _told_so(planned, [entry for entry in earlier if entry], targets)
    parts.reach("planned")
    left = [
        (operation, target)
        for operation, target, entry in zip(batch.operations, targets, earlier, strict=True)
        if entry is None
    ]
    works = [(target.ref, work(operation)) for operation, target in left]
    shares = [share_for(operation) for operation, _ in left]
    todo = [
        (with_provenance(item, target, share.of(planned.offsets)), target)
        for (item, target), share in zip(left, shares, strict=True)
    ]
    more = surroundings(parts, jvm, [target for _, target in left], stream=batch.stream)
    columns = column_lineage.kept(parts.ledger, planned.job, left)
    opened = parts.ledger.append(records.intent(planned, works, shares, columns, **more))[0]
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
        self._notes: dict[str, JsonObject] = {}

    def run(self, todo: list[tuple[Operation, LiveTable]], done: list[Entry]) -> Receipt:
        publisher = Publisher(self._parts, self._opened, self._stamps, self._restage)
        try:
            moves = self._stage_all([(op, target.refreshed()) for op, target in todo], publisher)
            self._parts.reach("staged")
            self._record_staged(moves)
            self._parts.reach("gated")
            outcomes = publisher.publish_all(self._staged, moves, self._notes)
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
        sharing = [item.ref for op, item in todo if share_for(op).follows is Follows.JOB]
        if sharing:
            self._follows_job(sharing)
        for operation, target in todo:
            publisher.look_for_unrecorded(target)
            moves[target.ref.uuid] = self._continues(operation, target, publisher)
            check_shape(operation, target)
        if self._batch.generation:
            self._parts.ledger.append(records.replay(self._opened))
        for operation, target in todo:
            with logs.bound(table=str(operation.table)):
                try:
                    staged = self._stage_where_it_is(operation, target, publisher)
                except NothingForIt:
                    continue
                if is_side(operation) and not staged.snapshot.count("added-records"):
                    publish.discard(staged.target, staged.snapshot)
                    continue
                self._staged.append(staged)
                self._gate(staged)
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
                publisher.look_for_unrecorded(target, again=True)
                self._continues(operation, target, publisher, again=True)
                check_shape(operation, target)
        raise CommitConflict(
            f"{operation.name} on {operation.table}: the table moved {limit} times before "
            "staging could begin",
            hint="start the job again when fewer writers are busy on the table",
            attempts=limit,
        )

    def _follows_job(self, tables: list[TableRef]) -> None:
        """Check a batch whose tables get only some rows each against the job's last whole batch."""
        offsets = self._planned.offsets
        positions = self._parts.ledger.job_positions(
            self._planned.job, offsets.source, list(offsets.ranges)
        )
        # Where this very batch has landed on some tables already, the rest follows.
        positions = {k: v for k, v in positions.items() if v.batch != self._planned.batch}
        verdict = continuity.check(
            offsets,
            positions,
            replay=self._batch.generation > 0,
            accept_gap=self._batch.accept_gap is not None,
            where=f"job {self._planned.job}",
        )
        if verdict.gap is not None:
            reason = self._batch.accept_gap or ""
            self._parts.ledger.append(
                *(records.gap_accepted(self._opened, ref, verdict.gap, reason) for ref in tables)
            )

    def _continues(
        self, operation: Operation, target: LiveTable, publisher: Publisher, *, again: bool = False
    ) -> bool:
        share = share_for(operation)
        offsets = share.of(self._planned.offsets)
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
            may_skip=share.follows is not Follows.TABLE,
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
            share_for(staged.operation).of(self._planned.offsets),
            self._stamps(staged.operation),
            self._parts.settings,
        )

    def _stamps(self, operation: Operation) -> Stamps:
        assert self._opened.run is not None
        planned = self._planned
        offsets = share_for(operation).of(planned.offsets)
        return Stamps(
            job=planned.job,
            run=self._opened.run,
            batch=planned.batch,
            operation=operation.name,
            source=planned.offsets.source,
            offsets=offsets.to_stamp(generation=planned.generation),
            intent=self._opened.index,
            principal=planned.principal,
            code=planned.code,
        )

    def _record_staged(self, moves: Mapping[str, bool]) -> None:
        for staged in self._staged:
            tell = self._batch.notes.get(str(staged.operation.table))
            if tell is not None and (told := tell()):
                self._notes[staged.target.ref.uuid] = records.source_facts(told)
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
                # Also here: whoever rolls the batch forward has nothing else to know them by.
                **self._notes.get(staged.target.ref.uuid, {}),
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
