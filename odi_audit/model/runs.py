"""How a run of a job can end, in the words of the ledger.

Owns the words. Must never decide which of them is true of a run: the committer does.
"""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """How a run ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"
    """It was interrupted, by its user or by the system, and could still say so."""
    DIED = "died"
    """Its process was gone when somebody looked."""
