"""A batch that is tried again with care: it holds changes of rows that the table does not have.

Owns the second try. That a change of an unknown row lacks values shows only where the change meets
the table, and looking there first would cost every batch a join. Must never try a third time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from jobs.patterns.changes import ROW_NOT_KNOWN
from odi_audit import logs
from odi_audit.errors import OdiError

Made = TypeVar("Made")
log = logs.get_logger(__name__)


def with_care(attempt: Callable[[bool], Made]) -> Made:
    """Try a batch, and once more with a look at every row, where a change lacks values for good."""
    try:
        return attempt(False)
    except OdiError as error:
        if not _is_told(error):
            raise
        log.warning("changes lack values of rows that the table does not have: looking for them")
    return attempt(True)


def _is_told(error: BaseException | None) -> bool:
    while error is not None:
        if ROW_NOT_KNOWN in str(error):
            return True
        error = error.__cause__
    return False
