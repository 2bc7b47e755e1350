"""Plain values as YAML that every reader takes for the same values.

Owns quoting. A text is written plain only where no reader can doubt it, else in double quotes,
with everything unprintable escaped. Must never fold a line: folds lose spaces.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from odi_audit.canonical import Json

_PLAIN = re.compile(r"[A-Za-z_$/][A-Za-z0-9_./${}:=,<>()*-]*(?<!:)")
_FLOW = frozenset("{}[],")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_UNPRINTABLE = re.compile(
    r"[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
"""What YAML does not take as it is, and what some readers take for the end of a line."""


def word(text: str, *, flow: bool = False) -> str:
    """Return a text as a scalar; ``flow``: within ``[ ]`` or ``{ }``."""
    safe = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    if safe and not (flow and _FLOW & set(text)):
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda match: f"\\U{ord(match[0]):08x}", quoted)


def to_yaml(value: Mapping[str, Json]) -> str:
    """Return a mapping as a document, one key or item per line."""
    return "".join(f"{line}\n" for line in _lines(value))


def _lines(value: Json) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _entry(f"{word(str(key))}:", inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _entry("-", inner)


def _entry(head: str, inner: Json) -> Iterator[str]:
    if isinstance(inner, Mapping | list) and inner:
        yield head
        for line in _lines(inner):
            yield f"  {line}"
    else:
        yield f"{head} {_scalar(inner)}"


def _scalar(value: Json) -> str:
    # What is left are texts, numbers, words, and empty mappings and lists: JSON's are YAML's.
    return word(value) if isinstance(value, str) else json.dumps(value)
