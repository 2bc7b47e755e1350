from __future__ import annotations

from tests.contract.ledger.contract import LedgerContract


class TestPostgresqlLedger(LedgerContract):
    """The fixture ``place`` is in conftest.py."""
