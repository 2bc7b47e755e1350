"""Verification: do the tables and the ledger tell the same story?

Owns the codes ODI-V01 … and what each means. Must never settle anything that it finds: it reads,
and names the command that helps. The ledger's own tree is checked by ``ledger verify``.

=========  ==================================================================================
ODI-V01    a foreign snapshot: it carries no stamps, so it came past the committer
ODI-V02    stamps that are incomplete or malformed
ODI-V03    forged stamps: the ledger has no such intent, or recorded other facts
ODI-V04    a landed entry whose snapshot is not in the table's history
ODI-V05    history rewritten: main moved, or the chain is broken, without a record
ODI-V06    a batch that is in the history twice
ODI-V07    an open intent whose process is dead
ODI-V08    an unknown outcome that nobody has settled
ODI-V09    a snapshot of ours in main that the ledger does not say has landed
ODI-V10    a table that the ledger wrote to, that the catalog lacks, and that nobody here dropped
ODI-V11    a table that was dropped here, and that the catalog has again
ODI-V12    a table under another name than the one that it was given here
=========  ==================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odi_audit.canonical import JsonObject
from odi_audit.catalog.state import TableState, find_stamp
from odi_audit.errors import TableNotFound
from odi_audit.ids import TableUuid
from odi_audit.ledger.port import EntryFilter, Ledger
from odi_audit.model.entries import EFFECTS, Entry, Kind
from odi_audit.model.findings import Finding
from odi_audit.model.names import NAMING
from odi_audit.model.tables import TableName
from odi_audit.query import facts
from odi_audit.query.dropped import drops, load_table, said
from odi_audit.query.verify_table import Recorded, check_table, recorded

if TYPE_CHECKING:
    from odi_audit.catalog.lake import LakeCatalog

_TAKING_AWAY = frozenset({"expire", "rollback"})
"""Operations that take snapshots out of a history, and record it afterwards."""
_TAKING_FROM_NAME = frozenset({"drop_table", "rename_table"})
"""Operations after which a table is not under the name that it was listed under."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What was looked at, what was wrong, and what is only worth knowing."""

    findings: tuple[Finding, ...]
    notes: tuple[Finding, ...]
    tables: tuple[str, ...]
    snapshots_count: int
    entries_count: int

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {
            "clean": not self.findings,
            "findings": [finding.to_json() for finding in self.findings],
            "notes": [note.to_json() for note in self.notes],
            "tables": list(self.tables),
            "snapshots_count": self.snapshots_count,
            "entries_count": self.entries_count,
        }


def verify(
    ledger: Ledger, catalog: LakeCatalog, tables: Sequence[TableName] | None = None
) -> list[Finding]:
    """Return what is wrong between tables and ledger; an empty list is a clean bill."""
    return list(examine(ledger, catalog, tables).findings)


def examine(
    ledger: Ledger, catalog: LakeCatalog, tables: Sequence[TableName] | None = None
) -> Verification:
    """Compare the named tables, or all, with the ledger.

    Others may commit meanwhile: open intents are listed first, tables read after, and landed
    entries count up to where the ledger stood before, so that no moment looks like a fault.

    Raises:
        TableNotFound: a named table is not there; if it was dropped or renamed, by whom and when.
        LedgerBroken: the ledger does not agree with its own tree; nothing it says can be used.
    """
    open_intents = ledger.open_intents()
    size = ledger.head().size
    story = _Story()
    names = list(tables) if tables is not None else catalog.tables()
    states = _states(ledger, catalog, names, everything=tables is None)
    for state in states:
        record = recorded(ledger, state.ref, before=size)
        moving = any(_moves(intent, state) for intent in open_intents)
        story.findings.extend(check_table(ledger, state, record, moving=moving))
        story.add(state, record)
    story.findings.extend(_back(ledger, states, before=size))
    story.findings.extend(_renamed(ledger, states, open_intents, before=size))
    if tables is None:
        known = {state.ref.uuid for state in states}
        story.findings.extend(_gone(ledger, known, open_intents, before=size))
    _intents(ledger, open_intents, states, everything=tables is None, story=story)
    return Verification(
        findings=tuple(story.findings),
        notes=tuple(story.notes),
        tables=tuple(state.ref.name for state in states),
        snapshots_count=story.snapshots_count,
        entries_count=story.entries_count,
    )


