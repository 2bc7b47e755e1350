"""What the committer writes into the ledger: one function for each kind of entry.

Owns the facts of each kind, so that their form stands in one place (docs/ledger-format.md).
Must never append: the road decides when.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from odi_audit import clock
from odi_audit.canonical import Json, JsonObject, digest
from odi_audit.errors import OdiError
from odi_audit.ids import BatchId, JobName, RunId, SnapshotId
from odi_audit.ledger.port import Position
from odi_audit.model.entries import Draft, Entry, Kind
from odi_audit.model.offsets import Offsets, offsets_from_json
from odi_audit.model.receipts import Landing
from odi_audit.model.runs import Outcome
from odi_audit.model.shares import WHOLE, Follows, Share, share_of
from odi_audit.model.snapshots import SnapshotFacts
from odi_audit.model.tables import TableRef
from odi_audit.redact import redact

_QUOTED = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"")
_FOUND = ("rules", "null_keys", "duplicate_keys", "promised", "staged")
"""Numbers and names of rules behind a refusal; samples hold rows, and are never recorded."""
REASON_LENGTH_MAX = 2000
"""An entry is kept for ever; a Java stack trace is not worth that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The identity of a batch and of this attempt at it."""

    job: JobName
    batch: BatchId
    offsets: Offsets
    generation: int
    principal: str
    code: str
    owner: str
    parent_run: RunId


def run_started(
    job: JobName, run: RunId, *, principal: str, code: str, owner: str, **more: Json
) -> Draft:
    """Record that a run of a job has begun, and who runs it."""
    facts: dict[str, Json] = {"principal": principal, "code": code, **_process(owner), **more}
    return Draft(kind=Kind.RUN_STARTED, job=job, run=run, facts=facts)


def run_ended(
    started: Entry, outcome: Outcome, *, error_code: str | None = None, reason: str | None = None
) -> Draft:
    """Record how a run ended, and what ended it."""
    facts: dict[str, Json] = {"outcome": outcome.value}
    if error_code is not None:
        facts["error_code"] = error_code
    if reason is not None:
        facts["reason"] = _reason(reason)
    return _of(started, Kind.RUN_ENDED, None, facts, settles=True)


def intent(
    planned: Planned,
    works: Sequence[tuple[TableRef, JsonObject]],
    shares: Sequence[Share] = (),
    columns: Sequence[JsonObject] = (),
    /,
    **more: Json,
) -> Draft:
    """Record, before anything happens, what is about to happen.

    ``columns`` is what is known, for each work, of its columns' origin.
    """
    shares = shares or [WHOLE] * len(works)
    columns = columns or [{}] * len(works)
    return Draft(
        kind=Kind.INTENT,
        job=planned.job,
        batch=planned.batch,
        table=works[0][0] if len(works) == 1 else None,
        facts={
            "operations": [
                {
                    "op": str(work["op"]),
                    "table": ref.name,
                    "table_uuid": ref.uuid,
                    "work": digest(work),
                    "arguments": without_values(work),
                    **share.to_json(),
                    **origin,
                }
                for (ref, work), share, origin in zip(works, shares, columns, strict=True)
            ],
            "offsets": planned.offsets.to_json(),
            "source": planned.offsets.source,
            "generation": planned.generation,
            "principal": planned.principal,
            "code": planned.code,
            **_process(planned.owner),
            "parent_run": planned.parent_run,
            **more,
        },
    )


def without_values(work: JsonObject) -> JsonObject:
    """Return a description of work with the texts in its conditions taken out.

    ``where``, ``set`` and terms of a statement may name a person; the ledger must not
    (docs/adr/0008). The digest of the whole work stays beside it.
    """
    masked = dict(work)
    if isinstance(where := work.get("where"), str):
        masked["where"] = _QUOTED.sub("'?'", where)
    if isinstance(assignments := work.get("set"), Mapping):
        masked["set"] = {
            column: _QUOTED.sub("'?'", str(value)) for column, value in assignments.items()
        }
    if isinstance(terms := work.get("terms"), Mapping) and isinstance(terms.get("gone_when"), str):
        masked["terms"] = {**terms, "gone_when": _QUOTED.sub("'?'", str(terms["gone_when"]))}
    return masked


def staged(opened: Entry, tables: Sequence[JsonObject]) -> Draft:
    """Record that every table's part was staged and passed the gate."""
    return _of(opened, Kind.STAGED, None, {"tables": list(tables)})


