"""A real Kafka Connect worker (standalone), with the Debezium connector for PostgreSQL."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping

from tests.support.servers import artifacts
from tests.support.servers.kafka import LOG4J, jvm
from tests.support.servers.process import HOST, Server, answers, free_port, java

RUNNING_WAIT_S_MAX = 60
FLUSH_MS = 500
SETTINGS = """\
bootstrap.servers={bootstrap}
listeners=http://{host}:{port}
rest.advertised.host.name={host}
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
key.converter.schemas.enable=false
value.converter.schemas.enable=false
offset.storage.file.filename={folder}/offsets
offset.flush.interval.ms={flush}
plugin.path={folder}/plugins
plugin.discovery=service_load
topic.creation.enable=true
"""


class Connect(Server):
    """The worker. Connectors given to it are started again with it."""

    name = "connect"
    start_wait_s_max = 120

    def __init__(self, bootstrap: str, *, heap: str = "512m") -> None:
        self._bootstrap, self._heap = bootstrap, heap
        self._java, self._jars = java(17), artifacts.jars(artifacts.KAFKA)
        self._plugin = artifacts.jars(artifacts.DEBEZIUM_POSTGRES)[0].parent
        super().__init__()
        self.port = 0
        (self.folder / "plugins").mkdir()
        (self.folder / "plugins" / "debezium").symlink_to(self._plugin)
        (self.folder / "connectors").mkdir()

    @property
    def url(self) -> str:
        """Return where its REST interface is."""
        return f"http://{HOST}:{self.port}"

    def prepare(self) -> None:
        """Choose a port and write the settings."""
        self.port = free_port()
        text = SETTINGS.format(
            bootstrap=self._bootstrap, host=HOST, port=self.port, folder=self.folder,
            flush=FLUSH_MS,
        )  # fmt: skip
        (self.folder / "worker.properties").write_text(text, "utf-8")
        (self.folder / "log4j2.properties").write_text(LOG4J.format(level="info"), "utf-8")

    def command(self) -> list[str]:
        """Return the worker's command line, with every connector that it was given."""
        log4j = self.folder / "log4j2.properties"
        return [
            *jvm(self._java, self._jars, self._heap, log4j),
            "org.apache.kafka.connect.cli.ConnectStandalone",
            str(self.folder / "worker.properties"),
            *sorted(str(path) for path in (self.folder / "connectors").glob("*.json")),
        ]

    def ready(self) -> bool:
        """Say whether the REST interface answers."""
        return answers(f"{self.url}/connectors")

    def add(self, name: str, config: Mapping[str, str]) -> None:
        """Start a connector and wait until its tasks run.

        Raises:
            RuntimeError: it was refused, or it failed; what it said is in the message.
        """
        self._ask("PUT", f"/connectors/{name}/config", dict(config))
        # A standalone worker forgets its connectors, and takes them from files as it starts.
        document = json.dumps({"name": name, "config": dict(config)})
        (self.folder / "connectors" / f"{name}.json").write_text(document, "utf-8")
        self.wait_running(name)

    def drop(self, name: str) -> None:
        """Stop a connector for good."""
        (self.folder / "connectors" / f"{name}.json").unlink(missing_ok=True)
        self._ask("DELETE", f"/connectors/{name}", None)

    def wait_running(self, name: str) -> None:
        """Wait until a connector and its task run."""
        deadline = time.monotonic() + RUNNING_WAIT_S_MAX
        status: object = None
        while time.monotonic() < deadline:
            try:
                status = self._ask("GET", f"/connectors/{name}/status", None)
            except RuntimeError as missing:
                status = str(missing)
            if isinstance(status, dict):
                states = [status["connector"]["state"], *(t["state"] for t in status["tasks"])]
                if len(states) > 1 and set(states) == {"RUNNING"}:
                    return
                if "FAILED" in states:
                    break
            time.sleep(0.2)
        raise RuntimeError(f"connector {name} does not run: {status}\n{self.log_tail()}")

    def wait_flushed(self) -> None:
        """Wait until the worker has written down how far it has read.

        Killed before, a connector begins again, with a new snapshot of its tables.
        """
        deadline = time.monotonic() + RUNNING_WAIT_S_MAX
        while not (self.folder / "offsets").exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"Connect has kept no offsets\n{self.log_tail()}")
            time.sleep(0.1)
        time.sleep(3 * FLUSH_MS / 1000)

    def _ask(self, method: str, path: str, body: object) -> object:
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                answer = response.read()
        except urllib.error.HTTPError as refused:
            raise RuntimeError(
                f"Connect answered {refused.code} to {method} {path}: {refused.read()[:2000]!r}"
            ) from refused
        return json.loads(answer) if answer else None
