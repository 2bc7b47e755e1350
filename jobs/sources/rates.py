"""How much comes to a source lately, where it can be asked.

Owns that question, for advice before a job has run. Must never read a record.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobs.spec.model import JobSpec

SPANS = (timedelta(hours=1), timedelta(days=1))
"""Looked at in turn: the last hour, and where nothing came in it the last day."""


def rows_per_second(spec: JobSpec) -> float | None:
    """Return how many records a second came to a job's topics; None where that cannot be told.

    Raises:
        SourceUnavailable, SourceDenied, SourceNotFound: the cluster could not be asked.
    """
    if spec.source.type != "kafka":
        return None
    from jobs.sources.kafka import KafkaSource

    source = KafkaSource(spec.source)
    now = datetime.now(UTC)
    for span in SPANS:
        came = source.since(now - span)
        if came:
            return came / span.total_seconds()
    return None
