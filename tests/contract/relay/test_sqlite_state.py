from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from lineage.relay.state_open import FILE_NAME, open_state
from lineage.relay.state_sql import SqlState
from odi_audit.errors import RelayStateUnavailable
from tests.contract.relay.contract import StateContract, StatePlace, lease, state

__all__ = ["lease", "state"]


class SqliteStatePlace(StatePlace):
    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder / 'lédger #1 100%?.db'}"

    def open(self) -> SqlState:
        made = open_state(self.url)
        assert made is not None
        return made


class TestSqliteState(StateContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> SqliteStatePlace:
        return SqliteStatePlace(tmp_path)


def test_looking_makes_no_file(tmp_path: Path) -> None:
    assert open_state(f"sqlite:///{tmp_path / 'ledger.db'}", create=False) is None
    assert list(tmp_path.iterdir()) == []


def test_the_state_is_a_file_of_its_own_beside_the_ledger(tmp_path: Path) -> None:
    made = open_state(f"sqlite:///{tmp_path / 'ledger.db'}")
    assert made is not None
    made.close()
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [FILE_NAME]


def test_a_state_of_a_newer_version_is_not_touched(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    made = open_state(url)
    assert made is not None
    made.close()
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        connection.execute("UPDATE migrations SET version = 99")
        connection.commit()
    with pytest.raises(RelayStateUnavailable, match="version 99, expected 1"):
        open_state(url)


def test_a_damaged_state_is_told_as_the_relays_and_not_the_ledgers(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"no database at all" * 100)
    with pytest.raises(RelayStateUnavailable) as caught:
        open_state(f"sqlite:///{tmp_path / 'ledger.db'}")
    assert "relay's state" in str(caught.value)
