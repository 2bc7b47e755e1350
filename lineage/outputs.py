"""Datasets of the lake in an event: what was done to a table, and what was read of one.

Owns the facets that say what changed: version, lifecycle, counts, columns, the gate's checks. Must
never give a table a version that its entry does not name.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.generated.base_subset_dataset import (
    BinarySubsetCondition,
    CompareSubsetCondition,
    FieldBaseCompareExpression,
    InputSubsetInputDatasetFacet,
    LiteralCompareExpression,
)
from openlineage.client.generated.input_statistics_input_dataset import (
    InputStatisticsInputDatasetFacet,
)
from openlineage.client.generated.lifecycle_state_change_dataset import (
    LifecycleStateChange,
    LifecycleStateChangeDatasetFacet,
    PreviousIdentifier,
)
from openlineage.client.generated.output_statistics_output_dataset import (
    OutputStatisticsOutputDatasetFacet,
)

from lineage import columns, facts, quality
from lineage.context import Context
from lineage.facets import PRODUCER, CommitMetrics, IcebergCommitReportOutputDatasetFacet
from lineage.sharing import shared
from lineage.tables import TableView, symlink, table_facets, view
from odi_audit.canonical import JsonObject
from odi_audit.model.entries import Entry, Kind
from odi_audit.model.names import former_name
from odi_audit.model.offsets import OffsetKind

if TYPE_CHECKING:
    from typing import Any

    from openlineage.client.generated.base import InputDatasetFacet, OutputDatasetFacet

_LIFECYCLE = {
    "create_table": LifecycleStateChange.CREATE,
    "drop_table": LifecycleStateChange.DROP,
    "rename_table": LifecycleStateChange.RENAME,
    "evolve_schema": LifecycleStateChange.ALTER,
    "expire": LifecycleStateChange.ALTER,
    "rollback": LifecycleStateChange.OVERWRITE,
    "overwrite": LifecycleStateChange.OVERWRITE,
    "overwrite_partitions": LifecycleStateChange.OVERWRITE,
}
_BY_KIND = {
    Kind.TABLE_CREATED: LifecycleStateChange.CREATE,
    Kind.TABLE_DROPPED: LifecycleStateChange.DROP,
    Kind.TABLE_RENAMED: LifecycleStateChange.RENAME,
    Kind.SCHEMA_CHANGE: LifecycleStateChange.ALTER,
    Kind.MAINTENANCE: LifecycleStateChange.ALTER,
    Kind.ROLLBACK: LifecycleStateChange.OVERWRITE,
    Kind.UNDO: LifecycleStateChange.OVERWRITE,
    Kind.ERASURE: LifecycleStateChange.OVERWRITE,
}
_COUNTS = {
    "added-data-files": "addedDataFiles",
    "deleted-data-files": "removedDataFiles",
    "added-delete-files": "addedDeleteFiles",
    "removed-delete-files": "removedDeleteFiles",
    "added-dvs": "addedDVs",
    "removed-dvs": "removedDVs",
    "added-records": "addedRecords",
    "deleted-records": "removedRecords",
    "total-records": "totalRecords",
    "added-files-size": "addedFilesSizeInBytes",
    "removed-files-size": "removedFilesSizeInBytes",
    "added-position-deletes": "addedPositionalDeletes",
    "removed-position-deletes": "removedPositionalDeletes",
}
"""Iceberg's summary, and the names that its commit report has for the same numbers."""


def output(
    effect: Entry, intent: Entry | None, staged: JsonObject, context: Context, *, until: int
) -> OutputDataset:
    """Return the table that an entry says was changed, with what is known of the change."""
    assert effect.table is not None
    table = view(effect.table, context, until, intent=intent, effect=effect)
    snapshot = _version(effect, intent)
    described = _described(intent, effect)
    held = None if intent is None else columns.column_lineage(described, intent, context)
    made: dict[str, Any] = dict(table_facets(table, snapshot))
    change = _change(effect, table, context)
    if change is not None:
        made["lifecycleStateChange"] = change
    if held is not None:
        made |= _columns(held, made)
    counts = facts.obj(facts.obj(staged, effect.table.uuid), "counts")
    offsets = None if intent is None else facts.offsets(intent)
    checked = quality.assertions(
        described, counts, promised=None if offsets is None else offsets.rows
    )
    if checked is not None:
        made["dataQualityAssertions"] = checked
    measured = quality.metrics(
        counts, facts.obj(effect.facts, "counts"), facts.moment(effect.facts, "committed_at")
    )
    if measured is not None:
        made["dataQualityMetrics"] = measured
    named = table.name
    return OutputDataset(
        namespace=named.namespace,
        name=named.name,
        facets=made,
        outputFacets=_output_facets(effect),
    )


def table_input(table: TableView, snapshot: str | None) -> InputDataset:
    """Return a table that an operation reads."""
    named = table.name
    return InputDataset(
        namespace=named.namespace,
        name=named.name,
        facets=table_facets(table, snapshot),
        inputFacets={},
    )


