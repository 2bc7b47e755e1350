"""Reading a Marquez server, and posting to it: through marquez-python where that has a call.

Owns the HTTP session (key, timeouts, retries of reads), pages, and what its documents mean to us.
marquez-python keeps an API key in a global, asks for each page with a new connection and refuses
names over 255 characters; so its client is given our session here, and long names are asked for
directly. It has no call for the lineage graph. Must never follow a redirect: the key would go
along. Must never show the key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, NoReturn, TypeAlias, cast
from urllib.parse import quote, urlsplit

import requests
from marquez_client import MarquezClient
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from urllib3.util.retry import Retry

from lineage.marquez.names import Name
from odi_audit.canonical import Json
from odi_audit.errors import BackendUnavailable, UsageError
from odi_audit.redact import redact_text, register

PAGE_RUNS = 500
"""Runs in one answer. The server joins all runs of a job for each page, so few pages are cheap."""
TIMEOUT_S = 60.0
"""A page of runs of a job that has very many takes the real server seconds."""
READS_RETRIED = 2
NAME_LENGTH_MAX = 255
"""Longer names are refused by marquez-python, though not by Marquez."""
_AGAIN = (429, 502, 503, 504)
"""A 500 is not among them: Marquez says it of what it will never answer."""
Query: TypeAlias = Mapping[str, str | int]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRun:
    """A run as Marquez has it. ``outputs`` has the snapshot that the commit report names."""

    run: str
    state: str
    started_at: str | None
    index: int | None
    """The ledger's entry that the newest event named."""
    inputs: frozenset[Name]
    outputs: Mapping[Name, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsPage:
    """Some of a job's runs, newest first, and how many there are."""

    runs: list[HeldRun]
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    """What a job reads and writes."""

    inputs: frozenset[Name]
    outputs: frozenset[Name]


class Marquez:
    """A Marquez server by its address. Every call may raise BackendUnavailable."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        verify: bool | str = True,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.url = base_url(url)
        self._timeout_s = timeout_s
        self._session = requests.Session()
        self._session.verify = verify
        again = Retry(
            total=READS_RETRIED,
            backoff_factor=0.2,
            status_forcelist=_AGAIN,
            allowed_methods=("GET",),
            raise_on_status=False,
        )
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(max_retries=again))
        if api_key is not None:
            register(api_key)
            self._session.auth = _Bearer(api_key)
        self._client = _Client(self)

    def close(self) -> None:
        """Give the connections back."""
        self._session.close()

    # -- reading -----------------------------------------------------------------------------------

    def ping(self) -> None:
        """Find out whether this is a Marquez at all, before anything long is begun."""
        _list(self._client.list_namespaces(limit=1), "namespaces", self.url)

    def runs(self, job: Name) -> Iterator[RunsPage]:
        """Yield the pages of a job's runs; no page at all where there is no such job.

        Runs that began in one moment have no order: two pages may have one of them twice and
        another not at all.
        """
        offset = 0
        while True:
            document = self._asked(
                self._client.list_job_runs, "/namespaces/{0}/jobs/{1}/runs", job, offset
            )
            if document is None:
                return
            found = [_run(item, self.url) for item in _list(document, "runs", self.url)]
            total = _whole(document, "totalCount", offset + len(found))
            yield RunsPage(runs=found, total=total)
            offset += len(found)
            if not found or len(found) < PAGE_RUNS:
                return

    def run(self, run: str) -> HeldRun | None:
        """Return one run."""
        document = self._client.get_job_run(run)
        return None if document is None else _run(document, self.url)

    def job(self, job: Name) -> Edges | None:
        """Return the datasets of a job's newest version; None where there is no such job."""
        document = self._asked(self._client.get_job, "/namespaces/{0}/jobs/{1}", job, None)
        if document is None:
            return None
        return Edges(
            inputs=frozenset(_names(document.get("inputs"))),
            outputs=frozenset(_names(document.get("outputs"))),
        )

    def graph(self, job: Name) -> Edges | None:
        """Return a job's edges in the lineage graph; None where it is not in it."""
        node = f"job:{job[0]}:{job[1]}"
        document = self.get("/lineage", {"nodeId": node, "depth": 0})
        for item in _list(document or {"graph": []}, "graph", self.url):
            if item.get("id") == node:
                data = item.get("data") or {}
                return Edges(
                    inputs=frozenset(_names(data.get("inputs"))),
                    outputs=frozenset(_names(data.get("outputs"))),
                )
        return None

    def columns(self, dataset: Name) -> set[tuple[str, Name, str]]:
        """Return (column, dataset, field of it) for each field that feeds a column of a dataset."""
        document = self._client.get_column_lineage_by_dataset(dataset[0], dataset[1], depth=1)
        edges: set[tuple[str, Name, str]] = set()
        for item in _list(document or {"graph": []}, "graph", self.url):
            data = item.get("data") or {}
            if (data.get("namespace"), data.get("dataset")) != dataset:
                continue
            for source in data.get("inputFields") or []:
                name = (str(source["namespace"]), str(source["dataset"]))
                edges.add((str(data["field"]), name, str(source["field"])))
        return edges

    def _asked(self, call: Any, path: str, job: Name, offset: int | None) -> dict[str, Any] | None:
        pages = {} if offset is None else {"limit": PAGE_RUNS, "offset": offset}
        if len(job[1]) <= NAME_LENGTH_MAX:
            return cast("dict[str, Any] | None", call(job[0], job[1], **pages))
        return self.get(path.format(quote(job[0], safe=""), quote(job[1], safe="")), pages)

    # -- HTTP --------------------------------------------------------------------------------------

    def get(self, path: str, query: Query | None = None) -> dict[str, Any] | None:
        """Return a document of the API; None where the server answers 404."""
        return self.fetch(f"{self.url}/api/v1{path}", query)

    def fetch(self, address: str, query: Query | None = None) -> dict[str, Any] | None:
        """Return what stands at an address of this server."""
        try:
            answer = self._session.get(
                address, params=query, timeout=self._timeout_s, allow_redirects=False
            )
            if answer.status_code == HTTPStatus.NOT_FOUND:
                return None
            if answer.status_code != HTTPStatus.OK:
                self._refuse(answer.status_code, address)
            document = answer.json()
        except requests.JSONDecodeError as problem:
            raise _no_marquez(self.url) from problem
        except requests.RequestException as problem:
            raise self._unreachable(problem) from problem
        if not isinstance(document, dict):
            raise _no_marquez(self.url)
        return document

    def post(self, body: bytes) -> int:
        """Send an event; return the status of the answer.

        Raises:
            BackendUnavailable: no answer came, or the server turns us away whatever we send.
        """
        try:
            answer = self._session.post(
                f"{self.url}/api/v1/lineage",
                data=body,
                headers={"Content-Type": "application/json"},
                timeout=self._timeout_s,
                allow_redirects=False,
            )
        except requests.RequestException as problem:
            raise self._unreachable(problem) from problem
        turned_away = {401, 403, 404, *_AGAIN}
        if answer.status_code in turned_away or 300 <= answer.status_code < 400:
            self._refuse(answer.status_code, "/api/v1/lineage")
        return answer.status_code

    def _refuse(self, status: int, what: str) -> NoReturn:
        what = urlsplit(what).path
        if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            raise BackendUnavailable(
                f"Marquez at {self.url} turns us away: it answered {status} to {what}",
                hint="set OPENLINEAGE_API_KEY, or lineage.api_key in odi.toml",
            )
        raise BackendUnavailable(
            f"Marquez at {self.url} answered {status} to {what}; expected 200",
            hint="look into the log of the server, and run the check again",
            status=status,
        )

    def _unreachable(self, problem: requests.RequestException) -> BackendUnavailable:
        slow = isinstance(problem, requests.Timeout)
        how = f"gave no answer within {self._timeout_s:g} s" if slow else "cannot be reached"
        why = type(problem).__name__ if slow else redact_text(_first_line(problem))
        return BackendUnavailable(
            f"Marquez at {self.url} {how} ({why})", hint="docker compose up --wait"
        )


class _Bearer(AuthBase):
    """The key as requests wants it: as a header, a login from ``.netrc`` would take its place."""

    def __init__(self, api_key: str) -> None:
        self._api_key = api_key

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._api_key}"
        return request


