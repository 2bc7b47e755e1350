"""What happens to a batch: its commit failed, or the gate refused it."""

from __future__ import annotations

from odi_audit.errors.base import Exit, OdiError, Retry

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
