"""Change events in tasks: the plain description of their decoder, and the columns of its rows.

Owns what the driver must say so that tasks decode changes. Must never read a record itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from jobs.formats.debezium_envelope import (
    OLD_KEY,
    OP,
    ORDER,
    TIME,
    UNAVAILABLE,
    control_fields,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from jobs.formats.json_rows import Times
    from jobs.tasks.decoders import Decoder

CONTROL_TYPES: Mapping[str, str] = {
    OP: "string",
    ORDER: "string",
    TIME: "timestamp",
    UNAVAILABLE: "array<string>",
    OLD_KEY: "string",
}
"""The control columns behind the table's own, with their types in Spark's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DebeziumFormat:
    """Values and keys are Debezium's, in JSON with or without schemas.

    ``key``: the columns that identify a row. ``times``: what a number in a column of moments
    counts, where records say no types.
    """

    kind: Literal["debezium"] = "debezium"
    key: tuple[str, ...] = ()
    times: Times = "text"
    strict: bool = False

    def decoder(self, schema: pa.Schema) -> Decoder:
        """Return the decoder into the columns of a schema, and the control columns behind them."""
        from jobs.formats.debezium import DebeziumDecoder

        return DebeziumDecoder(schema, key=self.key, times=self.times, strict=self.strict)


def with_control(schema: pa.Schema) -> pa.Schema:
    """Return the schema of decoded changes: a table's own columns, then the control columns."""
    import pyarrow as pa

    return pa.schema([*schema, *control_fields()])
