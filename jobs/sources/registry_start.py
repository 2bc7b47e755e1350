"""What a job asks the schema registry before its first batch: are its subjects guarded enough?

Owns the comparison of levels, and what is said of a weaker one. Must never change a level.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from jobs.formats import key_rows, raw_rows
from jobs.formats.avro_schema import AvroType, suggested
from jobs.formats.decoded import Unreadable
from jobs.formats.types import spark_type
from jobs.sources.registry import Registry, access_of, shared
from odi_audit import logs
from odi_audit.errors import ConfigError, SourceNotFound, UsageError

if TYPE_CHECKING:
    from jobs.spec.model import JobSpec

log = logs.get_logger(__name__)

_ALONE = {"value": raw_rows.COLUMN, "key": key_rows.COLUMN}
"""The column of what is no record of Avro."""

_PROMISES: dict[str, frozenset[str]] = {
    "NONE": frozenset(),
    "BACKWARD": frozenset({"back"}),
    "BACKWARD_TRANSITIVE": frozenset({"back", "all back"}),
    "FORWARD": frozenset({"forth"}),
    "FORWARD_TRANSITIVE": frozenset({"forth", "all forth"}),
    "FULL": frozenset({"back", "forth"}),
    "FULL_TRANSITIVE": frozenset({"back", "all back", "forth", "all forth"}),
}
"""What each level promises: readers of the new schema, or of the old, with one version or all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weak:
    """A subject whose level promises less than the spec asks for."""

    subject: str
    found: str
    wanted: str
    url: str

    def __str__(self) -> str:
        """Say it in a line."""
        return f"subject {self.subject} has compatibility {self.found}, the spec asks {self.wanted}"

    @property
    def command(self) -> str:
        """The command that raises the level."""
        body = json.dumps({"compatibility": self.wanted})
        return (
            "curl -X PUT -H 'Content-Type: application/json' "
            f"--data '{body}' {self.url}/config/{self.subject}"
        )


def is_weaker(found: str, wanted: str) -> bool:
    """Say whether a level promises less than another; one that is not known promises nothing."""
    return not _PROMISES.get(found.upper(), frozenset()) >= _PROMISES[wanted]


def subjects_of(spec: JobSpec, topics: Iterable[str]) -> list[str]:
    """Return the subjects under which the schemas of a job's topics are registered."""
    assert spec.source.type == "kafka"
    value, key = spec.source.value, spec.source.key
    # The keys of change events are read in any case: they tell the rows apart.
    keys = value.format if spec.source.envelope == "debezium" else None
    keys = keys if key is None else key.format
    sides = [side for side, form in (("value", value.format), ("key", keys)) if form == "avro"]
    return [f"{topic}-{side}" for topic in sorted(topics) for side in sides]


def weak_subjects(spec: JobSpec, topics: Iterable[str]) -> list[Weak]:
    """Return the subjects of a job whose level is weaker than the spec asks for.

    Raises:
        SourceUnavailable, SourceDenied, ConfigError: the registry could not be asked.
    """
    if spec.registry is None or spec.source.type != "kafka":
        return []
    registry, wanted = shared(access_of(spec.registry)), spec.registry.compatibility
    levels = {subject: registry.level(subject) for subject in subjects_of(spec, topics)}
    return [
        Weak(subject=subject, found=found, wanted=wanted, url=registry.url)
        for subject, found in levels.items()
        if is_weaker(found, wanted)
    ]


class Levels:
    """Checks the subjects of a job's topics once each: at the start, or when a topic joins."""

    def __init__(self, spec: JobSpec) -> None:
        self._spec = spec
        self._checked: set[str] = set()

    def check(self, topics: Iterable[str]) -> None:
        """Compare the levels of topics that were not checked before with the spec.

        Raises:
            ConfigError, SourceUnavailable, SourceDenied: as :func:`check_levels`.
        """
        fresh = set(topics) - self._checked if self._spec.registry is not None else set()
        if fresh:
            check_levels(self._spec, fresh)
            self._checked |= fresh


def check_levels(spec: JobSpec, topics: Iterable[str]) -> list[Weak]:
    """Compare the levels of a job's subjects with the spec; warn of weaker ones.

    Raises:
        ConfigError: one is weaker, and the spec says ``on_weaker: refuse``.
        SourceUnavailable, SourceDenied: the registry could not be asked.
    """
    weak = weak_subjects(spec, topics)
    if not weak:
        return []
    assert spec.registry is not None
    if spec.registry.on_weaker == "refuse":
        raise ConfigError(
            "; ".join(map(str, weak)) + ": a producer could change its schema in a way that this "
            "job cannot follow",
            hint=weak[0].command,
        )
    for item in weak:
        log.warning(
            "compatibility is weaker than the spec asks for",
            subject=item.subject,
            found=item.found,
            wanted=item.wanted,
            fix=item.command,
        )
    return weak


def registered(
    spec: JobSpec, topics: Iterable[str], side: Literal["value", "key"] = "value"
) -> dict[str, dict[str, str]]:
    """Return the columns of topics for whose values, or keys, a spec's registry has a schema.

    Raises:
        UsageError: no table can hold records of the newest schema.
        SourceUnavailable, SourceDenied, ConfigError: the registry could not be asked.
    """
    if spec.registry is None or spec.source.type != "kafka":
        return {}
    given = spec.source.value if side == "value" else spec.source.key
    if given is None or given.format != "avro":
        return {}
    registry = shared(access_of(spec.registry))
    found: dict[str, dict[str, str]] = {}
    for topic in topics:
        try:
            columns = registered_columns(registry, topic, side)
        except Unreadable as problem:
            raise UsageError(
                f"the newest schema of subject {topic}-{side} makes no table: {problem}",
                hint=f"name the columns in the spec: source.{side}.columns",
            ) from problem
        if columns is not None:
            found[topic] = columns
    return found


def registered_columns(
    registry: Registry, topic: str, side: Literal["value", "key"] = "value"
) -> dict[str, str] | None:
    """Return a table's columns by the newest schema of a topic's values or keys, in Spark's words.

    None where the subject, such as ``<topic>-value``, is not there: the registry may name subjects
    otherwise.

    Raises:
        Unreadable: it is no schema of Avro, or one that no table can hold.
        SourceUnavailable, SourceDenied, ConfigError: the registry could not be asked.
    """
    try:
        found = registry.latest(f"{topic}-{side}")
    except SourceNotFound:
        return None
    return columns_of(found.type, alone=_ALONE[side])


def columns_of(kind: AvroType, *, alone: str = raw_rows.COLUMN) -> dict[str, str]:
    """Return the columns that hold every record of a schema, with types in Spark's words."""
    parts = kind.fields if kind.kind == "record" else ((alone, kind),)
    made = {name: suggested(inner) for name, inner in parts}
    return {name: spark_type(item) for name, item in made.items() if item is not None}
