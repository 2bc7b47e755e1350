"""Every kind of entry, one chapter for each thing that can happen to a batch or a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from odi_audit.committer import records
from odi_audit.errors import RuleBroken
from odi_audit.ids import JobName, RunId, TableUuid
from odi_audit.model.entries import Draft, Kind
from odi_audit.model.offsets import (
    OffsetKind,
    Offsets,
    Range,
    kafka,
    lsn,
    once,
    stream,
    table_state,
    watermark,
)
from odi_audit.model.runs import Outcome
from tests.unit.lineage.conftest import (
    COLUMNS,
    LINES,
    NOWHERE,
    ORDERS,
    RUN,
    SCHEMA,
    WIDER,
    History,
    location,
    snapshot_facts,
    table_facts,
    work,
)

CONTRACT = {"key": ["id"], "required": ["at"], "rules": {"amount is not negative": "amount >= 0"}}


def table_created(told: History) -> None:
    opened = told.intend(
        (
            NOWHERE,
            {"op": "create_table", "table": "sales.orders", "properties": {"odi.owner": "shop"}},
        ),
        offsets=table_state("sales.orders", None, {}),
    )
    told.effect(
        opened,
        Kind.TABLE_CREATED,
        operation="create_table",
        location=location(ORDERS),
        format_version=3,
        schema=SCHEMA,
    )


def kafka_append(told: History) -> None:
    part = kafka(
        {"orders": {0: (100, 250), 1: (7, 9)}},
        bootstrap="broker:9092,other:9092",
        topic_ids={"orders": "T1"},
        exact_count=True,
    )
    opened = told.intend(
        work("append", contract=CONTRACT),
        offsets=part,
        columns=COLUMNS,
        code="git+https://git.example.org/shop/jobs.git@0123abc4567",
        environment={
            "OPENLINEAGE_PARENT_ID": "airflow/daily.orders/0b6a3b1e-0000-4000-8000-00000000000a",
            "AIRFLOW_CTX_DAG_ID": "daily",
        },
    )
    counts = {"null_keys": 0, "duplicate_keys": 0, "required:at": 0, "rows": 152}
    told.stage(opened, ORDERS, **counts, **{"rule:amount is not negative": 0})
    told.land(opened)


def many_tables(told: History) -> None:
    opened = told.intend(work("append"), work("upsert", LINES, key=["order_id"]))
    told.stage(opened, ORDERS, LINES)
    told.land(opened, settles=False)
    told.land(opened, LINES, "upsert")


def refused(told: History) -> None:
    opened = told.intend(work("append", contract=CONTRACT))
    error = RuleBroken(
        "append on sales.orders breaks amount is not negative (3 rows), at (1 rows)",
        rules=["amount is not negative", "at"],
        samples=["id=7"],
    )
    told.refuse(opened, error)


def abandoned(told: History) -> None:
    told.settle(records.abandoned(told.intend(work("append")), "its process died"))


def unknown_then_reconciled(told: History) -> None:
    opened = told.intend(work("append"))
    told.stage(opened, ORDERS)
    told.add(records.unknown(opened, ORDERS, "the connection was closed"))
    told.land(opened, reconciled=True)


def given_up_in_the_middle(told: History) -> None:
    opened = told.intend(work("append"), work("append", LINES))
    told.stage(opened, ORDERS, LINES)
    told.land(opened, settles=False)
    told.settle(records.abandoned(opened, "its process died with some tables published"))


def published_after_all(told: History) -> None:
    opened = told.intend(work("append"))
    told.stage(opened, ORDERS)
    told.settle(records.abandoned(opened, "taken for dead"))
    told.land(opened, settles=False)


def changes_in_place(told: History) -> None:
    state = table_state("sales.orders", "5000000000000001001", {})
    opened = told.intend(
        work("update", where="name = 'Ada'", set={"amount": "amount + 1"}), offsets=state
    )
    told.land(opened, operation="update")
    opened = told.intend(work("compact", options={"rewrite-all": "true"}), offsets=state)
    told.land(opened, operation="compact", counts={"added-records": 10, "deleted-records": 10})
    opened = told.intend(work("overwrite", where="id > 0"), offsets=once("anew"))
    told.land(opened, operation="overwrite")
    opened = told.intend(work("delete", where="true"), offsets=state)
    told.land(opened, operation="delete", counts={"deleted-records": 10, "total-records": 0})


def other_sources(told: History) -> None:
    files = Offsets(
        kind=OffsetKind.FILES,
        source="file:///in",
        ranges={
            "/in/b.csv": Range(None, "20:aa"),
            "/in/a.csv": Range(None, "10:bb"),
            "/more/c.csv": Range(None, "5:cc"),
        },
    )
    opened = told.intend(work("append"), offsets=files)
    told.add(records.gap_accepted(opened, ORDERS, RuleBroken("a gap"), "upstream lost 40"))
    told.land(opened)
    day = watermark(
        "jdbc:postgresql://ana:hunter2@db/shop.public.orders?sslmode=require",
        "changed_at",
        "2026-10-31",
        "2026-11-01T00:00:00+01:00",
    )
    told.land(told.intend(work("append"), offsets=day))
    told.land(told.intend(work("append"), offsets=lsn("postgres://db:5432/shop", "0/1", "0/2")))
    part = stream(
        "stream:KafkaV2[Subscribe[orders,returns]], FileStreamSource[file:/in/json]",
        {"0": ('{"orders":{"0":1}}', '{"orders":{"0":2}}'), "1": (None, '{"logOffset":0}')},
    )
    told.land(told.intend(work("append"), offsets=part, stream={"query": "q", "number": 3}))


def replay(told: History) -> None:
    opened = told.intend(work("append"), generation=1)
    told.add(records.replay(opened))
    told.land(opened, moves=False)


def schema_change(told: History) -> None:
    state = table_state("sales.orders", "5000000000000001001", {"steps": 1})
    opened = told.intend(work("evolve_schema", steps=[["add", "note", "string"]]), offsets=state)
    changed = told.effect(
        opened, Kind.SCHEMA_CHANGE, operation="evolve_schema", before=SCHEMA, after=WIDER
    )
    held = {**table_facts(ORDERS, WIDER), "schema_at": changed.index}
    del held["schema"]
    told.land(told.intend(work("append"), tables=[held]), schema_id=1)


def housekeeping(told: History) -> None:
    state = table_state("sales.orders", "5000000000000001002", {"op": 2})
    opened = told.intend(work("rollback", to="5000000000000001001"), offsets=state)
    told.effect(
        opened,
        Kind.ROLLBACK,
        operation="rollback",
        **{"from": "5000000000000001002", "to": "5000000000000001001", "undone": ["b-1"]},
    )
    opened = told.intend(work("expire", retain_last=1), offsets=state)
    told.foreign([snapshot_facts("77", **{"engine-name": "flink"}), snapshot_facts("78")])
    told.effect(opened, Kind.MAINTENANCE, operation="expire", expired=["77", "78"])
    for kind in (Kind.UNDO, Kind.ERASURE):
        told.effect(told.intend(work(kind.value)), kind, operation=kind.value)


def dropped(told: History) -> None:
    last = {
        "head": "5000000000000001001",
        "metadata_location": f"{location(ORDERS)}/metadata/00002-x.metadata.json",
        "totals": {"total-records": 10},
    }
    state = table_state("sales.orders", "5000000000000001001", {"op": 3})
    opened = told.intend(work("drop_table", purge=False), offsets=state, **last)
    told.foreign([snapshot_facts("79")])
    told.settle(records.dropped(opened, ORDERS))
    # Another one of its name, at its place: a table of its own, with a uuid of its own.
    again = replace(ORDERS, uuid=TableUuid("0d1e2f3a-0000-4000-8000-000000000009"))
    opened = told.intend(
        (NOWHERE, {"op": "create_table", "table": "sales.orders"}),
        offsets=table_state("sales.orders", None, {}),
    )
    told.effect(
        opened,
        Kind.TABLE_CREATED,
        again,
        operation="create_table",
        location=location(ORDERS),
        format_version=3,
        schema=SCHEMA,
    )
    opened = told.intend(
        (again, {"op": "drop_table", "table": "sales.orders", "purge": True}),
        offsets=state,
        tables=[table_facts(again)],
        **last,
    )
    told.settle(records.abandoned(opened, "its process died before the table was dropped"))


def reads(told: History) -> None:
    facts = {
        "consumer": "billing",
        "mode": "changes",
        "columns": ["id", "amount"],
        "where": "name = '?'",
        "from_snapshot": "5000000000000001001",
        "from_sequence": 1,
        "to_snapshot": "5000000000000001002",
        "to_sequence": 2,
        "rows": 10,
        "principal": "bob",
        "began": 0,
        "began_at": "2026-11-01T00:00:01.000000Z",
    }
    told.add(Draft(kind=Kind.READ, table=ORDERS, facts=facts))
    run = RunId("5f8a3f1e-0000-4000-8000-000000000002")
    job = JobName("finance/emea/billing")
    told.add(Draft(kind=Kind.READ, job=job, run=run, table=LINES, facts={"consumer": "billing"}))


def recovered(told: History) -> None:
    opened = told.intend(work("append"), tables=[])
    made = told.land(opened)
    facts = {key: made.facts[key] for key in ("operation", "snapshot", "schema_id", "counts")}
    told.add(
        Draft(
            kind=Kind.LANDED,
            job=made.job,
            run=RunId("5f8a3f1e-0000-4000-8000-000000000003"),
            batch=made.batch,
            table=LINES,
            recovered=True,
            facts=facts,
        )
    )


def seal(told: History) -> None:
    told.add(Draft(kind=Kind.SEAL, facts={"head": "h", "key": "k"}))


def long_batches(told: History) -> None:
    opened = told.intend(work("append"))
    alive = Draft(
        kind=Kind.ALIVE, job=opened.job, run=opened.run, batch=opened.batch, intent=opened.index,
        facts={"after_s": 60},
    )  # fmt: skip
    told.add(alive)
    told.stage(opened, ORDERS)
    told.add(alive)
    told.land(opened)
    # The thread that tells it had not seen the end: no event may come of this one.
    told.add(alive)
    for facts in ({"after_s": 900, "stream": True}, {"after_s": 1800}):
        told.add(Draft(kind=Kind.ALIVE, job=JobName("sales/orders"), run=RUN, facts=facts))


def renamed(told: History) -> None:
    # Tables have one location and uuid whatever they are called; past us a rename leaves no entry.
    moved = replace(ORDERS, name="sales.all_orders")
    for table in (moved, moved, ORDERS):
        shape = [table_facts(ORDERS)]
        opened = told.intend((table, {"op": "append", "table": table.name}), tables=shape)
        told.land(opened, table)


def renamed_here(told: History) -> None:
    state = table_state(LINES.name, "5000000000000001004", {"op": 4})
    shape = [table_facts(LINES)]
    moved = replace(LINES, name="archive.order_lines")
    opened = told.intend(work("rename_table", LINES, to="sales.other_lines"), offsets=state)
    told.settle(records.abandoned(opened, "its process died"))
    opened = told.intend(work("rename_table", LINES, to=moved.name), offsets=state)
    told.settle(records.renamed(opened, moved))
    # What comes next tells of it no more; a rename past us it does tell.
    for table in (moved, replace(LINES, name="sales.lines_again")):
        told.land(told.intend(work("append", table), tables=shape), table)
    # One past us and one through us: from the name that it had right before.
    before, last = replace(LINES, name="sales.lines_past_us"), replace(LINES, name="sales.lines")
    opened = told.intend(work("rename_table", before, to=last.name), offsets=state, tables=shape)
    told.settle(records.renamed(opened, last, reconciled=True))


def one_file(told: History) -> None:
    # The plan read one file by its name: then that is the input, and not the folder.
    part = Offsets(
        kind=OffsetKind.FILES, source="file:///in", ranges={"/in/b.csv": Range(None, "20:aa")}
    )
    plan = {
        "inputs": [{"namespace": "file", "name": "/in/b.csv", "kind": "FILE"}],
        "fields": {"id": [{"input": 0, "field": "id", "type": "DIRECT", "subtype": "IDENTITY"}]},
        "dataset": [],
        "unknown": [],
    }
    told.land(told.intend(work("append"), offsets=part, columns=plan))


def lives_of_runs(told: History) -> None:
    done = told.begin(
        1,
        environment={"AIRFLOW_CTX_DAG_ID": "daily"},
        about={"owner": "shop", "description": "orders, nightly", "spec": "5eed"},
    )
    told.land(told.intend(work("append"), parent_run=done.run))
    told.add(records.run_ended(done, Outcome.COMPLETED))
    failed = told.begin(2)
    told.add(
        records.run_ended(failed, Outcome.FAILED, error_code="ODI-C01", reason="it kept moving")
    )
    told.add(records.run_ended(told.begin(3), Outcome.STOPPED, reason="stopped by hand"))
    # Taken for dead, it ended well all the same; its pulse had not heard of either.
    lives = told.begin(4, streaming=True)
    pulse = Draft(
        kind=Kind.ALIVE, job=lives.job, run=lives.run,
        facts={"after_s": 900, "started": lives.index, "stream": True},
    )  # fmt: skip
    told.add(pulse)
    told.add(records.run_ended(lives, Outcome.DIED, reason="its process died"))
    told.add(pulse)
    told.add(replace(records.run_ended(lives, Outcome.COMPLETED), settles=False))
    # The end of a run whose start the ledger has lost.
    lost = replace(records.run_ended(failed, Outcome.COMPLETED), intent=None, settles=False)
    told.add(replace(lost, run=RunId("5f8a3f1e-0000-4000-8000-000000000109")))


CHAPTERS: tuple[Callable[[History], None], ...] = (
    table_created,
    kafka_append,
    many_tables,
    refused,
    abandoned,
    unknown_then_reconciled,
    given_up_in_the_middle,
    published_after_all,
    changes_in_place,
    other_sources,
    replay,
    schema_change,
    housekeeping,
    reads,
    recovered,
    seal,
    long_batches,
    renamed,
    one_file,
    dropped,
    lives_of_runs,
    renamed_here,
)
