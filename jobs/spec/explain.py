"""What pydantic finds wrong, in words for whoever wrote the file.

Owns the way from pydantic's places and kinds to problems with a line, what was found and what is
allowed. Must never quote what stands in a secret's place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from pydantic import BaseModel, ValidationError

from jobs.spec.document import Document, Value
from jobs.spec.fields import secret_option
from jobs.spec.model import JobSpec
from jobs.spec.problems import Path, Problem, did_you_mean, dotted, listed, near
from jobs.spec.variables import FromVariable, may_be_secret
from odi_audit import redact

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

FOUND_LENGTH_MAX = 80
_QUOTED = re.compile(r"'([^']*)'")
_INSTEAD: Final = {
    "bootstrap.servers": "servers", "bootstrap_servers": "servers", "brokers": "servers",
    "topic": "topics", "subscribe": "topics", "format": "value", "schema": "columns",
    "primary_key": "key", "keys": "key", "interval": "every", "trigger": "every",
    "partitioned_by": "partition_by", "partitions": "partition_by", "dlq": "dead_letter",
    "folder": "path", "name": "job", "where_clause": "where", "max_rows": "rows",
    "max_bytes": "bytes", "bootstrap": "servers",
}  # fmt: skip
"""Words of other tools, and the key here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """Problems, and the keys that mistyped ones stand for: nothing need call these missing."""

    problems: list[Problem]
    meant: frozenset[Path]


def explain(error: ValidationError, document: Document) -> Explained:
    """Return a problem for each thing that does not fit the models."""
    found = [
        (detail, *_place(detail["loc"], document.root))
        for detail in error.errors(include_url=False)
    ]
    misspelt = frozenset(
        (*path[:-1], key)
        for detail, path, _ in found
        if detail["type"] == "extra_forbidden" and (key := _meant(path, document.root))
    )
    problems: list[Problem] = []
    for detail, path, rest in found:
        # A mistyped key is told once: not also as the key that is missing.
        if detail["type"] == "missing" and (*path, *rest[:1]) in misspelt:
            continue
        problems += _problems(detail, path, rest, document)
    return Explained(problems=problems, meant=misspelt)


def keys_at(path: Path, root: Mapping[str, Value]) -> list[str]:
    """Return the keys that are allowed at a place; none where names are free."""
    model = _model_at(path, root)
    return [] if model is None else list(fields_of(model))


def fields_of(model: type[BaseModel]) -> dict[str, type[BaseModel] | None]:
    """Return the keys of a part as the file writes them, with the part that each leads to."""
    found: dict[str, type[BaseModel] | None] = {}
    for name, field in model.model_fields.items():
        parts = list(_parts(field.annotation))
        found[field.alias or name] = parts[0] if len(parts) == 1 else None
    return found


