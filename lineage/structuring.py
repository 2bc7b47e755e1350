"""Facets from JSON: a foreign document becomes an object of openlineage-python's own classes.

Owns the step from a mapping to a generated class. What the class does not know is left out; what it
needs and does not find, or finds in another type, makes the whole facet unusable. Must never pass
on a value that the class has no field for: nobody has looked at it.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, TypeVar, Union, get_args, get_origin

import attr

T = TypeVar("T")
_PLAIN = (str, int, float, bool)
_FIELDS: dict[Any, tuple[Any, ...]] = {}
"""The fields of each class that was met; there are about thirty."""


class Unfit(ValueError):
    """A document is not what the class wants."""


def structured(kind: type[T], raw: object) -> T:
    """Return ``raw`` as an object of an attrs class, with everything below it.

    Raises:
        Unfit: something that is required is missing, or has another type.
    """
    if not isinstance(raw, Mapping):
        raise Unfit(f"{kind.__name__} from {type(raw).__name__}")
    given: dict[str, Any] = {}
    for field in _fields(kind):
        if field.name in raw and raw[field.name] is not None:
            given[field.alias or field.name] = _value(field.type, raw[field.name])
    try:
        return kind(**given)
    except (TypeError, ValueError) as error:
        raise Unfit(f"{kind.__name__}: {error}") from error


def _fields(kind: Any) -> tuple[Any, ...]:
    found = _FIELDS.get(kind)
    if found is None:
        attr.resolve_types(kind)
        found = _FIELDS[kind] = tuple(field for field in attr.fields(kind) if field.init)
    return found


def _value(wanted: Any, raw: Any) -> Any:
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        return _any_of([item for item in arguments if item is not type(None)], raw)
    if origin is list and isinstance(raw, list):
        return [_value(arguments[0], item) for item in raw if item is not None]
    if origin is dict and isinstance(raw, Mapping):
        return {
            str(key): _value(arguments[1], item) for key, item in raw.items() if item is not None
        }
    if isinstance(wanted, type) and attr.has(wanted):
        return structured(wanted, raw)
    if wanted is float and isinstance(raw, int):
        return float(raw)
    # A boolean is a number to Python, and none to JSON.
    if wanted in _PLAIN and isinstance(raw, wanted) and isinstance(raw, bool) == (wanted is bool):
        return raw
    raise Unfit(f"{wanted} from {type(raw).__name__}")


def _any_of(kinds: list[Any], raw: Any) -> Any:
    for kind in kinds:
        try:
            return _value(kind, raw)
        except Unfit:
            continue
    raise Unfit(f"none of {kinds} from {type(raw).__name__}")
