"""The leaves of a plan: which datasets Spark reads there.

Owns the questions that are put to the JVM about a relation, because a plan's JSON leaves them out.
Must never read data, list files or keep a login: a database's URL becomes a name at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import cast

from odi_audit.canonical import JsonObject
from odi_audit.errors import UsageError
from odi_audit.model.naming import DatasetName, of_database, of_location, of_topic
from odi_audit.spark.jvm import JavaObject, Jvm
from odi_audit.spark.plan import origins
from odi_audit.spark.plan.reader import Known, Stream, TooLarge
from odi_audit.spark.plan.values import Dataset

LEAVES_MAX = 300
"""Each leaf costs some questions of a fifth of a millisecond."""
FOLDERS_MAX = 50
"""Folders of one file relation that are named; the first ones stand for the others."""
_MICRO_BATCH_ROWS = "SQLExecutionRDD"
_ICEBERG = "org.apache.iceberg.spark.source.SparkTable"
_WITHOUT_DATASET = frozenset(
    {"CTERelationRef", "CommandResult", "EmptyRelation", "OneRowRelation", "Range", "UnionLoopRef"}
)
_GIVEN = ("LocalRelation", "LogicalRDD")
"""Rows that Spark was given, few or many."""
_PLAIN_TABLE = re.compile(r'^[\w."`\[\]$-]+$')


def known_leaves(jvm: Jvm, plan: JavaObject, query: str | None) -> dict[int, Known]:
    """Return what is behind the leaves of a plan, by the id of each one's first column.

    ``query`` is the streaming query whose micro-batch may be one of them.

    Raises:
        TooLarge: there are too many.
    """
    found: dict[int, Known] = {}
    plain: list[tuple[int, JavaObject]] = []
    for kind, key, leaf in _leaves(plan):
        if kind in _GIVEN:
            plain.append((key, leaf))
        elif (datasets := _datasets(kind, leaf) or origins.recall(key)) is not None:
            found[key] = datasets
    if plain:
        found |= _given(jvm, plain, query)
    return found


def _leaves(plan: JavaObject) -> Iterator[tuple[str, int, JavaObject]]:
    count = 0
    for part in [plan, *_items(plan.subqueriesAll())]:
        for leaf in _items(part.collectLeaves()):
            count += 1
            if count > LEAVES_MAX:
                raise TooLarge
            kind = str(leaf.getClass().getSimpleName())
            output = leaf.output() if kind not in _WITHOUT_DATASET else None
            if output is not None and output.size():
                yield kind, int(output.apply(0).exprId().id()), leaf


def _given(
    jvm: Jvm, leaves: Sequence[tuple[int, JavaObject]], query: str | None
) -> dict[int, Known]:
    """Connect rows that Spark was given: a micro-batch, or rows that we read for the caller.

    Where a caller joins such rows with themselves, Spark gives new ids to the columns of one side;
    the rows are still the same object.
    """
    found: dict[int, Known] = {}
    by_rows: dict[tuple[str, int], Known] = {}
    batch = None if query is None else _query_plan(jvm.session, query)
    for key, leaf in leaves:
        known: Known | None = origins.recall(key)
        if batch is not None and _is_micro_batch(leaf, batch):
            known = Stream(
                plan=cast("Sequence[JsonObject]", json.loads(batch.toJSON())),
                known={
                    inner: datasets
                    for kind, inner, item in _leaves(batch)
                    if (datasets := _datasets(kind, item)) is not None
                },
            )
        if known is not None:
            found[key] = known
            if len(leaves) > 1 and (rows := _rows_id(jvm, leaf)) is not None:
                by_rows[rows] = known
    for key, leaf in leaves if by_rows else ():
        if key not in found and (rows := _rows_id(jvm, leaf)) in by_rows and rows is not None:
            found[key] = by_rows[rows]
    return found


def _query_plan(session: JavaObject, query: str) -> JavaObject | None:
    for running in session.sharedState().activeStreamingQueries().values():
        if str(running.id()) == query:
            return running.analyzedPlan()
    return None


def _is_micro_batch(leaf: JavaObject, plan: JavaObject) -> bool:
    """Say whether a leaf holds a query's rows just as they came.

    Its columns have the ids of the query's own plan then. A checkpoint that the caller makes of
    them may keep the ids too, but its rows are no longer Spark's own.
    """
    if str(leaf.getClass().getSimpleName()) != "LogicalRDD":
        return False
    if str(leaf.rdd().getClass().getSimpleName()) != _MICRO_BATCH_ROWS:
        return False
    return _ids(leaf) == _ids(plan)


def _ids(plan: JavaObject) -> list[int]:
    return [int(item.exprId().id()) for item in _items(plan.output())]


def _rows_id(jvm: Jvm, leaf: JavaObject) -> tuple[str, int] | None:
    """Return what tells given rows from others, whatever ids their columns have."""
    if str(leaf.getClass().getSimpleName()) == "LogicalRDD":
        return "rdd", int(leaf.rdd().id())
    if leaf.data().isEmpty():
        # There is only one empty list.
        return None
    return "rows", int(jvm.java.java.lang.System.identityHashCode(leaf.data()))


def _datasets(kind: str, leaf: JavaObject) -> tuple[Dataset, ...] | None:
    try:
        match kind:
            case "DataSourceV2Relation":
                return _of_table(leaf.table(), leaf.options())
            case "StreamingRelationV2":
                return _of_table(leaf.table(), leaf.extraOptions())
            case "StreamingRelation":
                paths = [*_items(leaf.dataSource().paths())]
                path = leaf.dataSource().options().get("path")
                return _folders([*paths, *([path.get()] if path.isDefined() else [])])
            case "LogicalRelation":
                return _of_relation(leaf.relation())
            case "HiveTableRelation":
                return _folders([str(leaf.tableMeta().location().toString())])
    except UsageError:
        # It has a place, but not one that has a name.
        return None
    return None


def _of_table(table: JavaObject, options: JavaObject) -> tuple[Dataset, ...] | None:
    kind = str(table.getClass().getName())
    if kind == _ICEBERG:
        return _of_iceberg(table)
    if kind.endswith((".KafkaTable", "$KafkaTable")):
        return _topics(options.get("kafka.bootstrap.servers"), options.get("subscribe"))
    if kind.endswith(".JDBCTable"):
        return _of_jdbc(table.jdbcOptions())
    if ".v2." in kind and kind.endswith("Table") and hasattr(table, "paths"):
        return _folders([*_items(table.paths())])
    return None


def _of_iceberg(table: JavaObject) -> tuple[Dataset, ...] | None:
    inside = table.table()
    if not str(inside.getClass().getSimpleName()).startswith(("BaseTable", "SerializableTable")):
        # A metadata table: what it shows are not the table's columns.
        return None
    snapshot = table.snapshotId()
    if snapshot is None:
        current = inside.currentSnapshot()
        snapshot = None if current is None else current.snapshotId()
    named = of_location(str(inside.location()))
    catalog, _, name = str(inside.name()).partition(".")
    return (
        Dataset(
            namespace=named.namespace,
            name=named.name,
            table=name or catalog,
            table_uuid=str(inside.uuid().toString()),
            snapshot=None if snapshot is None else str(snapshot),
        ),
    )


def _of_relation(relation: JavaObject) -> tuple[Dataset, ...] | None:
    kind = str(relation.getClass().getSimpleName())
    if kind == "HadoopFsRelation":
        return _folders([str(path.toString()) for path in _items(relation.location().rootPaths())])
    if kind == "JDBCRelation":
        return _of_jdbc(relation.jdbcOptions())
    return None


def _of_jdbc(options: JavaObject) -> tuple[Dataset, ...] | None:
    table = str(options.tableOrQuery()).strip()
    if not _PLAIN_TABLE.match(table):
        # A query of the database's own: what its columns are made of is not in the plan.
        return None
    return (_dataset(of_database(str(options.url()), re.sub(r'["`\[\]]', "", table)), "TABLE"),)


def _topics(servers: JavaObject, topics: JavaObject) -> tuple[Dataset, ...] | None:
    if not servers or not topics:
        # By a pattern or by assignment: which topics there are is known to the broker alone.
        return None
    return tuple(
        _dataset(of_topic(str(servers), topic.strip()), "TOPIC")
        for topic in str(topics).split(",")
        if topic.strip()
    )


def _folders(paths: Sequence[str]) -> tuple[Dataset, ...] | None:
    names = {of_location(str(path)) for path in paths[:FOLDERS_MAX]}
    return tuple(_dataset(name, "FILE") for name in sorted(names)) or None


def _dataset(named: DatasetName, kind: str) -> Dataset:
    return Dataset(namespace=named.namespace, name=named.name, kind=kind)


def _items(sequence: JavaObject) -> list[JavaObject]:
    return [sequence.apply(place) for place in range(sequence.size())]
