"""The base of every error: a stable code, an exit status, a way out.

Owns what an error carries and how it reads. Must never import anything of the package.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import ClassVar, TypeAlias

Fact: TypeAlias = str | int | float | bool | None | list[str]


class Exit(IntEnum):
    """Exit statuses of the command line."""

    OK = 0
    FINDINGS = 1
    USAGE = 2
    CONFIG = 3
    NOT_FOUND = 4
    UNKNOWN = 5
    CONFLICT = 6
    BUG = 70


class Retry(StrEnum):
    """Whether doing the same again can help."""

    NEVER = "never"
    SAFE = "safe"
    AFTER_RECONCILE = "after-reconcile"


class OdiError(Exception):
    """What was tried, on what, what was expected, what was found; and what to do next.

    ``hint`` is a command to run (or a sentence where no command helps); ``facts`` are the values
    behind the message, for machines. Neither may carry a secret. Values of rows go into the fact
    ``samples`` and nowhere else: it is shown to whoever ran the job, and never recorded
    (docs/adr/0008). ``record`` is what the ledger keeps where the message itself quotes somebody
    else's text, which may hold such values.
    """

    code: ClassVar[str] = "ODI-X00"
    exit_status: ClassVar[Exit] = Exit.BUG
    retry: ClassVar[Retry] = Retry.NEVER

    def __init__(
        self, message: str, *, hint: str | None = None, record: str | None = None, **facts: Fact
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.record = record or message
        self.facts: dict[str, Fact] = dict(facts)

    def __str__(self) -> str:
        samples = self.facts.get("samples")
        shown = f"\n  for example: {'; '.join(samples)}" if isinstance(samples, list) else ""
        tail = f"\n  next: {self.hint}" if self.hint else ""
        return f"{self.code}: {self.message}{shown if samples else ''}{tail}"

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.hint, self.record, self.facts))


def _rebuild(
    kind: type[OdiError], message: str, hint: str | None, record: str, facts: dict[str, Fact]
) -> OdiError:
    return kind(message, hint=hint, record=record, **facts)
