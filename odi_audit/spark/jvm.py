"""The bridge to the JVM: the few Java and Scala objects that the library calls directly.

Owns every Py4J trick (companion objects, Scala options, arrays) and the reading of Java errors.
Must never decide anything about a batch. The classes called here belong to the pinned Spark and
Iceberg versions; ``tests/spark`` fails when a new version moves one (docs/adr/0003).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import DataFrame, SparkSession

from odi_audit.errors import TableNotFound
from odi_audit.model.tables import TableName
from odi_audit.spark import listing

JavaObject: TypeAlias = Any
"""An object that lives in the JVM; Py4J gives it no type."""

NEAR_MATCHES_MAX = 3
JVM_ERRORS = (Py4JError, CapturedException, ConnectionError)
"""What a call into the JVM can raise: its exceptions, or that there is no JVM any more."""
CAUSES_MAX = 20
"""Depth at which a chain of causes is cut: no real one is longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaCause:
    """One link of a Java exception's chain of causes."""

    kind: str
    message: str


class _Package:
    """A Java package by name alone.

    Py4J's own packages ask the JVM about every part of a name, each time: a hundred questions for
    one commit. Here a part with a small first letter is a package and any other a class.
    """

    def __init__(self, prefix: str, gateway: JavaObject) -> None:
        self._prefix = prefix
        self._gateway = gateway

    def __getattr__(self, name: str) -> JavaObject:
        full = f"{self._prefix}{name}"
        if name[0].islower():
            return _Package(f"{full}.", self._gateway)
        return JavaClass(full, self._gateway._gateway_client)


