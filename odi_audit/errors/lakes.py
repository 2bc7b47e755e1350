"""What is wrong before a batch: the call, the settings, Java, the catalog, the ledger."""

from __future__ import annotations

from odi_audit.errors.base import Exit, OdiError, Retry

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
