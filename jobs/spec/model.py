"""A job as its spec says it: what the runner takes.

Owns the keys of a spec, their defaults and limits. Rules between keys are in
:mod:`jobs.spec.rules`; ``load_spec`` applies them, building a ``JobSpec`` by hand does not. Must
never connect to anything.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator, WithJsonSchema

from jobs.spec.columns import column_name
from jobs.spec.fields import (
    ColumnName,
    ColumnNames,
    Duration,
    Hook,
    Job,
    Part,
    Query,
    Secret,
    Size,
    Table,
    TablePattern,
    Template,
    Term,
    Text,
    one_or_many,
    several,
    show_column,
    sized,
    within,
)
from jobs.spec.sources import HistorySource, KafkaStart, Source, Url, at_word
from odi_audit.model.contract import RULES_MAX

KIB, MIB, GIB = 1024, 1024**2, 1024**3
FROM_EVENT = "from_event"
"""In place of a key's columns: those of the change event's own key."""
Mode: TypeAlias = Literal["append", "upsert", "mirror", "history", "replace", "replace_partitions"]
Compatibility: TypeAlias = Literal[
    "NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL",
    "FULL_TRANSITIVE",
]  # fmt: skip
TABLES_PER_JOB_MAX = 1_000


def _transform(given: object) -> object:
    if not isinstance(given, str):
        return given
    return {"sql": given} if len(given.split()) > 1 else {"python": given}


def _key(given: object) -> tuple[str, ...] | Literal["from_event"]:
    if given == FROM_EVENT:
        return "from_event"
    names = one_or_many(given)
    if not isinstance(names, list | tuple):
        told = "write columns, such as [order_id], or from_event"
        raise ValueError(told)  # noqa: TRY004 - pydantic takes a ValueError for a finding
    found: list[str] = []
    wrong: list[tuple[str | int, str]] = []
    for index, name in enumerate(names):
        try:
            found.append(column_name(name))
        except ValueError as error:
            wrong.append((index, str(error)))
    if wrong:
        raise several(wrong)
    return tuple(found)


Key: TypeAlias = Annotated[
    tuple[str, ...] | Literal["from_event"],
    PlainValidator(_key),
    PlainSerializer(
        lambda key: key if isinstance(key, str) else [show_column(name) for name in key],
        return_type=str | list[str],
    ),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "examples": ["order_id", "from_event"]},
                {"type": "array", "items": {"type": "string"}},
            ]
        }
    ),
]


class Registry(Part):
    """The schema registry, with Confluent's API."""

    url: Url = Field(description="Its address, without a login.")
    compatibility: Compatibility = Field(
        "FULL_TRANSITIVE", description="The level that every subject must have."
    )
    on_weaker: Literal["warn", "refuse"] = Field(
        "warn", description="What to do at the start if a subject's level is weaker."
    )
    user: Text | None = Field(None, description="User, where it asks for one.")
    password: Secret | None = Field(None, description="Its password, as `${NAME}`.")
    timeout: Annotated[Duration, within(timedelta(seconds=1), timedelta(minutes=5))] = Field(
        timedelta(seconds=10), description="How long to wait for an answer."
    )


class Batch(Part):
    """When a batch is cut: whichever limit comes first."""

    every: Annotated[Duration, within(timedelta(seconds=1), timedelta(days=1))] = Field(
        timedelta(minutes=5), description="At the latest after this time; 1m to 5m is usual."
    )
    rows: int = Field(500_000, ge=1, le=1_000_000_000, description="At most so many records.")
    bytes: Annotated[Size, sized(KIB, 1024 * GIB)] = Field(
        256 * MIB, description="At most so much, as the source counts it."
    )
    files: int = Field(1_000, ge=1, le=100_000, description="At most so many files.")
    cut_at_transactions: bool = Field(
        default=False, description="Cut only where a transaction of the source ends."
    )


class Transform(Part):
    """What is done to the rows between reading and writing: one of the two."""

    sql: Query | None = Field(None, description="A query over `batch`.")
    python: Hook | None = Field(
        None, description="`module:function` that takes a DataFrame and returns one."
    )


class Route(Part):
    """Rows to many tables."""

    by: Literal["topic", "field"] = Field(description="What names the table.")
    field: ColumnName | None = Field(None, description="With `by: field`: the column.")
    table: Template = Field(description="The table's name, with `{topic}` or `{field}` in it.")
    allow: Annotated[
        tuple[TablePattern, ...], BeforeValidator(one_or_many), Field(min_length=1, max_length=100)
    ] = Field(description="Patterns of names that may be written and made; others stop the job.")
    tables_max: int = Field(
        500, ge=1, le=TABLES_PER_JOB_MAX, description="More tables than this stop the job."
    )


