"""What stands around the library: the relay with its backend, and the sources of jobs."""

from __future__ import annotations

from odi_audit.errors.base import Exit, OdiError, Retry

# -- R: the relay -------------------------------------------------------------------------------


class RelayHeld(OdiError):
    """Another relay sends to this destination; there is one at a time."""

    code = "ODI-R01"
    exit_status = Exit.CONFLICT
    retry = Retry.SAFE


class RelayStateUnavailable(OdiError):
    """The relay's own state cannot be read or written. The ledger is as it was."""

    code = "ODI-R02"
    exit_status = Exit.CONFIG
    retry = Retry.SAFE


class RelayStopped(OdiError):
    """The destination turns the relay itself away (key, address), whatever the event."""

    code = "ODI-R03"
    exit_status = Exit.CONFIG


class BackendUnavailable(OdiError):
    """A lineage backend cannot be reached, turns us away, or is none. What it held, it holds."""

    code = "ODI-R04"
    exit_status = Exit.CONFIG
    retry = Retry.SAFE


# -- I: the sources of jobs (nothing was read) --------------------------------------------------


class SourceUnavailable(OdiError):
    """The source did not answer in time. Nothing was read; the position is as it was."""

    code = "ODI-I01"
    exit_status = Exit.CONFIG
    retry = Retry.SAFE


class SourceDenied(OdiError):
    """The source refused the login, or what the login may not do."""

    code = "ODI-I02"
    exit_status = Exit.CONFIG


class SourceNotFound(OdiError):
    """The source has no such topic, folder or table; near matches are in the message."""

    code = "ODI-I03"
    exit_status = Exit.NOT_FOUND


class JobHeld(OdiError):
    """Another process runs this job; there is one at a time."""

    code = "ODI-I09"
    exit_status = Exit.CONFLICT
    retry = Retry.SAFE
