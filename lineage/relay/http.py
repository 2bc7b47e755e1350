"""Sending over HTTP with openlineage-python's transport: its session, headers, TLS and gzip.

Owns one request and its answer; every retry is the relay's. Must never follow a redirect, take a
login from somewhere else than the settings, or show a key.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

import requests
from openlineage.client.transport.http import HttpConfig, HttpTransport
from requests.adapters import HTTPAdapter
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    LocationValueError,
    NewConnectionError,
    ProxyError,
    SSLError,
)
from urllib3.util import Timeout

from lineage.relay.answers import Answer, Verdict, no_answer, of_status
from lineage.relay.sources import Item
from odi_audit.redact import redact_text
from odi_audit.settings_models import DestinationSettings

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, HTTPConnectionPool

CONNECT_TIMEOUT_S = 5.0
ANSWER_BYTES_MAX = 16 * 1024
"""As much of an answer is read: the rest says nothing that a person would read."""
PROBE_PATH = "api/v1/namespaces"
"""What Marquez answers whenever its database does."""

_TLS_WRONG = re.compile(r"CERTIFICATE|WRONG_VERSION|UNKNOWN_CA|hostname", re.IGNORECASE)


class HttpSender:
    """Posts one event at a time; keeps its connection."""

    chunk_max = 8
    one_by_one = True

    def __init__(self, settings: DestinationSettings) -> None:
        assert settings.url is not None
        # The library says in its log, at debug, how it is configured: with the key.
        logging.getLogger("openlineage.client.transport.http").setLevel(logging.INFO)
        url = settings.url.rstrip("/") + "/"
        self._transport = _Transport(HttpConfig.from_dict(_config(settings, url)))
        wait_s = settings.timeout_s
        self._timeout = Timeout(connect=min(CONNECT_TIMEOUT_S, wait_s), read=wait_s)
        self._events = _Line(self._transport, urljoin(url, settings.endpoint.lstrip("/")))
        self._health = _Line(self._transport, urljoin(url, PROBE_PATH))

    def send(self, items: Sequence[Item]) -> list[Answer]:
        """Post each event and return its answer."""
        return [self._post(item.body) for item in items]

    def probe(self) -> bool:
        """Say whether the backend answers a question that needs no event."""
        _, headers = self._transport._prepare_request("")
        headers.pop("Content-Encoding", None)
        try:
            with closing(self._health.ask("GET", None, headers, self._timeout)) as answer:
                return 200 <= answer.status < 300
        except HTTPError:
            return False

    def close(self) -> None:
        """Let go of the connection."""
        self._transport.close()

    def _post(self, body: bytes) -> Answer:
        data, headers = self._transport._prepare_request(body.decode())
        try:
            answer = self._events.ask("POST", data, headers, self._timeout)
            text = _text(answer)
        except HTTPError as problem:
            return _unanswered(problem)
        status = answer.status
        reason = "" if status < 300 else redact_text(" ".join(text.split()))
        return of_status(status, reason, answer.headers.get("Retry-After"), datetime.now(UTC))


class _Line:
    """One address, reached through the library's session: its TLS, its proxies, its pool.

    What a session does anew for each request (look for proxies, cookies, a login in ``~/.netrc``)
    is done once, or not at all: it takes longer than the request itself.
    """

    def __init__(self, transport: HttpTransport, url: str) -> None:
        session = transport.session
        request = session.prepare_request(requests.Request("POST", url, auth=_as_it_is))
        adapter = session.get_adapter(url)
        assert isinstance(adapter, HTTPAdapter)
        given = session.merge_environment_settings(
            url, {}, stream=True, verify=transport.verify, cert=transport.cert
        )
        self._pool: HTTPConnectionPool = adapter.get_connection_with_tls_context(
            request, given["verify"], proxies=given["proxies"], cert=given["cert"]
        )
        adapter.cert_verify(self._pool, url, given["verify"], given["cert"])
        self._path = adapter.request_url(request, given["proxies"])

    def ask(
        self, method: str, data: bytes | str | None, headers: dict[str, str], timeout: Timeout
    ) -> BaseHTTPResponse:
        """Send a request once; raises urllib3's errors."""
        return self._pool.urlopen(
            method,
            self._path,
            body=data.encode() if isinstance(data, str) else data,
            headers=headers,
            retries=False,
            redirect=False,
            timeout=timeout,
            preload_content=False,
        )


class _Transport(HttpTransport):
    """The library's transport, without its own retries: they would hide what was answered."""

    def _prepare_adapter(self) -> HTTPAdapter:
        return HTTPAdapter(max_retries=0, pool_connections=2, pool_maxsize=1)


def _config(settings: DestinationSettings, url: str) -> dict[str, Any]:
    config: dict[str, Any] = {
        "url": url,
        "endpoint": settings.endpoint,
        "timeout": settings.timeout_s,
        "verify": settings.verify,
        "custom_headers": dict(settings.headers),
        "auth": {},
    }
    if settings.api_key is not None:
        config["auth"] = {"type": "api_key", "apiKey": settings.api_key.get_secret_value()}
    if settings.gzip:
        config["compression"] = "gzip"
    paths = {
        "caCertPath": settings.ca_file,
        "clientCertPath": settings.client_cert,
        "clientKeyPath": settings.client_key,
    }
    given = {name: str(path) for name, path in paths.items() if path is not None}
    if given:
        config["sslContext"] = given
    return config


def _as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def _text(answer: BaseHTTPResponse) -> str:
    """Read the beginning of an answer; what is longer costs the connection."""
    held = answer.read(ANSWER_BYTES_MAX, decode_content=True)
    if len(held) < ANSWER_BYTES_MAX:
        answer.drain_conn()
        answer.release_conn()
    else:
        answer.close()
    return bytes(held).decode("utf-8", "replace")


def _unanswered(problem: HTTPError) -> Answer:
    reason = redact_text(f"{type(problem).__name__}: {problem}")
    match problem:
        case SSLError() if _TLS_WRONG.search(reason):
            # A certificate that does not fit is no passing fault.
            return Answer(verdict=Verdict.STOPPED, reason=reason)
        case NewConnectionError() | ConnectTimeoutError() | ProxyError():
            return no_answer(reason, in_doubt=False)
        case LocationValueError():
            return Answer(verdict=Verdict.STOPPED, reason=reason)
    # The request was written, or part of it: it may yet be carried out.
    return no_answer(reason, in_doubt=True)
