"""Findings: something that verification did not like, as a value.

Owns the shape shared by every check (ledger, tables). Must never be raised: a finding is an
answer, and a run that has one exits with status 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from odi_audit.canonical import JsonObject
from odi_audit.errors import Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is wrong (a stable code), with what (the subject), and what to do about it."""

    code: str
    subject: str
    message: str
    hint: str | None = None
    facts: Mapping[str, Fact] = field(default_factory=dict)

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {
            "code": self.code,
            "subject": self.subject,
            "message": self.message,
            "hint": self.hint,
            "facts": dict(self.facts),
        }