class _Client(MarquezClient):  # type: ignore[misc]
    """marquez-python over our session; a 404 is None, as everywhere here."""

    def __init__(self, server: Marquez) -> None:
        super().__init__(server.url)
        self._server = server

    def _get(self, url: str, params: Query | None = None, as_json: bool = True) -> Any:  # noqa: ARG002 - as inherited
        return self._server.fetch(url, params)


def base_url(url: str) -> str:
    """Return the address of the server, of whatever part of it one was given.

    Raises:
        UsageError: it is no address of a web server, or holds a login.
    """
    parts = urlsplit(url.strip())
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise UsageError(
            f"{redact_text(url)!r} is no address of a Marquez server",
            hint="--marquez http://localhost:5000",
        )
    if "@" in parts.netloc:
        raise UsageError(
            "the address of Marquez must hold no login",
            hint="set OPENLINEAGE_API_KEY instead",
        )
    path = parts.path.rstrip("/").removesuffix("/lineage").removesuffix("/api/v1").rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path}"


def _run(document: Any, url: str) -> HeldRun:
    if not isinstance(document, dict) or "id" not in document or "state" not in document:
        raise _no_marquez(url)
    facets = document.get("facets") or {}
    index = (facets.get("odi_ledger") or {}).get("index")
    outputs: dict[Name, str | None] = {}
    for item in document.get("outputDatasetVersions") or []:
        report = (item.get("facets") or {}).get("icebergCommitReport") or {}
        outputs[_version_name(item)] = report.get("snapshotId")
    inputs = document.get("inputDatasetVersions") or []
    return HeldRun(
        run=str(document["id"]),
        state=str(document["state"]),
        started_at=document.get("startedAt"),
        index=index if isinstance(index, int) else None,
        inputs=frozenset(_version_name(item) for item in inputs),
        outputs=outputs,
    )


def _version_name(item: Any) -> Name:
    held = item["datasetVersionId"]
    return str(held["namespace"]), str(held["name"])


def _names(items: Any) -> Iterator[Name]:
    for item in items or []:
        yield str(item["namespace"]), str(item["name"])


def _list(document: Any, key: str, url: str) -> list[dict[str, Any]]:
    found = document.get(key) if isinstance(document, dict) else None
    if not isinstance(found, list):
        raise _no_marquez(url)
    return found


def _whole(document: Mapping[str, Json], key: str, other: int) -> int:
    found = document.get(key)
    return found if isinstance(found, int) else other


def _no_marquez(url: str) -> BackendUnavailable:
    return BackendUnavailable(
        f"what answers at {url} does not answer as Marquez does",
        hint="--marquez wants the address of its API, by default port 5000",
    )


def _first_line(problem: BaseException) -> str:
    while problem.__cause__ is not None or problem.__context__ is not None:
        inner = problem.__cause__ or problem.__context__
        if inner is None:
            break
        problem = inner
    return (str(problem) or type(problem).__name__).splitlines()[0][:200]
