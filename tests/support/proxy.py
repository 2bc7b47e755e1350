"""A wire between a client and a server that can be cut at a chosen moment.

It forwards bytes both ways. Told to, it waits for a request that holds certain bytes and then
loses the request, or lets the server carry it out and loses the answer. Each cut counts.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

CHUNK_BYTES = 65536


class Cut(Enum):
    """What is lost, the next time that the trigger is seen."""

    NOTHING = "nothing"
    REQUEST = "request"
    ANSWER = "answer"


@dataclass(slots=True, kw_only=True)
class Wire:
    """A listening port before a server. ``down`` refuses whoever comes, and drops who is there.

    ``stays_down`` makes a cut the beginning of an outage.
    """

    server: tuple[str, int]
    trigger: bytes
    listener: socket.socket
    cut: Cut = Cut.NOTHING
    stays_down: bool = False
    down: bool = False
    fired: int = 0
    _open: list[socket.socket] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def serve(self) -> None:
        """Take connections until the listener is closed."""
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            if self.down:
                client.close()
                continue
            server = socket.create_connection(self.server)
            with self._lock:
                self._open += [client, server]
            threading.Thread(target=self._requests, args=(client, server), daemon=True).start()
            threading.Thread(target=self._answers, args=(server, client), daemon=True).start()

    def drop_all(self) -> None:
        """Cut every connection that is open."""
        with self._lock:
            for end in self._open:
                _close(end)
            self._open.clear()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(CHUNK_BYTES):
                if self.cut is not Cut.NOTHING and self.trigger in data:
                    self._fire(client, server, data)
                    return
                server.sendall(data)
        _close(server)

    def _fire(self, client: socket.socket, server: socket.socket, data: bytes) -> None:
        lost, self.cut = self.cut, Cut.NOTHING
        self.fired += 1
        self.down = self.stays_down
        # First the client's end goes, so that no answer can reach it; then the server may act.
        _close(client)
        if lost is Cut.ANSWER:
            server.sendall(data)
            server.shutdown(socket.SHUT_WR)
            with contextlib.suppress(OSError):
                while server.recv(CHUNK_BYTES):
                    pass
        _close(server)

    def _answers(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(CHUNK_BYTES):
                client.sendall(data)
        _close(client)


@contextlib.contextmanager
def wire(host: str, port: int, trigger: bytes) -> Iterator[Wire]:
    """Lay a wire to a server; it is gone at the end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = Wire(server=(host, port), trigger=trigger, listener=listener)
        threading.Thread(target=made.serve, daemon=True).start()
        try:
            yield made
        finally:
            made.drop_all()


def _close(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