class Jvm:
    """The JVM behind one Spark session."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        # PySpark has no public name for these; every library that calls Java uses them.
        self.java: JavaObject = _Package("", spark.sparkContext._gateway)
        self.session: JavaObject = spark._jsparkSession
        self._gateway: JavaObject = spark.sparkContext._gateway

    @property
    def iceberg(self) -> JavaObject:
        """The package ``org.apache.iceberg``."""
        return self.java.org.apache.iceberg

    @property
    def plans(self) -> JavaObject:
        """The package of Spark's logical plans."""
        return self.java.org.apache.spark.sql.catalyst.plans.logical

    def companion(self, package: JavaObject, name: str) -> JavaObject:
        """Return a Scala companion object; Py4J cannot call its forwarders when names clash."""
        return getattr(getattr(package, f"{name}$"), "MODULE$")

    def option(self, value: JavaObject) -> JavaObject:
        """Wrap a value as a Scala option; None becomes None."""
        return self.java.scala.Option.apply(value)

    def strings(self, values: tuple[str, ...]) -> JavaObject:
        """Return a Java array of strings."""
        array = self._gateway.new_array(self.java.java.lang.String, len(values))
        for position, value in enumerate(values):
            array[position] = value
        return array

    def options(self, values: Mapping[str, str]) -> JavaObject:
        """Return Spark's case-insensitive map of options."""
        made = self.java.java.util.HashMap()
        for key, value in values.items():
            made.put(key, value)
        return self.java.org.apache.spark.sql.util.CaseInsensitiveStringMap(made)

    def no_options(self) -> JavaObject:
        """Return Scala's empty map."""
        return self.companion(self.java.scala.collection.immutable, "Map").empty()

    def catalog(self, name: str) -> JavaObject:
        """Return Spark's catalog plugin of that name.

        Spark reads a catalog's conf from the thread's active session: in a JVM with several
        sessions that must be ours, or the catalog of another lake is loaded under our name.
        """
        self.java.org.apache.spark.sql.classic.SparkSession.setActiveSession(self.session)
        return self.session.sessionState().catalogManager().catalog(name)

    def identifier(self, table: TableName) -> JavaObject:
        """Return Spark's identifier of a table."""
        return self.java.org.apache.spark.sql.connector.catalog.Identifier.of(
            self.strings(table.namespace), table.parts[-1]
        )

    def load(self, catalog: str, table: TableName) -> JavaObject:
        """Load a table from the catalog, fresh.

        Raises:
            TableNotFound: there is none of that name.
        """
        try:
            return self.catalog(catalog).icebergCatalog().loadTable(self._table(table))
        except (Py4JJavaError, CapturedException) as error:
            if raised(error, "NoSuchTableException", "NoSuchNamespaceException"):
                raise self._not_found(catalog, table) from error
            raise

    def find(self, catalog: str, table: TableName) -> JavaObject | None:
        """Load a table from the catalog, fresh; None where there is none.

        Where that is to be expected it is asked for first: an error out of the JVM costs ten times
        as much as an answer, and to say which names are near every table has to be listed.
        """
        found = self.catalog(catalog).icebergCatalog()
        name = self._table(table)
        return found.loadTable(name) if found.tableExists(name) else None

    def drop(self, catalog: str, table: TableName, *, purge: bool) -> bool:
        """Take a table out of the catalog; False where there was none of that name.

        ``purge`` also deletes its files; what of them cannot be deleted is left without a word.
        """
        return bool(self.catalog(catalog).icebergCatalog().dropTable(self._table(table), purge))

    def rename(self, catalog: str, table: TableName, to: TableName) -> None:
        """Give a table of the catalog another name; nothing else of it changes."""
        names = (self._table(table), self._table(to))
        self.catalog(catalog).icebergCatalog().renameTable(*names)

    def has_namespace(self, catalog: str, table: TableName) -> bool:
        """Say whether the namespace of a table is there."""
        space = self.iceberg.catalog.Namespace.of(self.strings(table.namespace))
        return bool(self.catalog(catalog).icebergCatalog().namespaceExists(space))

    def _table(self, table: TableName) -> JavaObject:
        return self.iceberg.catalog.TableIdentifier.of(
            self.iceberg.catalog.Namespace.of(self.strings(table.namespace)), table.parts[-1]
        )

    def _not_found(self, catalog: str, table: TableName) -> TableNotFound:
        known = {str(name).casefold(): str(name) for name in listing.tables(self.spark, catalog)}
        near = [
            known[match]
            for match in difflib.get_close_matches(
                str(table).casefold(), list(known), n=NEAR_MATCHES_MAX, cutoff=0.5
            )
        ]
        tail = f"; did you mean {' or '.join(near)}?" if near else ""
        return TableNotFound(
            f"no table {table} among the {len(known)} of catalog {catalog}{tail}",
            hint=f'run.create_table("{table}", …) makes it',
            table=str(table),
            near=near,
        )

    def parse(self, statement: str) -> JavaObject:
        """Parse a SQL statement into an unresolved logical plan."""
        return self.session.sessionState().sqlParser().parsePlan(statement)

    def expression(self, text: str) -> JavaObject:
        """Parse a SQL expression."""
        return self.session.sessionState().sqlParser().parseExpression(text)

    def plan_of(self, frame: DataFrame) -> JavaObject:
        """Return the analysed plan of a data frame."""
        return frame._jdf.queryExecution().analyzed()

    def run(self, session: SparkSession, plan: JavaObject) -> None:
        """Execute a command plan, eagerly, in the session given."""
        self.java.org.apache.spark.sql.classic.Dataset.ofRows(
            session._jsparkSession,
            plan,
        )


def causes(error: BaseException) -> list[JavaCause]:
    """Return the chain of Java causes of an error, outermost first; empty for a Python error."""
    thrown: JavaObject = None
    if isinstance(error, Py4JJavaError):
        thrown = error.java_exception
    elif isinstance(error, CapturedException):
        thrown = error._origin
    chain: list[JavaCause] = []
    while thrown is not None and len(chain) < CAUSES_MAX:
        chain.append(
            JavaCause(kind=thrown.getClass().getName(), message=str(thrown.getMessage() or ""))
        )
        thrown = thrown.getCause()
    return chain


def raised(error: BaseException, *simple_names: str) -> bool:
    """Say whether any cause of an error is of one of these Java classes."""
    return any(
        cause.kind.rsplit(".", 1)[-1].rsplit("$", 1)[-1] in simple_names for cause in causes(error)
    )


def first_line(error: BaseException) -> str:
    """Return the innermost cause in one line: what a person needs of a Java stack trace."""
    chain = causes(error)
    if not chain:
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    last = chain[-1]
    lines = [line for line in last.message.splitlines() if line.strip()]
    return f"{last.kind.rsplit('.', 1)[-1]}: {lines[0] if lines else ''}"
