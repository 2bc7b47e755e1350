"""Runs and jobs: their names, and the facets that say who ran what, where and why it failed.

Owns the hierarchy: the job as its user named it is the parent, and each (operation, table) of it is
a job of its own with one run for each attempt at a batch. Must never pass on an environment
variable that the committer did not choose to keep.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

from openlineage.client.generated import parent_run
from openlineage.client.generated.base import Job, JobFacet, RunFacet
from openlineage.client.generated.documentation_job import DocumentationJobFacet
from openlineage.client.generated.environment_variables_run import (
    EnvironmentVariable,
    EnvironmentVariablesRunFacet,
)
from openlineage.client.generated.error_message_run import ErrorMessageRunFacet
from openlineage.client.generated.execution_parameters_run import (
    ExecutionParameter,
    ExecutionParametersRunFacet,
)
from openlineage.client.generated.job_type_job import JobTypeJobFacet
from openlineage.client.generated.nominal_time_run import NominalTimeRunFacet
from openlineage.client.generated.ownership_job import Owner, OwnershipJobFacet
from openlineage.client.generated.processing_engine_run import ProcessingEngineRunFacet
from openlineage.client.generated.source_code_location_job import SourceCodeLocationJobFacet
from openlineage.client.generated.sql_job import SQLJobFacet
from openlineage.client.generated.tags_run import TagsRunFacet, TagsRunFacetFields

from lineage import facts
from lineage.facets import INTEGRATION, PRODUCER, OdiLedgerRunFacet
from lineage.leaving import canonical
from lineage.naming import accepted
from lineage.sharing import MADE_MAX, shared
from odi_audit import clock
from odi_audit.canonical import Json, JsonObject, digest, encode
from odi_audit.ids import RunId
from odi_audit.ledger.merkle import leaf_hash
from odi_audit.model.entries import Entry
from odi_audit.model.offsets import OffsetKind, Offsets, Place
from odi_audit.redact import MASK, is_secret_key

_RUNS = uuid.UUID("6f64692d-6c69-4e65-8167-652d72756e73")
TABLES_NAMED_MAX = 3
"""A job that writes more tables than this is named by a digest of them."""
_REPOSITORY = re.compile(r"^(?:git\+)?(?P<url>https?://[^\s@]+?)@(?P<version>[0-9a-f]{7,40})$")
_PAGE = re.compile(r"^https?://[^\s@]+/(?:tree|blob|commit)/(?P<version>[0-9a-f]{7,40})(?:/\S*)?$")
_PARENT = re.compile(r"^(?P<namespace>[^/]+)/(?P<name>.+)/(?P<run>[0-9a-fA-F-]{36})$")
_ROOT_VARIABLES = ("OPENLINEAGE_ROOT_PARENT_ID", "OPENLINEAGE_PARENT_ID")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRef:
    """A job's name, cut as OpenLineage wants it."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRef:
    """A run of a job."""

    job: JobRef
    run: RunId


def job_ref(job: str) -> JobRef:
    """Cut ``sales/emea/orders`` into (``sales/emea``, ``orders``), as a table's name is cut."""
    namespace, _, name = job.rpartition("/")
    return JobRef(namespace=accepted(namespace or "odi"), name=name or "unknown")


def child(job: JobRef, operations: Sequence[tuple[str, str]]) -> JobRef:
    """Name what a job does to tables: ``orders.append.sales.orders``.

    Marquez puts a parent's name before that of its child unless it stands there already.
    """
    tables = sorted({table for _, table in operations})
    words = {operation for operation, _ in operations}
    word = words.pop() if len(words) == 1 else "batch"
    shown = "+".join(tables)
    if len(tables) > TABLES_NAMED_MAX:
        shown = f"{tables[0]}+{len(tables) - 1}-{digest(tables)[:8]}"
    return JobRef(namespace=job.namespace, name=f"{job.name}.{word}.{shown}")


def made_run_id(kind: str, index: int, about: str) -> RunId:
    """Derive the id of a run that no intent opened (a read, a foreign snapshot)."""
    return RunId(str(uuid.uuid5(_RUNS, f"{kind}/{index}/{about}")))


@lru_cache(maxsize=MADE_MAX)
def is_run_id(text: str | None) -> bool:
    """Say whether a text can be a run's id."""
    try:
        uuid.UUID(text or "")
    except ValueError:
        return False
    return True


