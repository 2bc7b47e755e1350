"""A source table whose rows change, go and change their keys, and the events that tell of it.

The truth is kept beside the events, row by row, by none of the code under test: what the source
holds after each batch, and every version of every row. Events leave out what did not change, as a
database does with values that it stores apart. Many small worlds share one table, each with few
keys, so that keys are used again and rows move over several of them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, TypeAlias

from jobs.formats.debezium_envelope import (
    OLD_KEY,
    OP,
    ORDER,
    TIME,
    UNAVAILABLE,
    UNAVAILABLE_VALUE,
)

SCHEMA = "world bigint, id bigint, name string, doc string, blob binary"
COLUMNS = ("world", "id", "name", "doc", "blob")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
IDS = range(5)
SPARE = 9
Key: TypeAlias = tuple[int, int]
Values: TypeAlias = tuple[str, str, bytes]
Version: TypeAlias = tuple[Any, ...]


@dataclass(slots=True)
class Source:
    """The table, the events since the last look, and all versions that rows have had."""

    chance: Random
    worlds: int
    rows: dict[Key, Values] = field(default_factory=dict)
    since: dict[Key, datetime] = field(default_factory=dict)
    done: list[Version] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    lsn: int = 100
    made: int = 0
    moves: int = 0

    def step(self) -> None:
        """Let one row of one world change."""
        world = self.chance.randrange(self.worlds)
        there = [key for key in self.rows if key[0] == world and key[1] != SPARE]
        free = [(world, i) for i in IDS if (world, i) not in self.rows]
        roll = self.chance.random()
        if free and (not there or roll < 0.15):
            self.create(self.chance.choice(free))
        elif roll < 0.35:
            self.update(self.chance.choice(there))
        elif roll < 0.45:
            self.delete(self.chance.choice(there))
        elif len(there) > 1 and roll < 0.6:
            one, other = self.chance.sample(there, 2)
            self.swap(one, other)
        elif free:
            self.move(self.chance.choice(there), self.chance.choice(free))

    def create(self, key: Key, op: str = "c") -> None:
        self.lsn += 8
        self._set(key, (self._text("n"), self._text("doc"), self._text("blob").encode()))
        self._event(op, key, self.rows[key])

    def update(self, key: Key) -> None:
        self.lsn += 8
        after, hidden = self._changed(self.rows[key])
        self._set(key, after)
        self._event("u", key, after, hidden)

    def delete(self, key: Key) -> None:
        self.lsn += 8
        self._end(key)
        self._event("d", key, None)

    def move(self, old: Key, new: Key, *, told: bool = True) -> None:
        """Change a key: both events lie at one place of the log."""
        self.lsn += 8
        self.moves += 1
        after, hidden = self._changed(self.rows[old])
        numbered = self.chance.random() < 0.5
        self._end(old)
        self._event("d", old, None, number=1 if numbered else 0)
        self._set(new, after)
        before = {"world": old[0], "id": old[1]}
        self._event("c", new, after, hidden, number=2 if numbered else 0)
        if hidden and told:
            self.events[-1][OLD_KEY] = json.dumps(before)

    def swap(self, one: Key, other: Key) -> None:
        spare = (one[0], SPARE)
        self.move(one, spare)
        self.move(other, one)
        self.move(spare, other)

    def truncate(self) -> None:
        self.lsn += 8
        for key in list(self.rows):
            self._end(key)
        self._event("t", (None, None), None)  # type: ignore[arg-type]

    def versions(self) -> list[Version]:
        """Return every version: key, values, from when, until when, and whether it holds."""
        open_ = [(*key, *row, self.since[key], None, True) for key, row in self.rows.items()]
        return sorted([*self.done, *open_], key=str)

    def table(self) -> list[Version]:
        """Return what the table holds now."""
        return sorted((*key, *row) for key, row in self.rows.items())

    def _changed(self, row: Values) -> tuple[Values, list[str]]:
        name, doc, blob = row
        hidden = []
        if self.chance.random() < 0.7:
            name = self._text("n")
        if self.chance.random() < 0.2:
            doc = self._text("doc")
        elif self.chance.random() < 0.9:
            hidden.append("doc")
        if self.chance.random() < 0.2:
            blob = self._text("blob").encode()
        elif self.chance.random() < 0.9:
            hidden.append("blob")
        return (name, doc, blob), hidden

    def _text(self, what: str) -> str:
        self.made += 1
        return f"{what} {self.made}"

    def _set(self, key: Key, row: Values) -> None:
        if self.rows.get(key) == row:
            return
        if key in self.rows:
            self._end(key)
        self.rows[key], self.since[key] = row, self._now()

    def _end(self, key: Key) -> None:
        self.done.append((*key, *self.rows.pop(key), self.since.pop(key), self._now(), False))

    def _now(self) -> datetime:
        return NOON + timedelta(seconds=self.lsn)

    def _event(
        self, op: str, key: Key, row: Values | None, hidden: Any = (), *, number: int = 0
    ) -> None:
        sent = dict(zip(COLUMNS, (*key, *(row or (None, None, None))), strict=True))
        if "doc" in hidden:
            sent["doc"] = UNAVAILABLE_VALUE
        if "blob" in hidden:
            sent["blob"] = None
        rank = 0 if op == "r" else 1
        self.events.append(
            {
                **sent,
                OP: op,
                ORDER: f"{self.lsn:016x}.{rank}.{number:08x}",
                TIME: self._now(),
                UNAVAILABLE: list(hidden) or None,
                OLD_KEY: None,
            }
        )
