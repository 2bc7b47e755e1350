"""A database, asked through Spark's JDBC reader: its columns, its watermarks, its rows.

Owns the queries, the driver's jar and the translation of the database's errors. A password is an
option of the reader: Spark shows it in no plan, and no message of ours holds it. Must never write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from jobs.sources.jdbc_marks import Mark, MarkKind, Marks
from jobs.spec.fields import revealed
from odi_audit.errors import OdiError, SourceDenied, SourceNotFound, SourceUnavailable, UsageError
from odi_audit.model.naming import of_database
from odi_audit.redact import redact
from odi_audit.spark import jars
from odi_audit.spark.conf import jars_dir
from odi_audit.spark.jvm import JVM_ERRORS, causes, first_line

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from jobs.spec.sources import JdbcSource
    from odi_audit.committer.run import Run

DRIVERS = {"postgresql": "org.postgresql.Driver"}
"""Drivers that are pinned here; that of another database is the user's, on Spark's class path."""
OURS = frozenset({"url", "user", "password", "dbtable", "query", "driver"})
MESSAGE_LENGTH_MAX = 400
_STATE = re.compile(r"SQLState[: =]*([0-9A-Z]{5})", re.IGNORECASE)
_DENIED = re.compile(r"authentication|permission denied|access denied|login failed", re.IGNORECASE)
_MISSING = re.compile(
    r"does not exist|doesn't exist|unknown (table|column|database)|invalid object"
)
_AWAY = re.compile(
    r"connection|refused|timed? ?out|terminating|starting up|shutting down|i/o error|host",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a table holds from a place on: rows, their least and greatest mark, and nulls."""

    rows: int
    least: Mark | None
    greatest: Mark | None
    nulls: int


