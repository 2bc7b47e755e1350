"""Which decoder reads the keys of plain records, and how it goes with that of their values.

Owns the plain description of both, which can be sent to a worker. Must never look at keys of change
events: they tell rows apart there, and have decoders of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pyarrow as pa

    from jobs.formats.decoded import Decoded
    from jobs.formats.key_rows import Decode
    from jobs.sources.registry import RegistryAccess
    from jobs.tasks.decoders import Decoder, Format
    from jobs.tasks.records import Records


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFormat:
    """Keys in a format; ``registry``, which ``avro`` needs, holds its login: it is never shown."""

    kind: Literal["json", "avro", "text", "raw"]
    registry: RegistryAccess | None = None
    strict: bool = False

    def decoder(self, schema: pa.Schema) -> Decoder:
        """Return the decoder of keys alone into the columns of a schema."""
        return _OfKeys(self._decode(schema))

    def _decode(self, schema: pa.Schema) -> Decode:
        from jobs.formats import key_rows

        if self.kind == "avro":
            from jobs.formats.avro_rows import AvroDecoder
            from jobs.sources.registry import shared

            assert self.registry is not None, "the spec's rules ask for it"
            types = shared(self.registry).type
            return AvroDecoder(schema, types, strict=self.strict, alone=key_rows.COLUMN).decode
        if self.kind == "json":
            return key_rows.JsonKeys(schema, strict=self.strict).decode
        if self.kind == "text":
            return key_rows.TextKeys(schema, strict=self.strict).decode
        return key_rows.RawKeys(schema, strict=self.strict).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedFormat:
    """Records of which keys and values are read into the same columns."""

    value: Format
    key: KeyFormat

    @property
    def registry(self) -> RegistryAccess | None:
        """The registry of either side; a spec has one."""
        found: RegistryAccess | None = getattr(self.value, "registry", None)
        return found or self.key.registry

    def decoder(self, schema: pa.Schema) -> Decoder:
        """Return the decoder of both into the columns of a schema."""
        import pyarrow as pa

        # What is required may come from either side: both together are asked for it.
        nullable = pa.schema([item.with_nullable(nullable=True) for item in schema])
        return _Keyed(self.value.decoder(nullable), self.key.decoder(nullable), schema)


class _OfKeys:
    def __init__(self, decode: Decode) -> None:
        self._decode = decode

    def decode(self, records: Records) -> Decoded:
        from jobs.formats.key_rows import of_keys

        return of_keys(records.keys, self._decode)


class _Keyed:
    def __init__(self, value: Decoder, key: Decoder, schema: pa.Schema) -> None:
        self._value = value
        self._key = key
        self._schema = schema

    def decode(self, records: Records) -> Decoded:
        from jobs.formats.key_rows import together

        return together(self._value.decode(records), self._key.decode(records), self._schema)
