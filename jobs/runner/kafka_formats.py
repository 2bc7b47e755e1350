"""Which format a topic's records have: the one place where a spec's words become a decoder.

Owns that choice for both paths. Must never read a record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.sources.registry import access_of
from jobs.spec.model import FROM_EVENT
from jobs.tasks.changes import DebeziumFormat
from jobs.tasks.decoders import (
    AvroFormat,
    DebeziumAvroFormat,
    Format,
    JsonFormat,
    PlainFormat,
)
from jobs.tasks.keys import KeyedFormat, KeyFormat
from odi_audit.errors import NotSupported

if TYPE_CHECKING:
    from jobs.spec.model import JobSpec


def format_of(spec: JobSpec) -> Format:
    """Return the decoder of a spec's records.

    Raises:
        NotSupported: nothing here reads that format.
    """
    assert spec.source.type == "kafka"
    strict = spec.target.evolve == "strict"
    if spec.source.envelope == "debezium":
        return _of_changes(spec, strict=strict)
    values, key = _of_values(spec, strict=strict), spec.source.key
    if key is None:
        return values
    registry = access_of(spec.registry) if key.format == "avro" and spec.registry else None
    return KeyedFormat(
        value=values, key=KeyFormat(kind=key.format, registry=registry, strict=strict)
    )


def _of_values(spec: JobSpec, *, strict: bool) -> Format:
    assert spec.source.type == "kafka"
    value = spec.source.value.format
    if value in {"raw", "text"}:
        return PlainFormat(kind="raw" if value == "raw" else "text")
    if value == "json":
        return JsonFormat(strict=strict)
    if value == "avro" and spec.registry is not None:
        return AvroFormat(registry=access_of(spec.registry), strict=strict)
    raise NotSupported(f"values in format {value}")


def _of_changes(spec: JobSpec, *, strict: bool) -> Format:
    assert spec.source.type == "kafka"
    key = () if spec.target.key == FROM_EVENT else tuple(spec.target.key)
    value, keys = spec.source.value.format, spec.source.key
    if value == "json":
        return DebeziumFormat(key=key, strict=strict)
    if value == "avro" and spec.registry is not None:
        return DebeziumAvroFormat(
            registry=access_of(spec.registry),
            key=key,
            keys="json" if keys is not None and keys.format == "json" else "avro",
            strict=strict,
        )
    raise NotSupported(f"change events in format {value}")