def _states(
    ledger: Ledger, catalog: LakeCatalog, names: Sequence[TableName], *, everything: bool
) -> list[TableState]:
    if not everything:
        return [load_table(ledger, catalog, name) for name in names]
    found = _loaded(catalog, names)
    if len(found) < len(names):
        # Listed a moment ago and gone now: what was renamed is there under another name. Of what
        # was dropped the ledger has it, by the time it is asked for those that are missing.
        known = {state.ref.uuid for state in found}
        later = _loaded(catalog, [name for name in catalog.tables() if name not in names])
        found += [state for state in later if state.ref.uuid not in known]
    return found


def _loaded(catalog: LakeCatalog, names: Sequence[TableName]) -> list[TableState]:
    found: list[TableState] = []
    for name in names:
        with suppress(TableNotFound):
            found.append(catalog.load(name))
    return found


def _moves(intent: Entry, state: TableState) -> bool:
    operations = {item.get("op") for item in facts.objects(intent.facts, "operations")}
    return bool(operations & _TAKING_AWAY) and facts.touches(intent, state.ref.uuid, state.ref.name)


@dataclass(slots=True)
class _Story:
    findings: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    snapshots_count: int = 0
    entries_count: int = 0

    def add(self, state: TableState, record: Recorded) -> None:
        self.snapshots_count += len(state.snapshots)
        self.entries_count += record.entries_count


def _intents(
    ledger: Ledger,
    intents: Sequence[Entry],
    states: Sequence[TableState],
    *,
    everything: bool,
    story: _Story,
) -> None:
    for intent in intents:
        mine = [s for s in states if facts.touches(intent, s.ref.uuid, s.ref.name)]
        if not mine and not everything:
            continue
        if ledger.settled_by(intent.index) is not None:
            continue  # it was settled while the tables were read
        owner = facts.text(intent.facts, "owner")
        if owner is not None and ledger.is_alive(owner):
            story.notes.append(_in_flight(intent))
        else:
            story.findings.append(_left_open(ledger, intent, mine))


def _in_flight(intent: Entry) -> Finding:
    return Finding(
        code="ODI-V07",
        subject=str(intent.batch),
        message=f"batch {intent.batch} of {intent.job} is in flight since {intent.time}",
        facts={"batch": intent.batch, "job": intent.job, "intent": intent.index, "alive": True},
    )


def _left_open(ledger: Ledger, intent: Entry, states: Sequence[TableState]) -> Finding:
    entries = [] if intent.batch is None else ledger.batch_entries(intent.batch)
    doubt = next((e for e in entries if e.kind is Kind.UNKNOWN and e.intent == intent.index), None)
    present = [
        state.ref.name
        for state in states
        if intent.batch is not None and find_stamp(state, intent.batch) is not None
    ]
    there = f"; its stamp is in {', '.join(present)}" if present else ""
    if doubt is not None:
        code = "ODI-V08"
        reason = facts.text(doubt.facts, "reason") or "no reason was recorded"
        message = f"batch {intent.batch} of {intent.job} may or may not have landed: {reason}"
    else:
        code = "ODI-V07"
        message = (
            f"batch {intent.batch} of {intent.job} was begun at {intent.time} and never "
            "settled; its process is gone"
        )
    return Finding(
        code=code,
        subject=str(intent.batch),
        message=message + there,
        hint=f"odi-audit reconcile --batch {intent.batch}",
        facts={
            "batch": intent.batch,
            "job": intent.job,
            "intent": intent.index,
            "alive": False,
            "stamped_in": present,
        },
    )


