"""Publishing a batch's tables one after another, each exactly once.

Owns the loop around the atomic swap: what to do when main moved, when the answer was lost, and
when another attempt at the same batch was faster. Every check of history is made on the very
state that the next swap names as its base, so nothing can come between check and commit
(docs/adr/0004). Must never delete a file or try anew while an outcome is unknown.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from odi_audit import logs
from odi_audit.canonical import JsonObject
from odi_audit.committer import continuity, records, rivals
from odi_audit.committer.operations import Append, AppendFiles, Operation
from odi_audit.committer.parts import Parts, check_catalog
from odi_audit.committer.rewrites import rewrote
from odi_audit.committer.staging import Staged, check_shape, restage_append, restage_same
from odi_audit.errors import (
    CatalogUnavailable,
    CommitConflict,
    LedgerConflict,
    OdiError,
    OutcomeUnknown,
)
from odi_audit.ledger.port import Ledger, Position
from odi_audit.model.entries import Draft, Entry, Kind
from odi_audit.model.receipts import Landing
from odi_audit.model.shares import Follows, share_of
from odi_audit.model.snapshots import SnapshotFacts
from odi_audit.model.stamps import Stamps
from odi_audit.model.tables import TableRef, parse
from odi_audit.spark import publish
from odi_audit.spark.live import LiveTable, load
from odi_audit.spark.publish import Swap, SwapUnknown
from odi_audit.spark.stage import TableMoved

log = logs.get_logger(__name__)

APPEND_ATTEMPTS_FACTOR = 20
"""An append is put on a new head without writing again, so it may try that much more often."""
LOOK_ATTEMPTS_MAX = 5
LOOK_WAIT_S = 0.5
"""How long a lost answer is looked for before the outcome is left to reconcile."""
BACKOFF_S_MAX = 1.0


@dataclass(slots=True, kw_only=True)
class Outcomes:
    """How publishing ended for every table of the attempt."""

    landings: list[Landing] = field(default_factory=list)
    fresh: bool = True


class _AlreadyThere(Exception):
    """Another attempt has published this batch on this table."""

    def __init__(self, snapshot: SnapshotFacts) -> None:
        super().__init__(snapshot.id)
        self.snapshot = snapshot


class Publisher:
    """Publishes what one attempt staged, and records it.

    ``settled``: this attempt's intent has been closed. ``landed_some``: some table has been
    published. ``unknown``: nobody knows about one of them. The road asks before it settles.
    """

    def __init__(
        self,
        parts: Parts,
        opened: Entry,
        stamps: Callable[[Operation], Stamps],
        restage: Callable[[Staged, LiveTable], Staged],
    ) -> None:
        self._parts = parts
        self._opened = opened
        self._stamps = stamps
        self._restage = restage
        self._unrecorded: dict[str, list[SnapshotFacts]] = {}
        self._rivals: tuple[set[str], bool] | None = None
        self._leftovers: list[tuple[LiveTable, SnapshotFacts]] = []
        self.settled = False
        self.landed_some = False
        self.unknown = False

    def look_for_unrecorded(self, target: LiveTable, *, again: bool = False) -> None:
        """Find what other attempts of this job have published and not recorded.

        Whoever publishes has an open intent until it has recorded. The one exception is a process
        that was taken for dead, or whose JVM outlived it: its intent was settled by reconcile,
        and its publish came after. So history is read where another intent of the job is open,
        or this batch has been tried before; elsewhere there is nothing to find.

        The ledger is asked once for all tables of the attempt: they were loaded before, so what an
        attempt that begins later publishes makes them move. ``again``: a table has moved.
        """
        if self._rivals is None or again:
            self._rivals = self._look_for_rivals()
        others, tried_before = self._rivals
        if others or tried_before:
            self._unrecorded[target.ref.uuid] = [
                facts
                for facts in target.history()
                if facts.summary.get("odi.intent") in others
                or facts.summary.get("odi.batch-id") == self._opened.batch
            ]

    def _look_for_rivals(self) -> tuple[set[str], bool]:
        """Return the open intents of this job, and whether this batch has been tried before.

        Raises:
            CommitConflict: somebody is dropping or renaming one of the tables.
        """
        ledger, opened = self._parts.ledger, self._opened
        assert opened.batch is not None
        intents = ledger.open_intents()
        rivals.refuse_if_leaving(ledger, opened, intents)
        others = {
            str(entry.index)
            for entry in intents
            if entry.job == opened.job and entry.index != opened.index
        }
        tried_before = any(
            entry.kind is Kind.INTENT and entry.index != opened.index
            for entry in ledger.batch_entries(opened.batch)
        )
        return others, tried_before

    def is_there(self, target: LiveTable) -> bool:
        """Say whether another attempt has published this very batch on this table."""
        found = self._unrecorded.get(target.ref.uuid, [])
        return any(facts.summary.get("odi.batch-id") == self._opened.batch for facts in found)

    def unrecorded_positions(self, target: LiveTable, source: str) -> dict[str, Position]:
        """Return the positions of batches that are in the table but not yet in the ledger."""
        found = self._unrecorded.get(target.ref.uuid, [])
        return positions_in(self._parts.ledger, self._opened, target.ref, found, source)

    def publish_all(
        self,
        staged: list[Staged],
        moves: Mapping[str, bool],
        notes: Mapping[str, JsonObject] = MappingProxyType({}),
    ) -> Outcomes:
        """Publish every table in order and record each; afterwards the intent is settled.

        ``notes`` are further facts of some tables' landings, by uuid.

        Raises:
            OutcomeUnknown, CommitConflict, Refused: see ``settled`` and ``landed_some``.
        """
        outcomes = Outcomes()
        for number, item in enumerate(staged):
            last = number == len(staged) - 1
            with logs.bound(table=str(item.operation.table)):
                try:
                    snapshot, fresh = self._publish(staged, number), True
                except _AlreadyThere as there:
                    snapshot, fresh = there.snapshot, False
                    publish.discard(item.target, item.snapshot)
                self.landed_some = True
                self._parts.reach(f"published:{number}")
                landing = records.landing_of(item.target.ref, item.operation.name, snapshot)
                uuid = item.target.ref.uuid
                self._record(
                    landing, snapshot, last=last, moves=moves[uuid], note=notes.get(uuid, {})
                )
                self._tidy()
                self._parts.reach(f"recorded:{number}")
            outcomes.landings.append(landing)
            outcomes.fresh = outcomes.fresh and fresh
        return outcomes

    # -- one table ---------------------------------------------------------------------------

    def _publish(self, items: list[Staged], number: int) -> SnapshotFacts:
        # ``items[number]`` is always what is staged now: whoever gives up knows what to discard.
        self._refuse_twice(self._unrecorded.get(items[number].target.ref.uuid, []))
        limit = self._parts.settings.limits.stage_attempts_max
        if isinstance(items[number].operation, Append | AppendFiles):
            limit *= APPEND_ATTEMPTS_FACTOR
        for attempt in range(limit):
            staged = items[number]
            check_catalog(self._parts.settings)
            try:
                if publish.publish(staged.stage) is Swap.DONE:
                    return staged.snapshot
                now = staged.target.refreshed()
            except SwapUnknown as lost:
                log.warning("publish gave no answer: looking for the stamp", answer=str(lost))
                now = self._reload(staged, str(lost))
            landed = self._ours(now, staged)
            if landed is not None:
                return landed
            with suppress(TableMoved):
                # Moved once more: the next attempt is told so, and looks again.
                items[number] = self._again(staged, now)
            time.sleep(random.uniform(0, min(BACKOFF_S_MAX, 0.01 * 2**attempt)))
        operation = items[number].operation
        raise CommitConflict(
            f"{operation.name} on {operation.table} was staged {limit} times, and each time the "
            "table had moved before it could be published",
            hint="start the job again when fewer writers are busy on the table",
            attempts=limit,
        )

    def _tidy(self) -> None:
        # The data files are in the table by now; the manifests of earlier stagings are not.
        for target, snapshot in self._leftovers:
            publish.discard(target, snapshot, data_too=False)
        self._leftovers.clear()

    def _ours(self, now: LiveTable, staged: Staged) -> SnapshotFacts | None:
        newer = now.since(staged.target.head)
        for facts in newer:
            if facts.summary.get("odi.intent") == str(self._opened.index):
                return facts
        self._refuse_twice(newer)
        check_since(self._parts.ledger, self._opened, now.ref, newer)
        return None

    def _again(self, staged: Staged, now: LiveTable) -> Staged:
        stamps = self._stamps(staged.operation)
        if now.metadata_location == staged.target.metadata_location:
            return restage_same(staged, now, stamps)
        if isinstance(staged.operation, Append | AppendFiles):
            check_shape(staged.operation, now)
            # Kept until the batch is recorded: after a crash reconcile reads the first of them.
            self._leftovers.append((staged.target, staged.snapshot))
            return restage_append(staged, now, stamps)
        return self._restage(staged, now)

    def _reload(self, staged: Staged, answer: str) -> LiveTable:
        problem: OdiError | None = None
        for _ in range(LOOK_ATTEMPTS_MAX):
            try:
                return load(staged.target.jvm, staged.target.catalog, staged.target.name)
            except CatalogUnavailable as error:
                problem = error
                time.sleep(LOOK_WAIT_S)
        self.unknown = True
        try:
            self._parts.ledger.append(records.unknown(self._opened, staged.target.ref, answer))
        except OdiError as error:
            # The open intent says as much; the caller must hear of the commit, not of the ledger.
            problem = error
        raise OutcomeUnknown(
            f"commit {self._opened.batch} to {staged.target.ref.name} may or may not have landed: "
            f"{answer}",
            hint=f"odi-audit reconcile --batch {self._opened.batch} --apply",
            batch=str(self._opened.batch),
        ) from problem

    # -- helpers ---------------------------------------------------------------------------------

    def _refuse_twice(self, snapshots: list[SnapshotFacts]) -> None:
        for facts in snapshots:
            if facts.summary.get("odi.batch-id") == self._opened.batch:
                raise _AlreadyThere(facts)

    def _record(
        self,
        landing: Landing,
        snapshot: SnapshotFacts,
        *,
        last: bool,
        moves: bool,
        note: JsonObject,
    ) -> None:
        name = parse(landing.table.name)
        more = {**rewrote(lambda: self._parts.catalog().load(name), snapshot), **note}
        draft = records.landed(self._opened, landing, snapshot, settles=last, moves=moves, **more)
        try:
            try:
                self._parts.ledger.append(draft)
            except LedgerConflict:
                self._record_beside_another(draft, landing.table)
        except OdiError as error:
            self.unknown = True
            raise OutcomeUnknown(
                f"batch {self._opened.batch} is in {landing.table.name} (snapshot "
                f"{landing.snapshot}), but the ledger could not record it: {error.message}",
                hint=f"odi-audit reconcile --batch {self._opened.batch} --apply",
            ) from error
        self.settled = last

    def _record_beside_another(self, draft: Draft, table: TableRef) -> None:
        assert self._opened.batch is not None
        other = self._parts.ledger.landed(self._opened.batch, table.uuid)
        if other is None:
            # Reconcile took this process for dead and settled its intent; the batch is in the
            # table all the same, and must be found in the ledger.
            self._parts.ledger.append(replace(draft, settles=False))
        elif draft.settles and self._parts.ledger.settled_by(self._opened.index) is None:
            # Another attempt, or reconcile, has recorded the landing: close our intent with that.
            self._parts.ledger.append(
                records.abandoned(
                    self._opened,
                    "the batch landed; its record was made by another attempt",
                    landed=other.index,
                )
            )


def check_since(
    ledger: Ledger, opened: Entry, table: TableRef, newer: Sequence[SnapshotFacts]
) -> None:
    """Check that a batch still follows what copies of its job have put into a table meanwhile.

    Raises:
        Refused: it does not.
    """
    offsets = records.offsets_for(opened, table)
    continuity.check(
        offsets,
        positions_in(ledger, opened, table, newer, offsets.source),
        replay=bool(opened.facts["generation"]),
        accept_gap=False,
        where=table.name,
        may_skip=share_of(opened.facts, table.uuid).follows is not Follows.TABLE,
    )


def positions_in(
    ledger: Ledger,
    opened: Entry,
    table: TableRef,
    snapshots: Sequence[SnapshotFacts],
    source: str,
) -> dict[str, Position]:
    """Return where snapshots of a table and of the same job, newest first, have left a source.

    Snapshots of the intent's own batch do not count.
    """
    positions: dict[str, Position] = {}
    for facts in reversed(snapshots):
        same = (
            facts.summary.get("odi.job") == opened.job
            and facts.summary.get("odi.source") == source
            and facts.summary.get("odi.batch-id") != opened.batch
        )
        if same:
            intent = ledger.get(int(facts.summary["odi.intent"]))
            positions |= records.positions_of(intent, table)
    return positions
