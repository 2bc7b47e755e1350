"""Every ready spec runs as it is on real servers; the commands in it and on its page answer."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyspark.sql
import pytest

import odi_audit as odi
from jobs.runner.choose import worker_of
from jobs.runner.loop import Until, run_job
from jobs.runner.outcome import Done
from jobs.sources.base import Limits
from jobs.spec import load_spec, parse_spec
from jobs.spec.model import JobSpec
from odi_audit.cli.app import run as cli
from odi_audit.query.offsets import continuity
from odi_audit.query.verify import verify
from odi_audit.spark.session import session_in
from odi_audit.workspace import Workspace
from tests.stack.conftest import up
from tests.support import patterns
from tests.support.independent import Eyes
from tests.support.servers.debezium import Captured
from tests.support.servers.kafka import Kafka
from tests.support.servers.registry import Registry
from tests.support.servers.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READY = Path(__file__).parents[2] / "jobs/ready"
SPECS = sorted(path.stem for path in READY.glob("*.yaml"))
COMMAND = re.compile(r"^#   (odi-audit .*)$", re.MULTILINE)
FIRST = {"05-near-real-time": "04-dual-table", "03-micro-batch": "04-dual-table",
         "07-correction": "03-micro-batch", "17-consumers": "03-micro-batch"}  # fmt: skip
"""Specs that follow the tables, or read the topic, of another one."""
ARCHIVED = 1000
SHIPMENT = {
    "type": "record",
    "name": "Shipment",
    "fields": [{"name": "id", "type": "long"}, {"name": "city", "type": ["null", "string"]}],
}
TIME = "2026-03-01T%02d:00:00Z"


@dataclass
class Stage:
    """One lake, the servers, and the specs that have been run on them."""

    lake: Workspace
    kafka: Kafka
    registry: Registry
    captured: Captured
    folder: Path
    done: dict[str, list[Done]] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)
    moment: str = ""
    customers: bool = False

    @property
    def topics(self) -> Topics:
        return Topics(self.kafka.bootstrap)

    @property
    def env(self) -> dict[str, str]:
        return {
            "KAFKA": self.kafka.bootstrap,
            "REGISTRY": self.registry.url,
            "INBOX": str(self.folder / "inbox"),
            "ARCHIVE": str(self.folder / "archive"),
            "WINDOW_FROM": "2026-03-01",
            "WINDOW_TO": "2026-03-02",
        }

    def fill(self, topic: str, *rows: dict[str, Any] | bytes) -> None:
        values = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
        self.topics.fill(topic, values, partition=0)

    def run(self, name: str) -> list[Done]:
        """Run a spec to the end of its source, once for all tests; what it needs runs before."""
        if name not in self.done:
            if name in FIRST:
                self.run(FIRST[name])
            self.done[name] = []
            PRODUCE[name](self)
            self.run_again(name)
        return self.done[name]

    def run_again(self, name: str) -> None:
        self._run(name, load_spec(READY / f"{name}.yaml", self.env), READY)

    def run_page(self, page: str) -> list[Done]:
        """Run the spec that a page shows in whole."""
        if page not in self.done:
            self.done[page] = []
            text, env = PAGE_PRODUCE[page](self, str(patterns.spec_on(page)))
            self._run(page, parse_spec(text, env), self.folder / page)
        return self.done[page]

    def _run(self, name: str, spec: JobSpec, folder: Path) -> None:
        with odi.run(spec.job, lake=self.lake) as run:
            run_job(
                run,
                worker_of(spec, folder=folder),
                Limits(rows=spec.batch.rows),
                until=Until(drained=True),
                tell=self.done[name].append,
            )


@pytest.fixture(scope="module")
def stage(
    _kafka: Kafka,
    _registry: Registry,
    _captured: Captured,
    jvm: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("ready")
    with Workspace.init(folder / "lake", token="00000001") as lake:
        lake.use_spark(session_in(jvm, lake.settings))
        up(_captured.connect)
        yield Stage(lake, up(_kafka), up(_registry), _captured, folder)


# -- what each spec is given to read -----------------------------------------------------------


def clicks(stage: Stage) -> None:
    stage.topics.create("clicks")
    rows = [{"click_id": n, "visitor": "v", "page": "/", "ts": TIME % n} for n in range(5)]
    stage.fill("clicks", *rows, b"no json")


def customers(stage: Stage) -> None:
    if stage.customers:
        return
    stage.customers = True
    server, topic = stage.captured.server, "shop.public.customers"
    database = server.new_database()
    with server.admin(database) as connection:
        connection.execute("CREATE TABLE customers (id bigint PRIMARY KEY, name text)")
        connection.execute("INSERT INTO customers VALUES (42, 'Ada'), (43, 'Grace')")
        stage.captured.capture("shop", database, "public.customers")
        stage.topics.read(topic, 2)
        connection.execute("UPDATE customers SET name = 'Ada L.' WHERE id = 42")
        connection.execute("DELETE FROM customers WHERE id = 43")
        stage.topics.read(topic, 4)  # and a tombstone behind the delete


def orders(stage: Stage) -> None:
    stage.topics.create("orders")
    rows = [
        {"order_id": n % 4, "status": "void" if n == 7 else "new", "amount": n, "ts": TIME % n}
        for n in range(8)
    ]
    stage.fill("orders", *rows)


def nothing(stage: Stage) -> None:
    """Read what another spec's source has."""


