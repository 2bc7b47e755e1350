"""A bench without a JVM: a real SQLite ledger, and real v2 tables that pyiceberg writes.

It records what the committer records (intent before, landed after), and can leave out or forge
any part of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from odi_audit.canonical import JsonObject
from odi_audit.catalog import TableState, open_catalog
from odi_audit.catalog.lake import LakeCatalog
from odi_audit.ids import BatchId, JobName, SnapshotId, batch_id
from odi_audit.ledger import create_ledger
from odi_audit.ledger.port import Ledger
from odi_audit.model.entries import Draft, Entry, Kind
from odi_audit.model.offsets import Offsets, mapping, offsets_from_json
from odi_audit.model.receipts import Landing
from odi_audit.model.stamps import Stamps
from odi_audit.model.tables import parse
from odi_audit.settings import Settings
from odi_audit.workspace import make_catalog_file

JOB = JobName("sales/orders")
DEAD = "owner-that-is-gone"
ROWS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("region", pa.string())])


class TickingClock:
    """A clock that moves on by a second at each look."""

    def __init__(self) -> None:
        self.moment = datetime(2026, 11, 1, tzinfo=UTC)

    def now(self) -> datetime:
        self.moment += timedelta(seconds=1)
        return self.moment


@dataclass(slots=True, kw_only=True)
class Bench:
    ledger: Ledger
    catalog: LakeCatalog
    writer: SqlCatalog
    clock: TickingClock
    next_row: int = 0
    places: dict[str, int] = field(default_factory=dict)

    def create(self, name: str = "sales.orders") -> TableState:
        parts = parse(name)
        self.writer.create_namespace_if_not_exists(parts.namespace)
        self.writer.create_table(parts.parts, ROWS)
        return self.catalog.load(parts)

    def state(self, name: str = "sales.orders") -> TableState:
        return self.catalog.load(parse(name))

    def table(self, name: str = "sales.orders") -> Table:
        return self.writer.load_table(parse(name).parts)

    def offsets(self, source: str = "topic") -> Offsets:
        start = self.places.get(source, 0)
        self.places[source] = start + 10
        return mapping(source, {"p0": (start, start + 10)})

    def intend(
        self,
        *tables: str,
        job: JobName = JOB,
        offsets: Offsets | None = None,
        owner: str = DEAD,
        op: str = "append",
        generation: int = 0,
    ) -> Entry:
        part = offsets or self.offsets()
        batch = batch_id(
            job=job, source=part.source, start=part.start(), end=part.end(), generation=generation
        )
        facts: JsonObject = {
            "operations": [
                {"op": op, "table": name, "table_uuid": self.state(name).ref.uuid, "work": "w"}
                for name in (tables or ("sales.orders",))
            ],
            "offsets": part.to_json(),
            "generation": generation,
            "principal": "ana",
            "code": "v1",
            "owner": owner,
            "host": "h",
            "pid": 7,
        }
        return self.ledger.append(Draft(kind=Kind.INTENT, job=job, batch=batch, facts=facts))[0]

    def stamps(self, intent: Entry, **changes: object) -> dict[str, str]:
        offsets = intent.facts["offsets"]
        assert isinstance(offsets, dict)
        assert intent.job is not None and intent.run is not None and intent.batch is not None
        made = Stamps(
            job=intent.job,
            run=intent.run,
            batch=intent.batch,
            operation="append",
            source=str(offsets["source"]),
            offsets=offsets_from_json(offsets).to_stamp(
                generation=int(str(intent.facts["generation"]))
            ),
            intent=intent.index,
            principal="ana",
            code="v1",
        ).to_summary()
        return {**made, **{key: str(value) for key, value in changes.items()}}

    def write(
        self, stamps: dict[str, str] | None = None, name: str = "sales.orders", count: int = 10
    ) -> SnapshotId:
        ids = list(range(self.next_row, self.next_row + count))
        self.next_row += count
        rows = pa.table({"id": ids, "region": ["r"] * count}, schema=ROWS)
        table = self.table(name)
        table.append(rows, snapshot_properties=stamps or {})
        snapshot = table.current_snapshot()
        assert snapshot is not None
        return SnapshotId(str(snapshot.snapshot_id))

    def record(
        self,
        intent: Entry,
        snapshot: SnapshotId,
        name: str = "sales.orders",
        *,
        settles: bool = True,
        **changes: object,
    ) -> Entry:
        state = self.state(name)
        info = state.snapshot(snapshot)
        assert info is not None
        landing = Landing(
            table=state.ref,
            operation="append",
            snapshot=snapshot,
            sequence_number=info.sequence_number,
            first_row_id=None,
            added_rows=None,
            schema_id=info.schema_id,
            counts={"rows": int(info.summary["added-records"])},
        )
        facts = {
            **landing.to_json(),
            "offsets": intent.facts["offsets"],
            "source": info.summary["odi.source"],
            "committed_at": info.time,
            **changes,
        }
        draft = Draft(
            kind=Kind.LANDED,
            job=intent.job,
            run=intent.run,
            batch=intent.batch,
            table=state.ref,
            intent=intent.index,
            settles=settles,
            facts=facts,  # type: ignore[arg-type]
        )
        return self.ledger.append(draft)[0]

    def land(self, *tables: str, **about: object) -> BatchId:
        names: Sequence[str] = tables or ("sales.orders",)
        intent = self.intend(*names, **about)  # type: ignore[arg-type]
        for place, name in enumerate(names):
            snapshot = self.write(self.stamps(intent), name)
            self.record(intent, snapshot, name, settles=place == len(names) - 1)
        assert intent.batch is not None
        return intent.batch

    def settle(self, intent: Entry, kind: Kind, **facts: str) -> Entry:
        return self.ledger.append(
            Draft(
                kind=kind,
                job=intent.job,
                run=intent.run,
                batch=intent.batch,
                intent=intent.index,
                settles=kind is not Kind.UNKNOWN,
                facts=facts,
            )
        )[0]

    def note(self, kind: Kind, name: str = "sales.orders", **facts: object) -> Entry:
        """Record something about a table, under an intent of its own."""
        intent = self.intend(name, op=kind.value, job=JobName("upkeep/care"))
        draft = Draft(
            kind=kind,
            job=intent.job,
            batch=intent.batch,
            table=self.state(name).ref,
            intent=intent.index,
            settles=True,
            facts=facts,  # type: ignore[arg-type]
        )
        return self.ledger.append(draft)[0]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    make_catalog_file(tmp_path / "catalog.db")
    warehouse = tmp_path / "warehouse"
    warehouse.mkdir()
    return Settings.model_validate(
        {"catalog": {"uri": str(tmp_path / "catalog.db"), "warehouse": str(warehouse)}}
    )


@pytest.fixture
def bench(settings: Settings, tmp_path: Path) -> Iterator[Bench]:
    clock = TickingClock()
    ledger = create_ledger(f"sqlite:///{tmp_path / 'ledger.db'}", clock=clock)
    writer = SqlCatalog(
        "lake",
        uri=f"sqlite:///{settings.catalog.uri}",
        warehouse=f"file://{settings.catalog.warehouse}",
    )
    catalog = open_catalog(settings)
    made = Bench(ledger=ledger, catalog=catalog, writer=writer, clock=clock)
    made.create()
    yield made
    ledger.close()
    catalog.close()
    writer.close()