class Raw(Part):
    """The second table of a dual table: every record as it came."""

    table: Table = Field(description="Its name.")
    partition_by: Annotated[tuple[Term, ...], BeforeValidator(one_or_many)] = Field(
        (), description="As for the target."
    )


class HistoryColumns(Part):
    """The columns by which a table keeps every version of a row."""

    valid_from: ColumnName = Field("valid_from", description="Since when a version holds.")
    valid_to: ColumnName = Field("valid_to", description="Until when; null: it still does.")
    current: ColumnName = Field("is_current", description="Whether it is the newest.")


class Target(Part):
    """Tables, and the way in which rows get there."""

    table: Table | None = Field(None, description="The table; made at the first batch.")
    route: Route | None = Field(None, description="Many tables in place of one.")
    mode: Mode = Field(
        "append",
        description="`append`; `upsert` by key; `mirror` of a changed table, deletes too; "
        "`history` (SCD2); `replace` the rows that match `where`; `replace_partitions`.",
    )
    key: Key = Field(
        (), description="Columns that identify a row; `from_event`: those of the event's key."
    )
    order_by: ColumnNames = Field(
        (), description="Of rows with one key the greatest by these wins."
    )
    delete_when: Text | None = Field(
        None, description="With `upsert`: rows for which this holds delete theirs."
    )
    where: Text | None = Field(None, description="With `replace`: which rows are replaced.")
    partition_by: Annotated[
        tuple[Term, ...], BeforeValidator(one_or_many), Field(max_length=20)
    ] = Field((), description="Columns or transforms: `days(ts)`, `bucket(16, id)`.")
    raw: Raw | None = Field(None, description="A second table with every record as it came.")
    history: HistoryColumns = Field(
        HistoryColumns(), description="With `history`: the names of its columns."
    )
    create: bool = Field(default=True, description="Make a table that is not there.")
    evolve: Literal["permissive", "strict"] = Field(
        "permissive",
        description="`permissive`: new fields become columns, types widen; `strict`: neither.",
    )
    provenance: Literal["batch", "row"] = Field(
        "batch", description="`row`: every row keeps its partition and offset."
    )
    file_size: Annotated[Size, sized(MIB, 4 * GIB)] = Field(
        128 * MIB, description="Size that data files aim at."
    )
    distribution: Literal["hash", "range", "none"] = Field(
        "hash", description="How rows are spread over writers before they write."
    )
    properties: dict[str, Text] = Field({}, description="Further properties of a new table.")


class Contract(Part):
    """Conditions on the rows of every batch."""

    key: ColumnNames = Field((), description="No two rows of a batch share these; never null.")
    required: ColumnNames = Field((), description="Columns that are never null.")
    rules: Annotated[dict[str, Text], Field(max_length=RULES_MAX)] = Field(
        {}, description="A name and a condition in SQL, such as `amount >= 0`."
    )
    on_violation: Literal["refuse", "dead_letter"] = Field(
        "refuse", description="Refuse the batch, or put the rows aside and go on."
    )


class DeadLetter(Part):
    """Where records go that cannot be read or do not fit."""

    table: Table = Field(description="Its name; records keep bytes, reason, offset and batch.")


class Bootstrap(Part):
    """History first, then the source from the exact hand-over."""

    source: HistorySource = Field(alias="from", description="Files, a database or a table.")
    hand_over: Annotated[KafkaStart, BeforeValidator(at_word)] = Field(
        description="Where the source takes over: offsets, or a timestamp; each record is in "
        "exactly one of both."
    )
    transform: Annotated[Transform, BeforeValidator(_transform)] | None = Field(
        None, description="For the history only."
    )


class JobSpec(Part):
    """A job: one source, one target (or many by route), and what lies between."""

    version: Literal[1] = Field(description="The version of this format.")
    job: Job = Field(description="`namespace/name`; it is in every record of the ledger.")
    description: Text | None = Field(None, description="One line for people.")
    owner: Text | None = Field(None, description="Whom to ask.")
    source: Source = Field(description="Where rows come from.")
    registry: Registry | None = Field(None, description="The schema registry of Avro records.")
    batch: Batch = Field(Batch(), description="When a batch is cut.")
    transform: Annotated[Transform, BeforeValidator(_transform)] | None = Field(
        None, description="SQL or a function, between reading and writing."
    )
    target: Target = Field(description="Where rows go, and how.")
    contract: Contract = Field(Contract(), description="What must hold for every row.")
    dead_letter: DeadLetter | None = Field(
        None, description="Where records go that cannot be read; left out: they refuse the batch."
    )
    bootstrap: Bootstrap | None = Field(None, description="History first, then the source.")
    engine: Literal["auto", "spark", "arrow"] = Field(
        "auto", description="`auto` takes the Arrow path where it can."
    )
