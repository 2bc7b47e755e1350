"""What the committer writes into the ledger: its form, its limits, and what never stands in it."""

from __future__ import annotations

from odi_audit.clock import from_text
from odi_audit.committer import records
from odi_audit.committer.records import REASON_LENGTH_MAX, Planned
from odi_audit.errors import BadKeys, OffsetGap
from odi_audit.ids import BatchId, JobName, RunId, SnapshotId, TableUuid
from odi_audit.ledger.projection import project
from odi_audit.model.entries import Entry, Kind, entry_from_json
from odi_audit.model.offsets import mapping
from odi_audit.model.snapshots import snapshot_from_json
from odi_audit.model.tables import TableRef

MOMENT = from_text("2026-11-16T08:00:00.000000Z")
REF = TableRef(uuid=TableUuid("u-1"), name="sales.orders")
WORK = {"op": "append", "table": "sales.orders"}


def opened(generation: int = 0) -> Entry:
    planned = Planned(
        job=JobName("sales/orders"),
        batch=BatchId("b-1"),
        offsets=mapping("topic", {"p": (0, 10)}),
        generation=generation,
        principal="ana",
        code="v1",
        owner="host-1",
        parent_run=RunId("r-0"),
    )
    return records.intent(planned, [(REF, WORK)]).numbered(7, MOMENT)


def snapshot(summary: dict[str, str]) -> object:
    return snapshot_from_json(
        {
            "snapshot-id": 9007199254740993,
            "sequence-number": 4,
            "timestamp-ms": 1_700_000_000_123,
            "summary": {"operation": "append", **summary},
            "first-row-id": 10,
            "added-rows": 5,
            "schema-id": 0,
            "manifest-list": "m",
        }
    )


def test_an_intent_says_who_what_and_where_before_it_happens() -> None:
    entry = opened()
    assert (entry.kind, entry.batch, entry.table) == (Kind.INTENT, "b-1", REF)
    assert entry.run is not None
    assert {"owner", "host", "pid", "principal", "code", "parent_run"} <= entry.facts.keys()
    assert entry.facts["operations"][0]["arguments"] == WORK  # type: ignore[index,call-overload]
    assert entry_from_json(entry.to_json()) == entry


def test_a_landing_keeps_what_outlives_the_snapshot_and_ids_as_text() -> None:
    facts = snapshot({"added-records": "5", "engine-name": "spark"})
    landing = records.landing_of(REF, "append", facts)  # type: ignore[arg-type]
    assert landing.snapshot == SnapshotId("9007199254740993")
    draft = records.landed(opened(), landing, facts, settles=True)  # type: ignore[arg-type]
    entry = draft.numbered(8, MOMENT)
    assert entry.facts["counts"] == {"added-records": 5}
    assert entry.facts["committed_at"] == "2023-11-14T22:13:20.123000Z"
    assert entry.facts["work"] == opened().facts["operations"][0]["work"]  # type: ignore[index,call-overload]
    assert (entry.intent, entry.settles) == (7, True)
    assert records.landing_of_entry(entry) == landing


def test_a_replay_of_an_old_part_leaves_no_position() -> None:
    landing = records.landing_of(REF, "append", snapshot({}))  # type: ignore[arg-type]
    for moves, rows in ((True, 1), (False, 0)):
        draft = records.landed(opened(1), landing, None, settles=True, moves=moves)
        found = project(draft.numbered(8, MOMENT))
        assert len(found["positions"]) == rows
        assert len(found["landed"]) == 1


def test_a_refusal_keeps_code_and_reason_but_no_value_of_a_row() -> None:
    error = BadKeys("2 rows too many", hint="h", samples=['{"id":"PRIVATE"}'], duplicate_keys=2)
    entry = records.refused(opened(), error, []).numbered(9, MOMENT)
    assert entry.facts == {"code": "ODI-G02", "reason": "2 rows too many", "branches": []}
    assert b"PRIVATE" not in entry.to_bytes()


def test_where_a_message_quotes_somebody_else_only_its_record_is_kept() -> None:
    error = BadKeys("Spark said: PRIVATE", record="Spark refused it")
    for draft in (
        records.refused(opened(), error, []),
        records.gap_accepted(opened(), REF, OffsetGap("a gap", record="a gap"), "why"),
    ):
        assert b"PRIVATE" not in draft.numbered(9, MOMENT).to_bytes()


def test_a_reason_is_cut_and_secrets_in_it_are_masked() -> None:
    text = "postgresql://ana:hunter2@db/x " + "y" * 5000
    entry = records.abandoned(opened(), text).numbered(9, MOMENT)
    reason = str(entry.facts["reason"])
    assert len(reason) == REASON_LENGTH_MAX
    assert "hunter2" not in reason


def test_an_intent_over_many_tables_names_each_and_belongs_to_none() -> None:
    planned = Planned(
        job=JobName("sales/orders"),
        batch=BatchId("b-1"),
        offsets=mapping("topic", {"p": (0, 10)}),
        generation=0,
        principal="ana",
        code="v1",
        owner="o",
        parent_run=RunId("r"),
    )
    other = TableRef(uuid=TableUuid("u-2"), name="sales.raw")
    entry = records.intent(planned, [(REF, WORK), (other, WORK)]).numbered(0, MOMENT)
    assert entry.table is None
    assert [item["table_uuid"] for item in entry.facts["operations"]] == ["u-1", "u-2"]  # type: ignore[index,union-attr]
    assert records.positions_of(entry, other)["p"].end == 10
