"""Which decoder reads a topic: chosen on the driver, made inside the task.

Owns the plain description of a decoder, which can be sent to a worker. Must never guess a format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from jobs.formats.debezium_avro import AvroFront
    from jobs.formats.decoded import Decoded
    from jobs.formats.json_rows import Times
    from jobs.sources.registry import RegistryAccess
    from jobs.tasks.records import Records
    from odi_audit.canonical import Json, JsonObject


class Decoder(Protocol):
    """Makes rows of records; keeps what it learnt for the next call."""

    def decode(self, records: Records) -> Decoded:
        """Decode some records of one partition."""
        ...


class Format(Protocol):
    """A plain description of a decoder."""

    def decoder(self, schema: pa.Schema) -> Decoder:
        """Return the decoder into the columns of a schema."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonFormat:
    """Values are JSON objects."""

    kind: Literal["json"] = "json"
    times: Times = "text"
    strict: bool = False

    def decoder(self, schema: pa.Schema) -> Decoder:
        """Return the decoder into the columns of a schema."""
        from jobs.formats.json_rows import JsonDecoder

        made = JsonDecoder(schema, times=self.times, strict=self.strict)
        return _OfValues(made.decode)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainFormat:
    """Values are kept as they are, as bytes or as text."""

    kind: Literal["raw", "text"]

    def decoder(self, schema: pa.Schema) -> Decoder:
        """Return the decoder into the one column of a schema."""
        from jobs.formats import raw_rows

        made = raw_rows.raw if self.kind == "raw" else raw_rows.text
        return _OfValues(lambda values: made(values, schema))


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroFormat:
    """Values are Avro records in the wire format of a schema registry, which tasks ask themselves.

    ``registry`` holds its login, which is never shown.
    """

    registry: RegistryAccess
    kind: Literal["avro"] = "avro"
    strict: bool = False

    def decoder(self, schema: pa.Schema) -> Decoder:
        """Return the decoder into the columns of a schema."""
        from jobs.formats.avro_rows import AvroDecoder
        from jobs.sources.registry import shared

        made = AvroDecoder(schema, shared(self.registry).type, strict=self.strict)
        return _OfValues(made.decode)


@dataclass(frozen=True, slots=True, kw_only=True)
class DebeziumAvroFormat:
    """Values are Debezium's in Avro, in the wire format of a registry; keys too, or in JSON."""

    registry: RegistryAccess
    kind: Literal["debezium-avro"] = "debezium-avro"
    key: tuple[str, ...] = ()
    keys: Literal["avro", "json"] = "avro"
    strict: bool = False

    def decoder(self, schema: pa.Schema) -> Decoder:
        """Return the decoder into the columns of a schema, and the control columns behind them."""
        from jobs.formats.debezium import DebeziumDecoder

        front = self.front()
        made = DebeziumDecoder(schema, key=self.key, strict=self.strict, front=front)
        return _WithSchemas(made.decode, front)

    def front(self) -> AvroFront:
        """Return what reads the bytes of values and keys."""
        from jobs.formats.debezium_avro import AvroFront
        from jobs.formats.debezium_json import JsonFront
        from jobs.sources.registry import shared

        return AvroFront(
            shared(self.registry).type, keys=JsonFront().key if self.keys == "json" else None
        )


class _WithSchemas:
    """A decoder of change events that reads the bytes of all of them first."""

    def __init__(self, decode: Callable[[Records], Decoded], front: AvroFront) -> None:
        self._decode = decode
        self._front = front

    def decode(self, records: Records) -> Decoded:
        self._front.load(records.values, records.keys)
        made = self._decode(records)
        values, keys = self._front.used()
        return replace(made, schemas=values, key_schemas=keys)


class SchemasSeen:
    """The ids of schemas, by topic, under which the records of a batch were written."""

    def __init__(self) -> None:
        self.sides: dict[str, dict[str, set[int]]] = {"schemas": {}, "keys": {}}

    def take(self, topic: str, made: Decoded) -> None:
        """Add those of some decoded records."""
        for side, numbers in (("schemas", made.schemas), ("keys", made.key_schemas)):
            if numbers:
                self.sides[side].setdefault(topic, set()).update(numbers)

    def add(self, other: Mapping[str, Mapping[str, Iterable[int]]]) -> None:
        """Add what another has seen, by its sides."""
        for side, topics in other.items():
            for topic, numbers in topics.items():
                self.sides[side].setdefault(topic, set()).update(numbers)

    def to_json(self) -> dict[str, dict[str, list[int]]]:
        """Return the sides that have any."""
        return {
            side: {topic: sorted(numbers) for topic, numbers in topics.items()}
            for side, topics in self.sides.items()
            if topics
        }

    def facts(self, registry: str | None, topics: Iterable[str] | None = None) -> JsonObject:
        """Return what the ledger keeps of it: for some topics, or for all."""
        wanted = None if topics is None else set(topics)
        told: dict[str, Json] = {
            side: kept
            for side, found in self.to_json().items()
            if (kept := {t: [*ids] for t, ids in found.items() if wanted is None or t in wanted})
        }
        return {"registry": registry, **told} if told and registry else {}


class _OfValues:
    """A decoder that looks at nothing but the values."""

    def __init__(self, decode: Callable[[Sequence[bytes | None]], Decoded]) -> None:
        self._decode = decode

    def decode(self, records: Records) -> Decoded:
        return self._decode(records.values)
