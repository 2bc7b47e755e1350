"""What is wrong with a spec: each problem with its place, what was found and what is allowed.

Owns the words of a problem, near matches, and how many problems become one error. Must never
quote a value that stands in a secret's place.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from odi_audit.errors import ConfigError

Path: TypeAlias = tuple[str | int, ...]
"""The keys and list positions that lead to a value."""
NEAR_MAX = 3
SHORT_LENGTH_MAX = 3
SHOWN_MAX = 100
"""Problems beyond this are counted, not listed: nobody reads them before mending the first."""


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A place in the file, counted from one as editors do."""

    line: int
    column: int


TOP = Mark(1, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong: where, under which dotted key, and what to write instead."""

    mark: Mark
    key: str
    message: str

    def at(self, name: str) -> str:
        """Return the line that editors and terminals turn into a link."""
        what = f"{self.key}: " if self.key else ""
        return f"{name}:{self.mark.line}:{self.mark.column}: {what}{self.message}"

    def to_json(self) -> dict[str, str | int]:
        """Return the form for machines."""
        return {
            "line": self.mark.line,
            "column": self.mark.column,
            "key": self.key,
            "message": self.message,
        }


def dotted(path: Path) -> str:
    """Return a path as people write it: ``source.topics[0]``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def near(word: str, known: Iterable[str]) -> list[str]:
    """Return the known words that a mistyped one may stand for, the nearest first."""
    by_lower = {one.lower(): one for one in known}
    # Of a short word, one wrong letter is already half of it.
    cutoff = 0.5 if len(word) <= SHORT_LENGTH_MAX else 0.6
    found = difflib.get_close_matches(word.lower(), by_lower, n=NEAR_MAX, cutoff=cutoff)
    return [by_lower[one] for one in found]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `` (did you mean …?)``, or nothing where no word is near."""
    found = near(word, known)
    return f" (did you mean {' or '.join(found)}?)" if found else ""


def listed(words: Iterable[str]) -> str:
    """Return words as a list for people."""
    return ", ".join(words)


def invalid(name: str, problems: Sequence[Problem]) -> ConfigError:
    """Return the one error that tells every problem of a spec."""
    lines = [problem.at(name) for problem in sorted(problems, key=lambda one: one.mark)]
    left = len(lines) - SHOWN_MAX
    shown = lines[:SHOWN_MAX] + ([f"and {left} more"] if left > 0 else [])
    count = "1 problem" if len(lines) == 1 else f"{len(lines)} problems"
    return ConfigError(
        f"{name} has {count}\n  " + "\n  ".join(shown),
        hint=f"mend the file, then: odi-audit jobs check {name} --offline",
        file=name,
        problems=shown,
    )
