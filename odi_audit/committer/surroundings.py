"""What an intent keeps of its surroundings: the tables' shape, the catalog, the engine, the caller.

Owns the facts that lineage is made of later, from the ledger alone (docs/lineage-events.md). A
schema is kept once: later intents name the entry that has it. Must never keep an environment
variable that is not on the list, nor a login.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as _installed
from typing import cast

from odi_audit.canonical import Json, JsonObject
from odi_audit.committer.parts import Parts
from odi_audit.ids import TableUuid
from odi_audit.ledger.port import EntryFilter, Ledger
from odi_audit.model.entries import Entry, Kind
from odi_audit.redact import redact
from odi_audit.settings import CatalogSettings
from odi_audit.spark import ddl
from odi_audit.spark.jvm import Jvm
from odi_audit.spark.live import LiveTable
from odi_audit.urls import split_login

ENVIRONMENT_KEPT = (
    "AIRFLOW_CTX_DAG_ID",
    "AIRFLOW_CTX_DAG_RUN_ID",
    "AIRFLOW_CTX_TASK_ID",
    "CI_JOB_ID",
    "CI_PIPELINE_ID",
    "DAGSTER_RUN_ID",
    "GITHUB_RUN_ID",
    "GITHUB_WORKFLOW",
    "ODI_ENVIRONMENT",
    "OPENLINEAGE_PARENT_ID",
    "OPENLINEAGE_ROOT_PARENT_ID",
    "PREFECT_FLOW_RUN_ID",
)
"""Variables that say who started the job; all others may hold secrets, and stay where they are."""
VALUE_LENGTH_MAX = 500
OWNER = "odi.owner"
"""Table property that names an owner; Spark reserves ``owner`` and puts the account there."""


def surroundings(
    parts: Parts, jvm: Jvm, tables: Sequence[LiveTable], *, stream: JsonObject | None = None
) -> dict[str, Json]:
    """Return the facts of an intent that say where it happens and to what.

    ``stream`` is what a streaming sink needs to make its checkpoint again.
    """
    made: dict[str, Json] = {
        "catalog": _catalog(parts.settings.catalog),
        "engine": {"name": "spark", "version": jvm.spark.version, "odi_audit": _product()},
    }
    if tables:
        # Tables of one job have mostly landed with one intent, which is read once.
        intents = cache(parts.ledger.get)
        made["tables"] = [_table(parts.ledger, intents, table) for table in tables]
    if stream is not None:
        made["stream"] = stream
    return made | whereabouts(parts)


def whereabouts(parts: Parts) -> dict[str, Json]:
    """Return what the job's document says of itself, and what the environment says of the job."""
    told = {
        "about": parts.about,
        "environment": {name: os.environ.get(name) for name in ENVIRONMENT_KEPT},
    }
    made: dict[str, Json] = {}
    for fact, values in told.items():
        kept = {
            name: str(redact(value))[:VALUE_LENGTH_MAX] for name, value in values.items() if value
        }
        if kept:
            made[fact] = kept
    return made


def _table(ledger: Ledger, intents: Callable[[int], Entry], table: LiveTable) -> JsonObject:
    shape = ddl.shape(table)
    schema = cast("JsonObject", shape["schema"])
    made: dict[str, Json] = {
        "table_uuid": table.ref.uuid,
        "location": shape["location"],
        "format_version": shape["format_version"],
        "schema_id": schema["schema-id"],
    }
    owner = table.property(OWNER) or table.property("owner")
    if owner is not None:
        made["owner"] = owner
    at = _kept_at(ledger, intents, table.ref.uuid, schema["schema-id"])
    return made | ({"schema": schema} if at is None else {"schema_at": at})


def _kept_at(
    ledger: Ledger, intents: Callable[[int], Entry], table: TableUuid, schema_id: Json
) -> int | None:
    """Return the entry that has a table's schema, if the last one about the table leads to it."""
    kinds = (Kind.LANDED, Kind.TABLE_CREATED, Kind.SCHEMA_CHANGE)
    where = EntryFilter(kinds=kinds, table=table)
    for entry in ledger.find(where, limit=1, newest_first=True):
        if entry.kind is not Kind.LANDED:
            held = entry.facts.get("schema" if entry.kind is Kind.TABLE_CREATED else "after")
            same = isinstance(held, Mapping) and held.get("schema-id") == schema_id
            return entry.index if same else None
        if entry.intent is not None:
            return _of_intent(intents(entry.intent), table, schema_id)
    return None


def _of_intent(intent: Entry, table: TableUuid, schema_id: Json) -> int | None:
    for item in cast("Sequence[JsonObject]", intent.facts.get("tables") or []):
        if item.get("table_uuid") == table and item.get("schema_id") == schema_id:
            return intent.index if "schema" in item else cast("int | None", item.get("schema_at"))
    return None


def _catalog(settings: CatalogSettings) -> JsonObject:
    uri = split_login(settings.uri).bare
    made: dict[str, Json] = {"name": settings.name, "type": settings.type, "uri": uri}
    if settings.type != "rest":
        # As Spark, and so its listener, is told: both are one kind of catalog to it.
        scheme = "jdbc:sqlite:" if settings.type == "sqlite" else "jdbc:"
        made |= {"type": "jdbc", "uri": scheme + uri}
    if settings.warehouse is not None:
        made["warehouse"] = settings.warehouse
    return cast("JsonObject", redact(made))


@cache
def _product() -> str:
    try:
        return _installed("odi-audit")
    except PackageNotFoundError:
        return "not-installed"
