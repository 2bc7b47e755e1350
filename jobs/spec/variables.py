"""``${NAME}`` and ``${NAME:-default}`` in a spec: values of the environment.

Owns the spelling. A value is put into one scalar and is never read as YAML, so it cannot add keys.
``$${`` stands for a ``${`` that is meant as such. Must never show what a variable holds where it
may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from odi_audit.redact import is_secret_key

VALUE_LENGTH_MAX = 64 * 1024
"""Longer than any certificate or list of servers."""
_PLACE = re.compile(
    r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}|\$\{(?P<rest>[^}]*\}?)"
)


class FromVariable(str):
    """A text with values of the environment in it, and the text as it is written in the file."""

    __slots__ = ("written",)
    written: str

    def __new__(cls, value: str, written: str) -> FromVariable:
        """Make it of the value and of what stands in the file."""
        made = super().__new__(cls, value)
        made.written = written
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Expansion:
    """A text after expansion; ``unset`` variables stay as written."""

    text: str
    names: tuple[str, ...]
    unset: tuple[str, ...]
    problems: tuple[str, ...]


def expand(written: str, env: Mapping[str, str]) -> Expansion:
    """Put the environment's values into a text."""
    names: list[str] = []
    unset: list[str] = []
    problems: list[str] = []

    def value(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        if match["name"] is None:
            problems.append(
                f"found {match[0]!r}; write ${{NAME}} or ${{NAME:-default}}, "
                "or $${ for a ${ that is meant as such"
            )
            return match[0]
        names.append(match["name"])
        found = env.get(match["name"]) or match["default"]
        if found is None:
            unset.append(match["name"])
            return match[0]
        if len(found) > VALUE_LENGTH_MAX:
            problems.append(f"variable {match['name']} is over {VALUE_LENGTH_MAX} characters")
            return match[0]
        return found

    text = _PLACE.sub(value, written)
    return Expansion(text=text, names=tuple(names), unset=tuple(unset), problems=tuple(problems))


def may_be_secret(written: str) -> bool:
    """Say whether a text names a variable whose own name is a secret's."""
    return any(match["name"] and is_secret_key(match["name"]) for match in _PLACE.finditer(written))


def literal(text: str) -> str:
    """Return a text that expands to the given one."""
    return text.replace("${", "$${")