def _gone(
    ledger: Ledger, known: set[TableUuid], intents: Sequence[Entry], *, before: int
) -> list[Finding]:
    """Name the tables with landed rows that the catalog does not list, and nobody here dropped."""
    findings: list[Finding] = []
    written = _written_tables(ledger, before)
    missing = {uuid: last for uuid, last in written.items() if uuid not in known}
    dropped = drops(ledger) if missing else {}
    for uuid, last in missing.items():
        if uuid in dropped or last.table is None or _is_leaving(intents, uuid, last.table.name):
            continue
        findings.append(
            Finding(
                code="ODI-V10",
                subject=last.table.name,
                message=f"table {last.table.name} ({uuid}) was written by batch {last.batch} at "
                f"{last.time}, and the catalog no longer has it: it was dropped past the ledger",
                hint=f"odi-audit batch {last.batch}",
                facts={"table_uuid": uuid, "batch": last.batch, "entry": last.index},
            )
        )
    return findings


def _is_leaving(intents: Sequence[Entry], uuid: TableUuid, name: str) -> bool:
    """Say whether an open intent takes a table from its name: settling it will show how far."""
    return any(
        item.get("op") in _TAKING_FROM_NAME and facts.touches(intent, uuid, name)
        for intent in intents
        for item in facts.objects(intent.facts, "operations")
    )


def _back(ledger: Ledger, states: Sequence[TableState], *, before: int) -> list[Finding]:
    """Name the tables that are in the catalog although they had been dropped before."""
    dropped = drops(ledger, before=before)
    return [
        Finding(
            code="ODI-V11",
            subject=state.ref.name,
            message=f"table {state.ref.name} ({state.ref.uuid}) was {said(entry)}, and the "
            "catalog has it again: it was put back past the ledger",
            hint=f"odi-audit history {state.ref.name}",
            facts={"table_uuid": state.ref.uuid, "batch": entry.batch, "entry": entry.index},
        )
        for state in states
        if (entry := dropped.get(state.ref.uuid)) is not None
    ]


def _written_tables(ledger: Ledger, before: int) -> dict[TableUuid, Entry]:
    last: dict[TableUuid, Entry] = {}
    where = EntryFilter(kinds=(Kind.LANDED, Kind.TABLE_CREATED), before=before)
    for entry in ledger.find(where):
        if entry.table is not None:
            last[entry.table.uuid] = entry
    return last


def _renamed(
    ledger: Ledger, states: Sequence[TableState], intents: Sequence[Entry], *, before: int
) -> list[Finding]:
    """Name the tables whose name nobody here gave them."""
    findings: list[Finding] = []
    for state in states:
        # One that was renamed here while the tables were read has one name of the two.
        given = [_given(ledger, state.ref.uuid, before=size) for size in (before, None)]
        entry = given[0]
        if entry is None or entry.table is None or entry.kind is Kind.TABLE_DROPPED:
            continue
        known = {item.table.name for item in given if item is not None and item.table is not None}
        if state.ref.name in known or _is_leaving(intents, state.ref.uuid, entry.table.name):
            continue
        findings.append(
            Finding(
                code="ODI-V12",
                subject=state.ref.name,
                message=f"table {state.ref.name} ({state.ref.uuid}) was {entry.table.name} by "
                f"batch {entry.batch} at {entry.time}: it was renamed past the ledger",
                hint="give it the name that it should have with run.rename_table(…): that is on "
                "record then",
                facts={
                    "table_uuid": state.ref.uuid,
                    "name_by_ledger": entry.table.name,
                    "batch": entry.batch,
                    "entry": entry.index,
                },
            )
        )
    return findings


def _given(ledger: Ledger, table: TableUuid, *, before: int | None) -> Entry | None:
    """Return the entry by which a table got its name here; of one made elsewhere, its last."""
    for kinds in (NAMING, EFFECTS):
        where = EntryFilter(kinds=kinds, table=table, before=before)
        for entry in ledger.find(where, limit=1, newest_first=True):
            return entry
    return None