def read_input(table: TableView, entry: Entry) -> InputDataset:
    """Return the table that a consumer has read, up to which snapshot and how many rows."""
    dataset = table_input(table, facts.text(entry.facts, "to_snapshot"))
    made: dict[str, InputDatasetFacet] = {}
    rows = facts.number(entry.facts, "rows")
    if rows is not None:
        made["inputStatistics"] = InputStatisticsInputDatasetFacet(rowCount=rows, producer=PRODUCER)
    after, until = _digits(entry.facts, "from_sequence"), _digits(entry.facts, "to_sequence")
    if after is not None and until is not None:
        made["subset"] = InputSubsetInputDatasetFacet(
            inputCondition=BinarySubsetCondition(
                left=_sequence("GREATER_THAN", after),
                right=_sequence("LESS_EQUAL_THAN", until),
                operator="AND",
            ),
            producer=PRODUCER,
        )
    dataset.inputFacets = made
    return dataset


def head_of(intent: Entry) -> str | None:
    """Return the snapshot that an operation of a table on itself started from."""
    offsets = facts.offsets(intent)
    if offsets is None or offsets.kind is not OffsetKind.TABLE:
        return None
    ends = [str(part.end) for part in offsets.ranges.values()]
    return ends[0] if len(ends) == 1 and ends[0].isdigit() else None


def _version(effect: Entry, intent: Entry | None) -> str | None:
    named = facts.text(effect.facts, "snapshot") or facts.text(effect.facts, "to")
    if named is not None or effect.kind is Kind.LANDED or intent is None:
        return named
    # DDL and expiry leave the table's rows as they were.
    return head_of(intent)


def _change(
    effect: Entry, table: TableView, context: Context
) -> LifecycleStateChangeDatasetFacet | None:
    """Return what became of the table, and its former name if it has another one since.

    A rename is an entry that tells both names. One that passes the committer by leaves none: the
    next change shows it.
    """
    word = _lifecycle(effect)
    former = former_name(effect) or context.name_before(table.ref.uuid, effect.index)
    if former is None or former == table.ref.name:
        return None if word is None else _state(word)
    link = symlink(table, former)
    return LifecycleStateChangeDatasetFacet(
        lifecycleStateChange=word or LifecycleStateChange.RENAME,
        previousIdentifier=PreviousIdentifier(name=link.name, namespace=link.namespace),
        producer=PRODUCER,
    )


@cache
def _state(word: LifecycleStateChange) -> LifecycleStateChangeDatasetFacet:
    return shared(LifecycleStateChangeDatasetFacet(lifecycleStateChange=word, producer=PRODUCER))


def _lifecycle(effect: Entry) -> LifecycleStateChange | None:
    word = facts.text(effect.facts, "operation") or ""
    counts = facts.obj(effect.facts, "counts")
    if word == "delete" and facts.number(counts, "total-records") == 0:
        return LifecycleStateChange.TRUNCATE
    return _LIFECYCLE.get(word) or _BY_KIND.get(effect.kind)


def _described(intent: Entry | None, effect: Entry) -> JsonObject:
    assert effect.table is not None
    for item in [] if intent is None else facts.objects(intent.facts, "operations"):
        if item.get("table_uuid") == effect.table.uuid:
            return item
    return facts.NOTHING


def _columns(held: columns.ColumnLineage, made: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    facet = columns.facet(held)
    if facet is not None:
        found["columnLineage"] = facet
    if held.unknown:
        found["tags"] = columns.unknown_tags(held.unknown, made.get("tags"))
    return found


def _output_facets(effect: Entry) -> dict[str, OutputDatasetFacet]:
    counts = facts.obj(effect.facts, "counts")
    snapshot = facts.text(effect.facts, "snapshot")
    made: dict[str, OutputDatasetFacet] = {}
    if counts:
        added = facts.number(counts, "added-records")
        made["outputStatistics"] = OutputStatisticsOutputDatasetFacet(
            rowCount=added if added is not None else facts.number(counts, "rows") or 0,
            size=facts.number(counts, "added-files-size"),
            fileCount=facts.number(counts, "added-data-files"),
            producer=PRODUCER,
        )
    if snapshot is not None:
        made["icebergCommitReport"] = IcebergCommitReportOutputDatasetFacet(
            snapshotId=snapshot,
            sequenceNumber=_digits(effect.facts, "sequence_number"),
            firstRowId=_digits(effect.facts, "first_row_id"),
            operation=facts.text(effect.facts, "operation"),
            committedAt=facts.moment(effect.facts, "committed_at"),
            commitMetrics=CommitMetrics(
                **{
                    name: facts.number(counts, key)
                    for key, name in _COUNTS.items()
                    if key in counts
                }
            )
            if counts
            else None,
            producer=PRODUCER,
        )
    return made


def _digits(kept: JsonObject, key: str) -> str | None:
    value = kept.get(key)
    return None if value is None else str(value)


def _sequence(comparison: str, value: str) -> CompareSubsetCondition:
    return CompareSubsetCondition(
        left=FieldBaseCompareExpression(field="_last_updated_sequence_number"),
        right=LiteralCompareExpression(value=value),
        comparison=comparison,
    )
