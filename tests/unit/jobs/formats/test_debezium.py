"""Debezium's events become changes of rows; what they do not say is never made up."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from jobs.formats.debezium import DebeziumDecoder, event_key
from jobs.formats.debezium_envelope import (
    OLD_KEY,
    OP,
    ORDER,
    TIME,
    UNAVAILABLE,
    Source,
    order_of,
)
from jobs.formats.decoded import Unreadable
from tests.unit.jobs.formats.events import FORMS, Event, changed, event, packed, records, sample

ORDERS = pa.schema([
    pa.field("id", pa.int64(), nullable=False),
    pa.field("customer", pa.string(), nullable=False),
    ("amount", pa.decimal128(12, 2)),
    ("status", pa.string()),
    ("created", pa.timestamp("us", tz="UTC")),
    ("d", pa.date32()),
    ("meta", pa.string()),
    ("note", pa.string()),
])  # fmt: skip


def decoded(*events: Event, schema: pa.Schema = ORDERS, **more: Any) -> Any:
    return DebeziumDecoder(schema, key=("id",), **more).decode(records(events))


@pytest.mark.parametrize("form", FORMS)
def test_rows_have_the_types_of_their_table(form: str) -> None:
    made = decoded(event(f"{form}-c"), event(f"{form}-r"), event(f"{form}-u"))
    assert not made.rejects
    rows = made.rows.to_pylist()
    assert [row[OP] for row in rows] == ["c", "r", "u"]
    assert rows[0] | {ORDER: "", TIME: None} == {
        "id": 3,
        "customer": "cyd",
        "amount": Decimal("99.99"),
        "status": "new",
        "created": datetime(2026, 2, 2, 10, tzinfo=UTC),
        "d": date(2026, 2, 2),
        "meta": '{"b": [1, 2]}',
        "note": "n3",
        OP: "c",
        ORDER: "",
        TIME: None,
        UNAVAILABLE: None,
        OLD_KEY: None,
    }
    # By the log: what the snapshot read, then the create, then the update.
    assert rows[1][ORDER] < rows[0][ORDER] < rows[2][ORDER]


@pytest.mark.parametrize("form", FORMS)
def test_of_a_delete_only_the_key_is_taken(form: str) -> None:
    made = decoded(event(f"{form}-d"))
    (row,) = made.rows.to_pylist()
    before = sample(f"{form}-d")["value"]
    before = before.get("payload", before)["before"]
    assert before["customer"] is not None, "the event invents values"
    assert (row["id"], row[OP]) == (11, "d")
    assert {row[name] for name in ORDERS.names if name != "id"} == {None}


@pytest.mark.parametrize("form", FORMS)
def test_tombstones_and_marks_change_no_row(form: str) -> None:
    names = ("tombstone", "tombstone-pkchange", "txn-begin", "txn-end")
    made = decoded(*[event(f"{form}-{name}") for name in names])
    assert (made.rows.num_rows, made.rejects) == (0, ())


@pytest.mark.parametrize("form", FORMS)
def test_a_changed_key_is_a_delete_and_a_create(form: str) -> None:
    names = ("d-pkchange", "tombstone-pkchange", "c-after-ddl-pkchange")
    made = decoded(*[event(f"{form}-{name}") for name in names])
    assert [(row["id"], row[OP]) for row in made.rows.to_pylist()] == [(3, "d"), (300, "c")]
    assert made.places == (0, 2)


@pytest.mark.parametrize("form", FORMS)
def test_a_truncate_has_no_row_but_an_order(form: str) -> None:
    (row,) = decoded(event(f"{form}-t")).rows.to_pylist()
    assert (row["id"], row[OP]) == (None, "t")
    assert row[ORDER].startswith(f"{26401776:016x}")


@pytest.mark.parametrize("form", FORMS)
def test_a_value_that_was_not_sent_is_named(form: str) -> None:
    (row,) = decoded(event(f"{form}-u-after-ddl-toast")).rows.to_pylist()
    assert row[UNAVAILABLE] == ["note"]


@pytest.mark.parametrize(("form", "kind"), [("plain", pa.int64()), ("schema", pa.int32())])
def test_a_new_column_is_told_with_its_type(form: str, kind: pa.DataType) -> None:
    made = decoded(event(f"{form}-c"), event(f"{form}-c-after-ddl"))
    assert made.unknown == {"priority": kind}
    strict = decoded(event(f"{form}-c"), event(f"{form}-c-after-ddl"), strict=True)
    assert (strict.rows.num_rows, strict.unknown) == (1, {})
    assert strict.rejects[0].reason == "field priority is no column of the table"


@pytest.mark.parametrize("form", FORMS)
def test_without_any_column_the_events_tell_them_all(form: str) -> None:
    made = decoded(event(f"{form}-c"), schema=pa.schema([]))
    assert list(made.unknown) == ORDERS.names
    assert made.unknown["id"] == pa.int64()


def test_a_value_that_does_not_fit_is_a_reject_and_takes_no_other_down() -> None:
    wide = changed("plain-u", id=2**40)
    narrow = ORDERS.set(0, pa.field("id", pa.int32()))
    made = decoded(event("plain-c"), wide, schema=narrow)
    assert made.wider == {"id": pa.int64()}
    text = changed("plain-u", amount="many")
    made = decoded(event("plain-c"), text, event("plain-r"))
    assert [row["id"] for row in made.rows.to_pylist()] == [3, 1]
    assert made.rejects[0].place == 1
    assert "amount" in made.rejects[0].reason
    assert not made.wider


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"{", "the record is no JSON"),
        (b"[1]", "the record is no JSON object"),
        (b'{"a": 1}', "it has no op"),
        (packed({"op": "c", "after": None, "source": {}}), "has no row in after"),
        (packed({"op": "x", "source": {}}), "operation 'x' is not known"),
        (packed({"op": "c", "after": {"id": 1}}), "does not say where it comes from"),
    ],
)
def test_what_is_no_event_is_a_reject_with_the_reason(value: bytes, reason: str) -> None:
    made = decoded(Event(None, value), event("plain-c"))
    assert [row["id"] for row in made.rows.to_pylist()] == [3]
    assert reason in made.rejects[0].reason


def test_a_delete_without_a_key_is_a_reject() -> None:
    bare = Event(None, packed(sample("plain-d")["value"]))
    assert "without a key" in decoded(bare).rejects[0].reason


def test_the_key_of_an_event_names_the_columns() -> None:
    assert event_key([None, event("plain-c").key()]) == ("id",)
    assert event_key([event("schema-c").key()]) == ("id",)
    assert event_key([None, b"{"]) == ()


def test_changes_of_mysql_are_ordered_by_file_and_place() -> None:
    def place(file: str, pos: int, row: int = 0) -> str:
        return order_of("u", Source(connector="mysql", file=file, pos=pos, row=row), None)

    known = [place("bin.000009", 5), place("bin.000009", 40), place("bin.000010", 4, 1)]
    assert known == sorted(known)
    assert place("bin.999999", 4) < place("bin.1000000", 4)
    with pytest.raises(Unreadable, match="not known"):
        order_of("u", Source(connector="oracle"), None)
