"""Read-only SQL over the views: DuckDB in memory, shut in.

Owns what a query may do: read the views, and nothing else. The engine is locked (no files, no
network, no extensions, no settings), and on top of that only statements that read are let
through, and no function that reaches outside the views. Must never write anywhere, nor hold a
whole result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

from odi_audit.errors import OdiError, UsageError
from odi_audit.query.views import VIEWS, Lake, Row, View

if TYPE_CHECKING:
    import duckdb

CHUNK_ROWS = 4_096
"""Rows handed over at a time: what bounds the memory of a scan."""
FETCH_ROWS = 1_000
"""Rows taken from the engine at a time."""
MEMORY_MAX = "1GB"
"""What sorting and grouping may take; beyond it a query fails instead of filling a disk."""
_LOCKED: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
    "memory_limit": MEMORY_MAX,
    # One thread, the caller's: the ledger's connection is not made for several at once.
    "threads": "1",
}
_HARMLESS = frozenset(
    {"generate_series", "json_each", "json_tree", "range", "repeat", "repeat_row", "unnest"}
)
"""Table functions that only compute. All others reach files, settings or memory."""
_REACHING = frozenset({"getenv", "json_execute_serialized_sql", "write_log"})
"""Other functions that reach outside, in this version of the engine or in another."""
_EXPLAIN = re.compile(
    r"^\s*explain\s+(?:analyze\s+|\([^)]*\)\s*)?(?P<rest>.*)$", re.IGNORECASE | re.DOTALL
)
_HINT = "odi-audit sql 'DESCRIBE batches', or see docs/guide/sql.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultColumn:
    """A column of a result."""

    name: str
    type: str


class Result:
    """The answer to one query: its columns, and its rows as they come."""

    def __init__(self, session: SqlSession, columns: Sequence[ResultColumn]) -> None:
        self.columns = tuple(columns)
        self._session = session

    def rows(self) -> Iterator[Row]:
        """Yield the rows; the session's next query ends them."""
        return self._session._rows()


@dataclass(slots=True, kw_only=True)
class Stream:
    """A view as DuckDB scans it: each scan makes the rows anew (Arrow's C stream protocol).

    DuckDB would hide an error of ours in its own: ``problem`` keeps it.
    """

    view: View
    lake: Lake
    problem: Exception | None = field(default=None)

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """Return a new stream over the view's rows."""
        import pyarrow as pa

        schema = pa.schema([(c.name, _arrow_type(c.type)) for c in self.view.columns])
        reader = pa.RecordBatchReader.from_batches(schema, self._chunks(schema))
        return reader.__arrow_c_stream__(requested_schema)

    def _chunks(self, schema: Any) -> Iterator[Any]:
        import pyarrow as pa

        try:
            rows = self.view.rows(self.lake)
            while chunk := list(islice(rows, CHUNK_ROWS)):
                columns = zip(*chunk, strict=True)
                yield pa.record_batch(
                    [pa.array(c, kind) for c, kind in zip(columns, schema.types, strict=True)],
                    schema=schema,
                )
        except Exception as problem:
            self.problem = problem
            raise


def _arrow_type(name: str) -> Any:
    import pyarrow as pa

    types = {
        "BIGINT": pa.int64(),
        "BOOLEAN": pa.bool_(),
        "TIMESTAMP": pa.timestamp("us"),
        "VARCHAR": pa.string(),
        "VARCHAR[]": pa.list_(pa.string()),
    }
    return types[name]


