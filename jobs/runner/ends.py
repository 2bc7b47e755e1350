"""When a run is to end, in words: ``10m``, ``5 batches``, a time.

Owns the words of ``--until``. Must never look at a clock: the moment comes in.
"""

from __future__ import annotations

import re
import time
from datetime import datetime

from jobs.runner.loop import Until
from jobs.spec.words import duration, moment
from odi_audit.errors import UsageError

_BATCHES = re.compile(r"(\d{1,9})\s*batch(?:es)?")
BATCHES_MAX = 1_000_000_000


def until_of(text: str | None, *, drained: bool, now: datetime) -> Until:
    """Return when a run ends; ``drained`` says that the end of the source ends it too.

    Raises:
        UsageError: the words mean nothing, or a time that is over.
    """
    if text is None:
        return Until(drained=drained)
    words = text.strip()
    batches = _BATCHES.fullmatch(words)
    if batches is not None:
        count = int(batches[1])
        if not 1 <= count <= BATCHES_MAX:
            raise UsageError(f"--until {words}: a run has one batch at least")
        return Until(drained=drained, batches=count)
    seconds = _seconds(words, now)
    if seconds <= 0:
        raise UsageError(f"--until {words}: that time is over", hint="name a time to come, or 10m")
    return Until(drained=drained, deadline=time.monotonic() + seconds)


def _seconds(words: str, now: datetime) -> float:
    try:
        return duration(words).total_seconds()
    except ValueError:
        pass
    try:
        return (moment(words) - now).total_seconds()
    except ValueError as problem:
        # Who wrote a date meant one: its own complaint says more.
        told = f": {problem}" if re.match(r"\d{4}-", words) else ""
        raise UsageError(
            f"--until {words!r} is no end of a run{told}",
            hint="write a duration (10m, 1h30m), a number of batches (5 batches), or a time "
            "(2026-01-31T06:00:00Z)",
        ) from None
