"""Column lineage of a write: of rows that go into a table, and of a change to rows that are there.

Owns which plan stands for which operation, and the bounds on reading one. Must never let an error
out and never run a job: whatever goes wrong, the columns are unknown, with a reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from odi_audit import logs
from odi_audit.canonical import JsonObject
from odi_audit.model.naming import of_location
from odi_audit.model.tables import quote
from odi_audit.spark.frames import DELETE_COLUMN
from odi_audit.spark.jvm import JavaObject, Jvm, first_line
from odi_audit.spark.live import LiveTable
from odi_audit.spark.plan import facts, leaves, reader, relations
from odi_audit.spark.plan.reader import Read, TooLarge
from odi_audit.spark.plan.values import (
    CONDITIONAL,
    FILTER,
    JOIN,
    NO_REASONS,
    TRANSFORMATION,
    WINDOW,
    Column,
    Dataset,
    Edges,
    Kind,
    joined,
    stepped,
)

log = logs.get_logger(__name__)

CELLS_MAX = 100_000
"""Depth of a plan times its columns: about the attributes in it, some 300 bytes of JSON each."""
JSON_CHARS_MAX = 64_000_000
TOO_LARGE = "too large"
_QUERY_ID = "sql.streaming.queryId"
_WHERE = "__odi_where"

__all__ = ["of_change", "of_frame", "of_rows", "of_unseen"]


def of_frame(frame: DataFrame) -> JsonObject:
    """Return the column lineage of a frame's own columns.

    Raises:
        TooLarge: its plan is too large to be read.
    """
    read = _read(frame)
    columns = {column.name: column for column in _by_name(read, frame).values()}
    return facts.fact(columns, read.relation.rows, read, unknown_rows=read.relation.unknown_rows)


def of_rows(
    frame: DataFrame,
    target: LiveTable,
    *,
    key: Sequence[str] = (),
    order_by: Sequence[str] = (),
    delete_when: str | None = None,
    where: str | None = None,
) -> JsonObject:
    """Return the column lineage of rows on their way into a table.

    ``key``, ``order_by`` and ``delete_when`` are an upsert's; ``where`` is an overwrite's.
    """

    def told() -> JsonObject:
        seen = frame
        if delete_when is not None:
            seen = frame.withColumn(DELETE_COLUMN, F.expr(delete_when))
        read = _read(seen)
        columns = _by_name(read, seen)
        rows, reasons = _steering(columns, key, order_by, delete_when)
        beside = {(_dataset(target), _spelled(target, name)): frozenset({JOIN}) for name in key}
        if where is not None:
            beside |= _condition_on(target, where)
        return facts.fact(
            _written(columns, frame, target),
            joined([read.relation.rows, rows]),
            read,
            more_rows=beside,
            unknown_rows=read.relation.unknown_rows | reasons,
        )

    return _safely(told, target)


def of_change(
    target: LiveTable, *, where: str, assignments: Mapping[str, str] | None = None
) -> JsonObject:
    """Return the column lineage of an UPDATE, or of a DELETE, which assigns nothing."""
    changed = [
        (_spelled(target, column.split(".")[0].strip().strip("`")), "." in column)
        for column in assignments or {}
    ]

    def told() -> JsonObject:
        values = [
            F.expr(f"(\n{value}\n)").alias(f"__odi_{place}")
            for place, value in enumerate((assignments or {}).values())
        ]
        values += [
            F.col(quote(name)).alias(f"__odi_old_{place}")
            for place, (name, nested) in enumerate(changed)
            if nested
        ]
        seen = _rows_of(target).select(*values, F.expr(f"(\n{where}\n)").alias(_WHERE))
        read = _read(seen)
        found = _by_name(read, seen)
        columns: dict[str, Column] = {}
        for place, (name, nested) in enumerate(changed):
            parts = [found[f"__odi_{place}"]]
            if nested:
                # One field of a struct: the others keep their old values.
                parts = [_transformed(item) for item in (*parts, found[f"__odi_old_{place}"])]
            columns[name] = relations.merged(
                [*parts, *([columns[name]] if name in columns else [])]
            )
        condition = found[_WHERE]
        return facts.fact(
            columns,
            joined([read.relation.rows, stepped(condition.edges, FILTER)]),
            read,
            unknown_rows=read.relation.unknown_rows | condition.unknown,
        )

    return _safely(told, target, [name for name, _ in changed])


def of_unseen(target: LiveTable, reason: str) -> JsonObject:
    """Return the fact of rows that no plan speaks of."""
    return _safely(lambda: facts.unknown_fact(_names(target), reason), target)


def _safely(
    told: Callable[[], JsonObject], target: LiveTable, columns: Sequence[str] | None = None
) -> JsonObject:
    # The one place where everything is caught: a record of lineage is worth less than the commit
    # that it describes, and "unknown" is a true answer (docs/adr/0013-column-lineage.md).
    try:
        return told()
    except (TooLarge, RecursionError, MemoryError):
        reason = TOO_LARGE
    except Exception as error:  # noqa: BLE001  see above
        reason = f"not read: {type(error).__name__}"
        log.debug("column lineage unknown", table=str(target.name), reason=first_line(error))
    try:
        names = _names(target) if columns is None else columns
    except Exception:  # noqa: BLE001  same: the commit itself will say what is wrong
        names = []
    return facts.unknown_fact(names, reason)


def _names(target: LiveTable) -> list[str]:
    return [field.name for field in target.schema.fields]


def _read(frame: DataFrame) -> Read:
    session = frame.sparkSession
    jvm = Jvm(session)
    plan: JavaObject = jvm.plan_of(frame)
    if int(plan.height()) * max(1, int(plan.output().size())) > CELLS_MAX:
        raise TooLarge
    query = session.sparkContext.getLocalProperty(_QUERY_ID)
    known = leaves.known_leaves(jvm, plan, query)
    text = str(plan.toJSON())
    if len(text) > JSON_CHARS_MAX:
        raise TooLarge
    return reader.read(cast("Sequence[JsonObject]", json.loads(text)), known)


def _by_name(read: Read, frame: DataFrame) -> dict[str, Column]:
    """Return the columns of a frame by their names in small letters."""
    found = read.relation.columns
    if found is None:
        reasons = read.relation.unknown_rows or frozenset({"columns without a name"})
        return {name.lower(): Column(name=name, unknown=reasons) for name in frame.columns}
    return {column.name.lower(): column for _, column in found}


def _written(
    columns: Mapping[str, Column], frame: DataFrame, target: LiveTable
) -> dict[str, Column]:
    """Return the table's columns; one that is stored in another type is transformed on the way."""
    given = {field.name.lower(): field.dataType for field in frame.schema.fields}
    made: dict[str, Column] = {}
    for field in target.schema.fields:
        column = columns.get(field.name.lower())
        if column is None:
            continue
        if given[field.name.lower()].simpleString() != field.dataType.simpleString():
            column = _transformed(column)
        made[field.name] = column
    return made