def landed(
    opened: Entry,
    landing: Landing,
    snapshot: SnapshotFacts | None,
    *,
    settles: bool,
    moves: bool = True,
    **more: Json,
) -> Draft:
    """Record that a table's part is in the table: the facts that outlive the snapshot."""
    facts: dict[str, Json] = {
        **landing.to_json(),
        **{key: opened.facts[key] for key in ("source", "generation", "principal", "code")},
        "offsets": offsets_for(opened, landing.table).to_json(),
        "work": _work(opened, landing.table),
        "committed_at": None
        if snapshot is None
        else clock.to_text(clock.from_millis(snapshot.timestamp_ms)),
        **more,
    }
    if not moves:
        facts["moves_position"] = False
    follows = share_of(opened.facts, landing.table.uuid).follows
    if follows is not Follows.TABLE:
        facts["follows"] = follows.value
    return _of(opened, Kind.LANDED, landing.table, facts, settles=settles)


def source_facts(told: JsonObject) -> JsonObject:
    """Return facts of the source that were known once a table's part was read and staged."""
    return {"source_facts": told}


def staged_notes(document: JsonObject) -> JsonObject:
    """Return what the STAGED entry of a table's part has for its landing."""
    return {key: document[key] for key in ("source_facts",) if key in document}


def refused(opened: Entry, error: OdiError, branches: Sequence[JsonObject], **more: Json) -> Draft:
    """Record that the gate refused the batch, why, and where its rows can be looked at."""
    facts: dict[str, Json] = {
        "code": error.code,
        "reason": _reason(error.record),
        "branches": list(branches),
        **more,
    }
    return _of(opened, Kind.REFUSED, opened.table, facts, settles=True)


def found(error: OdiError) -> dict[str, Json]:
    """Return what the gate counted before it refused, for the record."""
    counted: dict[str, Json] = {key: error.facts[key] for key in _FOUND if key in error.facts}
    return {"found": counted} if counted else {}


def abandoned(opened: Entry, reason: str, **more: Json) -> Draft:
    """Record that an attempt ended without publishing what it did not publish."""
    return _of(
        opened,
        Kind.ABANDONED,
        opened.table,
        {"reason": _reason(reason), **more},
        settles=True,
    )


def unknown(opened: Entry, table: TableRef, reason: str) -> Draft:
    """Record that nobody knows yet whether a publish happened; settles nothing."""
    return _of(opened, Kind.UNKNOWN, table, {"reason": _reason(reason)})


def replay(opened: Entry) -> Draft:
    """Record that offsets are read again on purpose."""
    facts = {key: opened.facts[key] for key in ("generation", "offsets", "principal")}
    return _of(opened, Kind.REPLAY, opened.table, facts)


def gap_accepted(opened: Entry, table: TableRef, gap: OdiError, reason: str) -> Draft:
    """Record that a gap was seen and accepted, by whom and why."""
    return _of(
        opened,
        Kind.GAP_ACCEPTED,
        table,
        {
            "gap": _reason(gap.message),
            "reason": _reason(reason),
            "principal": opened.facts["principal"],
        },
    )


def without_snapshot(opened: Entry, kind: Kind, table: TableRef, facts: JsonObject) -> Draft:
    """Record an operation for which Iceberg makes no snapshot: DDL, expiry, rollback."""
    shared = {key: opened.facts[key] for key in ("principal", "code")}
    return _of(opened, kind, table, {**shared, **facts}, settles=True)


