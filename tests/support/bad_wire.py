"""A bad network between a client and a server on loopback: faults that last for a while.

Each fault is counted when it hits a connection, so that one which never did is seen.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

CHUNK_BYTES = 65536
LATE_S_MAX = 1.5
"""A request that is late arrives no later than this."""
FAULTS = ("outage", "reset", "half-open", "slow", "late", "answer-lost")


@dataclass(slots=True, kw_only=True)
class BadWire:
    """A listening port before a server. ``mode`` is the fault of the moment, or None.

    outage: nobody is connected. reset: the line is cut when a request comes. half-open: a request
    is swallowed, and nothing comes back. slow: everything takes its time. late: a request arrives
    when the client has long given up. answer-lost: the server acts, and the client never knows.
    """

    server: tuple[str, int]
    listener: socket.socket
    chance: random.Random
    mode: str | None = None
    fired: Counter[str] = field(default_factory=Counter)

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def serve(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            if self.mode == "outage":
                self.fired["outage"] += 1
                _reset(client)
                continue
            try:
                server = socket.create_connection(self.server)
            except OSError:
                _reset(client)
                continue
            threading.Thread(target=self._requests, args=(client, server), daemon=True).start()
            threading.Thread(target=self._answers, args=(server, client), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(CHUNK_BYTES):
                mode = self.mode
                if mode in FAULTS and mode != "answer-lost":
                    self.fired[mode] += 1
                if mode in {"outage", "reset"}:
                    _reset(client)
                    _reset(server)
                    return
                if mode == "half-open":
                    self._swallow(client)
                    _reset(client)
                    _reset(server)
                    return
                if mode == "slow":
                    time.sleep(self.chance.uniform(0.02, 0.2))
                if mode == "late":
                    data += _rest(client)
                    time.sleep(self.chance.uniform(0.3, LATE_S_MAX))
                server.sendall(data)
        # The client has gone, but what it sent may still be carried out.
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_WR)

    def _swallow(self, client: socket.socket) -> None:
        client.settimeout(0.1)
        while self.mode == "half-open":
            try:
                if not client.recv(CHUNK_BYTES):
                    return
            except TimeoutError:
                continue

    def _answers(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(CHUNK_BYTES):
                if self.mode == "answer-lost":
                    self.fired["answer-lost"] += 1
                    _reset(client)
                    return
                client.sendall(data)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def bad_wire(host: str, port: int, chance: random.Random) -> Iterator[BadWire]:
    """Lay a wire to a server; nobody can connect at the end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = BadWire(server=(host, port), listener=listener, chance=chance)
        threading.Thread(target=made.serve, daemon=True).start()
        yield made
        made.mode = "outage"


def _rest(client: socket.socket) -> bytes:
    """Read what follows at once: a request comes in two parts."""
    held = b""
    client.settimeout(0.05)
    with contextlib.suppress(TimeoutError):
        while data := client.recv(CHUNK_BYTES):
            held += data
    client.settimeout(None)
    return held


def _reset(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    # A thread may be waiting on it: it is told before the line is cut.
    end.close()