# -- run facets ------------------------------------------------------------------------------------


def parent_facet(
    parent: RunRef, intent: Entry | None, *, above: RunRef | None = None
) -> parent_run.ParentRunFacet:
    """Return the parent with its root: the scheduler's run where it is known, else the topmost."""
    root = None if intent is None else _scheduler(intent)
    return _parent(parent, root or above or parent)


@lru_cache(maxsize=MADE_MAX)
def _parent(parent: RunRef, root: RunRef) -> parent_run.ParentRunFacet:
    facet = parent_run.ParentRunFacet(
        run=parent_run.Run(runId=parent.run, facets=None),
        job=parent_run.Job(namespace=parent.job.namespace, name=parent.job.name, facets=None),
        root=parent_run.Root(
            run=parent_run.RootRun(runId=root.run, facets=None),
            job=parent_run.RootJob(namespace=root.job.namespace, name=root.job.name, facets=None),
        ),
        producer=PRODUCER,
    )
    return shared(facet)


def intent_facets(intent: Entry, offsets: Offsets | None) -> dict[str, RunFacet]:
    """Return what an intent says of the run: engine, window, environment, parameters."""
    made: dict[str, RunFacet] = {}
    engine = facts.obj(intent.facts, "engine")
    version = facts.text(engine, "version")
    if version is not None:
        made["processing_engine"] = _engine(
            version, facts.text(engine, "name"), facts.text(engine, "odi_audit")
        )
    window = None if offsets is None else _window(offsets)
    if window is not None:
        made["nominalTime"] = nominal(*window)
    made |= environment_facets(intent.facts)
    parameters = list(_parameters(intent))
    if parameters:
        made["executionParameters"] = ExecutionParametersRunFacet(
            parameters=parameters, producer=PRODUCER
        )
    return made


def environment_facets(told: JsonObject) -> dict[str, RunFacet]:
    """Return the variables that say who started a job, where an entry has them."""
    environment = facts.obj(told, "environment")
    if not environment:
        return {}
    facet = EnvironmentVariablesRunFacet(
        environmentVariables=[
            EnvironmentVariable(name=name, value=_shown(name, value))
            for name, value in sorted(environment.items())
        ],
        producer=PRODUCER,
    )
    return {"environmentVariables": facet}


@lru_cache(maxsize=MADE_MAX)
def _engine(version: str, name: str | None, adapter: str | None) -> ProcessingEngineRunFacet:
    return shared(
        ProcessingEngineRunFacet(
            version=version, name=name, openlineageAdapterVersion=adapter, producer=PRODUCER
        )
    )


def nominal(start: str, end: str | None = None) -> NominalTimeRunFacet:
    """Return the window that a run stands for."""
    return NominalTimeRunFacet(nominalStartTime=start, nominalEndTime=end, producer=PRODUCER)


def ledger_facet(entry: Entry, intent: Entry | None = None) -> OdiLedgerRunFacet:
    """Return where in the ledger an event comes from."""
    return OdiLedgerRunFacet(
        index=entry.index,
        kind=entry.kind.value,
        time=entry.time,
        leaf=leaf_hash(canonical(entry.to_json())).hex(),
        intent=None if intent is None else intent.index,
        proof=None if entry.batch is None else f"odi-audit ledger prove {entry.batch}",
        producer=PRODUCER,
    )


def error_facet(message: str) -> ErrorMessageRunFacet:
    """Return why a run ended without its work in the tables."""
    return ErrorMessageRunFacet(message=message, programmingLanguage="PYTHON", producer=PRODUCER)


def tags_facet(tags: Mapping[str, str]) -> TagsRunFacet:
    """Return tags of a run."""
    return TagsRunFacet(
        tags=[
            TagsRunFacetFields(key=key, value=value, source=INTEGRATION)
            for key, value in sorted(tags.items())
        ],
        producer=PRODUCER,
    )


# -- job facets ------------------------------------------------------------------------------------


