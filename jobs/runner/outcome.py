"""What a step of a job did, for whoever watches it.

Owns the values that progress, summaries and tests are made of. Must never hold a row.
"""

from __future__ import annotations

from dataclasses import dataclass

from jobs.sources.base import Plan
from odi_audit.model.receipts import Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """One batch that has landed."""

    plan: Plan
    receipt: Receipt
    path: str
    records: int
    rejects: int
    bytes: int
    seconds: float
    grown: tuple[str, ...] = ()
    """Tables that were changed for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One execution of a job, from its start to its end."""

    batches: int
    records: int
    rejects: int
    bytes: int
    seconds: float
    reason: str
    """Why it ended."""
    reached_source: bool = True
    """Whether there was a time at which its source could be asked."""