def payments(stage: Stage) -> None:
    rows = [{"payment_id": n, "order_id": n, "amount": 1, "ts": TIME % 1} for n in range(1010)]
    stage.topics.create("payments")
    stage.fill("payments", *rows)
    archive = stage.folder / "archive"
    archive.mkdir()
    lines = ["payment_id,order_id,amount,ts", *(f"{n},{n},1,{TIME % 1}" for n in range(ARCHIVED))]
    written(archive / "old.csv", lines)


def written(path: Path, lines: list[str]) -> None:
    """Write a file as if that had been a while ago: one that is still growing is left alone."""
    path.write_text("\n".join(lines) + "\n", "utf-8")
    os.utime(path, (1_790_000_000, 1_790_000_000))


def sales(stage: Stage) -> None:
    stage.run_again("07-correction")
    stage.moment = datetime.now(UTC).isoformat()
    stage.fill("orders", {"order_id": 9, "status": "new", "amount": 100, "ts": TIME % 9})
    stage.run_again("03-micro-batch")


def events(stage: Stage) -> None:
    stage.topics.create("events")
    stage.fill("events", *({"event_id": n, "body": "b"} for n in range(20)))


def devices(stage: Stage) -> None:
    stage.topics.create("devices")
    stage.fill("devices", {"id": 1}, {"id": 2, "t": 1.5}, {"id": "three"})


def shop_topics(stage: Stage) -> None:
    for name in ("shop_a", "shop_b"):
        stage.topics.create(name)
        stage.fill(name, {"id": 1, name: 1})


def audit(stage: Stage) -> None:
    stage.topics.create("audit")
    stage.fill("audit", {"kind": "login", "who": "a"}, {"kind": "logout", "who": "a"})


def shipments(stage: Stage) -> None:
    level = {"compatibility": "FULL_TRANSITIVE"}
    assert stage.registry.ask("PUT", "/config/shipments-value", level)[0] == 200
    number = stage.registry.register("shipments-value", SHIPMENT)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(SHIPMENT), {"id": 1, "city": "Rome"})
    stage.topics.create("shipments")
    stage.fill("shipments", b"\0" + number.to_bytes(4, "big") + out.getvalue())


def invoices(stage: Stage) -> None:
    stage.topics.create("invoices")
    good = {"invoice_id": 1, "customer": "c", "amount": 5, "currency": "EUR", "ts": TIME % 1}
    stage.fill(
        "invoices",
        good,
        {**good, "invoice_id": 2, "amount": -5},
        {**good, "invoice_id": 3, "currency": "XXX"},
        {**good, "invoice_id": 4, "strange": 1},
    )


def readings(stage: Stage) -> None:
    inbox = stage.folder / "inbox"
    inbox.mkdir()
    rows = [{"sensor": f"s{n % 3}", "reading": n / 2, "ts": TIME % (n % 3)} for n in range(30)]
    written(inbox / "one.json", [json.dumps(row) for row in rows])


def closing(stage: Stage) -> None:
    stage.lake.spark().sql("ALTER TABLE lake.shop.orders_events CREATE TAG closing")
    stage.fill("orders", {"order_id": 11, "status": "new", "amount": 7, "ts": TIME % 9})
    stage.run_again("03-micro-batch")


def returns(stage: Stage, text: str) -> tuple[str, dict[str, str]]:
    (stage.folder / "files/inbox").mkdir(parents=True)
    lines = ["order_id;customer;amount;at", *(f"{n};c;1.50;{TIME % 1}" for n in range(20)), "x;c;;"]
    written(stage.folder / "files/inbox/returns.csv", lines)
    return text, {}


def stock(stage: Stage, text: str) -> tuple[str, dict[str, str]]:
    server = stage.captured.server
    database = server.new_database()
    with server.admin(database) as connection:
        connection.execute(
            "CREATE TABLE stock (item_id int PRIMARY KEY, updated_at timestamptz); "
            "INSERT INTO stock "
            "SELECT n, now() - n * interval '1 hour' FROM generate_series(1, 20) AS n"
        )
    text = text.replace("db:5432/shop", f"{server.host}:{server.port}/{database}")
    return text.replace("user: reader", "user: postgres"), {"SHOP_PASSWORD": server.password}


