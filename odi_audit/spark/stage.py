"""Staging: a change is carried out in full, and nobody sees it.

Owns the one trick that the committer rests on: Spark writes into an Iceberg transaction that is
held in memory (docs/adr/0003). Data files are on disk, the new snapshot is complete with its
stamps, but the catalog knows nothing of it until ``publish`` names it. Must never commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from odi_audit.ids import SnapshotId
from odi_audit.model.loose import LooseFile
from odi_audit.model.merges import PLAIN, Terms
from odi_audit.model.snapshots import SnapshotFacts, snapshot_from_text
from odi_audit.model.stamps import Stamps, missing
from odi_audit.model.tables import quote
from odi_audit.spark import loose
from odi_audit.spark.jvm import JavaObject
from odi_audit.spark.live import LiveTable


class TableMoved(Exception):
    """The table is no longer in the state that a change was to be staged on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """An upsert's statement: which columns decide, and which column says "delete".

    ``columns`` are the table's, for terms under which some of them keep their values.
    """

    key: tuple[str, ...]
    delete_column: str | None
    terms: Terms = PLAIN
    columns: tuple[str, ...] = ()


class Stage:
    """One change to one table, held in memory until it is published or dropped.

    A change that makes no snapshot (schema, properties, rollback) needs no stamps.

    Raises:
        TableMoved: the table has moved since ``target`` was loaded: what was checked there must
            be checked again on the new state.
    """

    def __init__(self, target: LiveTable, stamps: Stamps | None = None) -> None:
        self.target = target
        self._jvm = target.jvm
        self._stamps = stamps
        transaction = target.java.newTransaction()
        # The transaction's own table refuses scans, which MERGE and DELETE need; a plain table
        # over the transaction's operations reads and writes, and still commits to memory only.
        self._operations: JavaObject = transaction.table().operations()
        # Iceberg's own name of the table: Spark takes a table of another name for another table.
        self._table: JavaObject = self._jvm.iceberg.BaseTable(self._operations, target.java.name())
        # A transaction begins with the table as it is now, whatever ``target`` says.
        if str(self._operations.current().metadataFileLocation()) != target.metadata_location:
            raise TableMoved(str(target.name))

    # -- what Spark writes -------------------------------------------------------------------

    def append(self, frame: DataFrame) -> None:
        """Add the rows of a data frame."""
        plan = self._jvm.plans.AppendData.byName(
            self._relation(), self._jvm.plan_of(frame), self._jvm.no_options()
        )
        self._jvm.run(frame.sparkSession, plan)

    def overwrite_partitions(self, frame: DataFrame) -> None:
        """Replace every partition that the data frame has rows for."""
        plan = self._jvm.plans.OverwritePartitionsDynamic.byName(
            self._relation(), self._jvm.plan_of(frame), self._jvm.no_options()
        )
        self._jvm.run(frame.sparkSession, plan)

    def overwrite(self, frame: DataFrame, where: str) -> None:
        """Replace the rows that match ``where`` (whole files' worth) by those of the frame."""
        plan = self._jvm.plans.OverwriteByExpression.byName(
            self._relation(),
            self._jvm.plan_of(frame),
            self._jvm.expression(where),
            self._jvm.no_options(),
        )
        self._jvm.run(frame.sparkSession, plan)

    def merge(self, frame: DataFrame, merge: Merge) -> None:
        """Upsert the rows of a data frame by key."""
        parsed = self._jvm.parse(merge_statement(merge))
        alias = self._jvm.companion(self._jvm.plans, "SubqueryAlias")
        plan = parsed.copy(
            alias.apply("t", self._relation()),
            alias.apply("s", self._jvm.plan_of(frame)),
            parsed.mergeCondition(),
            parsed.matchedActions(),
            parsed.notMatchedActions(),
            parsed.notMatchedBySourceActions(),
            parsed.withSchemaEvolution(),
        )
        self._jvm.run(frame.sparkSession, plan)

    def update(self, where: str, assignments: Mapping[str, str]) -> None:
        """Set columns to expressions in the rows that match."""
        setting = ", ".join(f"{column} = {value}" for column, value in assignments.items())
        parsed = self._jvm.parse(f"UPDATE target SET {setting} WHERE {where}")
        self._jvm.run(
            self._jvm.spark,
            parsed.copy(self._relation(), parsed.assignments(), parsed.condition()),
        )

    def delete(self, where: str) -> None:
        """Delete the rows that match; a delete of whole files is stamped like any other."""
        # Before a delete of everything Spark loads the table anew, and would delete from that.
        # It knows such a delete by its condition being the bare word "true".
        parsed = self._jvm.parse(f"DELETE FROM target WHERE (\n{where}\n) AND true")
        self._jvm.run(self._jvm.spark, parsed.copy(self._relation(), parsed.condition()))
        self._restamp_metadata_delete()

    def compact(self, where: str | None, options: Mapping[str, str]) -> None:
        """Rewrite small files into large ones; rows keep their ids."""
        actions = self._jvm.iceberg.spark.actions.SparkActions.get(self._jvm.session)
        action = actions.rewriteDataFiles(self._table)
        for key, value in self._summary().items():
            action = action.snapshotProperty(key, value)
        for key, value in options.items():
            action = action.option(key, value)
        if where is not None:
            action = action.filter(self._iceberg_expression(where))
        action.execute()

    # -- what needs no Spark job -----------------------------------------------------------------

    def nothing(self) -> None:
        """Make the stamped snapshot of a batch that changes no row."""
        self._committed(self._table.newFastAppend())

    def add_files(self, files: Sequence[LooseFile]) -> None:
        """Add data files that tasks have written and that nothing refers to yet."""
        operation = self._table.newAppend()
        for data_file in loose.described(self.target, self._table, files):
            operation.appendFile(data_file)
        self._committed(operation)

    def readd(self, snapshot: SnapshotFacts) -> None:
        """Add, on this head, the files that an earlier append staged."""
        operation = self._table.newAppend()
        for data_file in self._files(snapshot).addedDataFiles(self._table.io()):
            operation.appendFile(data_file)
        self._committed(operation)

    def adopt(self, snapshot: SnapshotFacts) -> None:
        """Take a snapshot that was staged on exactly this base, as it is."""
        builder = self._jvm.iceberg.TableMetadata.buildFrom(self.target.base)
        made = builder.setBranchSnapshot(self._files(snapshot), "main").build()
        self._operations.commit(self.target.base, made)

    def schema_change(self, steps: list[tuple[str, str, str]]) -> None:
        """Carry out schema steps: ("add" | "widen" | "rename" | "drop", column, argument)."""
        update = self._table.updateSchema()
        for step, column, argument in steps:
            if step == "rename":
                update = update.renameColumn(column, argument)
            elif step == "drop":
                update = update.deleteColumn(column)
            else:
                made = self._iceberg_type(argument)
                parent, _, leaf = column.rpartition(".")
                if step == "widen":
                    update = update.updateColumn(column, made)
                elif parent:
                    # A field of a struct; Iceberg takes no dots in a name of its own.
                    update = update.addColumn(parent, leaf, made)
                else:
                    update = update.addColumn(column, made)
        update.commit()

    def rollback(self, snapshot: SnapshotId) -> None:
        """Move main back to an ancestor."""
        self._table.manageSnapshots().rollbackTo(int(snapshot)).commit()

    def set_properties(self, values: Mapping[str, str]) -> None:
        """Set table properties."""
        update = self._table.updateProperties()
        for key, value in values.items():
            update = update.set(key, value)
        update.commit()

    # -- what was staged -----------------------------------------------------------------------

    @property
    def metadata(self) -> JavaObject:
        """The table's metadata with the change in it."""
        return self._operations.current()

    def snapshot(self) -> SnapshotFacts | None:
        """Return the staged snapshot; None where the change made none."""
        found = self.metadata.currentSnapshot()
        if found is None or str(found.snapshotId()) == self.target.head:
            return None
        return snapshot_from_text(self._jvm.iceberg.SnapshotParser.toJson(found))

    def added_files(self) -> list[str]:
        """Return the locations of the data files that the staged snapshot adds."""
        found = self.metadata.currentSnapshot()
        return [str(file.location()) for file in found.addedDataFiles(self._table.io())]

    # -- helpers -----------------------------------------------------------------------------------

    def _relation(self) -> JavaObject:
        jvm = self._jvm
        options = jvm.options(
            {f"snapshot-property.{key}": value for key, value in self._summary().items()}
        )
        # The catalog must be named, or partition transforms cannot be resolved.
        return jvm.java.org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation.create(
            jvm.iceberg.spark.source.SparkTable(self._table),
            jvm.option(jvm.catalog(self.target.catalog)),
            jvm.option(jvm.identifier(self.target.name)),
            options,
            jvm.option(None),
        )

    def _summary(self) -> dict[str, str]:
        assert self._stamps is not None, "a snapshot is never made without stamps"
        return self._stamps.to_summary()

    def _committed(self, operation: JavaObject) -> None:
        for key, value in self._summary().items():
            operation.set(key, value)
        operation.commit()

    def _restamp_metadata_delete(self) -> None:
        # Spark's metadata-only delete takes no snapshot properties: make the same removal again,
        # from the same base, with the stamps on it.
        snapshot = self.snapshot()
        if snapshot is None or not missing(snapshot.summary):
            return
        removed = list(self._files(snapshot).removedDataFiles(self._table.io()))
        fresh = Stage(self.target, self._stamps)
        operation = fresh._table.newDelete()
        for data_file in removed:
            operation.deleteFile(data_file)
        fresh._committed(operation.validateFilesExist())
        self._operations, self._table = fresh._operations, fresh._table

    def _files(self, snapshot: SnapshotFacts) -> JavaObject:
        return self._jvm.iceberg.SnapshotParser.fromJson(snapshot.text)

    def _iceberg_type(self, ddl: str) -> JavaObject:
        spark_type = self._jvm.java.org.apache.spark.sql.types.DataType.fromDDL(ddl)
        return self._jvm.iceberg.spark.SparkSchemaUtil.convert(spark_type)

    def _iceberg_expression(self, where: str) -> JavaObject:
        converter = (
            self._jvm.java.org.apache.spark.sql.execution.datasources.SparkExpressionConverter
        )
        resolved = converter.collectResolvedSparkExpression(
            self._jvm.session, self.target.name.sql(self.target.catalog), where
        )
        return converter.convertToIcebergExpression(resolved)