def parts_below(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """Return every part that a model leads to, by the name of its class."""
    found: dict[str, type[BaseModel]] = {}
    for field in model.model_fields.values():
        for part in _parts(field.annotation):
            found |= {part.__name__: part} | parts_below(part)
    return found


def _problems(
    detail: ErrorDetails, path: Path, rest: Path, document: Document
) -> Iterator[Problem]:
    kind = detail["type"]
    if kind == "several":
        inner = cast("Sequence[tuple[str | int, str]]", detail.get("ctx", {})["inner"])
        for key, message in inner:
            at = (*path, key) if (*path, key) in document.values else path
            told = _unveiled(message, document.root, at)
            yield Problem(mark=document.value_mark(at), key=dotted((*path, key)), message=told)
    elif kind in {"missing", "union_tag_not_found"}:
        key = "type" if kind == "union_tag_not_found" else str(rest[0])
        told = _missing(path, key, document.root)
        yield Problem(mark=document.key_mark(path), key=dotted((*path, key)), message=told)
    elif kind == "extra_forbidden":
        told = _unknown(path, document)
        yield Problem(mark=document.key_mark(path), key=dotted(path), message=told)
    else:
        if kind == "union_tag_invalid":
            path = (*path, "type")
        told = _wrong(detail, path, document.root)
        yield Problem(mark=document.value_mark(path), key=dotted(path), message=told)


def _place(loc: Sequence[str | int], root: Mapping[str, Value]) -> tuple[Path, Path]:
    """Split a place into what the file has of it and the rest; kinds of source are no keys."""
    current: Value = cast("Value", root)
    path: list[str | int] = []
    for number, part in enumerate(loc):
        if isinstance(current, dict) and isinstance(part, str) and part in current:
            current = current[part]
        elif isinstance(current, dict) and part in {current.get("type"), "[key]"}:
            continue
        elif isinstance(current, list) and isinstance(part, int) and part < len(current):
            current = current[part]
        elif isinstance(current, dict) and str(part) in current:
            # A partition's number: a key of the file is always a text.
            current = current[str(part)]
            path.append(str(part))
            continue
        else:
            return tuple(path), tuple(loc[number:])
        path.append(part)
    return tuple(path), ()


def _missing(path: Path, key: str, root: Mapping[str, Value]) -> str:
    model = _model_at(path, root)
    if key == "type":
        kinds = ("kafka", "files", "jdbc", "iceberg")
        return f"missing; allowed: {listed(kinds if path[:1] == ('source',) else kinds[1:])}"
    field = None if model is None else _field(model, key)
    return f"missing; {_lower(field.description)}" if field and field.description else "missing"


def _unknown(path: Path, document: Document) -> str:
    root = document.root
    key = str(path[-1])
    allowed = keys_at(path[:-1], root)
    meant = _meant(path, root)
    if meant is not None:
        return f"no such key; did you mean {meant}? (allowed: {listed(allowed)})"
    taken = near(key, allowed)
    if taken:
        line = document.key_mark((*path[:-1], taken[0])).line
        return f"no such key; {taken[0]} is there already, in line {line}"
    elsewhere = [place[:-1] for place in _places(JobSpec, ()) if place[-1] == key]
    fitting = {
        dotted(place) or "the top": None for place in elsewhere if key in keys_at(place, root)
    }
    if fitting:
        return f"no such key here; it belongs under {' or '.join(fitting)}"
    return f"no such key; allowed: {listed(allowed)}"


def _meant(path: Path, root: Mapping[str, Value]) -> str | None:
    """Return the key that a mistyped one stands for, if it is not there already."""
    key = str(path[-1])
    here = _value(path[:-1], root)
    taken = set(here) if isinstance(here, dict) else set()
    allowed = [one for one in keys_at(path[:-1], root) if one not in taken]
    instead = _INSTEAD.get(key.lower())
    if instead in allowed:
        return instead
    found = near(key.replace("-", "_"), allowed)
    return found[0] if found else None


def _wrong(detail: ErrorDetails, path: Path, root: Mapping[str, Value]) -> str:
    kind, ctx = detail["type"], detail.get("ctx", {})
    value = _value(path, root)
    found = f"found {_found(value, path)}"
    if kind in {"literal_error", "union_tag_invalid"}:
        expected = str(ctx.get("expected") or ctx.get("expected_tags"))
        allowed = _QUOTED.findall(expected) or [expected]
        hint = did_you_mean(value, allowed) if isinstance(value, str) else ""
        return f"{found}; allowed: {listed(allowed)}{hint}"
    if kind == "value_error":
        return _unveiled(str(ctx["error"]), root, path)
    if value is None:
        return "is empty; give a value, or leave the key out"
    if kind.startswith("int"):
        return f"{found}; write a whole number"
    if kind.startswith("bool"):
        return f"{found}; write true or false"
    if kind.startswith("string_type"):
        quoted = f'"{value}"' if isinstance(value, int | float) else ""
        return f"{found}; write a text" + (f", in quotes: {quoted}" if quoted else "")
    if kind == "string_pattern_mismatch":
        return f"{found}; it must match {ctx['pattern']}"
    if kind in {"greater_than_equal", "less_than_equal"}:
        return f"{found}; " + (f"at least {ctx['ge']}" if "ge" in ctx else f"at most {ctx['le']}")
    if kind in {"tuple_type", "list_type"}:
        return f"{found}; write a list, such as [a, b]"
    if kind in {"model_type", "model_attributes_type", "dict_type"}:
        allowed = keys_at(path, root)
        return f"{found}; expected keys and values" + (f": {listed(allowed)}" if allowed else "")
    if kind in {"too_short", "too_long"}:
        limit = "at least {min_length}" if kind == "too_short" else "at most {max_length}"
        return f"holds {ctx['actual_length']}; {limit.format(**ctx)}"
    return f"{found}; {_lower(detail['msg'])}"


def _unveiled(message: str, root: Mapping[str, Value], path: Path) -> str:
    """Say where a value came from, and take it out of the message if it may be a secret."""
    value = _value(path, root)
    if not isinstance(value, FromVariable):
        return message
    if may_be_secret(value.written) or _secret_place(path):
        return message.replace(str(value), redact.MASK) + f" (from {value.written})"
    return f"{message} (from {value.written})"


def _found(value: Value, path: Path) -> str:
    if _secret_place(path):
        return redact.MASK
    if isinstance(value, FromVariable):
        shown = redact.MASK if may_be_secret(value.written) else repr(str(value))
        text = f"{shown} (from {value.written})"
    elif isinstance(value, dict):
        return "keys and values"
    elif isinstance(value, list):
        return "a list"
    elif isinstance(value, bool):
        return str(value).lower()
    else:
        text = repr(value)
    short = text if len(text) <= FOUND_LENGTH_MAX else text[:FOUND_LENGTH_MAX] + "…"
    return redact.redact_text(short)


def _secret_place(path: Path) -> bool:
    last = str(path[-1]) if path else ""
    return last == "password" or (len(path) > 1 and path[-2] == "options" and secret_option(last))


def _value(path: Path, root: Mapping[str, Value]) -> Value:
    current: Value = cast("Value", root)
    for part in path:
        if isinstance(current, dict):
            current = current.get(str(part))
        elif isinstance(current, list) and isinstance(part, int) and part < len(current):
            current = current[part]
        else:
            return None
    return current


# -- the models as a tree of keys -----------------------------------------------------------------


def _model_at(path: Path, root: Mapping[str, Value]) -> type[BaseModel] | None:
    model: type[BaseModel] | None = JobSpec
    for number, part in enumerate(path):
        field = None if model is None else _field(model, str(part))
        if field is None:
            return None
        parts = list(_parts(field.annotation))
        here = _value(path[: number + 1], root)
        kind = here.get("type") if isinstance(here, dict) else None
        if len(parts) > 1:
            parts = [one for one in parts if _kind(one) == kind]
        model = parts[0] if parts else None
    return model


def _field(model: type[BaseModel], key: str) -> Any:
    for name, field in model.model_fields.items():
        if (field.alias or name) == key:
            return field
    return None


def _kind(model: type[BaseModel]) -> str | None:
    field = model.model_fields.get("type")
    return None if field is None else str(get_args(field.annotation)[0])


def _parts(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        return
    for inner in get_args(annotation):
        yield from _parts(inner)


def _places(model: type[BaseModel], above: Path) -> Iterator[Path]:
    for name, field in model.model_fields.items():
        path = (*above, field.alias or name)
        yield path
        for part in _parts(field.annotation):
            yield from _places(part, path)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:].removesuffix(".") if text else text
