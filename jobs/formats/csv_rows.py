"""Lines of a CSV file as rows, parsed many at once by Arrow.

Owns which text fits which column, and where a record ends: a quoted value may hold line breaks.
Conversions that lose something are rejects, never roundings. Must never take a line down with
another.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.formats.decoded import Decoded, Unreadable
from jobs.formats.fitted import fitted, joined, suggested
from odi_audit.errors import NotSupported, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

BOM = b"\xef\xbb\xbf"
RECORD_BYTES_MAX = 16 * 1024 * 1024
"""A quote that is never closed would take the rest of the file for one value."""
_ZONED = r"(Z|[+-]\d\d:?\d\d)$"
_YES, _NO = {"true", "yes", "1"}, {"false", "no", "0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvOptions:
    """How a file is written."""

    delimiter: str = ","
    quote: str = '"'
    escape: str | None = None
    header: bool = True
    null: str = ""
    encoding: str = "utf-8"


def csv_options(given: Mapping[str, str]) -> CsvOptions:
    """Read a spec's options.

    Raises:
        UsageError: one is not known, or has no use.
    """
    made: dict[str, object] = {}
    for name, value in given.items():
        match name:
            case "delimiter" | "sep":
                made["delimiter"] = {"\\t": "\t", "tab": "\t"}.get(value, value)
            case "quote" | "escape":
                made[name] = value
            case "header":
                if value.lower() not in _YES | _NO:
                    raise UsageError(f"source.options: header is {value!r}; write true or false")
                made["header"] = value.lower() in _YES
            case "nullValue" | "null":
                made["null"] = value
            case "encoding":
                made["encoding"] = value
            case _:
                raise UsageError(
                    f"source.options: {name} is not known for csv; there are delimiter, quote, "
                    "escape, header, nullValue and encoding"
                )
    for name in ("delimiter", "quote", "escape"):
        if name in made and len(str(made[name])) != 1:
            raise UsageError(f"source.options: {name} is {made[name]!r}; one letter is expected")
    try:
        if "\n".encode(str(made.get("encoding", "utf-8"))) != b"\n":
            raise UsageError("source.options: lines of such an encoding cannot be told apart")
    except LookupError as error:
        raise UsageError(f"source.options: {error}") from error
    return CsvOptions(**made)  # type: ignore[arg-type]


def records(lines: Iterable[bytes], options: CsvOptions) -> Iterator[tuple[int, bytes]]:
    """Yield each record with the number of its first line; blank lines are none."""
    quote = options.quote.encode()
    escaped = None if options.escape is None else (options.escape + options.quote).encode()
    held: list[bytes] = []
    first, odd, size = 0, False, 0
    for number, line in enumerate(lines, start=1):
        count = line.count(quote) - (0 if escaped is None else line.count(escaped))
        if not held:
            if not odd and count % 2 == 0:
                if line.strip(b"\r\n"):
                    yield number, line.rstrip(b"\r\n")
                continue
            first = number
        held.append(line)
        size += len(line)
        odd = odd != (count % 2 == 1)
        if not odd or size > RECORD_BYTES_MAX:
            yield first, b"".join(held).rstrip(b"\r\n")
            held, odd, size = [], False, 0
    if held:
        yield first, b"".join(held).rstrip(b"\r\n")


def header_of(record: bytes, options: CsvOptions, where: str) -> tuple[str, ...]:
    """Return the names in a file's first record.

    Raises:
        Unreadable: a name is missing or stands twice.
    """
    import csv

    text = record.removeprefix(BOM).decode(options.encoding)
    names = next(
        csv.reader([text], delimiter=options.delimiter, quotechar=options.quote, strict=False), []
    )
    found = tuple(name.strip() for name in names)
    folded = [name.lower() for name in found]
    twice = sorted({name for name in folded if folded.count(name) > 1})
    if not all(found) or twice:
        told = f"{', '.join(twice)} stands twice" if twice else "a column has no name"
        raise Unreadable(f"{where}: the header cannot be used: {told}")
    return found


class CsvDecoder:
    """Decodes records of one file, whose columns have the given names, into a table's columns."""

    def __init__(
        self, schema: pa.Schema, names: Sequence[str], options: CsvOptions, *, strict: bool = False
    ) -> None:
        _check(schema)
        self._schema = schema
        self._options = options
        self._strict = strict
        by_name = {item.name.lower(): item.name for item in schema}
        self._names = [by_name.get(name.lower(), name) for name in names]
        self._extra = [name for name in self._names if name.lower() not in by_name]
        self._unknown: dict[str, pa.DataType] = {}

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """Decode a chunk of records."""
        made = fitted(values, self._parse, self._schema, unknown={}, strict=self._strict)
        made.unknown.update(self._unknown)
        return made

    def _parse(self, values: Sequence[bytes], schema: pa.Schema) -> pa.Table:
        import pyarrow as pa
        from pyarrow import csv

        if self._strict and self._extra:
            raise Unreadable(f"the table has no column {', '.join(self._extra)}")
        options = self._options
        data = b"\n".join(values)
        table = csv.read_csv(
            io.BytesIO(data),
            read_options=csv.ReadOptions(
                use_threads=False,
                block_size=len(data) + 1,
                column_names=self._names,
                encoding=options.encoding,
            ),
            parse_options=csv.ParseOptions(
                delimiter=options.delimiter,
                quote_char=options.quote,
                double_quote=True,
                escape_char=options.escape or False,
                newlines_in_values=True,
            ),
            convert_options=csv.ConvertOptions(
                column_types={item.name: _wire(item.type) for item in schema},
                include_columns=[*schema.names, *self._extra],
                include_missing_columns=True,
                null_values=[options.null],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        if table.num_rows == len(values):
            self._learn(table)
        columns = [_converted(table[item.name], item.type) for item in schema]
        return pa.table(columns, schema=schema)

    def _learn(self, table: pa.Table) -> None:
        import pyarrow as pa

        for name in self._extra:
            kind = suggested(table[name].type)
            if kind is not None and (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
                kind = pa.string()
            found = joined(self._unknown.get(name), kind)
            if found is not None:
                self._unknown[name] = found


def _check(schema: pa.Schema) -> None:
    import pyarrow as pa

    for item in schema:
        if pa.types.is_nested(item.type):
            raise NotSupported(f"csv cannot hold column {item.name} of type {item.type}")


def _wire(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    texts = pa.types.is_timestamp(kind) or pa.types.is_large_string(kind)
    return pa.string() if texts else kind


def _converted(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_timestamp(kind):
        return column.cast(kind)
    zoned = pc.match_substring_regex(column, _ZONED)
    if kind.tz is None:
        if pc.any(zoned).as_py():
            raise Unreadable("a time with a zone does not fit a column without one")
        return column.cast(kind)
    # A moment without a zone is taken for UTC, as everywhere here.
    return pc.if_else(zoned, column, pc.binary_join_element_wise(column, "Z", "")).cast(kind)