def job_of(
    ref: JobRef,
    *,
    what: str,
    code: str | None = None,
    sql: str | None = None,
    description: str | None = None,
    owner: str | None = None,
    streaming: bool = False,
) -> Job:
    """Return a job with the facets that are known of it.

    A micro-batch of a stream is a batch, with an end of its own. Said to be streaming, Marquez
    would drop the job's outputs at each start, and not take them up again at the end.
    """
    made: dict[str, JobFacet] = {"jobType": _job_type(what, streaming)}
    location = None if code is None else _source_code(code)
    if location is not None:
        made["sourceCodeLocation"] = location
    if sql is not None:
        made["sql"] = SQLJobFacet(query=sql, dialect="spark", producer=PRODUCER)
    elif description is not None:
        made["documentation"] = _documentation(description)
    if owner is not None:
        made["ownership"] = _ownership(owner)
    return Job(namespace=ref.namespace, name=ref.name, facets=made)


@lru_cache(maxsize=MADE_MAX)
def _job_type(what: str, streaming: bool) -> JobTypeJobFacet:
    return shared(
        JobTypeJobFacet(
            processingType="STREAMING" if streaming else "BATCH",
            integration=INTEGRATION,
            jobType=what.upper(),
            producer=PRODUCER,
        )
    )


@lru_cache(maxsize=MADE_MAX)
def _documentation(description: str) -> DocumentationJobFacet:
    return shared(DocumentationJobFacet(description=description, producer=PRODUCER))


@lru_cache(maxsize=MADE_MAX)
def _ownership(owner: str) -> OwnershipJobFacet:
    return shared(OwnershipJobFacet(owners=[Owner(name=owner)], producer=PRODUCER))


def statement(operation: JsonObject) -> str | None:
    """Return the SQL that says what an operation does; texts in it were masked when recorded."""
    arguments, table = facts.obj(operation, "arguments"), facts.text(operation, "table")
    where = facts.text(arguments, "where")
    match facts.text(operation, "op"):
        case "delete" if where is not None:
            return f"DELETE FROM {table} WHERE {where}"  # noqa: S608 - shown, never run
        case "update" if where is not None:
            pairs = ", ".join(
                f"{column} = {value}" for column, value in facts.obj(arguments, "set").items()
            )
            return f"UPDATE {table} SET {pairs} WHERE {where}"  # noqa: S608 - shown, never run
        case _:
            return None


# -- helpers -------------------------------------------------------------------------------------


def _scheduler(intent: Entry) -> RunRef | None:
    environment = facts.obj(intent.facts, "environment")
    for variable in _ROOT_VARIABLES:
        match = _PARENT.match(facts.text(environment, variable) or "")
        if match is not None and is_run_id(match["run"]):
            job = JobRef(namespace=accepted(match["namespace"]), name=match["name"])
            return RunRef(job=job, run=RunId(match["run"].lower()))
    return None


def _window(offsets: Offsets) -> tuple[str, str] | None:
    if offsets.kind is not OffsetKind.WATERMARK or len(offsets.ranges) != 1:
        return None
    part = next(iter(offsets.ranges.values()))
    start, end = _moment(part.start), _moment(part.end)
    return None if start is None or end is None else (start, end)


def _moment(place: Place | None) -> str | None:
    if not isinstance(place, str) or not re.match(r"^\d{4}-\d\d-\d\d", place):
        return None
    try:
        moment = datetime.fromisoformat(place)
    except ValueError:
        return None
    # A watermark without a zone is taken as UTC, as Spark's sessions here are.
    return clock.to_text(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def _parameters(intent: Entry) -> list[ExecutionParameter]:
    operations = facts.objects(intent.facts, "operations")
    made: list[ExecutionParameter] = []
    for place, operation in enumerate(operations):
        prefix = "" if len(operations) == 1 else f"{place}."
        for key, value in sorted(facts.obj(operation, "arguments").items()):
            if value in (None, [], {}) or key in {"contract", "op", "table"}:
                continue
            made.append(ExecutionParameter(key=prefix + key, value=_shown(key, value)))
    return made


def _shown(key: str, value: Json) -> str:
    if is_secret_key(key) and isinstance(value, str):
        return MASK
    if isinstance(value, Mapping):
        value = {name: _shown(name, item) for name, item in value.items()}
    return value if isinstance(value, str) else encode(value).decode()


@lru_cache(maxsize=MADE_MAX)
def _source_code(code: str) -> SourceCodeLocationJobFacet | None:
    repository, page = _REPOSITORY.match(code), _PAGE.match(code)
    match = repository or page
    if match is None:
        return None
    return shared(
        SourceCodeLocationJobFacet(
            type="git",
            url=code if repository is None else repository["url"],
            repoUrl=None if repository is None else repository["url"],
            version=match["version"],
            producer=PRODUCER,
        )
    )