class SqlSession:
    """An engine over one lake's views. Close it after use."""

    def __init__(self, lake: Lake) -> None:
        import duckdb

        self._connection = duckdb.connect(":memory:", config=_LOCKED)
        self._streams = [Stream(view=view, lake=lake) for view in VIEWS.values()]
        for stream in self._streams:
            self._connection.register(stream.view.name, stream)
        self._forbidden = self._reaching_functions()
        # The views' times are UTC: now() must not be the time of this machine's zone.
        self._connection.execute("SET TimeZone = 'UTC'")
        self._connection.execute("SET lock_configuration = true")

    def statements(self, text: str) -> list[str]:
        """Split a text into its statements.

        Raises:
            UsageError: it cannot be read as SQL; the place is marked.
        """
        import duckdb

        try:
            return [found.query.strip() for found in self._connection.extract_statements(text)]
        except duckdb.Error as problem:
            raise _wrong(problem) from problem

    def run(self, query: str) -> Result:
        """Run one query that reads.

        Raises:
            UsageError: it is not one statement that reads, or is wrong; the place is marked.
        """
        import duckdb

        self._check(query)
        for stream in self._streams:
            stream.problem = None
        try:
            self._connection.execute(query)
        except duckdb.Error as problem:
            raise self._meaning(problem) from problem
        described = self._connection.description or []
        return Result(self, [ResultColumn(name=c[0], type=str(c[1])) for c in described])

    def close(self) -> None:
        """Let go of the engine."""
        self._connection.close()

    def __enter__(self) -> SqlSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- what may run -------------------------------------------------------------------------

    def _check(self, query: str) -> None:
        import duckdb

        try:
            found = self._connection.extract_statements(query)
        except duckdb.Error as problem:
            raise _wrong(problem) from problem
        if len(found) != 1:
            raise UsageError(
                f"one statement is expected, {len(found)} were given", hint="odi-audit sql --help"
            )
        kind = found[0].type.name
        explained = _EXPLAIN.match(query) if kind == "EXPLAIN" else None
        if explained is not None:
            inner = self._connection.extract_statements(explained["rest"])
            kind = inner[0].type.name if len(inner) == 1 else "EXPLAIN"
        if kind != "SELECT":
            raise UsageError(
                f"a statement of kind {kind} is not run here: only SELECT, DESCRIBE, SHOW, "
                "SUMMARIZE and EXPLAIN of those are, because nothing may be changed",
                hint=_HINT,
                statement=kind,
            )
        for name in _called(query):
            if name in self._forbidden:
                raise UsageError(
                    f"the function {name} is not let in here: a query reads the views and "
                    "nothing else",
                    hint=_HINT,
                    function=name,
                )

    def _reaching_functions(self) -> frozenset[str]:
        found = self._connection.execute(
            "SELECT function_name FROM duckdb_functions() GROUP BY function_name "
            "HAVING bool_and(function_type IN ('table', 'table_macro', 'pragma'))"
        ).fetchall()
        return (frozenset(str(row[0]).casefold() for row in found) | _REACHING) - _HARMLESS

    # -- results ------------------------------------------------------------------------------

    def _rows(self) -> Iterator[Row]:
        import duckdb

        while True:
            try:
                chunk = self._connection.fetchmany(FETCH_ROWS)
            except duckdb.Error as problem:
                raise self._meaning(problem) from problem
            yield from chunk
            if len(chunk) < FETCH_ROWS:
                return

    def _meaning(self, problem: duckdb.Error) -> Exception:
        ours = next((s.problem for s in self._streams if s.problem is not None), None)
        return ours if isinstance(ours, OdiError) else _wrong(problem)


def _called(query: str) -> Iterator[str]:
    """Yield the names in a query that stand before an opening bracket, quoted ones too."""
    import duckdb

    text = query.encode()  # the tokens' places count bytes
    tokens = duckdb.tokenize(query)
    ends = [*(place for place, _ in tokens[1:]), len(text)]
    words = [
        text[place:end].decode("utf-8", "replace").strip()
        for (place, kind), end in zip(tokens, ends, strict=True)
        if kind != duckdb.token_type.comment
    ]
    for word, following in pairwise(words):
        if following.startswith("("):
            yield word.strip('"').replace('""', '"').casefold()


def _wrong(problem: Exception) -> UsageError:
    return UsageError(f"the query cannot be run: {problem}", hint=_HINT)
