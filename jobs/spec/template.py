"""The first spec of a new job: answers become a file with comments, which is valid as it stands.

Owns the words of the comments and which answers each kind of job needs. Must never write a file,
and never return a text that does not check.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

from jobs.spec.load import check_text
from jobs.spec.problems import invalid
from jobs.spec.rules_target import KEYED
from jobs.spec.writing import word
from odi_audit.errors import UsageError

SCHEMA_HINT = "# yaml-language-server: $schema=job-1.json"
SOURCES = ("kafka", "files", "jdbc", "iceberg")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What ``jobs new`` asks; texts as the file writes them, lists as tuples, None: not asked."""

    job: str
    source: str
    table: str
    mode: str = "append"
    description: str | None = None
    owner: str | None = None
    servers: str | None = None
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    format: str | None = None
    columns: str | None = None
    debezium: bool = False
    registry: str | None = None
    path: str | None = None
    url: str | None = None
    user: str | None = None
    password_variable: str | None = None
    from_table: str | None = None
    watermark: str | None = None
    key: tuple[str, ...] = ()
    order_by: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    where: str | None = None
    every: str | None = None
    dead_letter: str | None = None

    def __post_init__(self) -> None:
        if self.source not in SOURCES:
            raise UsageError(f"source {self.source!r}: expected one of {', '.join(SOURCES)}")


NEEDED: Mapping[str, tuple[str, ...]] = {
    "kafka": ("servers", "topics", "format"),
    "files": ("path", "format"),
    "jdbc": ("url", "from_table", "watermark"),
    "iceberg": ("from_table",),
}
"""Answers without which a source cannot be written down."""


def needed(source: str, mode: str, *, debezium: bool, pattern: bool) -> tuple[str, ...]:
    """Return the names of the answers that a job of this kind needs, in the order of asking."""
    names = [name for name in NEEDED.get(source, ()) if not (pattern and name == "topics")]
    if mode in KEYED:
        names.append("key")
    if mode == "history" and not debezium and source != "iceberg":
        names.append("order_by")
    if mode == "replace":
        names.append("where")
    if mode == "replace_partitions":
        names.append("partition_by")
    return tuple(names)


def new_spec(answers: Answers) -> str:
    """Return the file of a new job.

    Raises:
        ConfigError: the answers do not go together; every problem is told, with its line.
    """
    text = "\n".join(_lines(answers)) + "\n"
    found = check_text(text, {}, unset_ok=True)
    if found.problems:
        raise invalid("the new spec", found.problems)
    return text


def missing(answers: Mapping[str, object], source: str, mode: str) -> tuple[str, ...]:
    """Return the names of needed answers that are not given."""
    wanted = needed(
        source,
        mode,
        debezium=bool(answers.get("debezium")),
        pattern=bool(answers.get("pattern")),
    )
    return tuple(name for name in wanted if not answers.get(name))


def names() -> tuple[str, ...]:
    """Return the names of all answers."""
    return tuple(field.name for field in fields(Answers))


def _lines(answers: Answers) -> Iterator[str]:
    yield SCHEMA_HINT
    yield "# Editors find the schema beside this file: odi-audit jobs schema > job-1.json"
    yield "# Check it: odi-audit jobs check FILE --offline. Every key: docs/guide/jobs.md"
    yield "version: 1"
    yield f"job: {word(answers.job)}   # in every record of the ledger: choose it for good"
    yield from _maybe("description", answers.description, "# description: one line for people")
    yield from _maybe("owner", answers.owner, "# owner: whom to ask")
    yield ""
    yield "source:"
    yield f"  type: {answers.source}"
    for line in _SOURCE_LINES[answers.source](answers):
        yield f"  {line}"
    if answers.registry:
        yield from ("", "registry:", f"  url: {word(answers.registry)}")
        yield "  compatibility: FULL_TRANSITIVE   # weaker levels are told at the start"
    yield ""
    yield "batch:   # cut at whichever comes first"
    yield f"  every: {answers.every or '5m'}   # 1m to 5m is usual: each batch is a snapshot"
    if answers.source == "files":
        yield "  files: 1000"
    else:
        yield "  rows: 500000"
    yield "  bytes: 256MB"
    yield ""
    yield "# transform: SELECT order_id, amount FROM batch   # or module:function"
    yield ""
    yield from _target(answers)
    yield ""
    yield "# contract:"
    yield "#   required: [order_id]"
    yield "#   rules: {amount is not negative: amount >= 0}"
    yield "#   on_violation: refuse   # or dead_letter"
    yield ""
    if answers.dead_letter:
        yield "dead_letter:   # records that cannot be read, with their bytes and the reason"
        yield f"  table: {word(answers.dead_letter)}"
    else:
        yield "# dead_letter: {table: …}   # without one, what cannot be read stops the job"


