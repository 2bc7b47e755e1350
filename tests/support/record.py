"""A record of who did what to which row, kept in plain Python beside a real table.

It knows nothing of snapshots' contents, files or row ids: only of keys, values and writers. The
answers of the product are compared with it. A writer is a batch id, or ``foreign:<snapshot>``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

Values: TypeAlias = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Version:
    """One state of a row, and the write that made it."""

    writer: str
    values: Values


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """A row from its birth on. A key that was deleted and came back is another row."""

    key: int
    versions: tuple[Version, ...]
    deleted_by: str | None = None

    @property
    def birth(self) -> str:
        return self.versions[0].writer

    @property
    def last_change(self) -> str:
        return self.versions[-1].writer

    @property
    def values(self) -> Values:
        return self.versions[-1].values


@dataclass(slots=True)
class Moment:
    """The table as one snapshot left it."""

    live: dict[int, Life] = field(default_factory=dict)
    gone: list[Life] = field(default_factory=list)

    def copy(self) -> Moment:
        return Moment(dict(self.live), list(self.gone))


@dataclass(slots=True)
class Record:
    """Everything that was done to one table; ``at`` has a moment for every snapshot."""

    now: Moment = field(default_factory=Moment)
    at: dict[str, Moment] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)

    def insert(self, writer: str, rows: Mapping[int, Values]) -> None:
        for key, values in rows.items():
            assert key not in self.now.live, f"{key} is there already"
            self.now.live[key] = Life(key=key, versions=(Version(writer, dict(values)),))

    def upsert(self, writer: str, rows: Mapping[int, Values]) -> None:
        for key, values in rows.items():
            life = self.now.live.get(key)
            if life is None:
                self.insert(writer, {key: values})
            else:
                self._change(writer, life, values)

    def update(
        self, writer: str, which: Callable[[Life], bool], change: Mapping[str, object]
    ) -> None:
        for life in [life for life in self.now.live.values() if which(life)]:
            self._change(writer, life, {**life.values, **change})

    def delete(self, writer: str, which: Callable[[Life], bool]) -> None:
        for life in [life for life in self.now.live.values() if which(life)]:
            del self.now.live[life.key]
            self.now.gone.append(replace(life, deleted_by=writer))

    def back_to(self, snapshot: str) -> None:
        self.now = self.at[snapshot].copy()

    def snapshot(self, name: str) -> None:
        """Remember the present state under a snapshot's id."""
        self.at[name] = self.now.copy()
        self.order.append(name)

    def _change(self, writer: str, life: Life, values: Values) -> None:
        version = Version(writer, dict(values))
        self.now.live[life.key] = replace(life, versions=(*life.versions, version))
