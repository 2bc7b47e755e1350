"""A real Toxiproxy: connections on loopback that a test can slow down, starve or cut."""

from __future__ import annotations

import contextlib
import json
import urllib.request
from collections.abc import Iterator

from tests.support.servers import artifacts
from tests.support.servers.process import HOST, Server, answers, free_port


class Toxiproxy(Server):
    """The proxy. It keeps no data: after a restart there are no proxies."""

    name = "toxiproxy"
    start_wait_s_max = 20

    def __init__(self) -> None:
        self._program = artifacts.toxiproxy()
        super().__init__()
        self.port = 0

    def prepare(self) -> None:
        """Choose a port."""
        self.port = free_port()

    def command(self) -> list[str]:
        """Return the proxy's command line."""
        return [str(self._program), "-host", HOST, "-port", str(self.port)]

    def ready(self) -> bool:
        """Say whether it answers."""
        return answers(f"http://{HOST}:{self.port}/version")

    @contextlib.contextmanager
    def proxy(self, name: str, *, listen: int, upstream: int) -> Iterator[None]:
        """Pass connections from one port to another while the block runs."""
        body = {"name": name, "listen": f"{HOST}:{listen}", "upstream": f"{HOST}:{upstream}"}
        self._ask("POST", "/proxies", body)
        try:
            yield
        finally:
            self._ask("DELETE", f"/proxies/{name}")

    @contextlib.contextmanager
    def down(self, name: str) -> Iterator[None]:
        """Refuse connections, and cut those that stand, while the block runs."""
        self._ask("POST", f"/proxies/{name}", {"enabled": False})
        try:
            yield
        finally:
            self._ask("POST", f"/proxies/{name}", {"enabled": True})

    @contextlib.contextmanager
    def toxic(
        self, name: str, kind: str, *, stream: str = "downstream", **attributes: int
    ) -> Iterator[None]:
        """Disturb a proxy while the block runs: ``toxic("k", "latency", latency=500)``."""
        toxic = f"{kind}_{stream}"
        body = {"name": toxic, "type": kind, "stream": stream, "attributes": attributes}
        self._ask("POST", f"/proxies/{name}/toxics", body)
        try:
            yield
        finally:
            self._ask("DELETE", f"/proxies/{name}/toxics/{toxic}")

    def _ask(self, method: str, path: str, body: object = None) -> None:
        request = urllib.request.Request(
            f"http://{HOST}:{self.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "User-Agent": "odi-tests"},
        )
        with urllib.request.urlopen(request, timeout=10):
            pass
