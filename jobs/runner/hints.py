"""What to type after a source has stopped a job: the whole command.

Owns the command line of a run, written out. Must never choose for the operator: a reason for a gap
is theirs to give.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from jobs.sources.base import ACCEPT_GAP, REPLAY
from odi_audit.errors import OdiError
from odi_audit.ids import JobName
from odi_audit.ledger.port import EntryFilter, Ledger
from odi_audit.model.entries import Kind

_CHOICES = (ACCEPT_GAP, REPLAY)
_END = re.compile(r"(?:\s*(?:[:,]|with|pass))*\s*$")
"""What stands between a purpose and its option."""
_VALUE = re.compile(r"^ *(?:\d+|\"[^\"]*\")?(?: *\(or higher\))?")
REASON = "why they may be missing"
REPLAYS_LOOKED_AT = 100
"""Of the newest: numbers are given upwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """How a run was called: by which program, on which spec, with which options."""

    spec: str
    options: Sequence[str] = ()
    program: Sequence[str] = ("odi-audit", "run")

    def again(self, *more: str) -> str:
        """Return the command that calls it again, with further options."""
        words = [*self.program, self.spec, *self.options]
        return " ".join([*map(shlex.quote, words), *more])


def complete(error: OdiError, call: Call, ledger: Ledger, job: JobName) -> None:
    """Put the whole command into the hint of an error that leaves the operator a choice.

    A hint has its ways out in parts, with semicolons; the one that names an option of a run
    becomes the command, and stands first.
    """
    hint = (error.hint or "").replace("--generation", f"--{REPLAY}")
    choice = error.facts.get("choice") or next((c for c in _CHOICES if f"--{c}" in hint), None)
    if choice not in _CHOICES:
        error.hint = hint.replace("SPEC", shlex.quote(call.spec)) or None
        return
    value = f'"{REASON}"' if choice == ACCEPT_GAP else str(next_generation(ledger, job))
    option = f"--{choice}"
    command = call.again(f"{option} {value}")
    ways = [way.strip() for way in hint.split(";") if way.strip()]
    told = "".join(f"  ({purpose})" for way in ways if (purpose := _purpose(way, option)))
    error.hint = "; ".join([command + told, *(way for way in ways if option not in way)])
    error.facts["command"] = command


def _purpose(way: str, option: str) -> str:
    """Return what a way out is for, without the option that it names."""
    before, found, after = way.partition(option)
    if not found:
        return ""
    return _END.sub("", before) + _VALUE.sub("", after)


def next_generation(ledger: Ledger, job: JobName) -> int:
    """Return the number of the next replay of a job: above all that it has had."""
    where = EntryFilter(kinds=(Kind.REPLAY,), job=job)
    found = [
        number
        for entry in ledger.find(where, limit=REPLAYS_LOOKED_AT, newest_first=True)
        if isinstance(number := entry.facts.get("generation"), int)
    ]
    return max(found, default=0) + 1
