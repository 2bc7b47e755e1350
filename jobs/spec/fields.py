"""The kinds of value that a spec's keys take: how each is read, written, and shown to editors.

Owns the pydantic side of :mod:`jobs.spec.words` and :mod:`jobs.spec.columns`, and secrets. Must
never know which key a value belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, TypeAlias, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    SecretStr,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from jobs.spec import columns as ddl
from jobs.spec import words
from jobs.spec.variables import FromVariable, literal
from odi_audit import redact
from odi_audit.ids import JobName
from odi_audit.model.tables import quote

TEXT_LENGTH_MAX = 10_000
NAMES_MAX = 10_000
OPTIONS_MAX = 200
_SECRET_OPTIONS = frozenset({"sasl.jaas.config", "basic.auth.user.info"})
"""Options that hold a password within a longer text."""


class Part(BaseModel):
    """A part of a spec: no unknown key, never changed after it was read."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_by_name=True, validate_by_alias=True
    )


def within(low: timedelta, high: timedelta) -> AfterValidator:
    """Return the check that a duration lies between two others."""

    def check(value: timedelta) -> timedelta:
        if low <= value <= high:
            return value
        span = f"{words.show_duration(low)} to {words.show_duration(high)}"
        raise ValueError(f"found {words.show_duration(value)}; allowed: {span}")

    return AfterValidator(check)


def sized(low: int, high: int) -> AfterValidator:
    """Return the check that a size lies between two others."""

    def check(value: int) -> int:
        if low <= value <= high:
            return value
        span = f"{words.show_size(low)} to {words.show_size(high)}"
        raise ValueError(f"found {words.show_size(value)}; allowed: {span}")

    return AfterValidator(check)


def one_or_many(given: object) -> object:
    """Take one word for a list of one."""
    return [given] if isinstance(given, str) else given


def secret_option(key: str) -> bool:
    """Say whether an option of a client holds a secret."""
    return key.lower() in _SECRET_OPTIONS or redact.is_secret_key(key)


def secret(given: object) -> SecretStr:
    """Take a secret, which must come from the environment; afterwards it is masked everywhere."""
    if isinstance(given, SecretStr):
        return given
    if not isinstance(given, FromVariable):
        told = "a secret must not stand in the file: write ${NAME} and set the variable"
        raise ValueError(told)  # noqa: TRY004 - pydantic takes a ValueError for a finding
    if given != given.written:
        redact.register(str(given))
    return SecretStr(given)


def written(value: SecretStr) -> str:
    """Return a secret as the file writes it: the variable, never the value."""
    inner = value.get_secret_value()
    return inner.written if isinstance(inner, FromVariable) else redact.MASK


def revealed(options: Mapping[str, str | SecretStr]) -> dict[str, str]:
    """Return options with their secrets, for the client itself: never to be shown."""
    return {
        key: str(value.get_secret_value()) if isinstance(value, SecretStr) else value
        for key, value in options.items()
    }


def _options(given: object) -> dict[str, str | SecretStr]:
    if isinstance(given, Mapping) and len(given) <= OPTIONS_MAX:
        found: dict[str, str | SecretStr] = {}
        wrong: list[tuple[str, str]] = []
        for key, value in cast("Mapping[str, object]", given).items():
            try:
                found[key] = _option(key, value)
            except ValueError as error:
                wrong.append((key, str(error)))
        if wrong:
            raise several(wrong)
        return found
    raise ValueError(f"expected names and values, at most {OPTIONS_MAX}")


