"""The servers of the stack tests do what the tests of the product rely on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.support.servers import artifacts
from tests.support.servers.debezium import Captured
from tests.support.servers.kafka import PASSWORD, READER, Kafka
from tests.support.servers.process import Server, ServerFailed
from tests.support.servers.registry import Registry
from tests.support.servers.topics import QUIET, Topics
from tests.support.servers.toxiproxy import Toxiproxy

ROOT = Path(__file__).parents[2]
V1 = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
ADDS_FIELD = {
    **V1,
    "fields": [*V1["fields"], {"name": "note", "type": ["null", "string"], "default": None}],
}
NARROWS = {**V1, "fields": [{"name": "id", "type": "boolean"}]}

ENVELOPE = {"after", "before", "op", "source", "transaction", "ts_ms", "ts_ns", "ts_us"}
SOURCE = {
    "connector", "db", "lsn", "name", "origin", "origin_lsn", "schema", "sequence", "snapshot",
    "table", "ts_ms", "ts_ns", "ts_us", "txId", "version", "xmin",
}  # fmt: skip
"""What every event of Debezium 3.6 for PostgreSQL has."""


class Sleeper(Server):
    """The least that a server can be."""

    name = "sleeper"

    def prepare(self) -> None:
        pass

    def command(self) -> list[str]:
        return ["sleep", "600"]

    def ready(self) -> bool:
        return self.pid > 0


def numbered(first: int, before: int) -> list[bytes]:
    return [json.dumps({"n": number}).encode() for number in range(first, before)]


def test_ten_thousand_messages_outlive_a_broker_that_is_killed(kafka: Kafka) -> None:
    topics = Topics(kafka.bootstrap)
    topics.create("survives", partitions=2)
    topics.fill("survives", numbered(0, 5_000))
    cluster, pid = kafka.cluster_id, kafka.pid
    kafka.restart(crash=True)
    assert kafka.pid != pid
    topics.fill("survives", numbered(5_000, 10_000))
    found = topics.read("survives", 10_000)
    assert sorted(json.loads(m.value() or b"")["n"] for m in found) == list(range(10_000))
    admin = AdminClient({**QUIET, "bootstrap.servers": kafka.bootstrap})
    assert admin.describe_cluster().result(30).cluster_id == cluster


def test_the_listener_with_a_login_knows_a_wrong_password(kafka: Kafka) -> None:
    def ask(password: str) -> int:
        conf = {
            "bootstrap.servers": kafka.bootstrap_login, "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN", "sasl.username": READER, "sasl.password": password,
        }  # fmt: skip
        return len(AdminClient({**QUIET, **conf}).list_topics(timeout=5).brokers)

    assert ask(PASSWORD) == 1
    with pytest.raises(KafkaException):
        ask("wrong")


def test_a_broker_behind_the_proxy_is_slow_and_gone_when_the_test_says_so(
    kafka: Kafka, toxiproxy: Toxiproxy
) -> None:
    wire = {**QUIET, "bootstrap.servers": kafka.bootstrap_wire}

    def took() -> float:
        client, start = AdminClient(wire), time.monotonic()
        client.list_topics(timeout=20)
        return time.monotonic() - start

    with toxiproxy.proxy("kafka", listen=kafka.wire_port, upstream=kafka.behind_port):
        took()
        with toxiproxy.toxic("kafka", "latency", latency=700):
            assert took() > 0.7
        with toxiproxy.down("kafka"), pytest.raises(KafkaException):
            AdminClient(wire).list_topics(timeout=1)
        took()


def test_the_registry_keeps_schemas_and_refuses_what_does_not_fit(registry: Registry) -> None:
    first = registry.register("orders-value", V1)
    assert registry.register("orders-value", V1) == first
    level = {"compatibility": "FULL_TRANSITIVE"}
    assert registry.ask("PUT", "/config/orders-value", level)[0] == 200
    path = "/compatibility/subjects/orders-value/versions/latest"
    fits = registry.ask("POST", path, {"schema": json.dumps(ADDS_FIELD)})
    assert fits == (200, {"is_compatible": True})
    status, told = registry.ask("POST", path, {"schema": json.dumps(NARROWS)})
    assert status == 200
    assert isinstance(told, dict)
    assert told["is_compatible"] is False
    with pytest.raises(RuntimeError, match="409"):
        registry.register("orders-value", NARROWS)
    second = registry.register("orders-value", ADDS_FIELD)
    assert second != first
    registry.restart(crash=True)
    status, kept = registry.ask("GET", f"/schemas/ids/{second}")
    assert status == 200
    assert isinstance(kept, dict)
    assert json.loads(kept["schema"])["fields"][1]["name"] == "note"


def test_changes_of_a_table_come_as_events_and_go_on_after_a_restart_of_connect(
    debezium_postgres: Captured, kafka: Kafka
) -> None:
    server, connect = debezium_postgres.server, debezium_postgres.connect
    database = server.new_database()
    with server.admin(database) as connection:
        connection.execute(
            "CREATE TABLE orders (id int PRIMARY KEY, customer text, amount numeric)"
        )
        connection.execute("INSERT INTO orders VALUES (1, 'ann', 10.5)")
        debezium_postgres.capture("shop", database, "public.orders")
        topics = Topics(kafka.bootstrap)
        topics.read("shop.public.orders", 1)
        connection.execute("INSERT INTO orders VALUES (2, 'bob', 20)")
        connection.execute("UPDATE orders SET amount = 11 WHERE id = 1")
        connection.execute("DELETE FROM orders WHERE id = 2")
        topics.read("shop.public.orders", 5)
        connect.wait_flushed()
        connect.kill()
        connection.execute("INSERT INTO orders VALUES (3, 'cy', 30)")
        connect.start()
        connect.wait_running("shop")
        connection.execute("TRUNCATE orders")
        found = topics.read("shop.public.orders", 7)
    told = [json.loads(message.value() or b"null") for message in found]
    kinds = [None if event is None else event["op"] for event in told]
    assert kinds == ["r", "c", "u", "d", None, "c", "t"]
    assert told[0]["after"] == {"id": 1, "customer": "ann", "amount": "10.5"}
    assert told[0]["source"]["snapshot"] == "last"
    assert told[2]["after"]["amount"] == "11"
    assert told[3]["before"]["id"] == 2
    assert json.loads(found[4].key() or b"") == {"id": 2}
    assert told[5]["after"] == {"id": 3, "customer": "cy", "amount": "30"}
    assert found[6].key() is None
    lsns = [event["source"]["lsn"] for event in told if event]
    assert lsns == sorted(set(lsns))
    assert all(set(event) == ENVELOPE for event in told if event)
    assert all(set(event["source"]) == SOURCE for event in told if event)
    assert all(event["transaction"]["id"] for event in told[1:4])
    connect.drop("shop")


def test_a_server_that_cannot_start_says_what_it_logged() -> None:
    class Broken(Server):
        name = "broken"

        def prepare(self) -> None:
            pass

        def command(self) -> list[str]:
            return ["/bin/sh", "-c", "echo the disk is on fire; exit 3"]

        def ready(self) -> bool:
            return False

    server = Broken()
    with pytest.raises(ServerFailed, match=r"ended while starting[\s\S]*the disk is on fire"):
        server.start_first()
    assert not server.folder.exists()


def test_servers_go_when_the_test_process_is_killed() -> None:
    owner = textwrap.dedent("""
        import time
        from tests.stack.test_servers import Sleeper
        server = Sleeper()
        server.start()
        print(server.pid, server.folder, flush=True)
        time.sleep(600)
    """)
    check_gone_with(owner)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux does this")
def test_a_server_goes_when_its_guard_is_killed() -> None:
    server = Sleeper()
    server.start()
    try:
        assert server._guard is not None
        server._guard.kill()
        gone(server.pid)
    finally:
        server.remove()


def test_a_server_that_hangs_is_killed_when_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.servers.process.STOP_WAIT_S_MAX", 1)
    server = Sleeper()
    server.start()
    server.pause()
    server.stop()
    gone(server.pid)
    server.start()
    assert server.running
    server.remove()
    assert not server.folder.exists()


def test_the_database_goes_when_the_test_process_is_killed() -> None:
    owner = textwrap.dedent("""
        import time
        from tests.support.servers.debezium import running_database
        with running_database() as server:
            pid = (server.folder / "data" / "postmaster.pid").read_text().split()[0]
            print(pid, server.folder, flush=True)
            time.sleep(600)
    """)
    check_gone_with(owner)


def check_gone_with(owner: str) -> None:
    """Run a program that prints the pid and folder of a server; kill it; both must go."""
    process = subprocess.Popen([sys.executable, "-c", owner], stdout=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None
    pid, folder = process.stdout.readline().split()
    os.kill(int(pid), 0)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    gone(int(pid), Path(folder.decode()))


def gone(pid: int, folder: Path | None = None) -> None:
    """Wait until a process and its folder are not there any more."""
    deadline = time.monotonic() + 10
    while _alive(pid) or (folder is not None and folder.exists()):
        assert time.monotonic() < deadline, f"process {pid} or {folder} is still there"
        time.sleep(0.05)


def test_a_part_is_fetched_by_one_process_at_a_time_and_is_there_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_SERVERS_DIR", str(tmp_path))
    made: list[Path] = []

    def make(scratch: Path) -> None:
        made.append(scratch)
        time.sleep(0.2)
        (scratch / "part").write_text("whole")

    def fail(scratch: Path) -> None:
        (scratch / "part").write_text("half")
        raise RuntimeError("the network is gone")

    with pytest.raises(RuntimeError, match="network"):
        artifacts.whole("thing", fail)
    assert not (tmp_path / "thing").exists()
    with ThreadPoolExecutor(4) as pool:
        made_by = [pool.submit(artifacts.whole, "thing", make) for _ in range(4)]
        found = {path.result() for path in made_by}
    assert found == {tmp_path / "thing"}
    assert len(made) == 1
    assert (tmp_path / "thing" / "part").read_text() == "whole"


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"  # ended, and only waiting to be counted
