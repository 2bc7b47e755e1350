"""A ledger with an entry of every kind, made by the committer's own record functions.

Nothing in it depends on the machine, the day or the process: its events are pinned by golden files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lineage.context import LedgerContext
from lineage.events import Event, events_of
from odi_audit.canonical import JsonObject
from odi_audit.committer import records
from odi_audit.committer.structure import foreign_drafts
from odi_audit.errors import OdiError
from odi_audit.ids import JobName, RunId, SnapshotId, TableUuid, batch_id
from odi_audit.ledger import create_ledger
from odi_audit.ledger.port import Ledger
from odi_audit.model.entries import Draft, Entry, Kind
from odi_audit.model.offsets import Offsets, mapping
from odi_audit.model.receipts import Landing
from odi_audit.model.snapshots import SnapshotFacts
from odi_audit.model.tables import TableRef

JOB = JobName("sales/orders")
RUN = RunId("5f8a3f1e-0000-4000-8000-000000000001")
ORDERS = TableRef(uuid=TableUuid("11111111-0000-4000-8000-000000000001"), name="sales.orders")
LINES = TableRef(uuid=TableUuid("11111111-0000-4000-8000-000000000002"), name="sales.lines")
NOWHERE = TableRef(uuid=TableUuid(""), name="sales.orders")
CATALOG: JsonObject = {
    "name": "lake",
    "type": "jdbc",
    "uri": "jdbc:postgresql://db:5433/catalog",
    "warehouse": "s3://lake/warehouse",
}
ENGINE: JsonObject = {"name": "spark", "version": "4.1.3", "odi_audit": "0.1.0"}
SCHEMA: JsonObject = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "required": True, "type": "long", "doc": "the order's number"},
        {"id": 2, "name": "amount", "required": False, "type": "decimal(10, 2)"},
        {
            "id": 3,
            "name": "buyer",
            "required": False,
            "type": {
                "type": "struct",
                "fields": [
                    {"id": 4, "name": "name", "required": False, "type": "string"},
                    {
                        "id": 5,
                        "name": "tags",
                        "required": False,
                        "type": {
                            "type": "list",
                            "element-id": 6,
                            "element": "string",
                            "element-required": False,
                        },
                    },
                ],
            },
        },
        {
            "id": 7,
            "name": "prices",
            "required": False,
            "type": {
                "type": "map",
                "key-id": 8,
                "key": "string",
                "value-id": 9,
                "value": "int",
                "value-required": False,
            },
        },
        {"id": 10, "name": "at", "required": False, "type": "timestamptz"},
    ],
}
WIDER: JsonObject = {
    **SCHEMA,
    "schema-id": 1,
    "fields": [
        *SCHEMA["fields"],  # type: ignore[misc]
        {"id": 11, "name": "note", "required": False, "type": "string"},
    ],
}
COLUMNS: JsonObject = {
    "inputs": [
        {"namespace": "kafka://broker:9092", "name": "orders", "fields": [["value", "binary"]]},
        {
            "namespace": "s3://lake",
            "name": "warehouse/sales/lines",
            "table": LINES.name,
            "table_uuid": LINES.uuid,
            "snapshot": "900",
            "fields": [["order_id", "long"], ["price", "integer"]],
        },
    ],
    "fields": {
        "id": [{"input": 1, "field": "order_id", "type": "DIRECT", "subtype": "IDENTITY"}],
        "amount": [
            {"input": 1, "field": "price", "type": "DIRECT", "subtype": "AGGREGATION"},
            {"input": 0, "field": "value", "type": "DIRECT", "subtype": "TRANSFORMATION"},
            {"input": 1, "field": "order_id", "type": "INDIRECT", "subtype": "JOIN"},
        ],
    },
    "dataset": [{"input": 1, "field": "order_id", "type": "INDIRECT", "subtype": "FILTER"}],
    "unknown": ["prices"],
}


class TickingClock:
    """A clock that moves on by a second at each look."""

    def __init__(self) -> None:
        self.moment = datetime(2026, 11, 1, tzinfo=UTC)

    def now(self) -> datetime:
        self.moment += timedelta(seconds=1)
        return self.moment


@dataclass(slots=True, kw_only=True)
class History:
    """Writes entries as the committer does, and keeps the events of each as of its own moment."""

    ledger: Ledger
    context: LedgerContext
    events: list[Event] = field(default_factory=list)
    next_snapshot: int = 1000
    next_place: int = 0

    def add(self, *drafts: Draft) -> Entry:
        """Append, and make the events at once: nothing that comes later can be in them."""
        made = self.ledger.append(*drafts)
        for entry in made:
            self.events += events_of(entry, self.context)
        return made[-1]

    def begin(self, number: int, job: JobName = JOB, **more: Any) -> Entry:
        """Start a run that has a number for an id."""
        run = RunId(f"5f8a3f1e-0000-4000-8000-{number + 100:012}")
        draft = records.run_started(job, run, principal="ana", code="v1", owner="h-7", **more)
        return self.add(replace(draft, facts={**draft.facts, "host": "h", "pid": 7}))

    def intend(
        self,
        *works: tuple[TableRef, JsonObject],
        offsets: Offsets | None = None,
        generation: int = 0,
        job: JobName = JOB,
        code: str = "v1",
        columns: JsonObject | None = None,
        **more: Any,
    ) -> Entry:
        self.next_place += 10
        # The same offsets may come again in a story; each intent is a batch of its own.
        part = offsets or mapping("orders queue", {"p0": (self.next_place - 10, self.next_place)})
        planned = records.Planned(
            job=job,
            batch=batch_id(
                job=job,
                source=part.source,
                start=part.start(),
                end=[part.end(), self.next_place],
                generation=generation,
            ),
            offsets=part,
            generation=generation,
            principal="ana",
            code=code,
            owner="owner",
            parent_run=RUN,
        )
        facts: dict[str, Any] = {
            "catalog": CATALOG,
            "engine": ENGINE,
            "tables": [table_facts(ref) for ref, _ in works if ref.uuid and "tables" not in more],
            **more,
        }
        draft = records.intent(planned, list(works), **facts)
        kept: dict[str, Any] = {**draft.facts, "host": "h", "pid": 7}
        if columns is not None:
            kept["operations"][0]["column_lineage"] = columns
        return self.add(replace(draft, facts=kept))

    def stage(self, opened: Entry, *tables: TableRef, **counts: int) -> Entry:
        return self.add(
            records.staged(
                opened,
                [
                    {
                        "table_uuid": table.uuid,
                        "name": table.name,
                        "base": "999",
                        "base_metadata": f"{location(table)}/metadata/00001.metadata.json",
                        "document": "{}",
                        "counts": dict(counts),
                    }
                    for table in tables
                ],
            )
        )

    def land(
        self,
        opened: Entry,
        table: TableRef = ORDERS,
        operation: str = "append",
        *,
        settles: bool = True,
        schema_id: int = 0,
        counts: dict[str, int] | None = None,
        **more: Any,
    ) -> Entry:
        self.next_snapshot += 1
        return self.add(
            records.landed(
                opened,
                Landing(
                    table=table,
                    operation=operation,
                    snapshot=SnapshotId(str(5_000_000_000_000_000_000 + self.next_snapshot)),
                    sequence_number=self.next_snapshot - 1000,
                    first_row_id=0,
                    added_rows=10,
                    schema_id=schema_id,
                    counts=counts
                    or {
                        "added-records": 10,
                        "total-records": 10,
                        "added-data-files": 1,
                        "added-files-size": 2048,
                    },
                ),
                snapshot_facts(str(self.next_snapshot)),
                settles=settles,
                **more,
            )
        )

    def settle(self, draft: Draft) -> Entry:
        return self.add(draft)

    def refuse(self, opened: Entry, error: OdiError) -> Entry:
        return self.add(records.refused(opened, error, [], **records.found(error)))

    def effect(self, opened: Entry, kind: Kind, table: TableRef = ORDERS, **facts: Any) -> Entry:
        return self.add(records.without_snapshot(opened, kind, table, facts))

    def foreign(self, snapshots: Sequence[SnapshotFacts], table: TableRef = ORDERS) -> Entry:
        return self.add(*foreign_drafts(table, snapshots))


def location(table: TableRef) -> str:
    return "s3://lake/warehouse/" + table.name.replace(".", "/")


def table_facts(table: TableRef, schema: JsonObject = SCHEMA) -> dict[str, Any]:
    """What an intent keeps of a table, as ``committer.surroundings`` does."""
    return {
        "table_uuid": table.uuid,
        "location": location(table),
        "format_version": 3,
        "owner": "team:shop",
        "schema_id": schema["schema-id"],
        "schema": schema,
    }


def work(operation: str, table: TableRef = ORDERS, **arguments: Any) -> tuple[TableRef, JsonObject]:
    return table, {"op": operation, "table": table.name, **arguments}


def snapshot_facts(number: str, **summary: str) -> SnapshotFacts:
    return SnapshotFacts(
        id=SnapshotId(number),
        parent=None,
        sequence_number=7,
        timestamp_ms=1_793_491_200_000,
        operation="append",
        summary={"added-records": "4", **summary},
        first_row_id=None,
        added_rows=None,
        schema_id=0,
        manifest_list="",
        text="",
    )


def new_history(folder: Path) -> History:
    ledger = create_ledger(f"sqlite:///{folder / 'ledger.db'}", clock=TickingClock())
    return History(ledger=ledger, context=LedgerContext(ledger))


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    made = new_history(tmp_path)
    yield made
    made.ledger.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The whole story, and each chapter's events by its name. Tests only read it."""

    history: History
    chapters: dict[str, list[Event]]

    def __getitem__(self, chapter: str) -> list[Event]:
        return self.chapters[chapter]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    from tests.unit.lineage.story import CHAPTERS

    made = new_history(tmp_path_factory.mktemp("story"))
    chapters: dict[str, list[Event]] = {}
    for chapter in CHAPTERS:
        before = len(made.events)
        chapter(made)
        chapters[chapter.__name__] = made.events[before:]
    yield Told(history=made, chapters=chapters)
    made.ledger.close()
