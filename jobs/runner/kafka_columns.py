"""The columns that a topic's records have where there is no table yet.

Owns which of them the spec tells, and which the records themselves must show, for values and keys
alike. Must never read a topic: it is given records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from jobs.formats import key_rows, raw_rows
from jobs.formats.types import spark_type, together
from jobs.runner.kafka_formats import format_of
from jobs.tasks.keys import KeyedFormat

if TYPE_CHECKING:
    from jobs.spec.model import JobSpec
    from jobs.spec.sources import KafkaFormat
    from jobs.tasks.decoders import Format
    from jobs.tasks.records import Records

_PLAIN = {"raw": "binary", "text": "string"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A part of the record that becomes columns; ``told`` are those that the spec tells."""

    name: Literal["value", "key"]
    format: Format
    told: dict[str, str] | None


def sides(spec: JobSpec) -> list[Side]:
    """Return the sides of a spec's records that become columns."""
    assert spec.source.type == "kafka"
    form, given = format_of(spec), spec.source
    if not isinstance(form, KeyedFormat):
        return [Side(name="value", format=form, told=_told(given.value, raw_rows.COLUMN))]
    assert given.key is not None
    # A strict table is made with the columns of its first keys: nothing else would name them.
    key = replace(form.key, strict=False)
    return [
        Side(name="value", format=form.value, told=_told(given.value, raw_rows.COLUMN)),
        Side(name="key", format=key, told=_told(given.key, key_rows.COLUMN)),
    ]


def told(spec: JobSpec) -> dict[str, str] | None:
    """Return the columns of a spec's records; None where the records must show some."""
    found = [side.told for side in sides(spec)]
    return None if None in found else together(filter(None, found))


def shown(side: Side, samples: Iterable[Records]) -> dict[str, str]:
    """Return the columns that records show on one side."""
    import pyarrow as pa

    decoder = side.format.decoder(pa.schema([]))
    return together(
        {name: spark_type(kind) for name, kind in decoder.decode(records).unknown.items()}
        for records in samples
    )


def _told(given: KafkaFormat, alone: str) -> dict[str, str] | None:
    if given.columns is not None:
        return {column.name: column.definition for column in given.columns.items}
    return {alone: _PLAIN[given.format]} if given.format in _PLAIN else None
