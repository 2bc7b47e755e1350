"""A task on Spark's path gives every record once, and counts what it gave."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from jobs.formats.debezium_envelope import OP, UNAVAILABLE
from jobs.formats.debezium_envelope import UNAVAILABLE_VALUE as MARK
from jobs.sources.kafka_read import Piece
from jobs.tasks import rows
from jobs.tasks.changes import DebeziumFormat, with_control
from jobs.tasks.decoders import JsonFormat
from jobs.tasks.rows import (
    KEY,
    NEWS,
    OFFSET,
    PASSED,
    REASON,
    VALUE,
    RowsWork,
    TaskFailed,
    failure_in,
)
from odi_audit.errors import SourceUnavailable
from tests.unit.jobs.formats.events import Event, event

PIECE = Piece(topic="orders", partition=0, start=0, end=9)


def made(
    monkeypatch: pytest.MonkeyPatch, work: RowsWork, chunks: Sequence[Sequence[Event]]
) -> list[dict[str, Any]]:
    def read(*_: object, **__: object) -> Iterator[tuple[Piece, Sequence[Event]]]:
        for chunk in chunks:
            yield PIECE, chunk

    monkeypatch.setattr(rows, "read", read)
    return [row for batch in rows.batches(work, [PIECE]) for row in batch.to_pylist()]


def json_work(**more: Any) -> RowsWork:
    schema = pa.schema([("id", pa.int64())])
    return RowsWork(
        bootstrap="h:1", schema=schema.serialize().to_pybytes(), format=JsonFormat(), **more
    )


def test_rows_rejects_and_the_note_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = [
        [Event(b"k", b'{"id": 1}', 0), Event(b"k", b"broken", 1)],
        [Event(None, b'{"id": 2, "more": 1.5}', 2), Event(None, b'{"id": 3, "more": 2}', 3)],
    ]
    found = made(monkeypatch, json_work(), chunks)
    assert [row["id"] for row in found if row[NEWS] is None and row[REASON] is None] == [1, 2, 3]
    (bad,) = [row for row in found if row[REASON] is not None]
    assert (bad[OFFSET], bad[VALUE]) == (1, b"broken")
    note = json.loads(found[-1][NEWS])
    assert note == {
        "records": 4, "rows": 3, "rejects": 1, "passed": 0, "bytes": 57,
        "unknown": {"more": "double"}, "wider": {}, "written": {},
    }  # fmt: skip


def test_where_bytes_are_kept_tombstones_are_there_too(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = with_control(pa.schema([("id", pa.int64())]))
    work = RowsWork(
        bootstrap="h:1",
        schema=schema.serialize().to_pybytes(),
        format=DebeziumFormat(key=("id",)),
        whole=True,
    )
    events = [event("plain-c", 0), event("plain-tombstone", 1), event("plain-txn-end", 2)]
    found = made(monkeypatch, work, [events])
    assert [(row[OP], row[NEWS], row[VALUE]) for row in found[:3]] == [
        ("c", None, events[0].value()),
        (None, PASSED, None),
        (None, PASSED, events[2].value()),
    ]
    assert json.loads(found[-1][NEWS])["passed"] == 2


def test_a_change_that_leaves_out_values_has_its_bytes_for_it_may_be_put_aside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    toast = event("plain-u-after-ddl-toast", 1)
    lacking = [
        name for name, value in json.loads(toast.value())["after"].items() if value == MARK
    ]  # fmt: skip
    assert lacking
    fields = [("id", pa.int64()), *((name, pa.string()) for name in lacking)]
    work = RowsWork(
        bootstrap="h:1",
        schema=with_control(pa.schema(fields)).serialize().to_pybytes(),
        format=DebeziumFormat(key=("id",)),
    )
    events = [event("plain-c", 0), toast, event("plain-u", 2)]
    found = made(monkeypatch, work, [events])
    assert [(row[UNAVAILABLE], row[VALUE], row[KEY]) for row in found[:3]] == [
        (None, None, None),
        (lacking, toast.value(), toast.key()),
        (None, None, None),
    ]


def test_what_stops_a_task_is_known_again_on_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object, **__: object) -> Iterator[Any]:
        raise SourceUnavailable("no record for 60 s", hint="start again")
        yield

    monkeypatch.setattr(rows, "read", read)
    with pytest.raises(TaskFailed) as failed:
        list(rows.batches(json_work(), [PIECE]))
    known = failure_in(f"org.apache.spark.SparkException: Job aborted: {failed.value} at line 7")
    assert isinstance(known, SourceUnavailable)
    assert (known.message, known.hint) == ("no record for 60 s", "start again")
    assert failure_in("anything else") is None