def merge_statement(merge: Merge) -> str:
    """Return the MERGE statement of an upsert; the tables in it are put in afterwards."""
    terms = merge.terms
    condition = terms.match or " AND ".join(f"t.{column} = s.{column}" for column in merge.key)
    gone = None if merge.delete_column is None else f"s.{merge.delete_column}"
    lines = [f"MERGE INTO target AS t USING source AS s ON {condition}"]
    if gone is not None:
        lines.append(f"WHEN MATCHED{_and(gone, _whole(terms.update_when))} THEN DELETE")
    lines.append(
        f"WHEN MATCHED{_and(_whole(terms.update_when))} THEN UPDATE SET {_assignments(merge)}"
    )
    new = None if gone is None else f"NOT {gone}"
    lines.append(f"WHEN NOT MATCHED{_and(new, _whole(terms.insert_when))} THEN INSERT *")
    if terms.gone_when is not None:
        setting = ", ".join(f"t.{quote(name)} = {text}" for name, text in terms.gone_set.items())
        action = f"UPDATE SET {setting}" if setting else "DELETE"
        lines.append(f"WHEN NOT MATCHED BY SOURCE{_and(_whole(terms.gone_when))} THEN {action}")
    return " ".join(lines)


def _and(*conditions: str | None) -> str:
    return "".join(f" AND {text}" for text in conditions if text is not None)


def _whole(condition: str | None) -> str | None:
    return None if condition is None else f"({condition})"


def _assignments(merge: Merge) -> str:
    terms = merge.terms
    if terms.update_set:
        return ", ".join(f"t.{quote(name)} = {text}" for name, text in terms.update_set.items())
    if not terms.keep:
        return "*"
    kept = {name.lower(): text for name, text in terms.keep.items()}
    return ", ".join(_kept(quote(name), kept.get(name.lower())) for name in merge.columns)


def _kept(column: str, condition: str | None) -> str:
    if condition is None:
        return f"t.{column} = s.{column}"
    return f"t.{column} = CASE WHEN {condition} THEN t.{column} ELSE s.{column} END"
