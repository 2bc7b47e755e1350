"""Which decoder reads a topic: chosen on the driver, made inside the task.

Owns the plain description of a decoder, which can be sent to a worker. Must never guess a format.
"""

from __future__ import annotations

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


class _OfValues:
    """A decoder that looks at nothing but the values."""

    def __init__(self, decode) -> None:  # type: ignore[no-untyped-def]
        self._decode = decode

    def decode(self, records: Records) -> Decoded:
        made: Decoded = self._decode(records.values)
        return made
