"""Records of one partition in a task: what a decoder is given.

Owns the view of Kafka's messages as columns, each made when it is first asked for. Must never
change a record.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import Message

Header = tuple[str, bytes | None]


@dataclass(frozen=True, kw_only=True)
class Records:
    """Some records of one partition, in order."""

    topic: str
    partition: int
    messages: Sequence[Message]

    def __len__(self) -> int:
        return len(self.messages)

    @property
    def name(self) -> str:
        """The partition's name in the batch's offsets."""
        return f"{self.topic}-{self.partition}"

    @cached_property
    def values(self) -> list[bytes | None]:
        """The values; None is a tombstone."""
        return [message.value() for message in self.messages]

    @property
    def size_bytes(self) -> int:
        """How long the values are, in all."""
        return sum(len(value) for value in self.values if value)

    @cached_property
    def keys(self) -> list[bytes | None]:
        """The keys."""
        return [message.key() for message in self.messages]

    @cached_property
    def offsets(self) -> list[int]:
        """The offsets."""
        return [message.offset() or 0 for message in self.messages]

    @cached_property
    def millis(self) -> list[int | None]:
        """The time of each record in milliseconds since 1970; None where it has none."""
        pairs = [message.timestamp() for message in self.messages]
        return [when if kind else None for kind, when in pairs]

    def header(self, place: int, name: str) -> bytes | None:
        """Return one header of one record: that of a name which comes last; None: it has none."""
        given = cast("list[tuple[str, str | bytes | None]]", self.messages[place].headers() or [])
        value = dict(given).get(name)
        return value.encode() if isinstance(value, str) else value

    @cached_property
    def headers(self) -> list[list[Header]]:
        """The headers."""
        return [
            [
                (name, value.encode() if isinstance(value, str) else value)
                for name, value in cast("list[tuple[str, str | bytes | None]]", found)
            ]
            for message in self.messages
            for found in [message.headers() or []]
        ]
