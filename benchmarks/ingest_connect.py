"""Apache's Iceberg sink on Kafka Connect, as one of the systems of the ingest benchmark.

Owns its worker and its settings: two tasks for two cores, a commit every five seconds, offsets
flushed every second (at the default of a minute the end of a topic would wait for it). Must never
be measured cold: the worker stays up, and each round is a new connector.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import secrets
import time

from benchmarks.ingest_parts import ICEBERG_CONNECT, hadoop_jars, sqlite_jar
from benchmarks.ingest_place import Place
from odi_audit.settings import catalog_spark_conf
from tests.support.servers import artifacts
from tests.support.servers.kafka import LOG4J, jvm
from tests.support.servers.process import HOST, Server, answers, free_port, java
from tests.support.servers.topics import Topics

TASKS = 2
COMMIT_MS = 5_000
FLUSH_MS = 1_000
HEAP = "1536m"
ANSWER_WAIT_S_MAX = 60
WORKER = """\
bootstrap.servers={bootstrap}
listeners=http://{host}:{port}
rest.advertised.host.name={host}
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
value.converter.schemas.enable=false
offset.storage.file.filename={folder}/offsets
offset.flush.interval.ms={flush}
plugin.path={folder}/plugins
plugin.discovery=service_load
consumer.max.poll.records=10000
consumer.auto.offset.reset=earliest
"""


class ConnectWorker(Server):
    """A standalone worker with the sink as its only plugin."""

    name = "bench-connect"
    start_wait_s_max = 180

    def __init__(self, place: Place) -> None:
        self._bootstrap = place.kafka.bootstrap
        self._java, self._jars = java(17), artifacts.jars(artifacts.KAFKA)
        parts = [
            *artifacts.jars(ICEBERG_CONNECT), *hadoop_jars(), sqlite_jar(place.lake.settings)
        ]  # fmt: skip
        super().__init__()
        self.port = 0
        plugin = self.folder / "plugins" / "iceberg"
        plugin.mkdir(parents=True)
        for jar in parts:
            (plugin / jar.name).symlink_to(jar)

    def prepare(self) -> None:
        """Choose a port and write the settings."""
        self.port = free_port()
        text = WORKER.format(
            bootstrap=self._bootstrap, host=HOST, port=self.port, folder=self.folder,
            flush=FLUSH_MS,
        )  # fmt: skip
        (self.folder / "worker.properties").write_text(text, "utf-8")
        (self.folder / "log4j2.properties").write_text(LOG4J.format(level="warn"), "utf-8")

    def command(self) -> list[str]:
        """Return the worker's command line."""
        return [
            *jvm(self._java, self._jars, HEAP, self.folder / "log4j2.properties"),
            "org.apache.kafka.connect.cli.ConnectStandalone",
            str(self.folder / "worker.properties"),
        ]

    def ready(self) -> bool:
        """Say whether the REST interface answers."""
        return answers(f"http://{HOST}:{self.port}/connectors")

    def ask(self, method: str, path: str, body: object = None) -> object:
        """Ask the worker; returns its answer.

        Raises:
            RuntimeError: it refused; what it said is in the message.
        """
        connection = http.client.HTTPConnection(HOST, self.port, timeout=ANSWER_WAIT_S_MAX)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = response.read()
        finally:
            connection.close()
        if response.status >= 300:
            raise RuntimeError(
                f"Connect answered {response.status} to {method} {path}: {answer[:2000]!r}"
            )
        return json.loads(answer) if answer else None


class KafkaConnect:
    """The sink on a worker that stays up."""

    name = "kafka_connect"

    def __init__(self, place: Place, worker: ConnectWorker) -> None:
        self._place = place
        self._worker = worker
        self.pid = worker.pid

    def ingest(self, topic: str, rows: int, table: str) -> float:
        """Run a new connector until the table is complete."""
        name = f"c{secrets.token_hex(3)}"
        control = f"control-{name}"
        # Topics are not made by themselves here; the sink does not make its own either.
        Topics(self._place.kafka.bootstrap).create(control, 1)
        self._worker.ask("PUT", f"/connectors/{name}/config", self._config(topic, table, control))
        try:
            return self._complete(name, table, rows)
        finally:
            with contextlib.suppress(RuntimeError):
                self._worker.ask("DELETE", f"/connectors/{name}")
            time.sleep(1)  # its tasks are still closing

    def _complete(self, name: str, table: str, rows: int) -> float:
        try:
            return self._place.complete_at(table, rows)
        except TimeoutError as late:
            status = self._worker.ask("GET", f"/connectors/{name}/status")
            raise RuntimeError(f"{late}: {status}\n{self._worker.log_tail()}") from late

    def _config(self, topic: str, table: str, control: str) -> dict[str, str]:
        conf = catalog_spark_conf(self._place.lake.settings)
        catalog = {
            key.removeprefix("spark.sql.catalog.lake."): value
            for key, value in conf.items()
            if key.startswith("spark.sql.catalog.lake.")
        }
        return {
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "tasks.max": str(TASKS),
            "topics": topic,
            "iceberg.tables": table,
            "iceberg.catalog": "lake",
            "iceberg.control.topic": control,
            "iceberg.control.commit.interval-ms": str(COMMIT_MS),
            "iceberg.control.group-id-prefix": "cg-control",
            **{f"iceberg.catalog.{key}": value for key, value in catalog.items()},
        }
