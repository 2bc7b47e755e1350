"""Offsets as values: their form, their identity, their limits."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from odi_audit.errors import UsageError
from odi_audit.ids import JobName, batch_id
from odi_audit.model import offsets as model
from odi_audit.model.offsets import (
    PARTITIONS_MAX,
    STAMP_BYTES_MAX,
    OffsetKind,
    Offsets,
    files,
    kafka,
    lsn,
    mapping,
    offsets_from_json,
    once,
    stream,
    table_state,
    watermark,
)


def id_of(offsets: Offsets, generation: int = 0) -> str:
    return batch_id(
        job=JobName("a/b"),
        source=offsets.source,
        start=offsets.start(),
        end=offsets.end(),
        generation=generation,
    )


def orders(**more: object) -> Offsets:
    return kafka({"orders": {0: (5, 9), 1: (0, 2)}}, bootstrap="one:9092,two:9092", **more)  # type: ignore[arg-type]


EVERY = [
    orders(),
    orders(topic_ids={"orders": "T"}, exact_count=True),
    lsn("db", None, "0/16B3748"),
    watermark("db.orders", "at", 1, 2),
    mapping("s", {"p": (None, "x")}),
    stream("q", {"0": (None, '{"o":1}')}),
    once("k"),
    table_state("sales.orders", "12", {"op": "compact"}),
]


@pytest.mark.parametrize("offsets", EVERY, ids=lambda item: item.kind.value)
def test_what_is_written_is_read_back(offsets: Offsets) -> None:
    assert offsets_from_json(offsets.to_json()) == offsets


def test_the_same_work_has_the_same_id_and_other_work_another() -> None:
    ids = [id_of(offsets) for offsets in EVERY]
    assert len(set(ids)) == len(EVERY)
    shuffled = kafka({"orders": {1: (0, 2), 0: (5, 9)}}, bootstrap="one:9092,two:9092")
    assert id_of(shuffled) == id_of(orders())
    assert id_of(orders(), 1) != id_of(orders())
    assert id_of(orders(topic_ids={"orders": "T"})) != id_of(orders(topic_ids={"orders": "U"}))
    # A promise about the rows is not part of which rows they are.
    assert id_of(orders(exact_count=True)) == id_of(orders())


def test_kafka_is_known_by_its_cluster_and_promises_as_many_rows_as_offsets() -> None:
    assert orders().source == "kafka://one:9092"
    assert orders(cluster_id="C").source == "kafka://C"
    assert orders().rows is None
    assert orders(exact_count=True).rows == 6
    assert set(orders().ranges) == {"orders-0", "orders-1"}


def test_files_are_known_by_their_content(tmp_path: Path) -> None:
    path = tmp_path / "a b.csv"
    path.write_bytes(b"hello")
    found = files([path])
    assert found.kind is OffsetKind.FILES
    digest = hashlib.sha256(b"hello").hexdigest()
    assert found.ranges[str(path)].end == f"5:{digest}"
    before = id_of(found)
    path.write_bytes(b"hallo")
    assert id_of(files([path])) != before
    with pytest.raises(UsageError, match="no file"):
        files([])
    with pytest.raises(UsageError, match=r"missing\.csv"):
        files([tmp_path / "missing.csv"])
    with pytest.raises(UsageError):
        files([tmp_path])


def test_what_cannot_be_a_part_of_a_source_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="before start"):
        mapping("s", {"p": (5, 4)})
    with pytest.raises(UsageError, match="name of their source"):
        mapping(" ", {"p": (0, 1)})
    with pytest.raises(UsageError, match="needs a key"):
        once(" ")
    monkeypatch.setattr(model, "PARTITIONS_MAX", 3)
    with pytest.raises(UsageError, match="at most 3"):
        mapping("s", {str(number): (0, 1) for number in range(4)})
    assert PARTITIONS_MAX > 3


def test_a_stamp_stays_small_and_names_its_generation() -> None:
    small = mapping("s", {"p": (0, 1)})
    assert small.to_stamp() == {"kind": "mapping", "ranges": {"p": [0, 1]}}
    assert small.to_stamp(generation=2)["generation"] == 2  # type: ignore[index,call-overload]
    wide = mapping("s", {f"partition-{number}": (0, number) for number in range(1000)})
    stamp = wide.to_stamp(generation=1)
    assert set(stamp) == {"kind", "partitions", "sha256", "generation"}  # type: ignore[arg-type]
    assert len(str(wide.to_json())) > STAMP_BYTES_MAX > len(str(stamp))