class Database:
    """The table or query of one spec."""

    def __init__(self, source: JdbcSource) -> None:
        self._source = source
        self._options = revealed(source.options)
        taken = sorted(OURS & {name.lower() for name in self._options})
        if taken:
            raise UsageError(f"source.options: {', '.join(taken)} are keys of their own")
        self.dialect = source.url.removeprefix("jdbc:").partition(":")[0].lower()
        self.column = source.watermark.column
        self._schema: StructType | None = None

    @property
    def name(self) -> str:
        """The name under which the ledger keeps positions: database and table, with no login."""
        named = of_database(self._source.url, self._source.table)
        return f"{named.namespace}/{named.name}"

    def connect(self, run: Run) -> StructType:
        """Reach the database, and return its columns.

        Raises:
            SourceUnavailable, SourceDenied, SourceNotFound: it could not be asked.
        """
        if self._schema is None:
            self._load_driver(run)
            with self._asked():
                self._schema = self._read(run, self._whole()).schema
        return self._schema

    def standing(self, run: Run, marks: Marks, *, start: Mark | None, end: Mark | None) -> Standing:
        """Count the rows of a range, find the ends of their marks, and count nulls."""
        column = self._quoted(self.column)
        condition = self._between(marks, start, end)
        query = (
            f"(SELECT count({column}) AS n, min({column}) AS lo, max({column}) AS hi, "
            f"count(*) - count({column}) AS nulls FROM {self._whole()} "
            f"WHERE {condition} OR {column} IS NULL) odi"
        )
        with self._asked():
            found = (
                self._read(run, query)
                .select("n", _number("lo", marks), _number("hi", marks), "nulls")
                .collect()[0]
            )
        return Standing(
            rows=int(found[0]),
            least=None if found[1] is None else int(found[1]),
            greatest=None if found[2] is None else int(found[2]),
            nulls=int(found[3]),
        )

    def nth(self, run: Run, marks: Marks, *, start: Mark | None, end: Mark, number: int) -> Mark:
        """Return the mark of the row that is this far in the order of marks, from 1."""
        column = self._quoted(self.column)
        query = (
            f"(SELECT max(m) AS hi FROM (SELECT {column} AS m FROM {self._whole()} "
            f"WHERE {self._between(marks, start, end)} ORDER BY {column} "
            f"{self._first(number)}) odi_first) odi"
        )
        with self._asked():
            found = self._read(run, query).select(_number("hi", marks)).collect()[0][0]
        return int(found)

    def rows(self, run: Run, marks: Marks, *, start: Mark | None, end: Mark | None) -> DataFrame:
        """Return the rows of a range; they are read when the frame is."""
        query = f"(SELECT * FROM {self._whole()} WHERE {self._between(marks, start, end)}) odi"
        with self._asked():
            return self._read(run, query, more={"fetchsize": str(self._source.fetch_rows)})

    @contextmanager
    def _asked(self) -> Iterator[None]:
        try:
            yield
        except (*JVM_ERRORS, PySparkException) as error:
            raise self._error(error) from error

    def _read(self, run: Run, table: str, more: Mapping[str, str] | None = None) -> DataFrame:
        source = self._source
        options = {
            "url": source.url,
            "dbtable": table,
            # As the database has it: without, the clock of the JVM would shift local times.
            "preferTimestampNTZ": "true",
            **self._options,
            **(more or {}),
        }
        if self.dialect in DRIVERS:
            options["driver"] = DRIVERS[self.dialect]
        if source.user is not None:
            options["user"] = source.user
        if source.password is not None:
            options["password"] = source.password.get_secret_value()
        return run.spark.read.format("jdbc").options(**options).load()

    def _load_driver(self, run: Run) -> None:
        if self.dialect not in DRIVERS:
            return
        spark = run.spark
        # Once more does no harm; a session of a catalog that is in PostgreSQL has it already.
        for path in jars.ensure(jars_dir(run.parts.settings), [self.dialect]):
            text = str(path).replace("'", "\\'")
            spark.sql(f"ADD JAR '{text}'")

    def _whole(self) -> str:
        source = self._source
        inner = f"({source.query})" if source.query is not None else source.table
        return f"{inner} odi_rows"

    def _between(self, marks: Marks, start: Mark | None, end: Mark | None) -> str:
        column = self._quoted(self.column)
        parts = [f"{column} >= {marks.sql(start)}"] if start is not None else []
        parts += [f"{column} < {marks.sql(end)}"] if end is not None else []
        return " AND ".join(parts) or f"{column} IS NOT NULL"

    def _quoted(self, name: str) -> str:
        mark = "`" if self.dialect in {"mysql", "mariadb"} else '"'
        known = {} if self._schema is None else {n.lower(): n for n in self._schema.names}
        exact = known.get(name.lower(), name)
        return mark + exact.replace(mark, mark * 2) + mark

    def _first(self, number: int) -> str:
        if self.dialect in {"postgresql", "mysql", "mariadb", "sqlite", "h2"}:
            return f"LIMIT {number}"
        skip = "OFFSET 0 ROWS " if self.dialect == "sqlserver" else ""
        return f"{skip}FETCH FIRST {number} ROWS ONLY"

    def _error(self, error: Exception) -> OdiError:
        told = " | ".join(cause.message for cause in causes(error)) or str(error)
        kinds = " ".join(cause.kind for cause in causes(error))
        short = str(redact(first_line(error)))[:MESSAGE_LENGTH_MAX]
        where = self.name
        if "No suitable driver" in told or "ClassNotFoundException" in kinds:
            return SourceNotFound(
                f"{where}: Spark has no JDBC driver for {self.dialect}",
                hint='put its jar on the class path: odi.toml, spark.conf."spark.jars"',
            )
        if _DENIED.search(told):
            return SourceDenied(f"{where} refused: {short}", hint="source.user, source.password")
        if _MISSING.search(told):
            return SourceNotFound(f"{where}: {short}", hint="source.table, source.query")
        if "SQL" in kinds and not _AWAY.search(told) and _STATE.search(told) is None:
            return UsageError(f"{where} cannot answer: {short}")
        return SourceUnavailable(f"{where} does not answer: {short}")


def _number(name: str, marks: Marks) -> Column:
    column = F.col(name)
    match marks.kind:
        case MarkKind.NUMBER:
            return column.cast("bigint")
        case MarkKind.DATE:
            return F.unix_date(column).cast("bigint")
        case _:
            # Local times are taken as they are: the session's own zone is UTC.
            return F.unix_micros(column.cast("timestamp"))