PAGE_PRODUCE: dict[str, Callable[[Stage, str], tuple[str, dict[str, str]]]] = {
    "files": returns, "jdbc": stock,
}  # fmt: skip
PRODUCE: dict[str, Callable[[Stage], None]] = {
    "01-append": clicks, "02-cdc-history": customers, "02-cdc-mirror": customers,
    "03-micro-batch": nothing, "04-dual-table": orders, "05-near-real-time": nothing,
    "06-bootstrap": payments, "07-correction": sales, "08-exactly-once": events,
    "09-schema-evolution": devices, "10-fan-out": shop_topics, "11-table-creation": audit,
    "12-schema-registry": shipments, "13-contract": invoices, "14-file-sizing": readings,
    "17-consumers": closing,
}  # fmt: skip
EXPECTED: dict[str, dict[str, int]] = {
    "01-append": {"shop.clicks": 5, "shop.clicks_dead": 1},
    "02-cdc-history": {"shop.customers_history": 3},
    "02-cdc-mirror": {"shop.customers": 1},
    "06-bootstrap": {"shop.payments": 1010},
    "07-correction": {"shop.daily_sales": 1},
    "08-exactly-once": {"shop.events": 20},
    "09-schema-evolution": {"shop.devices": 2, "shop.devices_dead": 1},
    "10-fan-out": {"landing.shop_a": 1, "landing.shop_b": 1},
    "11-table-creation": {"audit.event_login": 1, "audit.event_logout": 1},
    "12-schema-registry": {"shop.shipments": 1},
    "13-contract": {"shop.invoices": 1, "shop.invoices_dead": 3},
    "14-file-sizing": {"shop.sensor_readings": 30},
    "17-consumers": {"finance.monthly_orders": 1},
}


def test_each_ready_spec_has_a_test() -> None:
    assert set(PRODUCE) == set(SPECS)


@pytest.mark.parametrize("name", SPECS)
def test_a_ready_spec_runs_and_its_auditors_command_answers(
    stage: Stage, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = stage.run(name)
    assert done, "no batch landed"
    eyes = Eyes.on(stage.lake.root)
    for table, rows in EXPECTED.get(name, {}).items():
        assert len(eyes.rows(table)) == rows, table
    if name == "04-dual-table":
        held = {row[0] for row in eyes.rows("shop.orders", columns=["order_id"])}
        assert held == {0, 1, 2}, "an order that is void is not among the current ones"
        assert len(eyes.rows("shop.orders_raw")) == 8
    for key, value in stage.env.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("ODI_LAKE", str(stage.lake.root))
    monkeypatch.chdir(READY.parents[1])
    commands = COMMAND.findall((READY / f"{name}.yaml").read_text("utf-8"))
    assert commands
    for command in commands:
        for part in command.split("&&"):
            words = shlex.split(part.replace("BATCH", done[-1].receipt.batch))[1:]
            words = [stage.moment if word.startswith("2026-04") else word for word in words]
            assert cli(words) == 0, (part, capsys.readouterr())
            assert capsys.readouterr().out.strip(), part


@pytest.mark.parametrize("page", patterns.PAGES)
def test_the_commands_on_a_page_answer_on_a_lake_that_its_spec_has_written(
    stage: Stage, page: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = patterns.ready_spec_of(page)
    done = stage.run_page(page) if name is None else stage.run(name)
    for key, value in {**stage.env, "ODI_LAKE": str(stage.lake.root)}.items():
        monkeypatch.setenv(key, value)
    monkeypatch.chdir(READY.parents[1])
    # What needs Spark takes the one of this process.
    monkeypatch.setattr(pyspark.sql.SparkSession, "getActiveSession", stage.lake.spark)
    stands_for = {"BATCH": done[-1].receipt.batch, "SPEC": f"jobs/ready/{name}.yaml"}
    ran = 0
    for command in patterns.commands_on(page):
        if command in patterns.LEFT_OUT:
            continue
        words = [stands_for.get(word, word) for word in patterns.words_of(command)]
        if "SNAPSHOT" in words:
            before = Eyes.on(stage.lake.root).history(words[1])[1]["snapshot-id"]
            words = [str(before) if word == "SNAPSHOT" else word for word in words]
        ran += 1
        if shlex.join(words) not in stage.answered:
            assert cli(words) == 0, (command, capsys.readouterr())
            assert capsys.readouterr().out.strip(), command
            stage.answered.add(shlex.join(words))
    assert ran, "no command of the page was run"


def test_after_all_of_them_the_ledger_and_the_tables_agree(stage: Stage) -> None:
    for name in SPECS:
        stage.run(name)
    assert not verify(stage.lake.ledger(), stage.lake.catalog())
    assert not continuity(stage.lake.ledger()).events
