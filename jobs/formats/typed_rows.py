"""Records that have types already (Parquet, Avro) as rows of a table.

Owns which value fits which column: what would lose something is a reject, never a rounding. Must
never take a record down with another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jobs.formats.decoded import Decoded, Unreadable
from jobs.formats.fitted import fitted, joined, suggested

if TYPE_CHECKING:
    import pyarrow as pa


class ArrowDecoder:
    """Decodes tables of Arrow into a table's columns, by name; case is ignored."""

    def __init__(self, schema: pa.Schema, *, strict: bool = False) -> None:
        self._schema = schema
        self._strict = strict

    def decode(self, table: pa.Table) -> Decoded:
        """Decode some rows."""
        import pyarrow as pa

        extra, by_name = _split(table.schema.names, self._schema)
        unknown = {
            name: kind
            for name in extra
            if (kind := suggested(table.schema.field(name).type)) is not None
        }

        def parse(part: Sequence[int], schema: pa.Schema) -> pa.Table:
            if self._strict and extra:
                raise Unreadable(f"the table has no column {', '.join(extra)}")
            rows = table.slice(part[0], len(part))
            try:
                columns = [
                    rows[by_name[item.name.lower()]].cast(item.type)
                    if item.name.lower() in by_name
                    else pa.nulls(len(part), item.type)
                    for item in schema
                ]
            except TypeError as error:  # Arrow's way to say that two types have nothing in common
                raise Unreadable(str(error)) from error
            return pa.table(columns, schema=schema)

        found = {} if self._strict else unknown
        return fitted(
            range(table.num_rows), parse, self._schema, unknown=found, strict=self._strict
        )


class ObjectDecoder:
    """Decodes Python's dictionaries, as Avro's reader gives them, into a table's columns."""

    def __init__(self, schema: pa.Schema, *, strict: bool = False) -> None:
        self._schema = schema
        self._strict = strict
        self._unknown: dict[str, pa.DataType] = {}

    def decode(self, objects: Sequence[Mapping[str, Any]]) -> Decoded:
        """Decode some records."""
        import pyarrow as pa

        names = tuple(dict.fromkeys(name for item in objects for name in item))
        extra, by_name = _split(names, self._schema)
        for name in () if self._strict else extra:
            kind = suggested(_inferred([item.get(name) for item in objects]))
            found = joined(self._unknown.get(name), kind)
            if found is not None:
                self._unknown[name] = found

        def parse(part: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
            strange = [name for name in extra if any(name in item for item in part)]
            if self._strict and strange:
                raise Unreadable(f"the table has no column {', '.join(strange)}")
            try:
                columns = [
                    pa.array(
                        [item.get(by_name.get(field.name.lower(), "")) for item in part],
                        field.type,
                    )
                    for field in schema
                ]
            except TypeError as error:
                raise Unreadable(str(error)) from error
            return pa.table(columns, schema=schema)

        made = fitted(objects, parse, self._schema, unknown={}, strict=self._strict)
        made.unknown.update(self._unknown)
        return made


def _split(names: Sequence[str], schema: pa.Schema) -> tuple[list[str], dict[str, str]]:
    known = {item.name.lower() for item in schema}
    by_name = {name.lower(): name for name in reversed(names)}
    return [name for name in names if name.lower() not in known], by_name


def _inferred(values: Sequence[Any]) -> pa.DataType:
    import pyarrow as pa

    try:
        return pa.array(values).type
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.string()
