"""Flink SQL, as one of the systems of the ingest benchmark.

Owns its process: our small Java program, compiled when the benchmark starts, that keeps one local
environment and runs one INSERT after another. Two slots for two cores, a checkpoint (and so a
commit) every five seconds, as the Connect sink commits. Must never be measured cold.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from benchmarks.ingest_parts import FLINK, hadoop_jars, sqlite_jar
from benchmarks.ingest_place import ROUND_WAIT_S_MAX, Place
from odi_audit.settings import catalog_spark_conf
from tests.support.servers import artifacts
from tests.support.servers.kafka import LOG4J
from tests.support.servers.process import Server, java

SOURCE = Path(__file__).parent / "flink" / "IngestJob.java"
PARALLELISM = 2
CHECKPOINT_MS = 5_000
HEAP = "1536m"
SEEN_WAIT_S_MAX = 10
"""The job has ended: what is not in the table by now does not come any more."""
COMPILE_WAIT_S_MAX = 180
OPENED = ("java.lang", "java.net", "java.nio", "java.text", "java.time", "java.util")
"""Packages that Flink reaches into; its own start script opens them too."""


class FlinkProcess(Server):
    """The program; it takes its orders from a named pipe and answers into its log."""

    name = "bench-flink"
    start_wait_s_max = 180

    def __init__(self, place: Place) -> None:
        self._place = place
        self._java = java(17)
        self._jars = [
            *artifacts.jars(FLINK), *hadoop_jars(), sqlite_jar(place.lake.settings)
        ]  # fmt: skip
        super().__init__()
        self._orders = self.folder / "orders"
        os.mkfifo(self._orders)
        # Held open for both: the program would take a closed pipe for the end of its work.
        self._pipe = os.open(self._orders, os.O_RDWR)

    def prepare(self) -> None:
        """Compile the program against the jars that it runs with."""
        (self.folder / "log4j2.properties").write_text(LOG4J.format(level="error"), "utf-8")
        paths = ":".join(str(path) for path in (self.folder, *self._jars))
        (self.folder / "class-path.args").write_text(f"-cp\n{paths}\n", "utf-8")
        done = subprocess.run(
            [
                str(Path(self._java).with_name("javac")), f"@{self.folder / 'class-path.args'}",
                "-d", str(self.folder), str(SOURCE),
            ],
            capture_output=True, text=True, timeout=COMPILE_WAIT_S_MAX, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{SOURCE.name} was not compiled: {done.stderr[-2000:]}")

    def command(self) -> list[str]:
        """Return the program's command line."""
        conf = catalog_spark_conf(self._place.lake.settings)
        return [
            self._java, f"-Xmx{HEAP}", "-Xms256m", "-XX:+ExitOnOutOfMemoryError",
            f"-Dlog4j2.configurationFile={(self.folder / 'log4j2.properties').as_uri()}",
            *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED),
            f"@{self.folder / 'class-path.args'}", "IngestJob",
            self._place.kafka.bootstrap,
            conf["spark.sql.catalog.lake.warehouse"], conf["spark.sql.catalog.lake.uri"],
            str(PARALLELISM), str(CHECKPOINT_MS), str(self._orders),
        ]  # fmt: skip

    def ready(self) -> bool:
        """Say whether the environment is up."""
        return "ready" in self.log_text().splitlines()

    def order(self, topic: str, table: str) -> None:
        """Submit one INSERT and wait for its end.

        Raises:
            RuntimeError: the program ended, or took too long; the end of its log is in the message.
        """
        os.write(self._pipe, f"{topic} {table}\n".encode())
        deadline = time.monotonic() + ROUND_WAIT_S_MAX
        while f"done {table}" not in self.log_text().splitlines():
            if not self.running or time.monotonic() > deadline:
                raise RuntimeError(f"Flink did not fill {table}:\n{self.log_tail()}")
            time.sleep(0.1)

    def remove(self) -> None:
        """End the program and remove everything it left."""
        os.close(self._pipe)
        super().remove()


class Flink:
    """Flink SQL in a process that stays up."""

    name = "flink"

    def __init__(self, place: Place, process: FlinkProcess) -> None:
        self._place = place
        self._process = process
        self.pid = process.pid

    def ingest(self, topic: str, rows: int, table: str) -> float:
        """Run one INSERT over everything that is there."""
        self._process.order(topic, table)
        return self._place.complete_at(table, rows, SEEN_WAIT_S_MAX)
