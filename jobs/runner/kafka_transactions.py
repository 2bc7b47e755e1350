"""Batches that end where transactions of the source end.

Owns the reading for it: Debezium writes the end of each transaction, with the number of its
changes, to a topic of its own, and every change says to which transaction it belongs. A plan is
shortened to those transactions that are in it with all their changes, whichever topics they are
in. The cut is in the ledger with the batch, so a restart does not ask again. Must never cut a
transaction in two: one that is larger than a batch stops the job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from jobs.arrow_path import pieces_of
from jobs.formats.debezium_transactions import FromAvro, Tell, from_json
from jobs.runner.transaction_flow import TOPIC_END, marks_among
from jobs.runner.transaction_plan import Around, shortened
from jobs.sources.kafka_read import Piece, read
from jobs.sources.registry import access_of, shared
from odi_audit import logs
from odi_audit.errors import NotSupported, UsageError

if TYPE_CHECKING:
    from jobs.runner.transaction_cut import Lacking
    from jobs.sources.base import Plan
    from jobs.sources.kafka import KafkaSource
    from jobs.sources.kafka_values import Topic
    from jobs.spec.model import JobSpec
    from odi_audit.ledger.port import Position

log = logs.get_logger(__name__)

MARKS_BEFORE = 1_000
"""Marks that are looked at though they are done with: by them a transaction is known again whose
changes are delivered once more."""
WIDER_MAX = 16
"""A batch's rows are split evenly over partitions. Where no transaction fits, up to so many times
as many are looked at; the batch itself keeps its limit."""
WAIT_MS = 10_000
"""While nothing new comes, what waits is not read again for this long."""
LATE_MS = 600_000
"""A transaction that lacks changes for this long is told of."""


def check(spec: JobSpec) -> None:
    """Refuse a spec whose batches cannot be cut at transactions.

    Raises:
        UsageError, NotSupported: with what to change.
    """
    assert spec.source.type == "kafka"
    if spec.source.pattern is None and not any(t.endswith(TOPIC_END) for t in spec.source.topics):
        raise UsageError(
            "batch.cut_at_transactions needs the topic with the ends of transactions",
            hint=f"add it to source.topics: the connector's prefix and {TOPIC_END}",
        )
    form = spec.source.value.format
    if form not in {"json", "avro"} or (form == "avro" and spec.registry is None):
        raise NotSupported(f"batch.cut_at_transactions: change events in format {form}")


def tell_of(spec: JobSpec) -> Tell:
    """Return what reads of a spec's records what they say of transactions."""
    assert spec.source.type == "kafka"
    if spec.source.value.format == "avro":
        assert spec.registry is not None
        return FromAvro(shared(access_of(spec.registry)).type)
    return from_json


