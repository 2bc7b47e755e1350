"""All jobs of a lake: how each stands, and how far behind it is where its spec is known.

Owns which specs are looked at, and the joining of the two. Must never take a file that is no spec
for a job without saying so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.spec.load import load_spec
from jobs.status.lagging import Behind, behind
from jobs.status.standing import Standing, State, standings
from odi_audit.canonical import JsonObject
from odi_audit.errors import ConfigError

if TYPE_CHECKING:
    from jobs.spec.model import JobSpec
    from odi_audit.workspace import Workspace

ENDINGS = (".yaml", ".yml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Specs:
    """Specs that were found, and files of a folder that are none, each with its reason."""

    found: tuple[tuple[Path, JobSpec], ...] = ()
    problems: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One job as it is listed."""

    standing: Standing
    behind: Behind | None

    @property
    def state(self) -> str:
        """The job's state; a source that stops it counts, where it is not running."""
        stopped = self.behind is not None and self.behind.stopped is not None
        return "stopped" if stopped else self.standing.state.value

    @property
    def note(self) -> str | None:
        """What somebody should know."""
        told = None if self.behind is None else self.behind.stopped or self.behind.untold
        return told or self.standing.note

    def to_json(self) -> JsonObject:
        """Return the form for machines."""
        return {
            **self.standing.to_json(),
            "state": self.state,
            "note": self.note,
            "lag": None if self.behind is None else self.behind.to_json(),
        }


def specs_of(paths: Sequence[Path], env: Mapping[str, str]) -> Specs:
    """Load the specs of files and folders; in a folder, what cannot be loaded is a problem.

    Raises:
        ConfigError: a named file is no spec, or a path is not there.
    """
    found: list[tuple[Path, JobSpec]] = []
    problems: list[tuple[str, str]] = []
    for path in paths:
        if not path.is_dir():
            found.append((path, load_spec(path, env)))
            continue
        for file in sorted(item for item in path.iterdir() if item.suffix in ENDINGS):
            try:
                found.append((file, load_spec(file, env)))
            except ConfigError as error:
                problems.append((str(file), error.message))
    return Specs(found=tuple(found), problems=tuple(problems))


def listed(workspace: Workspace, specs: Specs) -> list[Listed]:
    """Return every job of the ledger and of the specs, by name."""
    now = workspace.clock.now()
    by_job = {spec.job: (path, spec) for path, spec in specs.found}
    found = {item.job: item for item in standings(workspace.ledger(read_only=True), now)}
    for job in by_job:
        found.setdefault(job, Standing(job=job, state=State.NEVER))
    made = []
    for job in sorted(found):
        path, spec = by_job.get(job, (None, None))
        asked = None if path is None or spec is None else behind(spec, path, workspace, now)
        made.append(Listed(standing=found[job], behind=asked))
    return made
