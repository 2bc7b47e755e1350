"""One table against the ledger: its snapshots, its landed entries, the shape of its history.

Owns the checks ODI-V01 to V06 and V09. Must never read the catalog or change anything: it is
given a table's state and what the ledger recorded about it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from odi_audit import canonical
from odi_audit.catalog.state import SnapshotInfo, TableState, history
from odi_audit.errors import EntryNotFound, Fact
from odi_audit.ids import BatchId
from odi_audit.ledger.port import EntryFilter, Ledger
from odi_audit.model import stamps as stamping
from odi_audit.model.entries import EFFECTS, Entry, Kind
from odi_audit.model.findings import Finding
from odi_audit.model.offsets import offsets_from_json
from odi_audit.model.shares import share_of
from odi_audit.model.stamps import Stamps
from odi_audit.model.tables import TableRef
from odi_audit.query import facts

_COMPARED = ("sequence_number", "first_row_id", "added_rows")
"""Facts of a landing that the table still shows, and that trace relies on after expiry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What the ledger says about one table."""

    landed: Mapping[BatchId, Entry]
    expired: frozenset[str]
    removed: frozenset[str]
    undone: Mapping[str, Entry]
    """By batch, the entry that took it out of the table after it had landed."""
    moves: frozenset[tuple[str, str]]
    """Pairs of snapshots: main was moved from the first back to the second."""
    foreign: Mapping[str, Entry]
    entries_count: int


def recorded(ledger: Ledger, table: TableRef, *, before: int | None = None) -> Recorded:
    """Collect a table's entries; landed ones from index ``before`` on are left out."""
    entries = ledger.find(EntryFilter(table=table.uuid))
    back = [entry for entry in entries if entry.kind in {Kind.ROLLBACK, Kind.UNDO}]
    landed = {
        entry.batch: entry
        for entry in entries
        if entry.kind is Kind.LANDED
        and entry.batch is not None
        and (before is None or entry.index < before)
    }
    return Recorded(
        landed=landed,
        expired=frozenset(
            snapshot
            for entry in entries
            if entry.kind is Kind.MAINTENANCE
            for snapshot in facts.texts(entry.facts, "expired")
        ),
        removed=frozenset(
            snapshot for entry in back for snapshot in facts.texts(entry.facts, "removed_snapshots")
        ),
        undone={
            batch: entry
            for entry in back
            for batch in facts.texts(entry.facts, "undone")
            if BatchId(batch) not in landed or landed[BatchId(batch)].index < entry.index
        },
        moves=frozenset(move for entry in back for move in _moves(entry)),
        foreign={
            str(facts.text(entry.facts, "snapshot")): entry
            for entry in entries
            if entry.kind is Kind.FOREIGN
        },
        entries_count=len(entries),
    )


def _moves(entry: Entry) -> Iterator[tuple[str, str]]:
    to = facts.text(entry.facts, "to") or ""
    # A rollback that was recorded after a crash knows what it took out, not where main stood.
    for snapshot in facts.texts(entry.facts, "removed_snapshots"):
        yield snapshot, to
    yield facts.text(entry.facts, "from") or "", to


def check_table(
    ledger: Ledger, state: TableState, record: Recorded, *, moving: bool = False
) -> list[Finding]:
    """Return everything that is wrong with one table, oldest snapshot first.

    ``moving`` says that an open intent is to expire snapshots or to roll back: what it may have
    taken away is not judged until it is settled.
    """
    main = history(state)
    times = Counter(info.batch for info in main if info.batch is not None)
    findings: list[Finding] = []
    for info in reversed(main):
        findings.extend(_snapshot(ledger, state, record, info, times))
    findings.extend(_duplicates(state, main, times))
    if not moving:
        findings.extend(_not_in_history(state, record, main))
        findings.extend(_rewritten(state, record, main))
    return findings


# -- one snapshot ----------------------------------------------------------------------------


def _snapshot(
    ledger: Ledger,
    state: TableState,
    record: Recorded,
    info: SnapshotInfo,
    times: Counter[BatchId],
) -> Iterator[Finding]:
    try:
        found = stamping.read(info.summary)
    except ValueError as problem:
        yield _finding("ODI-V02", state, info, f"has broken stamps: {problem}")
        return
    if found is None:
        yield _foreign(state, record, info)
        return
    landing = record.landed.get(found.batch) or ledger.landed(found.batch, state.ref.uuid)
    wrong = list(_against_intent(ledger, state, found, landing))
    if landing is not None:
        wrong.extend(_against_landing(found, info, landing, once=times[found.batch] == 1))
    if wrong:
        yield _finding(
            "ODI-V03",
            state,
            info,
            f"has stamps that the ledger does not bear out: {'; '.join(wrong)}",
            hint="odi-audit ledger verify, to rule out that the ledger was cut or changed",
            batch=found.batch,
            intent=found.intent,
        )
    elif landing is None:
        yield from _unrecorded(ledger, state, info, found)