class Cutter:
    """Cuts the plans of one job."""

    def __init__(self, source: KafkaSource, tell: Tell) -> None:
        self._source = source
        self._tell = tell
        self._marks: frozenset[str] | None = None
        self._waiting: tuple[object, int] = (None, 0)
        self._late = ""

    def marks(self) -> frozenset[str]:
        """Return the topics that hold marks of transactions, and no rows."""
        if self._marks is None:
            self._marks = marks_among(self._source.look({}).topics)
        return self._marks

    def cut(
        self,
        plan: Plan,
        positions: Mapping[str, Position],
        *,
        now_ms: int,
        rows_max: int | None = None,
    ) -> Plan | None:
        """Return a plan that ends with a transaction; None while none has ended.

        ``rows_max``: no more than these, where the plan itself is larger.

        Raises:
            UsageError: the topic of marks cannot be read in order, or a transaction is larger
                than a batch may be.
        """
        if not plan.rows:
            return plan
        source = self._source
        topics = source.look(positions).topics
        self._marks = marks = marks_among(topics)
        _check_one_partition(topics[name] for name in marks)
        now = (plan.offsets.ranges, {name: topics[name].partitions for name in marks})
        before, since = self._waiting
        if before == now and now_ms - since < WAIT_MS:
            return None
        starts = {name: _start(topics[name], plan, positions) for name in marks}
        pieces = [piece for piece in pieces_of(plan.offsets) if piece.topic not in marks]
        pieces += [_wider(topics[name], plan, starts[name]) for name in sorted(marks)]
        records = read(source.bootstrap, source.options, pieces, uncommitted=source.uncommitted)
        around = Around(
            topics={name: tuple(topic.partitions) for name, topic in topics.items()},
            marks=marks,
            starts=starts,
            behind=_behind(topics.values(), plan, positions),
            follows=source.subscription.follows,
        )
        made = shortened(
            plan, records, tell=self._tell, around=around, now_ms=now_ms, rows_max=rows_max
        )
        self._warn(made.lacking, now_ms, waits_for_topic=made.plan is None and not marks)
        found = made.plan
        if found is None and rows_max is not None and (made.is_large or plan.more):
            raise UsageError(
                f"a transaction has more changes than the {rows_max} of a batch",
                hint="raise batch.rows or batch.bytes, or leave cut_at_transactions out",
            )
        if found is not None and not (positions or plan.more or _has_changes(found, marks)):
            found = None  # the first batch makes a table, of rows
        self._waiting = (now, now_ms) if found is None else (None, 0)
        return found

    def _warn(self, lacking: Lacking | None, now_ms: int, *, waits_for_topic: bool) -> None:
        if waits_for_topic and self._late != TOPIC_END:
            log.warning(
                "changes wait for the topic with the ends of transactions, which is not there",
                hint=f"follow it too: the connector's prefix and {TOPIC_END}",
            )
            self._late = TOPIC_END
        if lacking is None or lacking.millis is None or now_ms - lacking.millis < LATE_MS:
            return
        if self._late != lacking.transaction:
            log.warning(
                "a transaction has ended, and changes of it have not come",
                transaction=lacking.transaction,
                table=lacking.table,
                there=lacking.there,
                wanted=lacking.wanted,
                hint="does something between Debezium and Kafka leave changes out?",
            )
            self._late = lacking.transaction


def _check_one_partition(marks: Iterable[Topic]) -> None:
    for topic in marks:
        if len(topic.partitions) > 1:
            raise UsageError(
                f"topic {topic.name} has {len(topic.partitions)} partitions, and the ends of "
                "transactions are in order within one only",
                hint="make it anew with one partition, or leave cut_at_transactions out",
                topic=topic.name,
            )


def _start(topic: Topic, plan: Plan, positions: Mapping[str, Position]) -> int:
    """Return where the job goes on with marks, also where the plan has none of them."""
    ((number, held),) = topic.partitions.items()
    name = f"{topic.name}-{number}"
    part = plan.offsets.ranges.get(name)
    if part is not None:
        return int(part.start or 0)
    return int(positions[name].end) if name in positions else held.begin


def _wider(topic: Topic, plan: Plan, start: int) -> Piece:
    """Return what is read of the marks: some that are done with, and those that came since."""
    ((number, held),) = topic.partitions.items()
    part = plan.offsets.ranges.get(f"{topic.name}-{number}")
    end = held.end if part is None else max(held.end, int(part.end))
    first = min(start, max(held.begin, start - MARKS_BEFORE))
    return Piece(topic=topic.name, partition=number, start=first, end=end)


def _behind(
    topics: Iterable[Topic], plan: Plan, positions: Mapping[str, Position]
) -> frozenset[str]:
    """Return the partitions that have more than the plan, and what came before it."""
    found = set[str]()
    for topic in topics:
        for number, held in topic.partitions.items():
            name = f"{topic.name}-{number}"
            part, last = plan.offsets.ranges.get(name), positions.get(name)
            place = last.end if part is None and last else None if part is None else part.end
            if held.end > int(held.begin if place is None else place):
                found.add(name)
    return frozenset(found)


def _has_changes(plan: Plan, marks: frozenset[str]) -> bool:
    return any(
        part.start != part.end and name.rpartition("-")[0] not in marks
        for name, part in plan.offsets.ranges.items()
    )
