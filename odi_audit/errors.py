"""Every error that a user can meet: one base class, a stable code, an exit status, a way out.

Owns the registry of codes (``ODI-<family><number>``); a code never changes its meaning once
released. Must never import anything of the package: everything else imports this.
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


# -- U: usage -----------------------------------------------------------------------------------


class UsageError(OdiError):
    """The call itself is wrong: a bad name, a missing argument, a value out of its limits."""

    code = "ODI-U01"
    exit_status = Exit.USAGE


class OffsetsMissing(OdiError):
    """A write of outside data came without offsets, so a retry could not be recognised."""

    code = "ODI-U02"
    exit_status = Exit.USAGE


# -- S: settings and the workspace --------------------------------------------------------------


class ConfigError(OdiError):
    """A setting is unknown, malformed, or contradicts another."""

    code = "ODI-S01"
    exit_status = Exit.CONFIG


class LakeNotFound(OdiError):
    """No workspace here or above, and none named."""

    code = "ODI-S02"
    exit_status = Exit.CONFIG


class LakeExists(OdiError):
    """``init`` found a workspace where it was to make one."""

    code = "ODI-S03"
    exit_status = Exit.CONFLICT


# -- J: Java, jars, Spark -----------------------------------------------------------------------


class JavaMissing(OdiError):
    """No usable Java for Spark."""

    code = "ODI-J01"
    exit_status = Exit.CONFIG


class JarError(OdiError):
    """A pinned jar could not be fetched, or is not the one that was pinned."""

    code = "ODI-J02"
    exit_status = Exit.CONFIG
    retry = Retry.SAFE


class SparkError(OdiError):
    """Spark could not be started, or the session given lacks our catalog."""

    code = "ODI-J03"
    exit_status = Exit.CONFIG


# -- K: catalog and tables ----------------------------------------------------------------------


class TableNotFound(OdiError):
    """No such table; near matches are in the message."""

    code = "ODI-K01"
    exit_status = Exit.NOT_FOUND


class CatalogUnavailable(OdiError):
    """The catalog did not answer, is locked, or is gone. Nothing was published."""

    code = "ODI-K02"
    exit_status = Exit.CONFIG
    retry = Retry.SAFE


class TableExists(OdiError):
    """A table of that name is there already, and is not the one asked for."""

    code = "ODI-K03"
    exit_status = Exit.CONFLICT


class BadTableName(OdiError):
    """A table name that no catalog of ours can hold."""

    code = "ODI-K04"
    exit_status = Exit.USAGE


class StorageError(OdiError):
    """The warehouse could not be read or written: full, read-only, or gone."""

    code = "ODI-K05"
    exit_status = Exit.CONFIG
    retry = Retry.SAFE


# -- L: the ledger ------------------------------------------------------------------------------


class LedgerMissing(OdiError):
    """The ledger is not there. No ledger, no write."""

    code = "ODI-L01"
    exit_status = Exit.CONFIG


class LedgerReadOnly(OdiError):
    """The ledger cannot be written by this user."""

    code = "ODI-L02"
    exit_status = Exit.CONFIG


class LedgerLocked(OdiError):
    """Another process held the ledger longer than we wait."""

    code = "ODI-L03"
    exit_status = Exit.CONFIG
    retry = Retry.SAFE


class LedgerTooNew(OdiError):
    """The ledger was written by a newer version of the product."""

    code = "ODI-L04"
    exit_status = Exit.CONFIG


class LedgerBroken(OdiError):
    """The ledger's stored entries do not agree with its tree."""

    code = "ODI-L05"
    exit_status = Exit.FINDINGS


class LedgerConflict(OdiError):
    """A record that may exist once exists already (landed twice, settled twice)."""

    code = "ODI-L06"
    exit_status = Exit.CONFLICT


class LedgerUnavailable(OdiError):
    """The ledger's database did not answer; whether the entry was kept is told by reading it."""

    code = "ODI-L07"
    exit_status = Exit.CONFIG
    retry = Retry.SAFE


class KeyProblem(OdiError):
    """The signing key is missing, unreadable, malformed, or open to other users."""

    code = "ODI-L08"
    exit_status = Exit.CONFIG


class ProofInvalid(OdiError):
    """A proof, a head or a signature does not verify."""

    code = "ODI-L09"
    exit_status = Exit.FINDINGS


class EntryNotFound(OdiError):
    """No entry of that index, or no batch of that id."""

    code = "ODI-L10"
    exit_status = Exit.NOT_FOUND


class AmbiguousBatch(OdiError):
    """A batch prefix that fits more than one batch."""

    code = "ODI-L11"
    exit_status = Exit.USAGE


# -- C: the commit ------------------------------------------------------------------------------


class CommitConflict(OdiError):
    """Main kept moving; the batch was staged again as often as is allowed and then given up."""

    code = "ODI-C01"
    exit_status = Exit.CONFLICT
    retry = Retry.SAFE


class BatchReused(OdiError):
    """The batch id has landed already, with another operation than this one."""

    code = "ODI-C02"
    exit_status = Exit.CONFLICT


class OutcomeUnknown(OdiError):
    """The commit may or may not have landed; ``reconcile`` finds out."""

    code = "ODI-C03"
    exit_status = Exit.UNKNOWN
    retry = Retry.AFTER_RECONCILE


class WriteFailed(OdiError):
    """Spark could not write the batch; main is as it was."""

    code = "ODI-C04"
    exit_status = Exit.CONFLICT
    retry = Retry.SAFE


class NotSupported(OdiError):
    """The operation cannot be done on this table, and would not be safe if tried."""

    code = "ODI-C05"
    exit_status = Exit.USAGE


# -- G: the gate (the batch was refused; main is as it was) -------------------------------------


class Refused(OdiError):
    """The gate refused the batch. Base of every refusal."""

    code = "ODI-G00"
    exit_status = Exit.FINDINGS


class SchemaMismatch(Refused):
    """Columns are missing, extra or of the wrong type; the difference is in the message."""

    code = "ODI-G01"


class BadKeys(Refused):
    """Null or duplicate keys within the batch; samples are in the message."""

    code = "ODI-G02"


class RuleBroken(Refused):
    """A rule of the contract does not hold for every row."""

    code = "ODI-G03"


class OffsetGap(Refused):
    """Offsets start after the place where the last batch ended."""

    code = "ODI-G04"


class OffsetOverlap(Refused):
    """Offsets start before the place where the last batch ended."""

    code = "ODI-G05"


class SourceChanged(Refused):
    """The source is not the one it was: a recreated topic, a file that changed after reading."""

    code = "ODI-G06"


class CountMismatch(Refused):
    """The staged rows are not as many as the source promised."""

    code = "ODI-G07"


class StagingBroken(Refused):
    """What stands on the branch is not exactly the one stamped snapshot of this batch."""

    code = "ODI-G08"
