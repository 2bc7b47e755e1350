"""Kafka as a source of a job: asks the cluster, plans the next batch, says how far behind it is.

Owns the way from a spec's words to the planner's values. Reading itself is done in tasks
(kafka_read). Must never keep a position: the ledger has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from jobs.sources import kafka_plan
from jobs.sources.base import NO_CHOICES, Choices, Lag, Limits, Plan
from jobs.sources.kafka_admin import KafkaAdmin
from jobs.sources.kafka_values import Cluster, Start, StartAt, Subscription
from jobs.spec.fields import revealed
from odi_audit.ledger.port import Position

if TYPE_CHECKING:
    from datetime import datetime

    from jobs.spec.sources import KafkaSource as KafkaSpec
    from jobs.spec.sources import KafkaStart


class KafkaSource:
    """The topics of one spec."""

    def __init__(self, spec: KafkaSpec) -> None:
        self.bootstrap = ",".join(spec.servers)
        self.options = revealed(spec.options)
        self.uncommitted = self.options.get("isolation.level") == "read_uncommitted"
        self.subscription = Subscription(topics=spec.topics, pattern=spec.pattern)
        self._start = spec.start
        self._admin = KafkaAdmin(
            bootstrap=self.bootstrap, options=self.options, uncommitted=self.uncommitted
        )
        self.row_bytes: float | None = None
        """How long rows have been lately; the runner keeps it up."""
        self._begun = False

    def identity(self) -> str:
        """Return the name under which the ledger keeps positions on this cluster."""
        return f"kafka://{self._admin.identity()}"

    def look(self, positions: Mapping[str, Position]) -> Cluster:
        """Return the topics that are followed, as they are now."""
        known = {name.rpartition("-")[0] for name in positions}
        return self._admin.cluster(self.subscription, known=known)

    def plan(
        self,
        positions: Mapping[str, Position],
        limits: Limits,
        *,
        choices: Choices = NO_CHOICES,
        elsewhere: Sequence[str] = (),
        waited_s: float = float("inf"),
    ) -> Plan | None:
        """Return the next batch, or None while none is due."""
        cluster = self.look(positions)
        made = kafka_plan.plan(
            cluster,
            positions,
            subscription=self.subscription,
            start=self._where_to_start(cluster, begun=bool(positions)),
            limits=limits,
            choices=choices,
            # The same job may also have read files, or have brought dead letters back.
            elsewhere=[name for name in elsewhere if name.startswith("kafka://")],
            begun=self._begun,
            waited_s=waited_s,
            row_bytes=self.row_bytes,
        )
        self._begun = True
        return made

    def begin(self, cluster: Cluster) -> Start:
        """Return where a job begins that has read nothing yet."""
        return self._where_to_start(cluster, begun=False)

    def lag(self, positions: Mapping[str, Position]) -> Lag:
        """Return how far the positions are behind the topics now."""
        return Lag(rows=kafka_plan.behind(self.look(positions), positions))

    def since(self, moment: datetime) -> int:
        """Return how many records came to the topics since a moment."""
        cluster = self.look({})
        places = self._admin.at_time(cluster, moment)
        ends = {
            f"{topic.name}-{number}": marks.end
            for topic in cluster.topics.values()
            for number, marks in topic.partitions.items()
        }
        return sum(max(0, end - places.get(name, end)) for name, end in ends.items())

    def _where_to_start(self, cluster: Cluster, *, begun: bool) -> Start:
        return start_of(self._start, cluster, self._admin, begun=begun)


def start_of(given: KafkaStart, cluster: Cluster, admin: KafkaAdmin, *, begun: bool) -> Start:
    """Return the planner's start rule for a spec's words."""
    if given.timestamp is not None:
        # Asked of the broker only where it decides something.
        places = {} if begun else admin.at_time(cluster, given.timestamp)
        return Start(at=StartAt.TIMESTAMP, places=places)
    if given.offsets is not None:
        return Start(
            at=StartAt.OFFSETS,
            places={
                f"{topic}-{number}": offset
                for topic, parts in given.offsets.items()
                for number, offset in parts.items()
            },
        )
    return Start(at=StartAt(given.at or "earliest"))
