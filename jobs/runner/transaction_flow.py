"""What records tell of transactions: marks, runs of changes, and the flow of one connector.

Owns these values, and the names of transactions and of topics of marks. Must never judge: where
to cut is ``transaction_cut``'s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

TOPIC_END = ".transaction"
"""How Debezium names the topic of marks, after the connector's prefix."""
UNREADABLE = ""
"""In place of a transaction's name: the record cannot be read."""
BEGIN, END = "BEGIN", "END"
_POSTGRES = re.compile(r"(\d+):(\d+)")
_GTID = re.compile(r"([0-9A-Fa-f-]{36}):(\d+)")
_BINLOG = re.compile(r"file=[^,]*\.(\d+),pos=(\d+)")
_NOT_IN_A_TOPIC = re.compile(r"[^A-Za-z0-9._-]")
Place = tuple[str, int]
"""A line on which places are in order, and the place on it."""


def marks_among(topics: Iterable[str]) -> frozenset[str]:
    """Return the topics that hold marks; below one of them, a table may be named the same."""
    named = [topic for topic in topics if topic.endswith(TOPIC_END)]
    tops = {topic: topic.removesuffix(TOPIC_END) + "." for topic in named}
    return frozenset(
        topic
        for topic in named
        if not any(topic.startswith(top) for other, top in tops.items() if other != topic)
    )


def name_of(told: object) -> str:
    """Return what all marks and changes of a transaction have in common.

    For PostgreSQL its number: behind the colon stands where each of them lies in the log.
    """
    found = _POSTGRES.fullmatch(str(told))
    return str(told) if found is None else found[1]


def place_of(told: object) -> Place | None:
    """Return where a mark lies in the source's log, by the name that it gives its transaction."""
    text = str(told)
    if found := _POSTGRES.fullmatch(text):
        return "lsn", int(found[2])
    if found := _GTID.fullmatch(text):
        return found[1], int(found[2])
    if found := _BINLOG.search(text):
        return "binlog", (int(found[1]) << 64) + int(found[2])
    return None


def in_a_topic(table: str) -> str:
    """Return a table's name as Debezium writes it into the name of a topic."""
    return _NOT_IN_A_TOPIC.sub("_", table)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The begin or the end of a transaction; ``status`` None: the mark cannot be read."""

    at: int
    status: str | None = None
    one: str = UNREADABLE
    place: Place | None = None
    tables: Mapping[str, int] = field(default_factory=dict)
    millis: int | None = None


@dataclass(slots=True, kw_only=True)
class Run:
    """Changes of one transaction that lie side by side in a partition.

    ``one`` is None for records without a transaction: what a snapshot read, tombstones.
    ``place`` and ``millis`` are the greatest of them.
    """

    first: int
    one: str | None
    place: Place | None = None
    millis: int | None = None


@dataclass(slots=True, kw_only=True)
class Flow:
    """What the records of a plan tell that one connector wrote.

    ``topics`` are those of its topics that the job follows, with their partitions, and ``follows``
    says it of topics that are not there yet. ``name`` is the partition of marks, None where there
    is none yet; ``start`` and ``end`` are its part of the plan. ``marks`` reach further, to both
    sides.
    """

    prefix: str
    topics: dict[str, Collection[int]]
    follows: Callable[[str], bool]
    name: str | None = None
    start: int = 0
    end: int = 0
    marks: list[Mark] = field(default_factory=list)
    runs: dict[str, list[Run]] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    """Where the plan ends in each partition of changes."""
    behind: Collection[str] = ()
    """Partitions that have more than is in the plan."""
    seen: dict[tuple[str, str], set[int]] = field(default_factory=dict)
    """By transaction and table, which of its changes are there."""
    last: dict[str, dict[str, int]] = field(default_factory=dict)
    """By transaction, the place in each partition up to which the batch must reach for that."""
    fed: dict[str, set[str]] = field(default_factory=dict)
    """By table, the topics in which changes of it were seen."""

    def change(
        self,
        partition: str,
        offset: int,
        *,
        one: str | None,
        table: str = "",
        number: int | None = None,
        place: Place | None = None,
        millis: int | None = None,
    ) -> None:
        """Take in a change; ``number`` is the order that it has among those of its table."""
        runs = self.runs[partition]
        last = runs[-1] if runs else None
        if last is None or last.one != one or one == UNREADABLE:
            runs.append(Run(first=offset, one=one, place=place, millis=millis))
        else:
            last.place = max(last.place, place) if last.place and place else last.place or place
            last.millis = max(last.millis or 0, millis or 0) or None
        if one:
            numbers = self.seen.setdefault((one, table), set())
            number = -len(numbers) - 1 if number is None else number
            # Delivered again, a change has the same number, and must not count for another.
            if number not in numbers:
                numbers.add(number)
                self.last.setdefault(one, {})[partition] = offset
            self.fed.setdefault(table, set()).add(partition.rpartition("-")[0])
