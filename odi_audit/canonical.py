"""Canonical JSON (RFC 8785): the one way in which a value becomes bytes that are hashed.

Owns the type of a JSON value. Must never be used with floats that came from measurements, or
with integers beyond 2**53: 64-bit ids are strings everywhere (docs/adr/0002).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TypeAlias, Union, cast

import rfc8785

Json: TypeAlias = Union[str, int, float, bool, None, Sequence["Json"], Mapping[str, "Json"]]
JsonObject: TypeAlias = Mapping[str, Json]


def encode(value: Json) -> bytes:
    """Return the RFC 8785 bytes of a value.

    Raises:
        ValueError: the value has no canonical form (NaN, an integer over 2**53, a lone surrogate).
    """
    return rfc8785.dumps(cast("dict[str, object]", value))  # type: ignore[arg-type]


def digest(value: Json) -> str:
    """Return the SHA-256 of the canonical bytes, in hex."""
    return hashlib.sha256(encode(value)).hexdigest()


def digits(value: int | None) -> str | None:
    """Return a 64-bit number as JSON must hold it: a reader's float would lose its last digits."""
    return None if value is None else str(value)
