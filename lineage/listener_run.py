"""What openlineage-spark's listener said of one run, put together from its events.

Owns the reading of its documents: which words of them are looked at. Must never keep what is not
needed to make an event (plans, properties, stack traces): they hold values of rows and secrets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from lineage import facts
from lineage.naming import DatasetName, accepted
from odi_audit.canonical import JsonObject
from odi_audit.ids import RunId

MARK = "spark.odi.parent"
"""The property that the committer marks its Spark jobs with (``odi_audit.spark.listener``)."""
ENDS = frozenset({"COMPLETE", "FAIL", "ABORT"})
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]{2,80})\]")
"""Spark's name of an error: all of its message that holds no value of a row."""
Datasets: TypeAlias = Mapping[tuple[str, str], JsonObject]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerRun:
    """What the listener said of one run, put together."""

    run: RunId
    begins: int
    namespace: str
    name: str
    began: str
    ended: str
    state: str
    producer: str
    mark: str | None = None
    had_job: bool = False
    error: str | None = None
    parent: JsonObject = field(default_factory=dict)
    engine: JsonObject = field(default_factory=dict)
    job_type: JsonObject = field(default_factory=dict)
    inputs: Datasets = field(default_factory=dict)
    outputs: Datasets = field(default_factory=dict)

    def joined(self, document: JsonObject) -> ListenerRun:
        """Return the run with one more event of it; the newest word on a facet holds."""
        later = of_document(document, begins=self.begins)
        return replace(
            later,
            began=self.began,
            mark=later.mark or self.mark,
            had_job=later.had_job or self.had_job,
            error=later.error or self.error,
            parent=later.parent or self.parent,
            engine=later.engine or self.engine,
            job_type=later.job_type or self.job_type,
            inputs=_joined(self.inputs, later.inputs),
            outputs=_joined(self.outputs, later.outputs),
        )


def is_application(document: JsonObject) -> bool:
    """Say whether an event is about the whole Spark process, which reads and writes nothing."""
    kind = facts.obj(facts.obj(facts.obj(document, "job"), "facets"), "jobType")
    return facts.text(kind, "jobType") == "APPLICATION"


def of_document(document: JsonObject, *, begins: int) -> ListenerRun:
    """Return a run as one event tells it; ``begins`` is where in its file it began."""
    run, job = facts.obj(document, "run"), facts.obj(document, "job")
    about, of_job = facts.obj(run, "facets"), facts.obj(job, "facets")
    properties = facts.obj(facts.obj(about, "spark_properties"), "properties")
    message = facts.text(facts.obj(about, "spark.exception"), "message")
    when = facts.text(document, "eventTime") or ""
    return ListenerRun(
        run=RunId(str(run["runId"])),
        begins=begins,
        namespace=facts.text(job, "namespace") or "spark",
        name=str(job["name"]),
        began=when,
        ended=when,
        state=str(document["eventType"]),
        producer=facts.text(document, "producer") or "",
        mark=facts.text(properties, MARK),
        had_job="spark_jobDetails" in about,
        error=None if message is None else _condition(message),
        parent=facts.obj(about, "parent"),
        engine=facts.obj(about, "processing_engine"),
        job_type=facts.obj(of_job, "jobType"),
        inputs=_datasets(document, "inputs"),
        outputs=_datasets(document, "outputs"),
    )


def name_of(raw: JsonObject) -> DatasetName:
    """Return what the listener calls a dataset."""
    return DatasetName(
        namespace=accepted(facts.text(raw, "namespace") or ""), name=facts.text(raw, "name") or ""
    )


def _datasets(document: JsonObject, key: str) -> Datasets:
    found: dict[tuple[str, str], JsonObject] = {}
    for raw in facts.objects(document, key):
        named = name_of(raw)
        if named.name:
            found[named.namespace, named.name] = raw
    return found


def _joined(earlier: Datasets, later: Datasets) -> Datasets:
    made = dict(earlier)
    for name, raw in later.items():
        before = made.get(name, {})
        made[name] = {
            **raw,
            **{
                key: {**facts.obj(before, key), **facts.obj(raw, key)}
                for key in ("facets", "inputFacets", "outputFacets")
                if key in raw or key in before
            },
        }
    return made


def _condition(message: str) -> str:
    found = _CONDITION.search(message)
    return f"Spark: {found[1]}" if found else "the Spark job failed; its log says why"
