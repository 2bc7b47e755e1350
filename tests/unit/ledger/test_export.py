from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from odi_audit.errors import LedgerBroken, StorageError
from odi_audit.ledger import SqlLedger, export, merkle
from odi_audit.model.entries import Draft, Kind
from tests.contract.ledger.places import ORDERS, SqlitePlace, batch, land


@pytest.fixture
def ledger(tmp_path: Path) -> SqlLedger:
    made = SqlitePlace(tmp_path).create()
    for number in range(3):
        land(made, number)
    return made


def test_lines_are_the_bytes_that_were_hashed(ledger: SqlLedger, tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    assert export.export(ledger, path, export.Form.JSONL) == 6
    growth = merkle.Growth(0, [])
    for line in path.read_bytes().splitlines():
        growth.add(merkle.leaf_hash(line))
    assert growth.root() == ledger.head().root


def test_parquet_holds_every_entry_in_row_groups(
    ledger: SqlLedger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "ROW_GROUP_ENTRIES", 4)
    path = tmp_path / "ledger.parquet"
    seen: list[int] = []
    assert export.export(ledger, path, export.Form.PARQUET, seen.append) == 6
    assert seen == [4, 6]
    assert pq.ParquetFile(path).num_row_groups == 2
    rows = pq.read_table(path).to_pylist()
    assert [row["index"] for row in rows] == list(range(6))
    assert rows[1]["batch"] == batch(0)
    assert rows[1]["table_name"] == ORDERS.name
    assert rows[1]["settles"] is True
    assert rows[0]["table_uuid"] is None
    assert rows[0]["time"].isoformat() == "2026-11-16T08:00:02+00:00"
    for row, entry in zip(rows, ledger.scan(), strict=True):
        assert row["entry"].encode() == entry.to_bytes()
        assert merkle.leaf_hash(row["entry"].encode()) == row["leaf_hash"]


def test_an_empty_ledger_exports_an_empty_file(tmp_path: Path) -> None:
    ledger = SqlitePlace(tmp_path, "empty.db").create()
    assert export.export(ledger, tmp_path / "e.parquet", export.Form.PARQUET) == 0
    assert pq.read_table(tmp_path / "e.parquet").num_rows == 0
    assert export.export(ledger, tmp_path / "e.jsonl", export.Form.JSONL) == 0


def test_a_failed_export_leaves_what_was_there(ledger: SqlLedger, tmp_path: Path) -> None:
    place = SqlitePlace(tmp_path)
    path = tmp_path / "ledger.parquet"
    path.write_text("before")
    ledger.append(Draft(kind=Kind.READ))
    place.attack("UPDATE entries SET body = x'00' WHERE idx = 3")
    with pytest.raises(LedgerBroken):
        export.export(ledger, path, export.Form.PARQUET)
    assert path.read_text() == "before"
    with pytest.raises(StorageError):
        export.export(ledger, tmp_path / "no" / "such.parquet", export.Form.PARQUET)
    assert not [name for name in tmp_path.iterdir() if name.name.endswith(".draft")]
