"""Which decoder reads a topic: chosen on the driver, made inside the task.

Owns the plain description of a decoder, which can be sent to a worker. Must never guess a format.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from jobs.formats.decoded import Decoded
    from jobs.formats.json_rows import Times
    from jobs.tasks.records import Records


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


class _OfValues:
    """A decoder that looks at nothing but the values."""

    def __init__(self, decode: Callable[[Sequence[bytes | None]], Decoded]) -> None:
        self._decode = decode

    def decode(self, records: Records) -> Decoded:
        return self._decode(records.values)
