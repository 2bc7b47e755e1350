"""A run of openlineage-spark's listener, as the relay may send it: linked to ours, not doubled.

Owns what becomes of such a run (docs/adr/0014): its parent is our batch or our run, by the mark
that its Spark jobs carried; a table that the batch writes is taken out of its outputs, because the
ledger's own event says that; runs that say nothing are left out. Facets pass by an allow-list,
through openlineage-python's classes and the same last look as our own events. Must never pass on a
plan, a property, a statement or an exception's text: they hold values of rows and secrets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import attr
from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
from openlineage.client.generated.base import InputDataset, OutputDataset, RunFacet
from openlineage.client.generated.base_subset_dataset import (
    InputSubsetInputDatasetFacet,
    LocationSubsetCondition,
)
from openlineage.client.generated.catalog_dataset import CatalogDatasetFacet
from openlineage.client.generated.column_lineage_dataset import ColumnLineageDatasetFacet
from openlineage.client.generated.dataset_type_dataset import DatasetTypeDatasetFacet
from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet
from openlineage.client.generated.datasource_dataset import DatasourceDatasetFacet
from openlineage.client.generated.input_statistics_input_dataset import (
    InputStatisticsInputDatasetFacet,
)
from openlineage.client.generated.job_type_job import JobTypeJobFacet
from openlineage.client.generated.lifecycle_state_change_dataset import (
    LifecycleStateChangeDatasetFacet,
)
from openlineage.client.generated.output_statistics_output_dataset import (
    OutputStatisticsOutputDatasetFacet,
)
from openlineage.client.generated.processing_engine_run import ProcessingEngineRunFacet
from openlineage.client.generated.schema_dataset import SchemaDatasetFacet
from openlineage.client.generated.storage_dataset import StorageDatasetFacet
from openlineage.client.generated.symlinks_dataset import SymlinksDatasetFacet

from lineage import facts, runs
from lineage.attempts import attempt_of
from lineage.context import Context
from lineage.leaving import EVENT_BYTES_MAX, Event, finished
from lineage.listener_run import Datasets, ListenerRun, name_of
from lineage.naming import accepted
from lineage.runs import JobRef, RunRef
from lineage.sources import INPUTS_MAX
from lineage.structuring import Unfit, structured
from lineage.tables import view
from odi_audit.canonical import JsonObject
from odi_audit.ids import RunId, TableUuid
from odi_audit.model.entries import Kind
from odi_audit.model.tables import TableRef

if TYPE_CHECKING:
    from openlineage.client.generated.parent_run import ParentRunFacet

_DATASET: Mapping[str, type] = {
    "catalog": CatalogDatasetFacet,
    "columnLineage": ColumnLineageDatasetFacet,
    "dataSource": DatasourceDatasetFacet,
    "datasetType": DatasetTypeDatasetFacet,
    "lifecycleStateChange": LifecycleStateChangeDatasetFacet,
    "schema": SchemaDatasetFacet,
    "storage": StorageDatasetFacet,
    "symlinks": SymlinksDatasetFacet,
    "version": DatasetVersionDatasetFacet,
}
"""Facets of a dataset that pass. Others may hold ids as rounded numbers, properties or values."""
_BIG = ("columnLineage", "schema")
"""What is left out first of an event that is too big; it can be made again from nowhere."""
_SLACK_BYTES = 4_096
_RUN_MARK = re.compile(r"^run:(?P<run>[0-9a-fA-F-]{36}):(?P<job>\S+)$")
_INTENT_MARK = re.compile(r"^intent:(?P<index>\d{1,18})$")


def turning(context: Context) -> Callable[[ListenerRun], list[Event]]:
    """Return the function that makes events of runs, over a ledger."""
    return lambda run: events_of_run(run, context)


def events_of_run(run: ListenerRun, context: Context) -> list[Event]:
    """Return START and the end of a listener's run, or nothing where it says nothing.

    Outputs are told at the end, and only of what did not fail, as in our own events.
    """
    link = _link(run, context)
    failed = run.state != "COMPLETE"
    outputs = {name: raw for name, raw in run.outputs.items() if name not in link.tables}
    if failed:
        outputs = {}
    if _says_nothing(run, outputs, link, failed=failed) or not runs.is_run_id(run.run):
        return []
    read = [_input(raw) for _, raw in sorted(run.inputs.items())][:INPUTS_MAX]
    written = [_output(raw) for _, raw in sorted(outputs.items())][:INPUTS_MAX]
    dropped = _cut(read, written)
    made: list[Event] = []
    for place, state in enumerate((RunState.START, RunState(run.state))):
        ends = place == 1
        facets = _run_facets(run, link, ends=ends, dropped=dropped)
        document = RunEvent(
            eventType=state,
            eventTime=run.ended if ends else run.began,
            run=Run(runId=run.run, facets=facets),
            job=_job(run, link),
            inputs=read,
            outputs=written if ends else [],
            producer=run.producer,
        )
        made.append(finished(document, index=link.intent, place=place))
    return made


def _says_nothing(run: ListenerRun, outputs: Datasets, link: _Link, *, failed: bool) -> bool:
    if failed:
        return False
    if not run.inputs and (not outputs or not run.had_job):
        # A count, a look into a catalog, a statement that only names tables.
        return True
    kind = facts.text(run.job_type, "jobType")
    streaming = facts.text(run.job_type, "processingType") == "STREAMING"
    # Spark's own jobs (inferring a schema, listing files), and the shell of a micro-batch: the
    # query that writes is another run, and the sources of a sink of ours are in our own event.
    # A look at data in a run of ours, the gate's checks included, leads nowhere either.
    looked = link.job is not None and not link.tables
    return not outputs and (kind == "RDD_JOB" or streaming or looked)


# -- the link to our own runs ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Link:
    parent: ParentRunFacet | None = None
    job: JobRef | None = None
    tables: frozenset[tuple[str, str]] = frozenset()
    intent: int = 0


def _link(run: ListenerRun, context: Context) -> _Link:
    intent, outer = _INTENT_MARK.match(run.mark or ""), _RUN_MARK.match(run.mark or "")
    if intent is not None:
        found = _batch(int(intent["index"]), context)
        if found is not None:
            return found
    if outer is not None and runs.is_run_id(outer["run"]):
        job = runs.job_ref(outer["job"])
        above = RunRef(job=job, run=RunId(outer["run"].lower()))
        return _Link(parent=_below(above, run), job=job)
    own = _ref(run.parent)
    return _Link(parent=None if own is None else _below(own, run))


def _batch(index: int, context: Context) -> _Link | None:
    entry = context.entry(index)
    if entry is None or entry.kind is not Kind.INTENT:
        return None
    attempt = attempt_of(entry, context)
    job = runs.job_ref(entry.job or "odi/unknown")
    own = runs.child(job, [(item.operation, item.table) for item in attempt.operations])
    run = facts.text(entry.facts, "parent_run") or ""
    above = RunRef(job=job, run=RunId(run)) if runs.is_run_id(run) else None
    parent = runs.parent_facet(RunRef(job=own, run=attempt.run), entry, above=above)
    tables: set[tuple[str, str]] = set()
    for described in attempt.described:
        ref = TableRef(
            uuid=TableUuid(facts.text(described, "table_uuid") or ""),
            name=facts.text(described, "table") or "unknown",
        )
        named = view(ref, context, index, intent=entry).name
        tables.add((named.namespace, named.name))
    return _Link(parent=parent, job=own, tables=frozenset(tables), intent=index)


def _below(parent: RunRef, run: ListenerRun) -> ParentRunFacet:
    """Return a parent with the root that the listener was told, if that is a run above its own."""
    root, own = _ref(facts.obj(run.parent, "root")), _ref(run.parent)
    return runs.parent_facet(parent, None, above=None if root == own else root)


def _ref(raw: JsonObject) -> RunRef | None:
    job, run = facts.obj(raw, "job"), facts.text(facts.obj(raw, "run"), "runId")
    namespace, name = facts.text(job, "namespace"), facts.text(job, "name")
    if not namespace or not name or run is None or not runs.is_run_id(run):
        return None
    return RunRef(job=JobRef(namespace=accepted(namespace), name=name), run=RunId(run))


# -- parts of an event -----------------------------------------------------------------------------


def _job(run: ListenerRun, link: _Link) -> Job:
    made: dict[str, Any] = {}
    _put(made, "jobType", JobTypeJobFacet, run.job_type)
    if link.job is None:
        return Job(namespace=accepted(run.namespace), name=run.name, facets=made)
    # Marquez puts the parent's name before that of its child unless it stands there already.
    return Job(namespace=link.job.namespace, name=f"{link.job.name}.{run.name}", facets=made)


def _run_facets(
    run: ListenerRun, link: _Link, *, ends: bool, dropped: Sequence[str]
) -> dict[str, RunFacet]:
    made: dict[str, RunFacet] = {}
    if link.parent is not None:
        made["parent"] = link.parent
    _put(made, "processing_engine", ProcessingEngineRunFacet, run.engine)
    if ends and run.state != "COMPLETE":
        made["errorMessage"] = runs.error_facet(run.error or "the Spark job failed")
    if dropped:
        made["tags"] = runs.tags_facet({"trimmed": ", ".join(dropped)})
    return made


def _input(raw: JsonObject) -> InputDataset:
    named = name_of(raw)
    about: dict[str, Any] = {}
    held = facts.obj(raw, "inputFacets")
    statistics = facts.obj(held, "inputStatistics")
    _put(about, "inputStatistics", InputStatisticsInputDatasetFacet, statistics)
    locations = facts.texts(facts.obj(facts.obj(held, "subset"), "inputCondition"), "locations")
    if locations:
        about["subset"] = InputSubsetInputDatasetFacet(
            inputCondition=LocationSubsetCondition(locations=locations)
        )
    return InputDataset(
        namespace=named.namespace, name=named.name, facets=_facets(raw), inputFacets=about
    )


def _output(raw: JsonObject) -> OutputDataset:
    named = name_of(raw)
    about: dict[str, Any] = {}
    statistics = facts.obj(facts.obj(raw, "outputFacets"), "outputStatistics")
    _put(about, "outputStatistics", OutputStatisticsOutputDatasetFacet, statistics)
    return OutputDataset(
        namespace=named.namespace, name=named.name, facets=_facets(raw), outputFacets=about
    )


def _facets(raw: JsonObject) -> dict[str, Any]:
    made: dict[str, Any] = {}
    held = facts.obj(raw, "facets")
    for key, kind in _DATASET.items():
        _put(made, key, kind, facts.obj(held, key))
    if "catalog" in made:
        # Whatever a catalog was configured with, secrets included, may stand there.
        made["catalog"].catalogProperties = None
    if "columnLineage" in made:
        _without_expressions(made["columnLineage"])
    return made


def _put(made: dict[str, Any], key: str, kind: type, raw: JsonObject) -> None:
    if raw:
        try:
            made[key] = structured(kind, raw)
        except Unfit:
            # A facet that backends would refuse must not hold the event back.
            return


def _without_expressions(facet: ColumnLineageDatasetFacet) -> None:
    # Expressions hold the values that they compare with.
    columns = list(facet.fields.values())
    for column in columns:
        column.transformationDescription = None
    edges = [edge for column in columns for edge in column.inputFields] + list(facet.dataset or [])
    for edge in edges:
        for step in edge.transformations or []:
            step.description = None


def _cut(read: Sequence[InputDataset], written: Sequence[OutputDataset]) -> list[str]:
    """Take big facets out of the datasets until an event of them is small; return which."""
    dropped: list[str] = []
    for key in _BIG:
        if _size(read, written) <= EVENT_BYTES_MAX - _SLACK_BYTES:
            break
        for dataset in (*read, *written):
            cast("dict[str, Any]", dataset.facets).pop(key, None)
        dropped.append(key)
    return dropped


def _size(read: Sequence[InputDataset], written: Sequence[OutputDataset]) -> int:
    return sum(len(json.dumps(attr.asdict(dataset), default=str)) for dataset in (*read, *written))
