"""What a person sees of a run: one live line on a terminal, log lines elsewhere.

Owns the figures that are shown and how often the source is asked for its lag. Must never be in a
batch's way: what cannot be told is left out.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobs.runner.outcome import Done
from odi_audit import logs
from odi_audit.errors import OdiError

if TYPE_CHECKING:
    from rich.console import Console

    from jobs.sources.base import Lag

log = logs.get_logger(__name__)

RATE_BATCHES = 5
"""Rows per second are those of so many batches: one alone jumps about."""
LAG_EVERY_S = 5.0
"""To ask for the lag costs a round trip to the source."""
REFRESH_PER_S = 2


@dataclass(slots=True)
class Tally:
    """The figures of a run so far."""

    job: str
    path: str = ""
    batches: int = 0
    records: int = 0
    rejects: int = 0
    bytes: int = 0
    grown: list[str] = field(default_factory=list)
    last: Done | None = None
    last_at: float | None = None
    lag: int | None = None
    lag_at: float = float("-inf")
    trouble: str = ""
    _rates: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=RATE_BATCHES))

    def add(self, done: Done, now: float) -> None:
        """Count a batch that has landed."""
        self.path, self.trouble = done.path, ""
        self.batches += 1
        self.records += done.records
        self.rejects += done.rejects
        self.bytes += done.bytes
        self.grown += [table for table in done.grown if table not in self.grown]
        self.last, self.last_at = done, now
        self._rates.append((done.records, done.seconds))

    @property
    def rows_per_s(self) -> float | None:
        """Rows per second of the last batches, while they were carried out."""
        seconds = sum(taken for _, taken in self._rates)
        return sum(rows for rows, _ in self._rates) / seconds if seconds else None

    def line(self, now: float) -> str:
        """Return everything in one line, for a person."""
        parts = [self.job, f"{self.batches:,} batches", f"{self.records:,} rows"]
        if self.rows_per_s is not None:
            parts.append(f"{shown_rate(self.rows_per_s)} rows/s")
        if self.lag is not None:
            parts.append(f"lag {self.lag:,}")
        if self.rejects:
            parts.append(f"{self.rejects:,} rejects")
        if self.last is not None and self.last_at is not None:
            parts.append(f"{self.last.receipt.batch[:14]} {now - self.last_at:,.0f} s ago")
        parts += [self.path] if self.path else []
        return " · ".join([*parts, *([self.trouble] if self.trouble else [])])


def shown_rate(rate: float) -> str:
    """Write rows per second: small ones with their first digits."""
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


class Progress:
    """Watches a run, and tells."""

    def __init__(self, job: str, console: Console | None) -> None:
        self.tally = Tally(job=job)
        self._console = console
        self._ask: Callable[[], Lag | None] = lambda: None

    def asks(self, ask: Callable[[], Lag | None]) -> None:
        """Say how the lag is found out."""
        self._ask = ask

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Keep a line on the terminal up to date, where there is one."""
        if self._console is None:
            yield
            return
        from rich.live import Live
        from rich.text import Text

        def line() -> Text:
            return Text(self.tally.line(time.monotonic()), no_wrap=True, overflow="ellipsis")

        with Live(
            console=self._console,
            get_renderable=line,
            refresh_per_second=REFRESH_PER_S,
            transient=True,
        ):
            yield

    def tell(self, done: Done) -> None:
        """Take note of a batch that has landed."""
        tally, now = self.tally, time.monotonic()
        tally.add(done, now)
        for news in done.plan.news:
            log.info("news", job=tally.job, news=news)
        if now - tally.lag_at >= LAG_EVERY_S or not done.plan.more:
            self.measure(now)
        elif tally.lag is not None:
            tally.lag = max(0, tally.lag - done.plan.rows)
        if self._console is None:
            rate = tally.rows_per_s
            log.info(
                "batch",
                job=tally.job,
                batch=done.receipt.batch,
                path=done.path,
                records=done.records,
                rejects=done.rejects,
                seconds=round(done.seconds, 3),
                rows_per_s=None if rate is None else round(rate),
                lag=tally.lag,
            )

    def away(self, error: OdiError) -> None:
        """Take note of a try that failed and is made again."""
        self.tally.trouble = f"trying again: {error.code}"
        log.warning("trying again", job=self.tally.job, code=error.code, reason=error.message)

    def measure(self, now: float) -> None:
        """Ask how far the job is behind; a source that does not answer leaves it unknown."""
        self.tally.lag_at = now
        try:
            lag = self._ask()
        except OdiError as error:
            log.debug("lag unknown", job=self.tally.job, reason=error.message)
            lag = None
        self.tally.lag = None if lag is None else lag.total