def _option(key: str, value: object) -> str | SecretStr:
    if secret_option(key):
        return secret(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise ValueError("write one value: a text, a number, true or false")


def _shown_options(options: Mapping[str, str | SecretStr]) -> dict[str, str]:
    return {
        key: written(value) if isinstance(value, SecretStr) else literal(value)
        for key, value in options.items()
    }


def several(wrong: Sequence[tuple[str | int, str]]) -> PydanticCustomError:
    """Return the error that carries problems of keys further in; each is told in its own line."""
    return PydanticCustomError("several", "several problems", {"inner": list(wrong)})


def _columns(given: object) -> ddl.Columns:
    try:
        return ddl.columns(given)
    except ddl.ColumnProblem as problem:
        if problem.column is None or not isinstance(given, Mapping):
            raise
        raise several([(problem.column, str(problem))]) from None


def show_column(name: str) -> str:
    """Return a column's name as a spec writes it."""
    # Dots tell fields of structs and stay as they are.
    return literal(quote(name) if ddl.ODD_NAME.search(name) else name)


def _text(example: str, pattern: str | None = None) -> WithJsonSchema:
    schema: dict[str, object] = {"type": "string", "examples": [example]}
    return WithJsonSchema(schema if pattern is None else schema | {"pattern": pattern})


_ENV = r"|\$\{"
_LITERAL = PlainSerializer(literal, return_type=str)
Text: TypeAlias = Annotated[str, Field(min_length=1, max_length=TEXT_LENGTH_MAX), _LITERAL]
Duration: TypeAlias = Annotated[
    timedelta,
    PlainValidator(words.duration),
    PlainSerializer(words.show_duration, return_type=str),
    _text("5m", words.DURATION_PATTERN + _ENV),
]
Size: TypeAlias = Annotated[
    int,
    PlainValidator(words.size),
    PlainSerializer(words.show_size, return_type=str),
    _text("128MB", words.SIZE_PATTERN + _ENV),
]
Moment: TypeAlias = Annotated[
    datetime,
    PlainValidator(words.moment),
    PlainSerializer(words.show_moment, return_type=str),
    _text("2026-01-31T00:00:00Z"),
]
Job: TypeAlias = Annotated[
    JobName,
    PlainValidator(words.job),
    _LITERAL,
    _text("sales/orders"),
]
Table: TypeAlias = Annotated[
    str,
    PlainValidator(words.table),
    _LITERAL,
    _text("sales.orders"),
]
Template: TypeAlias = Annotated[
    str,
    PlainValidator(words.template),
    _LITERAL,
    _text("sales.{topic}"),
]
TablePattern: TypeAlias = Annotated[
    str, PlainValidator(words.table_pattern), _LITERAL,
    _text("sales.*"),
]  # fmt: skip
Regex: TypeAlias = Annotated[
    str, PlainValidator(words.regex), _LITERAL,
    _text(r"shop\..+"),
]  # fmt: skip
Hook: TypeAlias = Annotated[
    str, PlainValidator(words.hook), _LITERAL,
    _text("mycompany.orders:clean"),
]  # fmt: skip
Query: TypeAlias = Annotated[
    str, PlainValidator(words.query), _LITERAL,
    _text("SELECT * FROM batch"),
]  # fmt: skip
ColumnName: TypeAlias = Annotated[
    str,
    PlainValidator(ddl.column_name),
    PlainSerializer(show_column, return_type=str),
    _text("order_id"),
]
Term: TypeAlias = Annotated[
    ddl.PartitionTerm,
    PlainValidator(ddl.partition_term),
    PlainSerializer(lambda term: literal(term.sql), return_type=str),
    _text("days(ts)"),
]
ColumnSet: TypeAlias = Annotated[
    ddl.Columns,
    PlainValidator(_columns),
    PlainSerializer(
        lambda value: {column.name: literal(column.definition) for column in value.items},
        return_type=dict[str, str],
    ),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "examples": ["order_id bigint not null, ts timestamp"]},
                {"type": "object", "additionalProperties": {"type": "string"}},
            ]
        }
    ),
]
Secret: TypeAlias = Annotated[
    SecretStr,
    PlainValidator(secret),
    PlainSerializer(written, return_type=str),
    WithJsonSchema({"type": "string", "pattern": r"\$\{", "examples": ["${PASSWORD}"]}),
]
Options: TypeAlias = Annotated[
    dict[str, str | SecretStr],
    PlainValidator(_options),
    PlainSerializer(_shown_options, return_type=dict[str, str]),
    WithJsonSchema(
        {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
    ),
]
Names: TypeAlias = Annotated[
    tuple[Text, ...], BeforeValidator(one_or_many), Field(max_length=NAMES_MAX)
]
ColumnNames: TypeAlias = Annotated[
    tuple[ColumnName, ...], BeforeValidator(one_or_many), Field(max_length=100)
]
