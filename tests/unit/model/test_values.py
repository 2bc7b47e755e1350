"""Table names, stamps, snapshots, entries, receipts: how they are written and read back."""

from __future__ import annotations

import json

import pytest

from odi_audit.clock import from_text
from odi_audit.errors import BadTableName, UsageError
from odi_audit.ids import BatchId, JobName, RunId, SnapshotId, TableUuid, batch_run_id, job_name
from odi_audit.model.entries import Draft, Kind, entry_from_json
from odi_audit.model.receipts import Landing, Receipt
from odi_audit.model.snapshots import snapshot_from_text
from odi_audit.model.stamps import KEYS, Stamps, missing, read
from odi_audit.model.tables import PART_LENGTH_MAX, TableName, TableRef, parse, quote

MOMENT = from_text("2026-11-16T08:00:00.000000Z")
STAMPS = Stamps(
    job=JobName("a/b"),
    run=RunId("r"),
    batch=BatchId("b-1"),
    operation="append",
    source="topic",
    offsets={"kind": "mapping", "ranges": {"p": [0, 1]}},
    intent=3,
    principal="ana",
    code="v1",
)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("sales.orders", ("sales", "orders")),
        ("a.b.c", ("a", "b", "c")),
        ("Sales.`Odd.Name`", ("Sales", "Odd.Name")),
        ("`Größe 'x'`.`O``Hara \"y\"`", ("Größe 'x'", 'O`Hara "y"')),
        ("表.таблица", ("表", "таблица")),
    ],
)
def test_a_table_name_is_read_and_shown_so_that_it_can_be_read_again(
    text: str, parts: tuple[str, ...]
) -> None:
    name = parse(text)
    assert name == TableName(parts)
    assert parse(str(name)) == name
    assert name.sql("lake").startswith("`lake`.`")
    assert name.namespace == parts[:-1]


@pytest.mark.parametrize(
    "text",
    ["", "orders", "a.", ".a", "a..b", "a.`b", "a. b", "a.b/c", "a.b\\c", "a.`..`", "a.b\n",
     "a.b\x00", "a." + "x" * (PART_LENGTH_MAX + 1)],
)  # fmt: skip
def test_a_name_that_no_catalog_can_hold_is_refused(text: str) -> None:
    with pytest.raises(BadTableName):
        parse(text)


def test_a_quoted_part_cannot_end_its_own_quotes() -> None:
    assert quote("a`; DROP TABLE x; --") == "`a``; DROP TABLE x; --`"


@pytest.mark.parametrize("text", ["", "orders", "a b/c", "/a", "a/", "x/" + "y" * 200])
def test_a_job_has_a_namespace_and_a_name(text: str) -> None:
    with pytest.raises(UsageError):
        job_name(text)


def test_job_names_may_be_deep_and_of_any_script() -> None:
    assert job_name("größe/täble/x") == "größe/täble/x"


def test_stamps_are_complete_and_read_back() -> None:
    summary = STAMPS.to_summary()
    assert tuple(summary) == KEYS
    assert all(isinstance(value, str) for value in summary.values())
    assert read(summary) == STAMPS
    assert read({"spark.app.id": "x"}) is None
    assert missing({}) == list(KEYS)


@pytest.mark.parametrize(
    "change",
    [{"odi.batch-id": None}, {"odi.format": "2"}, {"odi.intent": "x"}, {"odi.offsets": "{"}],
)
def test_forged_stamps_are_an_error_not_an_absence(change: dict[str, str | None]) -> None:
    summary = {**STAMPS.to_summary(), **change}
    with pytest.raises(ValueError, match=r".+"):
        read({key: value for key, value in summary.items() if value is not None})


def test_a_snapshot_keeps_every_digit_of_its_ids() -> None:
    text = json.dumps(
        {
            "snapshot-id": 9007199254740993,
            "parent-snapshot-id": 9007199254740995,
            "sequence-number": 2,
            "timestamp-ms": 5,
            "summary": {
                "operation": "overwrite",
                "added-records": "7",
                "spark.merge-into.num-target-rows-updated": "3",
                "engine-name": "spark",
            },
            "schema-id": 1,
        }
    )
    facts = snapshot_from_text(text)
    assert (facts.id, facts.parent) == ("9007199254740993", "9007199254740995")
    assert facts.counts() == {"added-records": 7, "rows-updated": 3}
    assert facts.count("deleted-records") == 0
    assert (facts.operation, facts.first_row_id) == ("overwrite", None)
    assert "operation" not in facts.summary


def test_an_entry_is_the_same_after_a_trip_through_its_bytes() -> None:
    ref = TableRef(uuid=TableUuid("u"), name="sales.örders")
    for draft in (
        Draft(kind=Kind.INTENT, job=JobName("a/b"), batch=BatchId("b-1"), table=ref),
        Draft(kind=Kind.SEAL, facts={"size": 3}),
        Draft(kind=Kind.LANDED, table=ref, intent=0, settles=True, recovered=True),
    ):
        entry = draft.numbered(4, MOMENT)
        assert entry_from_json(json.loads(entry.to_bytes())) == entry
    with pytest.raises(ValueError, match="format"):
        entry_from_json({**Draft(kind=Kind.READ).numbered(0, MOMENT).to_json(), "v": 2})


def test_each_attempt_at_a_batch_has_a_run_id_of_its_own_that_anyone_can_derive() -> None:
    draft = Draft(kind=Kind.INTENT, batch=BatchId("b-1"))
    first, second = draft.numbered(4, MOMENT), draft.numbered(9, MOMENT)
    assert first.run == batch_run_id(BatchId("b-1"), 4) != second.run
    assert Draft(kind=Kind.READ).numbered(4, MOMENT).run is None


def test_a_receipt_over_many_tables_has_no_single_snapshot() -> None:
    landing = Landing(
        table=TableRef(uuid=TableUuid("u"), name="t"),
        operation="append",
        snapshot=SnapshotId("1"),
        sequence_number=1,
        first_row_id=0,
        added_rows=1,
        schema_id=0,
    )

    def receipt(*landings: Landing) -> Receipt:
        return Receipt(
            job=JobName("a/b"),
            run=RunId("r"),
            batch=BatchId("b"),
            intent=0,
            fresh=True,
            confidence="exact",
            landings=landings,
        )

    assert receipt(landing).snapshot == "1"
    with pytest.raises(ValueError, match="2 tables"):
        _ = receipt(landing, landing).snapshot
