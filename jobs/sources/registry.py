"""The schema registry, by Confluent's API: schemas by id, subjects, levels of compatibility.

Owns the client and the turning of its errors into ours. Every question has a time limit and a few
tries; what an id means never changes, so that it is asked once in a process. Must never change
anything in the registry, and never let the login into an error.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from jobs.formats.avro_schema import AvroType, Document, read_schema
from jobs.formats.decoded import Unreadable
from odi_audit.errors import ConfigError, SourceDenied, SourceNotFound, SourceUnavailable
from odi_audit.redact import redact_text, register

if TYPE_CHECKING:
    import requests

    from jobs.spec.model import Registry as RegistrySpec

TRIES_MAX = 4
"""With the waits between them about 4 s: a restart of a proxy, not one of the registry."""
WAIT_S_MAX = 2.0
TIMEOUT_S = 10.0
REFERENCES_MAX = 100
"""Schemas that one schema may need, counting those that they need themselves."""
NOT_THERE = frozenset({40401, 40402, 40403, 40408})
"""The registry's own words for: no such subject, version, schema, level."""
_TRY_AGAIN = frozenset({408, 429, 500, 502, 503, 504})
_SHOWN_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryAccess:
    """How the registry is reached; the password is never shown."""

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    timeout_s: float = TIMEOUT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A version of a subject."""

    subject: str
    number: int
    id: int
    type: AvroType


def access_of(spec: RegistrySpec) -> RegistryAccess:
    """Return how the registry of a spec is reached."""
    password = None if spec.password is None else str(spec.password.get_secret_value())
    if password is not None:
        register(password)
    return RegistryAccess(
        url=spec.url.rstrip("/"),
        user=spec.user,
        password=password,
        timeout_s=spec.timeout.total_seconds(),
    )


class Registry:
    """A registry; remembers the schemas that it gave."""

    def __init__(self, access: RegistryAccess) -> None:
        self._access = access
        self._types: dict[int, AvroType] = {}
        self._documents: dict[int, tuple[Document, list[Document]]] = {}
        self._session: requests.Session | None = None

    @property
    def url(self) -> str:
        """Its address, without a login."""
        return self._access.url

    def type(self, number: int) -> AvroType:
        """Return the schema of an id.

        Raises:
            Unreadable: the registry does not know the id, or it is no schema that we can read.
            SourceUnavailable, SourceDenied, ConfigError: it could not be asked.
        """
        if number not in self._types:
            self._types[number] = read_schema(*self.document(number))
        return self._types[number]

    def document(self, number: int) -> tuple[Document, list[Document]]:
        """Return the schema of an id as JSON, and the schemas that it refers to.

        Raises:
            Unreadable, SourceUnavailable, SourceDenied, ConfigError: as :meth:`type`.
        """
        if number not in self._documents:
            try:
                answer = self._get(f"/schemas/ids/{number}")
            except SourceNotFound as problem:
                raise Unreadable(f"the registry {self.url} does not know this id") from problem
            self._documents[number] = self._with_references(answer)
        return self._documents[number]

    def latest(self, subject: str) -> Version:
        """Return the newest version of a subject.

        Raises:
            SourceNotFound: there is no such subject.
            Unreadable, SourceUnavailable, SourceDenied, ConfigError: as :meth:`type`.
        """
        found = self._get(f"/subjects/{_part(subject)}/versions/latest")
        return Version(
            subject=subject,
            number=int(found["version"]),
            id=int(found["id"]),
            type=read_schema(*self._with_references(found)),
        )

    def level(self, subject: str) -> str:
        """Return the level of compatibility that holds for a subject: its own, or the general one.

        Raises:
            SourceUnavailable, SourceDenied, ConfigError: it could not be asked.
        """
        try:
            found = self._get(f"/config/{_part(subject)}")
        except SourceNotFound:
            found = self._get("/config")
        level = found.get("compatibilityLevel") or found.get("compatibility")
        if not isinstance(level, str):
            raise ConfigError(f"the registry {self.url} tells no level for subject {subject}")
        return level

    def is_compatible(self, subject: str, document: Document) -> bool:
        """Say whether a schema could become the next version of a subject, by its level.

        Raises:
            SourceNotFound: there is no such subject.
            SourceUnavailable, SourceDenied, ConfigError: it could not be asked.
        """
        path = f"/compatibility/subjects/{_part(subject)}/versions/latest"
        return bool(self._ask("POST", path, {"schema": json.dumps(document)})["is_compatible"])

    # -- the client ------------------------------------------------------------------------------

    def _with_references(self, answer: Mapping[str, Any]) -> tuple[Document, list[Document]]:
        """Return a schema and what it refers to, each after what it needs itself."""
        found: dict[tuple[str, int], Document] = {}
        self._follow(answer, found)
        return _document(answer), list(found.values())

    def _follow(self, answer: Mapping[str, Any], found: dict[tuple[str, int], Document]) -> None:
        for reference in answer.get("references") or ():
            key = (str(reference["subject"]), int(reference["version"]))
            if key in found:
                continue
            if len(found) >= REFERENCES_MAX:
                raise Unreadable(f"the schema refers to more than {REFERENCES_MAX} others")
            try:
                other = self._get(f"/subjects/{_part(key[0])}/versions/{key[1]}")
            except SourceNotFound as problem:
                raise Unreadable(
                    f"it refers to version {key[1]} of subject {key[0]}, which the registry does "
                    "not have"
                ) from problem
            self._follow(other, found)
            found[key] = _document(other)

    def _get(self, path: str) -> dict[str, Any]:
        return self._ask("GET", path)

    def _ask(self, method: str, path: str, body: dict[str, str] | None = None) -> dict[str, Any]:
        from requests import RequestException
        from tenacity import (
            Retrying,
            retry_if_exception_type,
            stop_after_attempt,
            wait_random_exponential,
        )

        tries = Retrying(
            stop=stop_after_attempt(TRIES_MAX),
            wait=wait_random_exponential(0.25, WAIT_S_MAX),
            retry=retry_if_exception_type((_TryAgain, RequestException)),
            reraise=True,
        )
        try:
            return dict(tries(self._once, method, path, body))
        except (_TryAgain, RequestException) as problem:
            raise SourceUnavailable(
                f"the schema registry {self.url} gave no answer in {TRIES_MAX} tries: "
                f"{redact_text(str(problem))[:_SHOWN_MAX]}",
                hint="start the job again when the registry answers: nothing is lost",
            ) from problem

    def _once(self, method: str, path: str, body: dict[str, str] | None) -> dict[str, Any]:
        access = self._access
        answer = self._client().request(
            method,
            access.url + path,
            json=body,
            timeout=access.timeout_s,
            headers={"Accept": "application/vnd.schemaregistry.v1+json, application/json"},
        )
        status = answer.status_code
        if status in _TRY_AGAIN:
            raise _TryAgain(f"it answered {status} to {path}")
        if status in {401, 403}:
            raise SourceDenied(
                f"the schema registry {access.url} refuses user {access.user!r} ({status})",
                hint="look at registry.user and registry.password in the spec",
            )
        try:
            found = answer.json()
        except ValueError:
            found = None
        if status == 404 and isinstance(found, dict) and found.get("error_code") in NOT_THERE:
            raise SourceNotFound(f"the schema registry {access.url} has no {path}")
        if status != 200 or not isinstance(found, dict):
            raise ConfigError(
                f"{access.url} does not answer as a schema registry: {status} to {path}",
                hint="look at registry.url in the spec; Confluent's API may lie under a path, such "
                "as /apis/ccompat/v7",
            )
        return found

    def _client(self) -> requests.Session:
        import requests

        if self._session is None:
            self._session = requests.Session()
            if self._access.user is not None:
                self._session.auth = (self._access.user, self._access.password or "")
        return self._session


class _TryAgain(Exception):
    """An answer that another try may change."""


_shared: dict[RegistryAccess, Registry] = {}
_guard = threading.Lock()


def shared(access: RegistryAccess) -> Registry:
    """Return the one client of this process for a registry, with what it remembers."""
    with _guard:
        if access not in _shared:
            _shared[access] = Registry(access)
        return _shared[access]


def _document(answer: Mapping[str, Any]) -> Document:
    kind = answer.get("schemaType") or "AVRO"
    if kind != "AVRO":
        raise Unreadable(f"the schema is of type {kind}, not AVRO")
    try:
        found: Document = json.loads(answer["schema"])
    except (ValueError, KeyError, TypeError) as problem:
        raise Unreadable("the registry's answer holds no schema") from problem
    return found


def _part(name: str) -> str:
    return quote(name, safe="")