def _transformed(column: Column) -> Column:
    edges = stepped(column.edges, TRANSFORMATION)
    return Column(name=column.name, edges=edges, unknown=column.unknown)


def _steering(
    columns: Mapping[str, Column],
    key: Sequence[str],
    order_by: Sequence[str],
    delete_when: str | None,
) -> tuple[Edges, frozenset[str]]:
    """Return what decides which rows an upsert writes: its key, its order, its deletes."""
    steering: list[tuple[str, Kind]] = [(name, JOIN) for name in key]
    steering += [(name, WINDOW) for name in order_by]
    if delete_when is not None:
        steering.append((DELETE_COLUMN, CONDITIONAL))
    found = [(columns[name.lower()], kind) for name, kind in steering]
    return (
        joined(stepped(column.edges, kind) for column, kind in found),
        NO_REASONS.union(*(column.unknown for column, _ in found)),
    )


def _condition_on(target: LiveTable, where: str) -> dict[tuple[Dataset, str], frozenset[Kind]]:
    read = _read(_rows_of(target).select(F.expr(f"(\n{where}\n)").alias(_WHERE)))
    (_, column), *_ = read.relation.columns or ()
    return {
        (dataset, origin.column): frozenset({FILTER})
        for origin in {**column.edges, **read.relation.rows}
        for dataset in read.leaves[origin.leaf].datasets
    }


def _rows_of(target: LiveTable) -> DataFrame:
    """Return the table as a data frame, of the very state that was loaded; nothing is read."""
    jvm = target.jvm
    relation = jvm.java.org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation.create(
        jvm.iceberg.spark.source.SparkTable(target.java),
        jvm.option(jvm.catalog(target.catalog)),
        jvm.option(jvm.identifier(target.name)),
        jvm.options({}),
        jvm.option(None),
    )
    rows = jvm.java.org.apache.spark.sql.classic.Dataset.ofRows(jvm.session, relation)
    return DataFrame(rows, jvm.spark)


def _dataset(target: LiveTable) -> Dataset:
    named = of_location(str(target.java.location()))
    return Dataset(
        namespace=named.namespace,
        name=named.name,
        table=str(target.name),
        table_uuid=target.ref.uuid,
        snapshot=target.head,
    )


def _spelled(target: LiveTable, column: str) -> str:
    """Return a column's name as the table has it."""
    names = {field.name.lower(): field.name for field in target.schema.fields}
    return names.get(column.lower(), column)
