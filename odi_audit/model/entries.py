"""Ledger entries as values: what is asked to be recorded (draft) and what was (entry).

Owns the kinds and the JSON form of an entry (docs/ledger-format.md). Must never know how
entries are stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import cast

from odi_audit import clock
from odi_audit.canonical import JsonObject, encode
from odi_audit.ids import BatchId, JobName, RunId, TableUuid, batch_run_id
from odi_audit.model.tables import TableRef

FORMAT = 1
"""Version of the entry format; raised when a reader of the old one would misread the new."""


class Kind(StrEnum):
    """What an entry records."""

    RUN_STARTED = "run-started"
    RUN_ENDED = "run-ended"
    INTENT = "intent"
    STAGED = "staged"
    ALIVE = "alive"
    LANDED = "landed"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    ABANDONED = "abandoned"
    REPLAY = "replay"
    GAP_ACCEPTED = "gap-accepted"
    SCHEMA_CHANGE = "schema-change"
    TABLE_CREATED = "table-created"
    TABLE_DROPPED = "table-dropped"
    TABLE_RENAMED = "table-renamed"
    MAINTENANCE = "maintenance"
    ROLLBACK = "rollback"
    UNDO = "undo"
    ERASURE = "erasure"
    READ = "read"
    FOREIGN = "foreign"
    SEAL = "seal"


EFFECTS = (
    Kind.LANDED,
    Kind.TABLE_CREATED,
    Kind.TABLE_DROPPED,
    Kind.TABLE_RENAMED,
    Kind.SCHEMA_CHANGE,
    Kind.MAINTENANCE,
    Kind.ROLLBACK,
    Kind.UNDO,
    Kind.ERASURE,
)
"""Kinds that say: this was done to a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What somebody wants recorded; the ledger gives it its index and its time.

    ``intent`` names the intent that the entry belongs to; of a run's end, the run's start.
    ``settles`` says that with it that one is closed: the ledger lets that happen once for each.
    """

    kind: Kind
    job: JobName | None = None
    run: RunId | None = None
    batch: BatchId | None = None
    table: TableRef | None = None
    intent: int | None = None
    settles: bool = False
    recovered: bool = False
    facts: JsonObject = field(default_factory=dict)

    def numbered(self, index: int, moment: datetime) -> Entry:
        """Turn the draft into the entry that stands at ``index``."""
        run = self.run
        if run is None and self.kind is Kind.INTENT and self.batch is not None:
            run = batch_run_id(self.batch, index)
        return Entry(
            index=index,
            time=clock.to_text(moment),
            kind=self.kind,
            job=self.job,
            run=run,
            batch=self.batch,
            table=self.table,
            intent=self.intent,
            settles=self.settles,
            recovered=self.recovered,
            facts=self.facts,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One recorded fact, at its place in the ledger."""

    index: int
    time: str
    kind: Kind
    job: JobName | None
    run: RunId | None
    batch: BatchId | None
    table: TableRef | None
    intent: int | None
    settles: bool
    recovered: bool
    facts: JsonObject

    def to_json(self) -> JsonObject:
        """Return the entry as the object whose canonical bytes are the leaf."""
        body: dict[str, object] = {
            "v": FORMAT,
            "index": self.index,
            "time": self.time,
            "kind": self.kind.value,
            "facts": self.facts,
        }
        optional: dict[str, object] = {
            "job": self.job,
            "run": self.run,
            "batch": self.batch,
            "intent": self.intent,
            "table": None
            if self.table is None
            else {"uuid": self.table.uuid, "name": self.table.name},
            "settles": True if self.settles else None,
            "recovered": True if self.recovered else None,
        }
        body.update({key: value for key, value in optional.items() if value is not None})
        return cast("JsonObject", body)

    def to_bytes(self) -> bytes:
        """Return the leaf's data: the canonical JSON of the entry."""
        return encode(self.to_json())


def entry_from_json(body: JsonObject) -> Entry:
    """Read what :meth:`Entry.to_json` wrote.

    Raises:
        KeyError, TypeError, ValueError: it is not an entry of a format known here.
    """
    if body["v"] != FORMAT:
        raise ValueError(f"entry format {body['v']!r} is not {FORMAT}")
    table = cast("dict[str, str] | None", body.get("table"))
    return Entry(
        index=cast("int", body["index"]),
        time=cast("str", body["time"]),
        kind=Kind(cast("str", body["kind"])),
        job=cast("JobName | None", body.get("job")),
        run=cast("RunId | None", body.get("run")),
        batch=cast("BatchId | None", body.get("batch")),
        table=None
        if table is None
        else TableRef(uuid=TableUuid(table["uuid"]), name=table["name"]),
        intent=cast("int | None", body.get("intent")),
        settles=bool(body.get("settles", False)),
        recovered=bool(body.get("recovered", False)),
        facts=cast("JsonObject", body["facts"]),
    )
