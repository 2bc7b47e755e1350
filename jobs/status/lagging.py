"""How far a job is behind its source: asked of the source, by the job's spec.

Owns the question and what is told where it has no answer. Starts no JVM: a source that would need
one is named, and left alone. Must never read more of a source than one record of each partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.sources.base import Lag
from jobs.status.looking import looking
from odi_audit.canonical import JsonObject
from odi_audit.errors import OdiError

if TYPE_CHECKING:
    from jobs.sources.kafka import KafkaSource
    from jobs.spec.model import JobSpec
    from odi_audit.ids import JobName
    from odi_audit.ledger.port import Ledger, Position
    from odi_audit.workspace import Workspace

AGED_MAX = 50
"""Partitions whose oldest unread record is looked at, those with most of them first."""
FIRST_OF = 10
"""Offsets that are looked at for it: where Kafka itself made holes, the first is none."""
ONE_RECORD = {"queued.min.messages": "1", "fetch.message.max.bytes": "65536"}
"""Nothing is read ahead for one record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """How far a job is behind, or why that cannot be told; ``stopped`` is what a run would say."""

    spec: str
    lag: Lag | None = None
    untold: str | None = None
    stopped: str | None = None

    def to_json(self) -> JsonObject:
        """Return the form for machines."""
        return {
            "spec": self.spec,
            "rows": None if self.lag is None else self.lag.total,
            "seconds": None if self.lag is None else self.lag.seconds,
            "untold": self.untold,
            "stopped": self.stopped,
        }


def behind(spec: JobSpec, path: Path, workspace: Workspace, now: datetime) -> Behind:
    """Ask a job's source how far the job is behind; an error of the source becomes part of it."""
    try:
        if spec.source.type == "kafka":
            return _kafka(spec, path, workspace.ledger(read_only=True), now)
        return Behind(spec=str(path), lag=_fed(spec, path, workspace))
    except OdiError as error:
        return Behind(spec=str(path), untold=f"{error.code}: {error.message}")


def _kafka(spec: JobSpec, path: Path, ledger: Ledger, now: datetime) -> Behind:
    from jobs.sources.base import Limits
    from jobs.sources.kafka import KafkaSource

    assert spec.source.type == "kafka"
    source = KafkaSource(spec.source)
    identity = source.identity()
    job: JobName = spec.job
    positions = ledger.job_positions(job, identity)
    lag = source.lag(positions)
    stopped = None
    try:
        others = [name for name in ledger.job_sources(job) if name != identity]
        source.plan(positions, Limits(rows=1), elsewhere=others)
    except OdiError as error:
        stopped = f"{error.code}: {error.message}"
    else:
        lag = replace(lag, seconds=_age(source, positions, lag, now))
    return Behind(spec=str(path), lag=lag, stopped=stopped)


def _age(
    source: KafkaSource, positions: Mapping[str, Position], lag: Lag, now: datetime
) -> float | None:
    """Return the age of the oldest record that has not been read; 0 where all have."""
    from jobs.sources.kafka_read import Piece, read

    waiting = sorted((name for name, rows in lag.rows.items() if rows), key=lag.rows.__getitem__)
    if not waiting:
        return 0.0
    cluster = source.look(positions)
    pieces = []
    for name in waiting[::-1][:AGED_MAX]:
        topic, _, number = name.rpartition("-")
        marks, last = cluster.topics[topic].partitions[int(number)], positions.get(name)
        start = max(marks.begin, last.end if last and isinstance(last.end, int) else marks.begin)
        end = min(marks.end, start + FIRST_OF)
        pieces.append(Piece(topic=topic, partition=int(number), start=start, end=end))
    options = {**source.options, **ONE_RECORD}
    oldest: float | None = None
    for _, messages in read(
        source.bootstrap, options, pieces, uncommitted=source.uncommitted, idle_s_max=10
    ):
        kind, millis = messages[0].timestamp()
        if kind and (oldest is None or millis < oldest):
            oldest = millis
    return None if oldest is None else max(0.0, now.timestamp() - oldest / 1000)


def _fed(spec: JobSpec, path: Path, workspace: Workspace) -> Lag:
    from jobs.runner.choose import feed_of

    run = looking(spec, workspace)
    feed = feed_of(spec, folder=path.resolve().parent)
    feed.prepare(run)
    positions = run.parts.ledger.job_positions(run.job, feed.identity())
    return feed.lag(run, positions)
