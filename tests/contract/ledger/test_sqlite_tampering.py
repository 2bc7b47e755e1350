from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from odi_audit.ledger import open_ledger
from odi_audit.ledger.verify import heads_in, verify
from tests.contract.ledger.places import KEY, SqlitePlace, StepClock
from tests.contract.ledger.tampering import Sealed, TamperContract


class TestSqliteTampering(TamperContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> SqlitePlace:
        return SqlitePlace(tmp_path)

    def test_every_byte_of_every_stored_entry_leaf_and_node_counts(self, sealed: Sealed) -> None:
        assert isinstance(sealed.place, SqlitePlace)
        cells = [
            (table, column, rowid, bytes(value))
            for table, column in (("entries", "body"), ("entries", "leaf"), ("nodes", "hash"))
            for rowid, value in sealed.place.look(f"SELECT rowid, {column} FROM {table}")
        ]
        ledger = sealed.place.open(read_only=True)
        tried = 0
        with closing(sqlite3.connect(sealed.place.path, isolation_level=None)) as attacker:
            for name in ("entries", "nodes"):
                attacker.execute(f"DROP TRIGGER {name}_no_update")
            for table, column, rowid, value in cells:
                change = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"
                for at in range(tried % 5, len(value), 5 if column == "body" else 8):
                    damaged = bytearray(value)
                    damaged[at] ^= 1 << (at % 8)
                    attacker.execute(change, (bytes(damaged), rowid))
                    found = verify(ledger, verifiers=[KEY.verifier]).findings
                    assert found, (table, column, rowid, at)
                    tried += 1
                attacker.execute(change, (value, rowid))
        assert tried > 500
        heads = heads_in(sealed.heads)
        assert verify(ledger, verifiers=[KEY.verifier], heads=heads).findings == ()
        ledger.close()

    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE entries SET body = 5 WHERE idx = 2",
            "UPDATE entries SET body = 'text' WHERE idx = 2",
            "UPDATE entries SET body = CAST(x'fffe' AS TEXT) WHERE idx = 2",
            "UPDATE entries SET leaf = 'text' WHERE idx = 12",
            "UPDATE entries SET body = x'' WHERE idx = 12",
            "UPDATE nodes SET hash = 7 WHERE level = 1",
            "UPDATE entry_index SET time = x'00ff' WHERE idx = 12",
            "UPDATE positions SET idx = 'text' WHERE idx = 1 AND part = 'orders-0'",
            "UPDATE entry_index SET kind = 7 WHERE idx = 3",
            "UPDATE entries SET body = CAST('[1]' AS BLOB) WHERE idx = 4",
            "UPDATE entries SET body = CAST('{\"v\":1}' AS BLOB) WHERE idx = 4",
        ],
    )
    def test_values_of_another_type_are_findings_and_not_crashes(
        self, sealed: Sealed, statement: str
    ) -> None:
        sealed.place.attack(statement)
        assert sealed.codes(sealed.place, heads=False)

    def test_a_file_cut_short_or_overwritten_is_broken(self, sealed: Sealed) -> None:
        from odi_audit.errors import LedgerBroken, OdiError

        assert isinstance(sealed.place, SqlitePlace)
        copy = sealed.place.copy()
        whole = copy.path.read_bytes()
        copy.path.write_bytes(b"not a database at all" * 500)
        with pytest.raises(LedgerBroken):
            open_ledger(copy.url, clock=StepClock())
        copy.path.write_bytes(whole[: len(whole) // 3])
        with pytest.raises(OdiError) as caught:
            verify(
                open_ledger(copy.url, clock=StepClock(), check_tail=False, read_only=True),
                verifiers=[KEY.verifier],
            )
        assert caught.value.code == "ODI-L05"
