"""The backend behind HTTP on loopback: a real server in threads, with faults on request.

Each request of an event is noted with its moment, in memory and, if asked, in a file that is
flushed line by line, so that what had arrived is known whatever happens to this process.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any
from urllib.parse import parse_qsl, urlsplit

from tests.support.marquez.answers import answer
from tests.support.marquez.backend import Backend
from tests.support.marquez.shapes import Refused

EVENTS = "/api/v1/lineage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request as a fault hook sees it; ``number`` counts the posts of events from 0."""

    number: int
    method: str
    path: str
    run: str | None
    state: str | None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What goes wrong with a request. The order is: stall, carry out or not, answer or not.

    ``status`` answers this in place of the real status; ``carry_out`` says whether the event is
    taken all the same. ``close`` answers nothing and closes ("reset" with a TCP reset).
    """

    status: int | None = None
    retry_after: str | None = None
    carry_out: bool = False
    close: str | None = None
    stall_s: float = 0.0
    stall_after_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """An event that came. ``status`` is what was answered; 0 where the line was closed.

    ``taken`` says whether it was carried out, whatever was answered.
    """

    time: float
    run: str
    state: str
    status: int
    taken: bool
    index: int | None
    """The entry of the ledger that the event is of, where it says so."""


@dataclass(slots=True, kw_only=True)
class Receiver:
    """A running receiver. Set ``hook``, ``delay_s`` and ``api_key`` whenever you like."""

    backend: Backend = field(default_factory=Backend)
    api_key: str | None = None
    delay_s: float = 0.0
    hook: Callable[[Request], Fault | None] | None = None
    log: Path | None = None
    arrivals: list[Arrival] = field(default_factory=list)
    fired: list[Fault] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    """The paths that were read, with their queries."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _posts: int = 0
    _server: ThreadingHTTPServer | None = None
    _file: IO[str] | None = None

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, port: int = 0) -> None:
        """Listen; a receiver that was stopped may be started again on its old port."""
        owner = self

        class Bound(_Handler):
            receiver = owner

        self._server = _Server(("127.0.0.1", port), Bound)
        if self.log is not None:
            self._file = self.log.open("a", encoding="utf-8")
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Close the port, and every connection; what was kept stays."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server.drop_all()  # type: ignore[attr-defined]
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def states(self) -> dict[str, str]:
        """Return the state of each run that events were sent of."""
        with self.backend.lock:
            return self.backend.states

    def note(self, arrival: Arrival) -> None:
        """Put an arrival into the log, in memory and in the file."""
        self.arrivals.append(arrival)
        if self._file is not None:
            self._file.write(json.dumps(asdict(arrival)) + "\n")
            self._file.flush()

    def next_post(self) -> int:
        """Count a post of an event."""
        with self._lock:
            self._posts += 1
            return self._posts - 1

    def fault_of(self, request: Request) -> Fault | None:
        """Ask the hook what shall go wrong."""
        fault = None if self.hook is None else self.hook(request)
        if fault is not None:
            self.fired.append(fault)
        return fault

    def take(self, body: bytes, fault: Fault | None, told: tuple[str, str, int | None]) -> int:
        """Carry an event out, or not, and note it; return the status to answer with."""
        run, state, index = told
        with self._lock:
            # One lock over both: the log has the order in which the backend took them.
            carried = fault is None or fault.carry_out or (fault.status is None and not fault.close)
            status = self.backend.post(body) if carried else 0
            if fault is not None and fault.status is not None:
                status = fault.status
            answered = 0 if fault is not None and fault.close else status
            self.note(
                Arrival(
                    time=time.time(),
                    run=run,
                    state=state,
                    status=answered,
                    taken=carried,
                    index=index,
                )
            )
        return status


@contextlib.contextmanager
def receiver(**options: Any) -> Iterator[Receiver]:
    """Run a receiver on a free port for the length of a ``with``."""
    made = Receiver(**options)
    made.start()
    try:
        yield made
    finally:
        made.stop()


