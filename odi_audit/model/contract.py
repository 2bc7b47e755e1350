"""Contracts: what must hold for every row of a batch before anybody sees it.

Owns the value and its own checks. Must never evaluate a rule: Spark does, while it writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from odi_audit.canonical import JsonObject
from odi_audit.errors import UsageError

RULES_MAX = 100
"""Each rule is one more aggregate beside the write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """Conditions on a batch.

    ``key``: columns that no two rows of the batch share, and that are never null.
    ``required``: columns that are never null, beyond those that the table itself requires.
    ``rules``: name → SQL condition, such as ``amount >= 0``. As in a CHECK constraint, a row for
    which the condition is null passes.
    """

    key: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    rules: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.rules) > RULES_MAX:
            raise UsageError(f"a contract has {len(self.rules)} rules, at most {RULES_MAX}")
        for name, condition in self.rules.items():
            if not name.strip() or not condition.strip():
                raise UsageError("a rule of the contract has no name or no condition")

    @property
    def empty(self) -> bool:
        """Whether there is nothing to check."""
        return not (self.key or self.required or self.rules)

    def to_json(self) -> JsonObject:
        """Return the form that the ledger keeps."""
        return {
            "key": list(self.key),
            "required": list(self.required),
            "rules": dict(self.rules),
        }
