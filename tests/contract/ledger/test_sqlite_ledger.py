from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.ledger.contract import LedgerContract
from tests.contract.ledger.places import SqlitePlace


class TestSqliteLedger(LedgerContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> SqlitePlace:
        return SqlitePlace(tmp_path, "lédger #1 100%?.db")
