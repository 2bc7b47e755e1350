"""The JSON schema of specs, for editors.

Owns what editors are told beyond the models: that any value may come from a variable, and that
keys beginning with ``x-`` hold anchors. Must never be stricter than reading the file is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel

from jobs.spec.document import ASIDE
from jobs.spec.explain import parts_below
from jobs.spec.model import JobSpec
from odi_audit.canonical import Json

FILE = Path(__file__).parents[1] / "schema" / "job-1.json"
"""Where the schema is published."""
_VARIABLE: Mapping[str, Json] = {"type": "string", "pattern": r"\$\{"}
_SCALARS = frozenset({"integer", "number", "boolean"})
_OUTER: tuple[str, ...] = ("description", "default")
_SHORT: Mapping[str, list[str]] = {
    "KafkaStart": ["earliest", "latest"],
    "TableStart": ["earliest", "latest"],
}
"""Parts that may be written as one word."""


def json_schema() -> dict[str, Json]:
    """Return the schema of a spec."""
    made = JobSpec.model_json_schema(by_alias=True)
    _set_defaults(made, JobSpec)
    for name, part in parts_below(JobSpec).items():
        _set_defaults(made["$defs"][name], part)
    walked = cast("dict[str, Json]", _walked(cast("Json", made)))
    walked["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    walked["title"] = "odi-audit job, version 1"
    walked["patternProperties"] = {
        f"^{ASIDE}": {"description": "Anchors for the rest; has no meaning of its own."}
    }
    return walked


def schema_text() -> str:
    """Return the schema as the file that is published."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def default_of(part: type[BaseModel], name: str) -> Json:
    """Return a key's default as a file writes it: durations and sizes with their units."""
    field = part.model_fields[name]
    if field.is_required() or field.default is None:
        return None
    if isinstance(field.default, BaseModel):
        return cast("Json", getattr(field.default, "at", None))
    made = part.model_construct(**{name: field.default})
    shown = part.__pydantic_serializer__.to_python(made, mode="json", include={name})
    return cast("Json", shown[name]) or None if shown[name] is not False else False


def _set_defaults(schema: dict[str, Any], part: type[BaseModel]) -> None:
    for name, field in part.model_fields.items():
        entry = schema["properties"][field.alias or name]
        entry.pop("default", None)
        default = default_of(part, name)
        if default is not None:
            entry["default"] = default


def _walked(value: Json, key: str = "") -> Json:
    if isinstance(value, Mapping):
        # Below `properties` the names are a spec's own, and may be the schema's words too.
        names = key in {"properties", "$defs", "mapping"}
        made: dict[str, Json] = {
            name: _walked(one, "" if names else name) for name, one in value.items()
        }
        return made if names else _loosened(made)
    if isinstance(value, list):
        return [_walked(one) for one in value]
    return value


def _loosened(schema: dict[str, Json]) -> Json:
    """Let a variable, one word for a list, and the short form of a part stand for the value."""
    schema.pop("title", None)
    kind = schema.get("type")
    reference = str(schema.get("$ref", "")).rpartition("/")[2]
    if (isinstance(kind, str) and kind in _SCALARS) or ("enum" in schema and kind == "string"):
        return _either(schema, _VARIABLE)
    if kind == "array":
        return _either(schema, {"type": "string"})
    if reference in _SHORT:
        return _either(schema, {"enum": list(_SHORT[reference])}, _VARIABLE)
    if reference == "Transform":
        return _either(schema, {"type": "string"})
    return schema


def _either(schema: dict[str, Json], *others: Mapping[str, Json]) -> Json:
    outer = {key: schema.pop(key) for key in _OUTER if key in schema}
    return {**outer, "anyOf": [schema, *others]}


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(schema_text(), "utf-8")
