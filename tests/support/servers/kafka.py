"""A real Kafka: one node that is broker and controller, on loopback, with its own data."""

from __future__ import annotations

import base64
import secrets
import subprocess
import uuid
from pathlib import Path

from tests.support.servers import artifacts
from tests.support.servers.process import HOST, Server, ServerFailed, free_port, java

READER, PASSWORD = "reader", "p-" + secrets.token_hex(8)
"""The login of the listener that asks for one."""
LOG4J = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %m (%c)%n%throwable
rootLogger.level = {level}
rootLogger.appenderRef.out.ref = out
"""
SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
controller.listener.names=CONTROLLER
listeners=PLAIN://{host}:{port},WIRE://{host}:{behind},LOGIN://{host}:{login},\
CONTROLLER://{host}:{controller}
advertised.listeners=PLAIN://{host}:{port},WIRE://{host}:{wire},LOGIN://{host}:{login}
listener.security.protocol.map=PLAIN:PLAINTEXT,WIRE:PLAINTEXT,LOGIN:SASL_PLAINTEXT,\
CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAIN
listener.name.login.sasl.enabled.mechanisms=PLAIN
listener.name.login.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_{reader}="{password}";
log.dirs={folder}/data
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
num.network.threads=2
num.io.threads=4
log.retention.check.interval.ms=500
log.initial.task.delay.ms=500
file.delete.delay.ms=500
log.segment.delete.delay.ms=500
controlled.shutdown.enable=false
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
"""


class Kafka(Server):
    """The broker.

    ``bootstrap`` is for everybody; ``bootstrap_wire`` goes through a proxy that a test has to put
    up on ``wire_port`` with ``behind_port`` as its target; ``bootstrap_login`` asks for
    :data:`READER` and :data:`PASSWORD` (SASL_PLAINTEXT, PLAIN).
    """

    name = "kafka"
    start_wait_s_max = 300
    """A broker that was killed reads its logs again, beside whatever else fills the machine."""

    def __init__(self, *, heap: str = "512m") -> None:
        self._heap = heap
        self._java, self._jars = java(17), artifacts.jars(artifacts.KAFKA)
        super().__init__()
        self.cluster_id = ""
        self.port = self.wire_port = self.behind_port = self.login_port = 0

    @property
    def bootstrap(self) -> str:
        """Where clients connect."""
        return f"{HOST}:{self.port}"

    @property
    def bootstrap_wire(self) -> str:
        """Where clients connect whose network a test disturbs."""
        return f"{HOST}:{self.wire_port}"

    @property
    def bootstrap_login(self) -> str:
        """Where clients connect with a login."""
        return f"{HOST}:{self.login_port}"

    def prepare(self) -> None:
        """Choose ports, write the settings and format the data folder."""
        ports: set[int] = set()
        while len(ports) < 5:
            ports.add(free_port())
        self.port, self.wire_port, self.behind_port, self.login_port, controller = ports
        settings = SETTINGS.format(
            host=HOST, port=self.port, wire=self.wire_port, behind=self.behind_port,
            login=self.login_port, controller=controller, folder=self.folder,
            reader=READER, password=PASSWORD,
        )  # fmt: skip
        (self.folder / "server.properties").write_text(settings, "utf-8")
        (self.folder / "log4j2.properties").write_text(LOG4J.format(level="info"), "utf-8")
        if self.cluster_id:  # another try, with other ports
            return
        self.cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        done = subprocess.run(
            [
                *self._jvm("256m"), "kafka.tools.StorageTool", "format",
                f"--cluster-id={self.cluster_id}", "-c", str(self.folder / "server.properties"),
            ],
            capture_output=True, text=True, timeout=self.start_wait_s_max, check=False,
        )  # fmt: skip
        if done.returncode:
            raise ServerFailed("Kafka's storage could not be formatted", done.stdout + done.stderr)

    def command(self) -> list[str]:
        """Return the broker's command line."""
        return [*self._jvm(self._heap), "kafka.Kafka", str(self.folder / "server.properties")]

    def ready(self) -> bool:
        """Say whether the broker has said that it is up."""
        return "Kafka Server started" in self.log_text()

    def _jvm(self, heap: str) -> list[str]:
        return jvm(self._java, self._jars, heap, self.folder / "log4j2.properties")


def jvm(program: str, jars: list[Path], heap: str, log4j: Path) -> list[str]:
    """Return the beginning of a Java command line; the class path comes by an argument file."""
    listing = log4j.with_name("class-path.args")
    listing.write_text("-cp\n" + ":".join(f"{path}" for path in jars) + "\n", "utf-8")
    return [
        program, f"-Xmx{heap}", "-Xms128m", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError",
        f"-Dlog4j2.configurationFile={log4j.as_uri()}", f"@{listing}",
    ]  # fmt: skip
