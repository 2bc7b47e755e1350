"""Who wrote a snapshot that did not come through the committer, as far as it says.

Owns the keys by which engines sign a snapshot's summary. Must never take a stamp of ours for a
proof: whoever writes past the committer can copy it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from odi_audit.canonical import Json, JsonObject
from odi_audit.model.entries import Entry
from odi_audit.query import facts

_ENGINE = {"flink.job-id": "flink", "trino_query_id": "trino", "kafka.connect.commit-id": "kafka"}
"""Keys that name an engine by being there."""
_APPLICATION = ("app-id", "spark.app.id", "flink.job-id", "trino_query_id")
_USER = ("user", "app-user", "spark.user", "trino_user", "hive.user", "principal")


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """What a summary says of the program that made the snapshot."""

    engine: str | None = None
    engine_version: str | None = None
    application: str | None = None
    application_name: str | None = None
    user: str | None = None

    def __str__(self) -> str:
        engine = " ".join(part for part in (self.engine, self.engine_version) if part)
        name = " ".join(part for part in (self.application_name, self.application) if part)
        parts = [engine, name, f"user {self.user}" if self.user else ""]
        return ", ".join(part for part in parts if part) or "unknown"

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {name: getattr(self, name) for name in self.__slots__}


def writer(summary: Mapping[str, Json]) -> Writer:
    """Read who wrote a snapshot from its summary."""
    engine = _first(summary, ("engine-name",)) or next(
        (name for key, name in _ENGINE.items() if key in summary), None
    )
    return Writer(
        engine=engine,
        engine_version=_first(summary, ("engine-version",)),
        application=_first(summary, _APPLICATION),
        application_name=_first(summary, ("app-name",)),
        user=_first(summary, _USER),
    )


def recorded_writer(entry: Entry) -> Writer:
    """Return who wrote a foreign snapshot that is gone, as the entry made before kept it."""
    known = facts.obj(entry.facts, "summary") or {}
    return writer({"engine-name": facts.text(entry.facts, "engine"), **known})


def _first(summary: Mapping[str, Json], keys: tuple[str, ...]) -> str | None:
    return next((str(summary[key]) for key in keys if summary.get(key)), None)
