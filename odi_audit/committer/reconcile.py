"""Reconcile: settle what a crash left open, by looking, never by guessing.

Owns the judgement of an open intent: landed if its stamp is in main, rolled forward if every part
was staged and passed the gate, abandoned otherwise. The plan needs no JVM; only rolling forward
starts Spark. Must never touch an intent whose owner lives, and must never delete data files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, cast

from odi_audit import logs
from odi_audit.canonical import JsonObject
from odi_audit.catalog import TableState, find_stamp, history
from odi_audit.committer import lifetime, records
from odi_audit.committer.parts import Parts
from odi_audit.committer.rewrites import rewrote
from odi_audit.committer.rivals import DROP
from odi_audit.committer.traces import LACKS, SHOWS, WITHOUT_SNAPSHOT, happened, quiet_record
from odi_audit.committer.views import facts_of, no_snapshot
from odi_audit.errors import CatalogUnavailable, LedgerConflict, OdiError, TableNotFound
from odi_audit.ids import BatchId, JobName, TableUuid
from odi_audit.ledger.port import Ledger
from odi_audit.model import tables
from odi_audit.model.entries import Draft, Entry, Kind
from odi_audit.model.shares import Follows
from odi_audit.model.snapshots import SnapshotFacts, snapshot_from_text
from odi_audit.model.tables import TableRef

if TYPE_CHECKING:
    from odi_audit.catalog import LakeCatalog

log = logs.get_logger(__name__)


class Action(StrEnum):
    """What reconcile will do about an open intent."""

    WAIT = "in-flight"
    RECORD = "record-landed"
    ROLL_FORWARD = "roll-forward"
    ABANDON = "abandon"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One table of an open intent: what was found there."""

    operation: str
    table: TableRef
    landed: SnapshotFacts | None
    recorded: bool
    document: JsonObject | None
    unchanged: bool
    state: TableState | None

    @property
    def missing(self) -> bool:
        """Whether this part is not in its table."""
        return self.landed is None and not self.recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What to do about one open intent, and why."""

    opened: Entry
    action: Action
    reason: str
    parts: tuple[Part, ...]


def plan(
    ledger: Ledger,
    catalog: LakeCatalog,
    *,
    batch: BatchId | None = None,
    job: JobName | None = None,
) -> list[Settlement]:
    """Judge every open intent; changes nothing and starts no JVM.

    Raises:
        CatalogUnavailable: an intent cannot be judged without looking at its table.
    """
    opened = ledger.open_intents(job=job)
    return [
        _judge(ledger, catalog, entry) for entry in opened if batch is None or entry.batch == batch
    ]


def apply(parts: Parts, settlements: Sequence[Settlement]) -> list[Settlement]:
    """Carry out a plan; returns it with what really happened.

    An intent that somebody else settles at the same time is left as they settled it.
    """
    done: list[Settlement] = []
    for settlement in settlements:
        try:
            done.append(_carry_out(parts, settlement))
        except LedgerConflict:
            done.append(_once_more(parts, settlement))
    return done


def settle_dead(parts: Parts) -> list[Settlement]:
    """Settle, at the start of a run, every intent whose owner is dead; then end the dead runs."""
    opened = parts.ledger.open_intents()
    settled = apply(parts, plan(parts.ledger, parts.catalog())) if opened else []
    lifetime.end_dead(parts.ledger)
    for item in settled:
        if item.action is not Action.WAIT:
            log.info(
                "reconciled", batch=item.opened.batch, action=item.action.value, reason=item.reason
            )
    return settled


# -- judging ------------------------------------------------------------------------------------


def _judge(ledger: Ledger, catalog: LakeCatalog, opened: Entry) -> Settlement:
    owner = str(opened.facts.get("owner", ""))
    # Asked before looking: a process that dies after the look may have published in between.
    alive = ledger.is_alive(owner)
    documents = _documents(ledger, opened)
    found = tuple(
        _look(ledger, catalog, opened, operation, documents)
        for operation in _needed(opened, documents)
    )
    if alive:
        return Settlement(
            opened=opened, action=Action.WAIT, reason=f"its process {owner} lives", parts=found
        )
    if not any(part.missing for part in found):
        return Settlement(
            opened=opened,
            action=Action.RECORD,
            reason=_told(SHOWS, found) or "its stamp is in every table",
            parts=found,
        )
    missing = [part for part in found if part.missing]
    if all(part.document is not None for part in missing):
        stuck = [part for part in missing if not _can_roll(part)]
        if not stuck:
            return Settlement(
                opened=opened,
                action=Action.ROLL_FORWARD,
                reason="everything was staged and passed the gate",
                parts=found,
            )
        names = ", ".join(part.table.name for part in stuck)
        return Settlement(
            opened=opened,
            action=Action.ABANDON,
            reason=f"it was staged, but {names} has moved since: the job stages it again",
            parts=found,
        )
    return Settlement(
        opened=opened, action=Action.ABANDON, reason=_why_abandoned(found), parts=found
    )


def _why_abandoned(found: Sequence[Part]) -> str:
    alone = _told(LACKS, found)
    if alone is not None:
        return alone
    if any(part.landed for part in found):
        return "its process died with some tables published; the job publishes the rest"
    return "its process died before everything was staged; nothing of it is visible"


def _told(words: Mapping[str, str], found: Sequence[Part]) -> str | None:
    # An operation with words of its own is alone in its batch.
    return next((words[part.operation] for part in found if part.operation in words), None)


def _needed(opened: Entry, documents: Mapping[str, JsonObject]) -> list[JsonObject]:
    """Return the operations that count: a side table that was not staged with the rest is out."""
    operations = cast("Sequence[JsonObject]", opened.facts["operations"])
    if not documents:
        return list(operations)
    return [
        item
        for item in operations
        if item.get("follows") != Follows.NOTHING or str(item["table_uuid"]) in documents
    ]


def _look(
    ledger: Ledger,
    catalog: LakeCatalog,
    opened: Entry,
    operation: JsonObject,
    documents: Mapping[str, JsonObject],
) -> Part:
    assert opened.batch is not None
    name, uuid = str(operation["table"]), TableUuid(str(operation["table_uuid"]))
    state = _this_very_table(catalog, name, uuid)
    if state is None:
        return Part(
            operation=str(operation["op"]),
            table=TableRef(uuid=uuid, name=name),
            # Gone from the catalog: that is what a drop was to bring about.
            landed=no_snapshot() if operation["op"] == DROP else None,
            recorded=False,
            document=None,
            unchanged=False,
            state=None,
        )
    document = documents.get(uuid)
    return Part(
        operation=str(operation["op"]),
        table=state.ref,
        landed=_landed(opened, str(operation["op"]), state),
        recorded=ledger.landed(opened.batch, state.ref.uuid) is not None,
        document=document,
        unchanged=document is not None and document["base_metadata"] == state.metadata_location,
        state=state,
    )


def _this_very_table(catalog: LakeCatalog, name: str, uuid: TableUuid) -> TableState | None:
    """Return the table of an intent, under whatever name; never another one of its name."""
    try:
        state = catalog.load(tables.parse(name))
    except TableNotFound:
        state = None
    if not uuid or (state is not None and state.ref.uuid == uuid):
        return state
    return catalog.load_by_uuid(uuid)


def _landed(opened: Entry, operation: str, state: TableState) -> SnapshotFacts | None:
    assert opened.batch is not None
    if operation not in WITHOUT_SNAPSHOT:
        info = find_stamp(state, opened.batch)
        return None if info is None else facts_of(info)
    if not happened(opened, operation, state):
        return None
    head = next(iter(history(state)), None)
    return no_snapshot() if head is None else facts_of(head)


def _documents(ledger: Ledger, opened: Entry) -> dict[str, JsonObject]:
    assert opened.batch is not None
    documents: dict[str, JsonObject] = {}
    for entry in ledger.batch_entries(opened.batch):
        if entry.kind is Kind.STAGED and entry.intent == opened.index:
            for table in cast("Sequence[JsonObject]", entry.facts["tables"]):
                documents[str(table["table_uuid"])] = table
    return documents


def _can_roll(part: Part) -> bool:
    return part.unchanged or (part.operation == "append" and part.state is not None)


# -- carrying out -------------------------------------------------------------------------------


def _carry_out(parts: Parts, settlement: Settlement) -> Settlement:
    opened = settlement.opened
    if settlement.action is Action.WAIT:
        return settlement
    if settlement.action is Action.RECORD:
        _record(parts, opened, settlement.parts)
        return settlement
    if settlement.action is Action.ROLL_FORWARD:
        return _roll(parts, settlement)
    _record(parts, opened, [part for part in settlement.parts if part.landed], close=False)
    parts.ledger.append(records.abandoned(opened, settlement.reason))
    return settlement


def _roll(parts: Parts, settlement: Settlement) -> Settlement:
    # Imported here: a plan, and every other action, must start no JVM.
    from odi_audit.committer.forward import roll_forward

    opened = settlement.opened
    found = list(settlement.parts)
    try:
        for number, part in enumerate(settlement.parts):
            found[number] = roll_forward(parts, opened, part)
    except CatalogUnavailable:
        # A publish may be on its way: the intent stays open until somebody can look.
        raise
    except OdiError as error:
        _record(parts, opened, [part for part in found if part.landed], close=False)
        parts.ledger.append(records.abandoned(opened, error.record))
        return replace(settlement, action=Action.ABANDON, reason=error.message)
    _record(parts, opened, found)
    return settlement


def _once_more(parts: Parts, settlement: Settlement) -> Settlement:
    # Something was recorded since the plan was made: by another process, or, where several
    # attempts at one batch had died, by the settlement of the attempt before this one.
    opened = settlement.opened
    elsewhere = replace(settlement, reason="settled by another process meanwhile")
    if parts.ledger.settled_by(opened.index) is not None:
        return elsewhere
    try:
        return _carry_out(parts, _judge(parts.ledger, parts.catalog(), opened))
    except LedgerConflict:
        return elsewhere


def _record(parts: Parts, opened: Entry, found: Sequence[Part], *, close: bool = True) -> None:
    fresh = [part for part in found if not part.recorded]
    drafts: list[Draft] = []
    for number, part in enumerate(fresh):
        assert part.landed is not None
        settles = close and number == len(fresh) - 1
        drafts.append(_draft(parts, opened, part, part.landed, settles=settles))
    if close and not fresh:
        drafts.append(
            records.abandoned(opened, "the batch landed; its record was made by another attempt")
        )
    if drafts:
        parts.ledger.append(*drafts)


def _draft(
    parts: Parts, opened: Entry, part: Part, landed: SnapshotFacts, *, settles: bool
) -> Draft:
    if part.operation not in WITHOUT_SNAPSHOT:
        landing = records.landing_of(part.table, part.operation, landed)
        # An earlier attempt's snapshot may carry the stamp; its own intent says who made it.
        # A replay that was staged must not turn the position back, whoever records it.
        moves = part.document is None or part.document.get("moves_position") is not False
        more = {
            **rewrote(lambda: parts.catalog().load(tables.parse(part.table.name)), landed),
            **records.staged_notes(part.document or {}),
        }
        return records.landed(
            opened, landing, landed, settles=settles, moves=moves, reconciled=True, **more
        )
    draft = quiet_record(parts.ledger, opened, part.operation, part.table, part.state)
    return replace(draft, settles=settles)


def staged_snapshot(part: Part) -> SnapshotFacts:
    """Return the snapshot that was staged for a part, as its STAGED entry kept it."""
    assert part.document is not None
    return snapshot_from_text(str(part.document["document"]))
