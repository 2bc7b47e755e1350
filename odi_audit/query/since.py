"""Moments as people write them: ``2h``, ``3d``, ``2026-11-16``, ``2026-11-16T07:32:37Z``.

Owns that reading. Must never look at a clock: now is an argument.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from odi_audit import clock
from odi_audit.errors import UsageError

_AGO = re.compile(r"^(\d{1,6})\s*([smhdw])$")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def moment(written: str, now: datetime) -> str:
    """Return the moment meant, in the ledger's form; a time without a zone is UTC.

    Raises:
        UsageError: it is neither an age nor an ISO 8601 date or time.
    """
    ago = _AGO.match(written.strip())
    try:
        if ago:
            return clock.to_text(now - timedelta(**{_UNITS[ago[2]]: int(ago[1])}))
        read = datetime.fromisoformat(written.strip())
        return clock.to_text(read if read.tzinfo else read.replace(tzinfo=UTC))
    except (ValueError, OverflowError) as problem:
        raise UsageError(
            f"{written!r} is not a time: expected an age such as 2h or 3d, or an ISO 8601 time",
            hint="--since 24h",
        ) from problem
