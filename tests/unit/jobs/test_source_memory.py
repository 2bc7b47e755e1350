"""Which other sources a job has read, from a real ledger."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jobs.sources.kafka_plan import plan
from jobs.sources.kafka_values import Cluster, Subscription, Topic, Watermarks
from jobs.sources.memory import elsewhere
from odi_audit.errors import SourceChanged
from odi_audit.ids import BatchId, JobName, TableUuid
from odi_audit.ledger.port import Ledger
from odi_audit.model.entries import Draft, Kind
from odi_audit.model.offsets import OffsetKind, Offsets, kafka, watermark
from odi_audit.model.tables import TableRef
from odi_audit.workspace import Workspace

JOB = JobName("sales/orders")
ORDERS = TableRef(uuid=TableUuid("11111111-aaaa"), name="sales.orders")
ITEMS = TableRef(uuid=TableUuid("22222222-bbbb"), name="sales.items")
_BATCHES = iter(range(1, 1000))


def land(ledger: Ledger, offsets: Offsets, table: TableRef = ORDERS) -> None:
    batch = BatchId(f"b-{next(_BATCHES):032x}")
    opened = ledger.append(Draft(kind=Kind.INTENT, job=JOB, batch=batch))[0]
    ledger.append(
        Draft(
            kind=Kind.LANDED, job=JOB, run=opened.run, batch=batch, table=table,
            intent=opened.index, settles=True, facts={"offsets": offsets.to_json()},
        )
    )  # fmt: skip


def on(cluster: str, end: int) -> Offsets:
    return kafka({"orders": {0: (0, end)}}, bootstrap="one:9092", cluster_id=cluster)


def test_other_sources_of_the_same_kind_on_the_same_table_are_told(
    make_lake: Callable[..., Workspace],
) -> None:
    ledger = make_lake().ledger()
    land(ledger, watermark("postgres://db/shop", "id", 0, 5))
    land(ledger, on("C1", 5))
    land(ledger, on("C9", 5), ITEMS)
    found = elsewhere(ledger, JOB, ORDERS.uuid, "kafka://C2", OffsetKind.KAFKA)
    assert found == ["kafka://C1"]
    assert elsewhere(ledger, JOB, ORDERS.uuid, "kafka://C1", OffsetKind.KAFKA) == []
    other = JobName("sales/other")
    assert elsewhere(ledger, other, ORDERS.uuid, "kafka://C2", OffsetKind.KAFKA) == []


def test_a_job_that_finds_another_cluster_stops_and_one_by_another_server_goes_on(
    make_lake: Callable[..., Workspace],
) -> None:
    ledger = make_lake().ledger()
    land(ledger, on("C1", 5))

    def planned(cluster: str, bootstrap: str) -> dict[str, tuple[object, object]]:
        topic = Topic(name="orders", id=None, partitions={0: Watermarks(begin=0, end=9)})
        state = Cluster(id=cluster, bootstrap=bootstrap, topics={"orders": topic})
        made = plan(
            state,
            ledger.positions(JOB, ORDERS.uuid, state.source),
            subscription=Subscription(topics=("orders",)),
            elsewhere=elsewhere(ledger, JOB, ORDERS.uuid, state.source, OffsetKind.KAFKA),
        )
        assert made is not None
        return {name: (part.start, part.end) for name, part in made.offsets.ranges.items()}

    assert planned("C1", "two:9092,one:9092") == {"orders-0": (5, 9)}
    with pytest.raises(SourceChanged, match="kafka://C2 now"):
        planned("C2", "one:9092")