def dropped(opened: Entry, table: TableRef, **more: Json) -> Draft:
    """Record that a table is gone: what its intent told of its last state, for ever."""
    work = cast("Sequence[JsonObject]", opened.facts["operations"])[0]
    told = cast("Sequence[JsonObject]", opened.facts["tables"])[0]
    facts: dict[str, Json] = {
        "operation": "drop_table",
        "purge": cast("JsonObject", work["arguments"])["purge"],
        "location": told["location"],
        **{key: opened.facts[key] for key in ("head", "metadata_location", "totals")},
        **more,
    }
    return without_snapshot(opened, Kind.TABLE_DROPPED, table, facts)


def renamed(opened: Entry, table: TableRef, **more: Json) -> Draft:
    """Record that a table has another name; ``table`` is it under the new one."""
    work = cast("Sequence[JsonObject]", opened.facts["operations"])[0]
    facts: dict[str, Json] = {
        "operation": "rename_table",
        "from_name": work["table"],
        "to_name": table.name,
        **more,
    }
    return without_snapshot(opened, Kind.TABLE_RENAMED, table, facts)


def landing_of(table: TableRef, operation: str, snapshot: SnapshotFacts) -> Landing:
    """Return the lasting facts of a published snapshot."""
    return Landing(
        table=table,
        operation=operation,
        snapshot=snapshot.id,
        sequence_number=snapshot.sequence_number,
        first_row_id=snapshot.first_row_id,
        added_rows=snapshot.added_rows,
        schema_id=snapshot.schema_id,
        counts=snapshot.counts(),
    )


def landing_of_entry(entry: Entry) -> Landing:
    """Return a landing as its entry recorded it."""
    assert entry.table is not None
    facts = entry.facts
    return Landing(
        table=entry.table,
        operation=str(facts["operation"]),
        snapshot=cast("SnapshotId | None", facts["snapshot"]),
        sequence_number=cast("int | None", facts["sequence_number"]),
        first_row_id=cast("int | None", facts["first_row_id"]),
        added_rows=cast("int | None", facts["added_rows"]),
        schema_id=cast("int | None", facts["schema_id"]),
        counts=cast("dict[str, int]", facts["counts"]),
    )


def offsets_for(opened: Entry, table: TableRef) -> Offsets:
    """Return the part of an intent's offsets that a table gets."""
    whole = offsets_from_json(cast("JsonObject", opened.facts["offsets"]))
    return share_of(opened.facts, table.uuid).of(whole)


def positions_of(opened: Entry, table: TableRef) -> dict[str, Position]:
    """Return the positions that an intent leaves behind once it has landed on a table."""
    assert opened.batch is not None
    offsets = offsets_for(opened, table)
    return {
        name: Position(
            partition=name,
            start=part.start,
            end=part.end,
            identity=offsets.identity.get(name),
            batch=opened.batch,
            index=opened.index,
        )
        for name, part in offsets.ranges.items()
    }


def _of(
    opened: Entry, kind: Kind, table: TableRef | None, facts: JsonObject, *, settles: bool = False
) -> Draft:
    return Draft(
        kind=kind,
        job=opened.job,
        run=opened.run,
        batch=opened.batch,
        table=table,
        intent=opened.index,
        settles=settles,
        facts=facts,
    )


def _process(owner: str) -> JsonObject:
    return {"owner": owner, "host": socket.gethostname(), "pid": os.getpid()}


def _work(opened: Entry, table: TableRef) -> Json:
    operations = opened.facts["operations"]
    assert isinstance(operations, Sequence)
    for operation in operations:
        assert isinstance(operation, dict)
        if operation["table_uuid"] == table.uuid:
            return str(operation["work"])
    return None


def _reason(text: str) -> str:
    return str(redact(text))[:REASON_LENGTH_MAX]
