from __future__ import annotations

from tests.contract.ledger.tampering import TamperContract


class TestPostgresqlTampering(TamperContract):
    """The fixture ``place`` is in conftest.py."""

    def entries_tried(self) -> int:
        return 2
