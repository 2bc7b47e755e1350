"""From a file to a job and back: reading, checking, writing, and the digest of a spec.

Owns the public calls. Must never change a file, and never put a secret's value into what it
returns: secrets are ``SecretStr``, and are written as the variables they came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import cast

from pydantic import ValidationError

from jobs.spec.document import SIZE_BYTES_MAX, Document, parse
from jobs.spec.explain import explain
from jobs.spec.model import JobSpec
from jobs.spec.problems import Path, Problem, dotted, invalid
from jobs.spec.rules import complaints
from jobs.spec.writing import to_yaml
from odi_audit.canonical import Json, digest
from odi_audit.errors import ConfigError

EXACT_MAX = 2**53 - 1
"""The largest whole number that every reader of JSON keeps exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What a text says: a job, or everything that is wrong with it.

    ``variables`` are those that it names. Where unset ones were allowed, ``unknown`` are the keys
    that hold them, and there may be neither a job nor a problem: what is known is right.
    """

    spec: JobSpec | None
    problems: tuple[Problem, ...]
    variables: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def load_spec(path: FilePath, env: Mapping[str, str]) -> JobSpec:
    """Read a job's spec; afterwards its secrets are masked in everything that is shown.

    Raises:
        ConfigError: the file cannot be read, or something in it is wrong: every problem is told,
            each with its line.
    """
    return parse_spec(read_text(path), env, name=str(path))


def parse_spec(text: str, env: Mapping[str, str], *, name: str = "spec") -> JobSpec:
    """Read a job's spec from a text; ``name`` stands in messages.

    Raises:
        ConfigError: something in it is wrong.
    """
    found = check_text(text, env)
    if found.spec is None:
        raise invalid(name, found.problems)
    return found.spec


def check_text(text: str, env: Mapping[str, str], *, unset_ok: bool = False) -> Read:
    """Read a text and return the job, or all of its problems in the order of the file."""
    document = parse(text, env, unset_ok=unset_ok)
    problems = list(document.problems)
    if problems and not document.root:
        return Read(spec=None, problems=tuple(problems))
    spec: JobSpec | None = None
    meant: frozenset[Path] = frozenset()
    try:
        spec = JobSpec.model_validate(document.root)
    except ValidationError as error:
        explained = explain(error, document)
        known = {problem.key for problem in problems}
        problems += [one for one in explained.problems if one.key not in known]
        meant = explained.meant
    # A rule has nothing to add at a key whose own value is wrong.
    known = {problem.key for problem in problems}
    problems += [one for one in _rules(document, meant) if one.key not in known]
    told = tuple(
        sorted(
            (one for one in problems if one.key not in document.unknown),
            key=lambda one: one.mark,
        )
    )
    return Read(
        spec=None if told else spec,
        problems=told,
        variables=document.variables,
        unknown=tuple(sorted(document.unknown)),
    )


def read_text(path: FilePath) -> str:
    """Read a file of bounded size.

    Raises:
        ConfigError: it is not there, cannot be read, is too big, or is no text.
    """
    try:
        with path.open("rb") as file:
            content = file.read(SIZE_BYTES_MAX + 1)
    except FileNotFoundError as problem:
        raise ConfigError(
            f"no spec {path}", hint=f"odi-audit jobs new {path}", file=str(path)
        ) from problem
    except OSError as problem:
        raise ConfigError(
            f"spec {path} cannot be read: {problem.strerror}", file=str(path)
        ) from problem
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = content[: problem.start].count(b"\n") + 1
        raise ConfigError(
            f"{path}:{line}:1: this is not UTF-8 text", hint="save it as UTF-8", file=str(path)
        ) from problem


def to_document(spec: JobSpec, *, defaults: bool = False) -> Mapping[str, Json]:
    """Return a job as the plain values of its file; secrets as the variables they came from."""
    made = spec.model_dump(mode="json", by_alias=True, exclude_defaults=not defaults)
    return cast("Mapping[str, Json]", made)


def dump_spec(spec: JobSpec) -> str:
    """Write a job as YAML; reading it again, with the same variables, gives the same job."""
    return to_yaml(to_document(spec))


def spec_digest(spec: JobSpec) -> str:
    """Return the SHA-256 of what a job does, defaults and variables resolved, secrets left out.

    A new password is the same job; a new default of a later version is another one.
    """
    return digest(_hashable(to_document(spec, defaults=True)))


def _hashable(value: Json) -> Json:
    # Offsets may be larger than numbers of canonical JSON are (docs/adr/0002).
    if isinstance(value, Mapping):
        return {key: _hashable(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_hashable(one) for one in value]
    large = isinstance(value, int) and abs(value) > EXACT_MAX
    return str(value) if large else value


def _rules(document: Document, meant: frozenset[Path]) -> list[Problem]:
    # What is missing is told at the key above it; what was only mistyped is not missing.
    return [
        Problem(
            mark=document.key_mark(complaint.path),
            key=dotted(complaint.path),
            message=complaint.message,
        )
        for complaint in complaints(document.root)
        if complaint.path not in meant
    ]
