"""A real schema registry (Apicurio, with the interface that Confluent's clients speak)."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

from tests.support.servers import artifacts
from tests.support.servers.process import HOST, Server, answers, free_port, java


class Registry(Server):
    """The registry; what was registered outlives a restart."""

    name = "registry"
    start_wait_s_max = 120

    def __init__(self, *, heap: str = "512m") -> None:
        self._heap = heap
        self._java, self._home = java(21), artifacts.registry()
        super().__init__()
        self.port = 0

    @property
    def url(self) -> str:
        """Return the address that clients of the Confluent interface are given."""
        return f"http://{HOST}:{self.port}/apis/ccompat/v7"

    def prepare(self) -> None:
        """Choose a port."""
        self.port = free_port()

    def command(self) -> list[str]:
        """Return the registry's command line."""
        jar = next(iter(self._home.rglob("quarkus-run.jar")))
        settings = {
            "quarkus.http.host": HOST,
            "quarkus.http.port": str(self.port),
            "quarkus.management.host": HOST,
            "quarkus.management.port": "0",
            # Written at each commit: what was registered must outlive a kill.
            "apicurio.datasource.url": f"jdbc:h2:file:{self.folder}/registry;WRITE_DELAY=0",
            "apicurio.datasource.jdbc.initial-size": "2",
            "apicurio.datasource.jdbc.min-size": "2",
            "apicurio.datasource.jdbc.max-size": "20",
        }
        return [
            self._java, f"-Xmx{self._heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            *(f"-D{key}={value}" for key, value in settings.items()),
            "-jar", str(jar),
        ]  # fmt: skip

    def ready(self) -> bool:
        """Say whether the Confluent interface answers."""
        return answers(f"{self.url}/subjects")

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, object]:
        """Ask the registry past everything under test; returns the status and the answer."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/vnd.schemaregistry.v1+json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return int(response.status), json.loads(response.read() or b"null")
        except urllib.error.HTTPError as refused:
            text = refused.read().decode("utf-8", "replace")
            try:
                return refused.code, json.loads(text)
            except ValueError:
                return refused.code, text

    def register(self, subject: str, schema: object) -> int:
        """Register an Avro schema and return its id.

        Raises:
            RuntimeError: it was refused.
        """
        status, answer = self.ask(
            "POST", f"/subjects/{subject}/versions", {"schema": json.dumps(schema)}
        )
        if status != 200 or not isinstance(answer, dict):
            raise RuntimeError(f"registry answered {status}: {answer}")
        return int(answer["id"])