def _foreign(state: TableState, record: Recorded, info: SnapshotInfo) -> Finding:
    noted = record.foreign.get(info.id)
    tail = f"; entry {noted.index} has recorded it as foreign" if noted is not None else ""
    application = info.summary.get("spark.app.id") or info.summary.get("app-id")
    return _finding(
        "ODI-V01",
        state,
        info,
        f"is foreign: it carries no stamps, so it came past the committer{tail}",
        hint="find who wrote it"
        + (f" (application {application})" if application else "")
        + ", and let them write through odi.run(...)",
        application=application,
        recorded=None if noted is None else noted.index,
    )


def _against_intent(
    ledger: Ledger, state: TableState, found: Stamps, landing: Entry | None
) -> Iterator[str]:
    """Compare stamps with the intent that they name, or with the one recovered from them."""
    number = found.intent
    if landing is not None and landing.recovered and landing.intent is not None:
        number = landing.intent
    try:
        intent = ledger.get(number)
    except EntryNotFound:
        yield f"there is no entry {number}"
        return
    if intent.kind is not Kind.INTENT or intent.batch != found.batch:
        yield f"entry {number} is not the intent of batch {found.batch}"
        return
    if not facts.touches(intent, state.ref.uuid, state.ref.name):
        yield f"intent {number} is not about this table"
    pairs: dict[str, tuple[object, object]] = {
        "job": (found.job, intent.job),
        "principal": (found.principal, facts.text(intent.facts, "principal")),
        "code": (found.code, facts.text(intent.facts, "code")),
    }
    if not intent.recovered:
        pairs["run"] = (found.run, intent.run)
    for name, (stamped, kept) in pairs.items():
        if kept is not None and stamped != kept:
            yield f"{name} is stamped {stamped!r}, recorded {kept!r}"
    offsets = facts.obj(intent.facts, "offsets")
    if offsets is not None and "ranges" in offsets:
        generation = facts.number(intent.facts, "generation") or 0
        mine = share_of(intent.facts, state.ref.uuid).of(offsets_from_json(offsets))
        expected = mine.to_stamp(generation=generation)
        if canonical.encode(found.offsets) != canonical.encode(expected):
            yield "the stamped offsets are not the recorded ones"


def _against_landing(
    found: Stamps, info: SnapshotInfo, landing: Entry, *, once: bool
) -> Iterator[str]:
    snapshot = facts.text(landing.facts, "snapshot")
    if snapshot != info.id:
        if once:
            yield f"entry {landing.index} says that the batch landed as snapshot {snapshot}"
        return
    source = facts.text(landing.facts, "source")
    if source is not None and source != found.source:
        yield f"source is stamped {found.source!r}, recorded {source!r}"
    for name in _COMPARED:
        kept = facts.number(landing.facts, name)
        shown = getattr(info, name)
        if kept is not None and kept != shown:
            yield f"{name} is {shown} in the table, recorded {kept}"


def _unrecorded(
    ledger: Ledger, state: TableState, info: SnapshotInfo, found: Stamps
) -> Iterator[Finding]:
    settled = ledger.settled_by(found.intent)
    if settled is None:
        return  # the intent is open: in flight, or named as left open
    if settled.kind in EFFECTS and facts.text(settled.facts, "snapshot") == info.id:
        return
    yield _finding(
        "ODI-V09",
        state,
        info,
        f"is in main with batch {found.batch}, but entry {settled.index} says that the batch "
        f"was settled as {settled.kind.value}",
        hint=f"odi-audit batch {found.batch}",
        batch=found.batch,
        settled=settled.index,
    )


# -- the whole history -----------------------------------------------------------------------


def _duplicates(
    state: TableState, main: tuple[SnapshotInfo, ...], times: Counter[BatchId]
) -> Iterator[Finding]:
    for batch, count in times.items():
        if count > 1:
            ids = [info.id for info in reversed(main) if info.batch == batch]
            yield Finding(
                code="ODI-V06",
                subject=state.ref.name,
                message=f"batch {batch} is in the history of {state.ref.name} {count} times, "
                f"as snapshots {', '.join(ids)}",
                hint=f"odi-audit batch {batch}",
                facts={"batch": batch, "snapshots": list(ids)},
            )


