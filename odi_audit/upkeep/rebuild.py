"""Rebuild: entries of a lost ledger, or of its lost tail, recovered from the tables' stamps.

Owns which entries are recovered and what they may claim: each is marked as recovered, since a
stamp proves less than an entry that was recorded at the time. Must never touch what the ledger
already says, nor a batch whose process still lives.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from odi_audit.canonical import Json, JsonObject
from odi_audit.catalog.state import SnapshotInfo, TableState, history
from odi_audit.errors import EntryNotFound
from odi_audit.ids import BatchId, SnapshotId
from odi_audit.ledger.port import Ledger
from odi_audit.model import stamps as stamping
from odi_audit.model.entries import Draft, Entry, Kind
from odi_audit.model.receipts import Landing
from odi_audit.model.shares import Share
from odi_audit.model.stamps import Stamps
from odi_audit.model.tables import TableRef

if TYPE_CHECKING:
    from odi_audit.catalog.lake import LakeCatalog

CHUNK = 500
"""Batches in one transaction: big enough to be fast, small enough to lose little to a crash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """One landed record that the ledger lacks. ``intent`` is None where that is lost too."""

    table: TableRef
    snapshot: SnapshotInfo
    stamps: Stamps
    intent: int | None

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {
            "table": self.table.name,
            "table_uuid": self.table.uuid,
            "batch": self.stamps.batch,
            "job": self.stamps.job,
            "operation": self.stamps.operation,
            "snapshot": self.snapshot.id,
            "sequence_number": str(self.snapshot.sequence_number),
            "time": self.snapshot.time,
            "intent": self.intent,
            "offsets_known": "ranges" in cast("JsonObject", self.stamps.offsets),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A snapshot that cannot be recovered from, and why."""

    table: TableRef
    snapshot: SnapshotId
    reason: str

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {
            "table": self.table.name,
            "table_uuid": self.table.uuid,
            "snapshot": self.snapshot,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildPlan:
    """What is to be recovered, in order, or what was (``applied``)."""

    recoveries: tuple[Recovery, ...]
    skipped: tuple[Skipped, ...]
    applied: bool
    entries_count: int
    """Entries appended; 0 for a plan."""

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {
            "applied": self.applied,
            "entries_count": self.entries_count,
            "recoveries": [item.to_json() for item in self.recoveries],
            "skipped": [item.to_json() for item in self.skipped],
        }


def rebuild(ledger: Ledger, catalog: LakeCatalog, *, apply: bool) -> RebuildPlan:
    """Plan, and with ``apply`` append, the entries that stamps can give back.

    Afterwards each stamped snapshot in a table's history has its landed entry. Doing it again
    changes nothing; after a crash in the middle, doing it again finishes it.

    Raises:
        LedgerConflict: somebody recorded the same batch meanwhile; run it again.
    """
    recoveries: list[Recovery] = []
    skipped: list[Skipped] = []
    for found in _in_order([catalog.load(name) for name in catalog.tables()], ledger):
        if isinstance(found, Recovery):
            recoveries.append(found)
        else:
            skipped.append(found)
    count = _apply(ledger, recoveries) if apply else 0
    return RebuildPlan(
        recoveries=tuple(recoveries), skipped=tuple(skipped), applied=apply, entries_count=count
    )


def _in_order(states: Sequence[TableState], ledger: Ledger) -> Iterator[Recovery | Skipped]:
    """Walk all tables at once by time; within a table the sequence alone decides."""
    walks = [_walk(state) for state in states]
    seen: set[tuple[str, BatchId]] = set()
    for state, info in heapq.merge(*walks, key=lambda step: step[1].time):
        found = _judge(ledger, state, info)
        if isinstance(found, Recovery):
            key = (state.ref.uuid, found.stamps.batch)
            if key in seen:
                reason = f"batch {found.stamps.batch} is in the history more than once"
                found = Skipped(table=state.ref, snapshot=info.id, reason=reason)
            seen.add(key)
        if found is not None:
            yield found


def _walk(state: TableState) -> Iterator[tuple[TableState, SnapshotInfo]]:
    for info in reversed(history(state)):
        yield state, info


def _judge(ledger: Ledger, state: TableState, info: SnapshotInfo) -> Recovery | Skipped | None:
    try:
        stamps = stamping.read(info.summary)
    except ValueError as problem:
        return Skipped(table=state.ref, snapshot=info.id, reason=f"broken stamps: {problem}")
    if stamps is None or ledger.landed(stamps.batch, state.ref.uuid) is not None:
        return None
    intent = _surviving_intent(ledger, stamps)
    if intent is not None:
        owner = intent.facts.get("owner")
        if isinstance(owner, str) and ledger.is_alive(owner):
            return Skipped(
                table=state.ref,
                snapshot=info.id,
                reason=f"batch {stamps.batch} is in flight: its own process records it",
            )
        settled = ledger.settled_by(intent.index)
        if settled is not None:
            return Skipped(
                table=state.ref,
                snapshot=info.id,
                reason=f"entry {settled.index} settled batch {stamps.batch} as "
                f"{settled.kind.value}; odi-audit verify says more",
            )
    return Recovery(
        table=state.ref,
        snapshot=info,
        stamps=stamps,
        intent=None if intent is None else intent.index,
    )


def _surviving_intent(ledger: Ledger, stamps: Stamps) -> Entry | None:
    """Return the batch's intent: the stamped one, or one that an earlier rebuild recovered."""
    try:
        named = ledger.get(stamps.intent)
        if named.kind is Kind.INTENT and named.batch == stamps.batch:
            return named
    except EntryNotFound:
        pass
    return next((entry for entry in ledger.open_attempts(stamps.batch) if entry.recovered), None)


# -- appending -------------------------------------------------------------------------------


def _apply(ledger: Ledger, recoveries: Sequence[Recovery]) -> int:
    last = {item.stamps.batch: place for place, item in enumerate(recoveries)}
    tables: dict[BatchId, list[Recovery]] = {}
    for item in recoveries:
        tables.setdefault(item.stamps.batch, []).append(item)
    intents: dict[BatchId, int] = {
        item.stamps.batch: item.intent for item in recoveries if item.intent is not None
    }
    backwards = _backwards(recoveries)
    count = 0
    for start in range(0, len(recoveries), CHUNK):
        chunk = recoveries[start : start + CHUNK]
        lost = dict.fromkeys(i.stamps.batch for i in chunk if i.stamps.batch not in intents)
        made = ledger.append(*(_intent(tables[batch]) for batch in lost)) if lost else []
        intents.update(zip(lost, (entry.index for entry in made), strict=True))
        landed = [
            _landed(
                item,
                intents[item.stamps.batch],
                settles=last[item.stamps.batch] == place,
                moves=place not in backwards,
            )
            for place, item in enumerate(chunk, start)
        ]
        ledger.append(*landed)
        count += len(made) + len(landed)
    return count


def _backwards(recoveries: Sequence[Recovery]) -> set[int]:
    """Return the places of replays that read no further than the batches before them.

    They must not turn the position back, as they did not when they landed.
    """
    furthest: dict[tuple[str, str, str, str], int] = {}
    found: set[int] = set()
    for place, item in enumerate(recoveries):
        offsets = cast("JsonObject", item.stamps.offsets)
        ranges = cast("Mapping[str, Sequence[Json]]", offsets.get("ranges", {}))
        ends = {
            (item.stamps.job, item.table.uuid, item.stamps.source, name): pair[1]
            for name, pair in ranges.items()
        }
        further = [
            key
            for key, end in ends.items()
            if not isinstance(end, int) or end > furthest.get(key, -1)
        ]
        if "generation" in offsets and not further:
            found.add(place)
        for key, end in ends.items():
            if isinstance(end, int):
                furthest[key] = max(end, furthest.get(key, -1))
    return found


def _intent(items: Sequence[Recovery]) -> Draft:
    stamps = items[0].stamps
    return Draft(
        kind=Kind.INTENT,
        job=stamps.job,
        run=stamps.run,
        batch=stamps.batch,
        recovered=True,
        facts={
            "operations": [
                {
                    "op": item.stamps.operation,
                    "table": item.table.name,
                    "table_uuid": item.table.uuid,
                    **_share(item, items),
                }
                for item in items
            ],
            **_together(items),
        },
    )


def _together(items: Sequence[Recovery]) -> dict[str, Json]:
    """Return what an intent said: its tables may have had a part of its offsets each."""
    shared = _shared(items[0].stamps)
    parts = [_shared(item.stamps).get("offsets") for item in items]
    if not all(isinstance(part, dict) for part in parts):
        return shared
    whole = dict(cast("JsonObject", shared["offsets"]))
    for part in cast("list[JsonObject]", parts):
        for key in ("ranges", "identity"):
            held = cast("JsonObject", part.get(key, {}))
            if held:
                whole[key] = {**cast("JsonObject", whole.get(key, {})), **held}
    return {**shared, "offsets": whole}


def _share(item: Recovery, items: Sequence[Recovery]) -> dict[str, Json]:
    offsets = cast("JsonObject", item.stamps.offsets)
    if all(other.stamps.offsets == offsets for other in items) or "ranges" not in offsets:
        return {}
    return Share(partitions=tuple(cast("JsonObject", offsets["ranges"]))).to_json()


def _landed(item: Recovery, intent: int, *, settles: bool, moves: bool) -> Draft:
    info = item.snapshot
    added = info.summary.get("added-records", "")
    landing = Landing(
        table=item.table,
        operation=item.stamps.operation,
        snapshot=info.id,
        sequence_number=info.sequence_number,
        first_row_id=info.first_row_id,
        added_rows=info.added_rows,
        schema_id=info.schema_id,
        counts={"rows": int(added)} if added.isdigit() else {},
    )
    return Draft(
        kind=Kind.LANDED,
        job=item.stamps.job,
        run=item.stamps.run,
        batch=item.stamps.batch,
        table=item.table,
        intent=intent,
        settles=settles,
        recovered=True,
        facts={
            **landing.to_json(),
            **_shared(item.stamps),
            "committed_at": info.time,
            **({} if moves else {"moves_position": False}),
        },
    )


def _shared(stamps: Stamps) -> dict[str, Json]:
    offsets = dict(cast("JsonObject", stamps.offsets))
    body: dict[str, Json] = {
        "source": stamps.source,
        "generation": offsets.pop("generation", 0),
        "principal": stamps.principal,
        "code": stamps.code,
        "stamped_intent": stamps.intent,
    }
    if "ranges" in offsets:
        body["offsets"] = {**offsets, "source": stamps.source}
    else:
        # Too big for a stamp: the digest is kept, the places themselves are lost.
        body["offsets_stamp"] = offsets
    return body