def arrivals_in(log: Path) -> list[Arrival]:
    """Read the log of a receiver, also while it runs; a last line that is cut does not count."""
    lines = log.read_text("utf-8").splitlines(keepends=True)
    return [Arrival(**json.loads(line)) for line in lines if line.endswith("\n")]


def about(body: bytes) -> tuple[str, str, int | None]:
    """Return run, type and ledger index of an event; empty texts where it has none."""
    try:
        event = json.loads(body)
        run = event.get("run") or {}
        index = ((run.get("facets") or {}).get("odi_ledger") or {}).get("index")
        return str(run.get("runId", "")), str(event.get("eventType", "")), index
    except (ValueError, AttributeError):
        return "", "", None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[_Handler]) -> None:
        self.open: set[socket.socket] = set()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is what these tests are about."""

    def drop_all(self) -> None:
        for held in list(self.open):
            with contextlib.suppress(OSError):
                held.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    receiver: Receiver
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as inherited
        """Nothing goes to stderr."""

    def do_POST(self) -> None:
        body = self._body()
        split = urlsplit(self.path)
        if not self._allowed():
            self._answer(401, {"code": 401, "message": "Credentials are required"})
            return
        if split.path != EVENTS:
            self._answer(404, {"code": 404, "message": "HTTP 404 Not Found"})
            return
        try:
            body = gzip.decompress(body) if self._encoding() == "gzip" else body
        except (OSError, EOFError):
            self._answer(400, {"code": 400, "message": "HTTP 400 Bad Request"})
            return
        if "json" not in self.headers.get("Content-Type", ""):
            self._answer(415, {"code": 415, "message": "HTTP 415 Unsupported Media Type"})
            return
        told = about(body)
        fault = self._fault(body, self.receiver.next_post(), told)
        if self.receiver.delay_s:
            time.sleep(self.receiver.delay_s)
        status = self.receiver.take(body, fault, told)
        self._finish(status, None, fault)

    def do_GET(self) -> None:
        if not self._allowed():
            self._answer(401, {"code": 401, "message": "Credentials are required"})
            return
        self.receiver.reads.append(self.path)
        fault = self._fault(b"", -1, ("", "", None))
        time.sleep(self.receiver.delay_s)
        split = urlsplit(self.path)
        try:
            status, document = (
                200,
                answer(self.receiver.backend, split.path, dict(parse_qsl(split.query))),
            )
        except Refused as refused:
            status, document = refused.status, {"code": refused.status, "message": str(refused)}
        if fault is not None and fault.status is not None:
            status, document = fault.status, {"code": fault.status, "message": "as asked"}
        self._finish(status, document, fault)

    def _fault(self, body: bytes, number: int, told: tuple[str, str, int | None]) -> Fault | None:
        if self.receiver.hook is None:
            return None
        run, state, _ = told
        request = Request(
            number=number,
            method=self.command,
            path=self.path,
            run=run or None,
            state=state or None,
            headers=dict(self.headers.items()),
            body=body,
        )
        fault = self.receiver.fault_of(request)
        if fault is not None:
            time.sleep(fault.stall_s)
        return fault

    def _finish(self, status: int, document: Any, fault: Fault | None) -> None:
        if fault is not None:
            time.sleep(fault.stall_after_s)
            if fault.close:
                self._hang_up(fault.close)
                return
        headers = {}
        if fault is not None and fault.retry_after is not None:
            headers["Retry-After"] = fault.retry_after
        self._answer(status, document, headers)

    def _answer(self, status: int, document: Any, headers: dict[str, str] | None = None) -> None:
        body = b"" if document is None else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _hang_up(self, how: str) -> None:
        if how == "reset":
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.close_connection = True

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _encoding(self) -> str:
        return str(self.headers.get("Content-Encoding", "")).lower()

    def _allowed(self) -> bool:
        key = self.receiver.api_key
        return key is None or self.headers.get("Authorization") == f"Bearer {key}"