def _not_in_history(
    state: TableState, record: Recorded, main: tuple[SnapshotInfo, ...]
) -> Iterator[Finding]:
    in_main = {info.id for info in main}
    there = {info.id for info in state.snapshots}
    excused = record.expired | record.removed
    for batch, entry in record.landed.items():
        snapshot = facts.text(entry.facts, "snapshot")
        if snapshot is None or snapshot in in_main or snapshot in excused or batch in record.undone:
            continue
        where = (
            "main no longer leads to it, and no rollback was recorded"
            if snapshot in there
            else "the table does not have it, and no expiry was recorded"
        )
        yield Finding(
            code="ODI-V04",
            subject=state.ref.name,
            message=f"batch {batch} landed in {state.ref.name} as snapshot {snapshot} "
            f"(entry {entry.index}), but {where}",
            hint=f"odi-audit batch {batch}",
            facts={"batch": batch, "snapshot": snapshot, "entry": entry.index},
        )


def _rewritten(
    state: TableState, record: Recorded, main: tuple[SnapshotInfo, ...]
) -> Iterator[Finding]:
    for child, parent in pairwise(main):
        if child.sequence_number <= parent.sequence_number:
            yield _finding(
                "ODI-V05",
                state,
                child,
                f"has sequence number {child.sequence_number}, not above its parent's "
                f"{parent.sequence_number}: history was rewritten",
            )
        end = _row_id_end(parent)
        if child.first_row_id is not None and end is not None and child.first_row_id < end:
            yield _finding(
                "ODI-V05",
                state,
                child,
                f"begins at row id {child.first_row_id}, inside its parent's range that ends "
                f"before {end}: history was rewritten",
            )
    yield from _cut(state, record, main)
    yield from _moved(state, record)
    for info in main:
        entry = record.undone.get(str(info.batch))
        if entry is not None and entry.kind is Kind.ROLLBACK:
            yield _finding(
                "ODI-V05",
                state,
                info,
                f"was taken out of main by the rollback of entry {entry.index}, and is in it "
                "again without a record",
                rollback=entry.index,
            )


def _cut(state: TableState, record: Recorded, main: tuple[SnapshotInfo, ...]) -> Iterator[Finding]:
    """Look where main's chain ends: at a first snapshot, or at one whose parent has expired."""
    oldest = main[-1] if main else None
    if oldest is None or oldest.parent is None or oldest.parent in record.expired:
        return
    landed = {facts.text(entry.facts, "snapshot"): entry for entry in record.landed.values()}
    own = landed.get(oldest.id)
    if own is not None and own.recovered:
        return  # the expiry was recorded in the ledger that was lost
    if oldest.parent not in landed:  # a landed one is named by ODI-V04
        yield _finding(
            "ODI-V05",
            state,
            oldest,
            f"has a parent {oldest.parent} that is gone without a recorded expiry",
            parent=oldest.parent,
        )


def _moved(state: TableState, record: Recorded) -> Iterator[Finding]:
    """Follow the log of main: each move leads to a descendant, or was recorded as a rollback."""
    by_id = {info.id: info for info in state.snapshots}
    for before, after in pairwise(state.snapshot_log):
        known = before.snapshot in by_id and after.snapshot in by_id
        if not known or (before.snapshot, after.snapshot) in record.moves:
            continue
        oldest = by_id[before.snapshot].sequence_number
        step: SnapshotInfo | None = by_id[after.snapshot]
        while step is not None and step.id != before.snapshot and step.sequence_number > oldest:
            step = None if step.parent is None else by_id.get(step.parent)
        if step is None or step.id != before.snapshot:
            yield _finding(
                "ODI-V05",
                state,
                by_id[after.snapshot],
                f"became main at {after.time} in place of {before.snapshot}, which it does not "
                "descend from, and no rollback was recorded",
                replaced=before.snapshot,
            )
    last = state.snapshot_log[-1].snapshot if state.snapshot_log else None
    if last is not None and last != state.current_snapshot:
        yield Finding(
            code="ODI-V05",
            subject=state.ref.name,
            message=f"the log of {state.ref.name} ends at snapshot {last}, but main stands at "
            f"{state.current_snapshot}: history was rewritten",
            hint="compare with an older metadata file of the table",
            facts={"logged": last, "current": state.current_snapshot},
        )


def _row_id_end(info: SnapshotInfo) -> int | None:
    if info.first_row_id is None or info.added_rows is None:
        return None
    return info.first_row_id + info.added_rows


def _finding(
    code: str,
    state: TableState,
    info: SnapshotInfo,
    message: str,
    hint: str | None = None,
    **more: Fact,
) -> Finding:
    return Finding(
        code=code,
        subject=state.ref.name,
        message=f"snapshot {info.id} of {state.ref.name} ({info.operation}, {info.time}) {message}",
        hint=hint,
        facts={
            "table_uuid": state.ref.uuid,
            "snapshot": info.id,
            "sequence_number": info.sequence_number,
            "operation": info.operation,
            "time": info.time,
            **more,
        },
    )
