"""What a destination's answer means for an event, and how long to wait before the next try.

Owns the table of HTTP statuses, Retry-After and the backoff. Must never look at an event.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum

REASON_LENGTH_MAX = 300
RETRY_AFTER_S_MAX = 900.0
"""A destination that asks for more is asked again after this: nobody waits for it unseen."""
BACKOFF_S_FIRST = 0.5


class Verdict(StrEnum):
    """What to do now."""

    DONE = "done"
    LATER = "later"
    """Try the event again; nothing is wrong with it as far as is known."""
    REFUSED = "refused"
    """The destination will never take this event."""
    STOPPED = "stopped"
    """The destination turns us away, whatever the event: a key or an address is wrong."""
    UNSENT = "unsent"
    """It was not tried: the one before it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer, or that there was none.

    ``in_doubt``: the event may still arrive, even after later ones. ``everybody``: the fault is
    the destination's, so other events would fare alike. ``suspect``: the fault may be the event's.
    """

    verdict: Verdict
    status: int | None = None
    reason: str = ""
    wait_s: float | None = None
    in_doubt: bool = False
    everybody: bool = False
    suspect: bool = False


DONE = Answer(verdict=Verdict.DONE)
UNSENT = Answer(verdict=Verdict.UNSENT)
_STOPPING = frozenset({401, 402, 403, 404, 405, 406, 407, 410, 415, 421, 426, 451, 511})
"""About the key, the address or the way of sending; the next event would get the same."""
_EVERYBODY = frozenset({429, 502, 503, 504, 507, 509, 529})
_IN_DOUBT = frozenset({408, 502, 504})
"""Somebody on the way gave up waiting: the request may still be carried out."""


def of_status(status: int, reason: str, retry_after: str | None, now: datetime) -> Answer:
    """Return what an HTTP status means."""
    told = f"{status} {reason}".strip()[:REASON_LENGTH_MAX]
    if 200 <= status < 300:
        return DONE
    if 300 <= status < 400:
        return Answer(
            verdict=Verdict.STOPPED,
            status=status,
            reason=f"{told}: a redirect is not followed, for the key would go with it",
        )
    if status in _STOPPING:
        return Answer(verdict=Verdict.STOPPED, status=status, reason=told)
    if status in {408, 425, 429} or status >= 500:
        return Answer(
            verdict=Verdict.LATER,
            status=status,
            reason=told,
            wait_s=_wait(retry_after, now),
            in_doubt=status in _IN_DOUBT,
            everybody=status in _EVERYBODY,
            suspect=status in {500, 501},
        )
    return Answer(verdict=Verdict.REFUSED, status=status, reason=told)


def no_answer(reason: str, *, in_doubt: bool, everybody: bool = True) -> Answer:
    """Return what it means that no answer came."""
    return Answer(
        verdict=Verdict.LATER,
        reason=reason[:REASON_LENGTH_MAX],
        in_doubt=in_doubt,
        everybody=everybody,
    )


def backoff_s(tries: int, most_s: float, chance: random.Random) -> float:
    """Return a wait: exponential, with full jitter, so that many relays do not come together."""
    return chance.uniform(0, min(most_s, BACKOFF_S_FIRST * 2 ** min(tries, 30)))


def _wait(retry_after: str | None, now: datetime) -> float | None:
    """Read Retry-After: seconds, or a date."""
    text = (retry_after or "").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), RETRY_AFTER_S_MAX)
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return min(max((moment - now).total_seconds(), 0.0), RETRY_AFTER_S_MAX)