def _kafka(answers: Answers) -> Iterator[str]:
    yield f"servers: {word(answers.servers or '')}"
    if answers.pattern:
        yield f"pattern: {word(answers.pattern)}   # new topics join without a restart"
    else:
        yield f"topics: {_list(answers.topics)}"
    yield "start: earliest   # until the ledger has a position"
    if answers.debezium:
        yield "envelope: debezium"
        yield f"key: {{format: {answers.format}}}"
    yield "value:"
    yield f"  format: {answers.format}"
    for line in _columns(answers):
        yield f"  {line}"
    yield "# options: settings of the Kafka client; secrets come from variables"
    yield "#   security.protocol: SASL_SSL"
    yield "#   sasl.password: ${KAFKA_PASSWORD}"


def _files(answers: Answers) -> Iterator[str]:
    yield f"path: {word(answers.path or '')}"
    yield f"format: {answers.format}"
    yield "settle: 10s   # a file that changed this recently may be half written"
    yield from _columns(answers)
    if answers.format == "csv":
        yield "options: {header: true}"


def _jdbc(answers: Answers) -> Iterator[str]:
    yield f"url: {word(answers.url or '')}"
    if answers.user:
        yield f"user: {word(answers.user)}"
        yield f"password: ${{{answers.password_variable or 'DB_PASSWORD'}}}"
    yield f"table: {word(answers.from_table or '')}"
    yield "watermark:"
    yield f"  column: {word(answers.watermark or '')}"
    if answers.mode in KEYED:
        yield "  overlap: 5m   # for rows that were committed late"
    yield from _columns(answers)


def _iceberg(answers: Answers) -> Iterator[str]:
    yield f"table: {word(answers.from_table or '')}"
    read = {"append": "appends", "replace": "rows", "replace_partitions": "rows"}
    yield f"read: {read.get(answers.mode, 'changes')}   # changes, appends or rows"


def _columns(answers: Answers) -> Iterator[str]:
    if answers.columns:
        yield f"columns: {word(answers.columns)}"
    elif answers.format in {"json", "csv"}:
        yield "# columns: order_id bigint not null, amount decimal(10,2), ts timestamp"


def _target(answers: Answers) -> Iterator[str]:
    yield "target:"
    yield f"  table: {word(answers.table)}"
    yield f"  mode: {answers.mode}   # append, upsert, mirror, history, replace, …"
    if answers.key:
        key = "from_event" if answers.key == ("from_event",) else _list(answers.key)
        yield f"  key: {key}"
    if answers.order_by:
        yield f"  order_by: {_list(answers.order_by)}   # the newest by these wins"
    if answers.where:
        yield f"  where: {word(answers.where)}"
    if answers.partition_by:
        yield f"  partition_by: {_list(answers.partition_by)}"
    else:
        yield "  # partition_by: [days(ts)]"
    yield "  evolve: permissive   # strict: a new field is refused"


_SOURCE_LINES = {"kafka": _kafka, "files": _files, "jdbc": _jdbc, "iceberg": _iceberg}


def _maybe(key: str, value: str | None, otherwise: str) -> Iterator[str]:
    yield otherwise if value is None else f"{key}: {word(value)}"


def _list(values: tuple[str, ...]) -> str:
    return "[" + ", ".join(word(value, flow=True) for value in values) + "]"
